"""Runs the built benchmark programs as whole processes: Vulkan on whatever device there is, CUDA faked."""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import mirror  # noqa: E402
import real_programs  # noqa: E402
import stub_prefix  # noqa: E402
from corunlib import feature_verdicts, holes, surroundings, trace  # noqa: E402
from corunlib.matrix import Runner  # noqa: E402
from corunlib.stack import Stack  # noqa: E402
from corunlib.workload import HardwareWorkload  # noqa: E402
from corunlib.xid import NoXidLog  # noqa: E402

BIN = os.environ["BENCH_BIN"]
FAKE_LIBCUDA = os.environ["FAKE_LIBCUDA"]
RENDER = [os.path.join(BIN, "vuda-bench-render"), "--json", "--width", "96", "--height", "64", "--iterations", "10"]
COMPUTE = [os.path.join(BIN, "vuda-bench-compute"), "--json", "--libcuda", FAKE_LIBCUDA, "--iterations", "5"]
BOTH = [
    *[os.path.join(BIN, "vuda-bench-both"), "--json", "--compute-libcuda", FAKE_LIBCUDA, "--compute-iterations", "5"],
    *["--render-width", "96", "--render-height", "64", "--render-iterations", "10"],
]
LIMIT = 60


def run(command, **environment):
    """(exit status, JSON, stderr)"""
    env = dict(os.environ, **environment)
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, env=env)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


class Configurations(unittest.TestCase):
    def test_what_programs_tell_vudad_is_accepted(self):
        with tempfile.TemporaryDirectory() as work:
            done = subprocess.run([os.path.join(BIN, "vudad"), *real_programs.patience(work), "--check-config"], capture_output=True, text=True, timeout=LIMIT, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)


class Programs(unittest.TestCase):
    def test_render_prints_one_line(self):
        status, answer, err = run([*RENDER, "--seconds", "0.2"])
        self.assertEqual((status, err), (0, ""))
        self.assertGreater(answer["frames"], 0)
        self.assertEqual((answer["width"], answer["checksum_errors"], answer["device_lost"]), (96, 0, False))

    def test_render_finds_a_wrong_frame(self):
        status, answer, _ = run([*RENDER, "--seconds", "0.2", "--corrupt-frame", "2"])
        self.assertEqual((status, answer["checksum_errors"]), (1, 1))

    def test_compute_and_its_faults(self):
        status, answer, err = run([*COMPUTE, "--seconds", "0.1"])
        self.assertEqual((status, err), (0, ""))
        self.assertGreater(answer["rate"], 0)
        status, answer, err = run([*COMPUTE, "--seconds", "0.1"], FAKE_CUDA_FAULT_AT="60")
        self.assertEqual((status, answer["device_lost"]), (75, True))
        self.assertIn("CUDA_ERROR_LAUNCH_FAILED", err)
        status, answer, _ = run([*COMPUTE, "--seconds", "0.1"], FAKE_CUDA_LOSE="60")
        self.assertEqual(status, 1)
        self.assertGreater(answer["result_errors"], 0)

    def test_holes_in_the_time_of_compute(self):
        for inside in ("0", "1"):
            status, answer, err = run([*COMPUTE, "--seconds", "0.2", "--report-holes"], FAKE_CUDA_NS="20000", FAKE_CUDA_HOLE_EVERY="20", FAKE_CUDA_HOLE_US="10300", FAKE_CUDA_HOLE_INSIDE=inside)
            self.assertEqual((status, err), (0, ""))
            # Each 20 launches of 0.1 ms, 5 us apart.
            found = holes.metrics(answer["holes"], 10.0)
            self.assertEqual(found["holes_per_frame"], 1.0)
            self.assertAlmostEqual(found["hole_frame_ms"], 10.3 if inside == "1" else 10.305)
            self.assertAlmostEqual(found["compute_bound_percent"], 100 * 2.1 / 12.4, delta=0.1)
        self.assertNotIn("holes", run([*COMPUTE, "--seconds", "0.02"])[1])

    def test_traces_of_paced_programs_are_on_one_clock(self):
        # The words that bench/tuner.py gives.
        steps = HardwareWorkload(None, argparse.Namespace(frame_iterations=None, kernel_iterations=None)).steps(200)
        before = time.monotonic()
        for command, bound in (([*COMPUTE, *steps], 60), ([*RENDER, "--fps", "200", "--report-trace"], 60)):
            status, answer, err = run([*command, "--seconds", "0.2"])
            self.assertEqual((status, err), (0, ""))
            entries = trace.from_answer(answer)
            # 40 on an idle machine; what was missed is not made up for.
            self.assertGreater(len(entries), 1)
            self.assertLess(len(entries), bound)
            ends = [end for end, _ in entries]
            self.assertEqual(ends, sorted(ends))
            self.assertLess(before, ends[0])
            self.assertLess(ends[-1], time.monotonic())
            self.assertTrue(all(ms >= 0 for _, ms in entries))
        self.assertFalse(run([*COMPUTE, *steps, "--seconds", "0.02"])[1]["marked"], "there is no VUDA in it")

    def test_a_programs_own_buffers_in_phases(self):
        program = os.path.join(BIN, "vuda-bench-mirror")
        with tempfile.TemporaryDirectory() as folder:
            words = [program, "user-buffers", "--counts", "1,4", "--bytes", "4096", "--phases", folder]
            for name in ("go-1", "go-2"):
                open(os.path.join(folder, name), "wb").close()
            process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            deadline = time.monotonic() + LIMIT
            while not os.path.exists(os.path.join(folder, "done-2")) and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            open(os.path.join(folder, "end"), "wb").close()
            out, _ = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 0, out)
        phases = json.loads(out)["phases"]
        self.assertEqual([[(one["count"], one["made"]) for one in phase] for phase in phases], [[(1, 1), (4, 4)]] * 2)

    def test_a_programs_own_buffers_beside_one_that_shares(self):
        """bench/mirror.py with the real renderer and a make-believe vudad, which has a program share."""
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, STUB_SECONDS="600"):
            prefix = stub_prefix.make(os.path.join(folder, "prefix"))
            os.remove(os.path.join(prefix, "bin", "vuda-bench-mirror"))
            os.symlink(os.path.join(BIN, "vuda-bench-mirror"), os.path.join(prefix, "bin", "vuda-bench-mirror"))
            options = mirror.parse_arguments(["--counts", "1,8", "--user-bytes", "4096", "--runs", "2"])
            with Stack(prefix, folder) as stack:
                workload = HardwareWorkload(stack, options)
                workload.frame_iterations = workload.kernel_iterations = 5
                answer = mirror.run_user_buffers(Runner(stack, workload, NoXidLog(), 1, folder), options, lambda text: None)
        rows, problems = mirror.user_rows(answer, options)
        self.assertEqual(([row["case"] for row in rows], problems), (["vulkan-buffers-1", "vulkan-buffers-8"], []))
        self.assertEqual(len(answer["phases"]), 4)

    def test_draw_needs_control_buffers_to_map(self):
        status, answer, err = run([os.path.join(BIN, "vuda-bench-mirror"), "draw", *RENDER[1:], "--seconds", "0.1"])
        if answer["driver"].startswith("NVIDIA"):
            self.assertEqual((status, answer["checksum_errors"]), (0, 0))
            self.assertGreater(answer["maps"], 0)
        else:
            self.assertEqual((status, answer["maps"]), (69, 0))
            self.assertIn("no control buffer", err)

    def test_features(self):
        program = [os.path.join(BIN, "vuda-bench-features")]
        listed = run([*program, "--list"])[1]
        known = [case for case in feature_verdicts.WORDS if case not in surroundings.NAMES]
        self.assertEqual([entry["case"] for entry in listed], known, "feature_verdicts.py has words for each case")
        program += ["--libcuda", os.environ["FAKE_FEATURES_CUDA"], "--seconds", "0"]
        with tempfile.TemporaryDirectory() as directory:
            paths = [os.path.join(directory, name) for name in ("ready", "start", "done", "end")]
            gates = [word for path in paths for word in (f"--{os.path.basename(path)}-file", path)]
            for path in (paths[1], paths[3]):
                open(path, "w", encoding="ascii").close()
            status, answer, err = run([*program, "--case", "printf", *gates])
            self.assertEqual((status, answer["outcome"], err), (0, "passed", ""))
            self.assertEqual(sorted(os.listdir(directory)), ["done", "end", "ready", "start"])
        status, answer, err = run([*program, "--case", "launch"], FAKE_CUDA_WRONG="feature_step")
        self.assertEqual((status, answer["outcome"]), (1, "wrong"))
        self.assertIn("words are wrong", err)
        answer = run([*program, "--case", "shared-memory-blocks"], FAKE_CUDA_SHARED="49152")[1]
        found = feature_verdicts.findings("shared-memory-blocks", answer)
        self.assertEqual((found["shared_memory_per_sm"], found["blocks_at_most_8192"], len(found)), (49152, 5, 9))
        status, answer, _ = run([*program, "--case", "cluster"])
        self.assertEqual((status, answer["outcome"]), (77, "skipped"))
        self.assertEqual(run([*program, "--case", "no-such-case"])[:2], (64, None))

    def test_both_sides_of_one_process(self):
        status, answer, _ = run([*BOTH, "--seconds", "0.2"])
        self.assertEqual(status, 0)
        self.assertGreater(answer["renderer"]["frames"], 0)
        self.assertGreater(answer["compute"]["kernels"], 0)
        for side, key in (("render", "renderer"), ("compute", "compute")):
            status, answer, _ = run([*BOTH, "--seconds", "0.1", "--only", side])
            self.assertEqual((status, list(answer)), (0, ["program", key]))

    def test_one_side_that_fails_stops_the_other(self):
        status, answer, _ = run([*BOTH, "--seconds", "0"], FAKE_CUDA_NO_DEVICE="1")
        self.assertNotEqual(status, 0)
        self.assertIn("the other side failed", answer["renderer"]["error"])
        self.assertIn("no CUDA-capable device", answer["compute"]["error"])

    def test_usage_errors(self):
        for command in ([*RENDER, "--width", "0"], [*COMPUTE, "--load", "fast"], [*BOTH, "--only", "audio"]):
            status, answer, err = run(command)
            self.assertEqual((status, answer), (64, None))
            self.assertNotEqual(err, "")

    def test_gate_and_sigterm(self):
        with tempfile.TemporaryDirectory() as directory:
            ready, start = os.path.join(directory, "ready"), os.path.join(directory, "start")
            command = [*RENDER, "--seconds", "0", "--ready-file", ready, "--start-file", start]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
                try:
                    deadline = time.monotonic() + LIMIT
                    while not os.path.exists(ready):
                        self.assertIsNone(program.poll())
                        self.assertLess(time.monotonic(), deadline)
                        time.sleep(0.01)
                    open(start, "w", encoding="ascii").close()
                    # Frames are measured from here on; any number of them will do.
                    program.send_signal(signal.SIGTERM)
                    out, _ = program.communicate(timeout=LIMIT)
                finally:
                    program.kill()
            self.assertEqual(program.returncode, 0)
            self.assertEqual(json.loads(out)["checksum_errors"], 0)

    def test_start_file_that_never_comes(self):
        with tempfile.TemporaryDirectory() as directory:
            start = os.path.join(directory, "start")
            status, answer, _ = run([*COMPUTE, "--start-file", start, "--start-timeout", "0.2"])
            self.assertEqual(status, 70)
            self.assertIn(start, answer["error"])


if __name__ == "__main__":
    unittest.main()
