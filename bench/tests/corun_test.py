"""Tests of bench/corun.py with make-believe programs (stub_prefix.py)."""

import contextlib
import io
import json
import os
import sys
import tempfile
import time
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "scripts")]
import check_results  # noqa: E402
import corun  # noqa: E402
import stub_prefix  # noqa: E402
from corunlib import matrix, stats, table, xid  # noqa: E402
from corunlib.errors import CorunError, DeviceLost, RunFailed, XidSeen  # noqa: E402
from corunlib.identity import Identity  # noqa: E402
from corunlib.program import Program  # noqa: E402

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Corun(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.prefix = stub_prefix.make(os.path.join(self.directory.name, "prefix"))
        self.output = os.path.join(self.directory.name, "out")
        self.work = os.path.join(self.directory.name, "work")
        os.mkdir(self.work)

    def corun(self, *arguments, xids=None, **environment):
        """Runs main(); returns (exit status, stdout, stderr)."""
        argv = ["--bin", self.prefix, "--output", self.output, "--commit", COMMIT, "--seconds", "0.02", *arguments]
        if xids is None:
            argv.append("--ignore-xids")
        out, err = io.StringIO(), io.StringIO()
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(os.environ, environment))
            stack.enter_context(mock.patch.object(tempfile, "tempdir", self.work))
            stack.enter_context(contextlib.redirect_stdout(out))
            stack.enter_context(contextlib.redirect_stderr(err))
            if xids is not None:
                stack.enter_context(mock.patch.object(corun, "open_xid_log", lambda *_: xid.FileXidLog(xids)))
            status = corun.main(argv)
        self.assertEqual(os.listdir(self.work), [], "temporary files are left behind")
        return status, out.getvalue(), err.getvalue()

    def result(self, name="corun"):
        path = os.path.join(self.output, name + ".json")
        self.assertEqual(check_results.check_file(path), [])
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def test_matrix_of_two_processes(self):
        status, out, err = self.corun("--cases", "two-process", "--runs", "2")
        self.assertEqual(status, 0, err)
        document = self.result()
        self.assertEqual([row["config"] for row in document["rows"]], list(matrix.CONFIGS))
        self.assertEqual((document["gpu"], document["cuda"], document["runs"]), ("Stub GPU", "13.0", 2))
        shared = document["rows"][3]
        self.assertEqual(shared["metrics"]["renderer_fps"], {"median": 99.0, "min": 99.0, "max": 99.0})
        self.assertIn("8 channels moved, attached in 12.3 ms", shared["note"])
        self.assertIn("99.0 %", out)
        self.assertIn("90.0 %", out)
        self.assertIn("ok     two-process: compute's rate 0.900 of alone", out)
        self.assertIn("partitioned (VUDA)", out)
        self.assertIn("; compute on 2 of 3 TPCs", document["rows"][4]["note"])
        self.assertNotIn("TPCs", shared["note"])
        # Interleaved: every configuration once before any comes again.
        runs = [line for line in err.splitlines() if ", run " in line]
        self.assertEqual([line.split(", ")[1] for line in runs], list(matrix.CONFIGS) * 2)

    def test_log_takes_what_programs_wrote(self):
        log = os.path.join(self.directory.name, "corun.log")
        self.assertEqual(self.corun("--cases", "two-process", "--runs", "1", "--log", log, STUB_REFUSE="1")[0], 1)
        with open(log, encoding="utf-8") as file:
            text = file.read()
        self.assertIn("--- two processes, shared, compute.err\nvudactl: the daemon refused", text)
        self.assertIn("--- vudad\n", text)

    def test_one_process_and_user(self):
        # The user must reach the programs and the work directory.
        os.chmod(self.directory.name, 0o755)
        status, _, err = self.corun("--cases", "one-process,two-process-user", "--runs", "1")
        self.assertEqual(status, 0, err)
        self.assertEqual(
            [(row["case"], row["config"]) for row in self.result()["rows"]],
            [(case, config) for case in ("one-process", "two-process-user") for config in matrix.configs_of(case)],
        )

    def test_programs_that_the_user_cannot_reach_are_copied(self):
        os.chmod(self.directory.name, 0o711)
        os.chmod(self.prefix, 0o700)
        status, _, err = self.corun("--cases", "two-process-user", "--runs", "1")
        self.assertEqual(status, 0, err)

    def test_merge_keeps_other_cases_of_the_same_set_up(self):
        self.assertEqual(self.corun("--cases", "two-process", "--runs", "1")[0], 0)
        self.assertEqual(self.corun("--cases", "one-process", "--runs", "1", "--merge")[0], 0)
        self.assertEqual(len(self.result()["rows"]), 9)
        self.assertEqual(self.corun("--cases", "one-process", "--runs", "2", "--merge")[0], 0)
        self.assertEqual(len(self.result()["rows"]), 4)

    def test_first_xid_stops_everything_and_marks_the_row(self):
        log = os.path.join(self.directory.name, "kmsg")
        start = time.monotonic()
        status, out, _ = self.corun("--cases", "two-process,one-process", "--runs", "3", xids=log, STUB_XID=log)
        self.assertLess(time.monotonic() - start, 60, "the hanging program was not killed")
        self.assertEqual(status, 3)
        rows = self.result()["rows"]
        self.assertEqual({row["case"] for row in rows}, {"two-process"})
        self.assertEqual(rows[-1]["config"], "shared")
        self.assertEqual(rows[-1]["xids"], 1)
        self.assertIn("Xid 31 (PCI:0000:00:04)", rows[-1]["note"])
        self.assertIn("problem: two-process, shared: stopped at Xid 31", out)

    def test_wrong_pixels_are_a_problem(self):
        status, out, _ = self.corun("--cases", "two-process", "--runs", "1", STUB_WRONG_PIXELS="1")
        self.assertEqual(status, 1)
        self.assertIn("problem: two-process, shared: run 1: renderer ended with 1", out)

    def test_lost_device_stops_everything(self):
        status, out, _ = self.corun("--cases", "two-process,one-process", "--runs", "3", STUB_LOST="1")
        self.assertEqual(status, 1)
        self.assertEqual(out.count("the GPU was lost"), 2, out)
        with open(os.path.join(self.output, "corun.json"), encoding="utf-8") as file:
            self.assertEqual([row["config"] for row in json.load(file)["rows"]], list(matrix.CONFIGS[:3]))

    def test_another_image_is_a_problem(self):
        status, out, _ = self.corun("--cases", "two-process", "--runs", "1", STUB_OTHER_IMAGE="1")
        self.assertEqual(status, 1)
        self.assertIn("image checksum 5eed differs from the first run's c0ffee", out)

    def test_refused_sharing_is_never_reported_as_shared(self):
        status, out, _ = self.corun("--cases", "two-process", "--runs", "1", STUB_REFUSE="1")
        self.assertEqual(status, 1)
        self.assertIn("the daemon refused", out)
        with open(os.path.join(self.output, "corun.json"), encoding="utf-8") as file:
            self.assertNotIn("shared", [row["config"] for row in json.load(file)["rows"]])

    def test_hanging_program_is_killed(self):
        with mock.patch.object(matrix, "_SPARE_SECONDS", 0.5), mock.patch("corunlib.program._TERM_SECONDS", 0.2):
            status, out, _ = self.corun("--cases", "two-process", "--runs", "1", STUB_HANG="vuda-bench-render")
        self.assertEqual(status, 1)
        self.assertIn("renderer did not end in", out)

    def test_daemon_that_does_not_start(self):
        status, _, err = self.corun("--cases", "two-process", STUB_NO_VUDAD="1")
        self.assertEqual(status, 69)
        self.assertIn("no GPU, no luck", err)

    def test_two_gpus_are_refused(self):
        status, _, err = self.corun("--cases", "two-process", STUB_CUDA_UUID="GPU-2")
        self.assertEqual(status, 69)
        self.assertIn("GPU-1 and GPU-2", err)

    def test_costs(self):
        status, out, err = self.corun(
            "--cases", "attach-cost,exec-cost,cycles", "--attach-runs", "2", "--cycle-count", "3", STUB_PRELOAD="libm.so.6"
        )
        self.assertEqual(status, 0, err)
        rows = {(row["case"], row["config"]): row for row in self.result("costs")["rows"]}
        self.assertEqual(rows["attach-cost", "shared"]["metrics"]["context_ms"]["median"], 120.0)
        self.assertEqual(rows["attach-cost-quiet", "shared"]["metrics"]["attach_ms"]["max"], 12.0)
        self.assertNotIn("attach_ms", rows["attach-cost", "time-slicing"]["metrics"])
        self.assertIn("ok     attach-cost-quiet: an attached context takes longer by 20.000 ms", out)
        self.assertIn("ok     attach-cost: attaching itself takes, at most 12.000 ms", out)
        self.assertEqual(rows["cycles", "shared"]["note"], "3 cycles of a process each; 50 frames checked, 0 wrong")
        self.assertGreater(rows["exec-cost", "shared"]["metrics"]["exec_ms"]["median"], 0)

    def test_cycles_in_one_process(self):
        status, _, err = self.corun("--cases", "cycles", "--cycle-count", "7", "--cycles-in-process")
        self.assertEqual(status, 0, err)
        self.assertIn("7 cycles in one process", self.result("costs")["rows"][0]["note"])

    def test_simulation_says_so(self):
        status, out, err = self.corun("--sim", "--runs", "1")
        self.assertEqual(status, 0, err)
        self.assertTrue(out.startswith("Simulated GPU:"))
        self.assertEqual(self.result()["gpu"], "simulated GPU 'stub'")
        self.assertNotIn("MISSED", out)

    def test_usage(self):
        for arguments in (["--cases", "three-process"], ["--sim", "--cases", "one-process"], ["--runs", "0"]):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                corun.parse_arguments(["--bin", "x", *arguments])


class Programs(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.work = directory.name

    def start(self, script):
        program = Program("p", ["/bin/sh", "-c", script], self.work, Identity())
        self.addCleanup(program.kill)
        return program

    def test_result_is_the_last_json_line(self):
        self.assertEqual(self.start("echo text; echo '{\"a\": 1}'; echo '{\"a\": 2}'").result(20, lambda: None), {"a": 2})

    def test_failures_say_why(self):
        for script, words in (
            ("echo why >&2; exit 3", "ended with 3 and printed no result: why"),
            ("echo '{\"error\": \"the GPU was lost\"}'; exit 75", "ended with 75: the GPU was lost"),
            ("echo '{broken'", "printed no result"),
        ):
            with self.assertRaisesRegex(RunFailed, words):
                self.start(script).result(20, lambda: None)

    def test_lost_device_is_told_apart(self):
        for answer in ('{"device_lost": true}', '{"renderer": {}, "compute": {"device_lost": true, "error": "CUDA error 719"}}'):
            with self.assertRaises(DeviceLost):
                self.start(f"echo '{answer}'; exit 75").result(20, lambda: None)

    def test_children_are_killed_too(self):
        marker = os.path.join(self.work, "pid")
        program = self.start(f"sleep 600 & echo $! > {marker}.new; mv {marker}.new {marker}; wait")
        program.wait_ready(marker, 20, lambda: None)
        program.kill()
        with open(marker, encoding="ascii") as file:
            child = int(file.read())
        deadline = time.monotonic() + 20
        while os.path.exists(f"/proc/{child}") and "Z" not in _state(child):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_guard_interrupts_waiting(self):
        def guard():
            raise XidSeen("31")

        with self.assertRaises(XidSeen):
            self.start("sleep 600").finish(20, guard)


def _state(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return "Z"


class Pieces(unittest.TestCase):
    def test_xid_lines(self):
        line = "4,1021,5551,-;NVRM: Xid (PCI:0000:00:04): 13, pid=77, name=x, Graphics Exception"
        self.assertEqual(xid.parse_xid(line), "13 (PCI:0000:00:04), pid=77, name=x, Graphics Exception")
        self.assertIsNone(xid.parse_xid("6,1,2,-;NVRM: loading NVIDIA UNIX Open Kernel Module"))

    def test_file_log_takes_whole_lines_once(self):
        with tempfile.NamedTemporaryFile("w") as file:
            log = xid.FileXidLog(file.name)
            self.assertEqual(log.poll(), [])
            file.write("NVRM: Xid (PCI:1): 31")
            file.flush()
            self.assertEqual(log.poll(), [])
            file.write(", x\nother\n")
            file.flush()
            self.assertEqual(log.poll(), ["31 (PCI:1), x"])
            self.assertEqual(log.poll(), ["31 (PCI:1), x"])
            with self.assertRaises(XidSeen):
                log.check()

    def test_unreadable_kernel_log_is_an_error_with_the_remedy(self):
        with self.assertRaisesRegex(CorunError, "--ignore-xids"):
            xid.KernelXidLog("/nonexistent/kmsg")

    def test_summaries(self):
        runs = [{"a": 3.0, "b": 1.0}, {"a": 1.0}, {"a": 2.0}]
        self.assertEqual(
            stats.summaries(runs),
            {"a": {"median": 2.0, "min": 1.0, "max": 3.0}, "b": {"median": 1.0, "min": 1.0, "max": 1.0}},
        )
        self.assertEqual(stats.summaries([]), {})

    def test_table_is_aligned(self):
        lines = table.format_table(["x", "long header"], [["a", 1], ["bb", 22]]).splitlines()
        self.assertEqual(len({len(line) for line in lines}), 1)

    def test_targets(self):
        def entry(config, **metrics):
            return {"case": "c", "config": config, "metrics": {k: {"median": v} for k, v in metrics.items()}, "xids": 0}

        rows = [
            entry("alone-renderer", renderer_fps=100.0),
            entry("alone-compute", compute_rate=1000.0, compute_p99_ms=1.0),
            entry("shared", renderer_fps=97.0, compute_rate=850.0, compute_p99_ms=1.26),
        ]
        self.assertEqual([line.split()[0] for line in table.target_lines("c", rows)], ["MISSED", "ok", "MISSED"])


if __name__ == "__main__":
    unittest.main()
