"""What is left of a measurement that ends before its time: result files, programs, and what it says. With make-believe programs (stub_prefix.py)."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.join(HERE, "..")
sys.path[:0] = [HERE, BENCH, os.path.join(BENCH, "..", "scripts")]
import blas_fit  # noqa: E402
import check_results  # noqa: E402
import corun  # noqa: E402
import features  # noqa: E402
import integrity  # noqa: E402
import mirror  # noqa: E402
import partition as partition_program  # noqa: E402
import real_programs  # noqa: E402
import sliced  # noqa: E402
import tuner  # noqa: E402
import tuner_cost  # noqa: E402
from corunlib import commands, ending, errors, hardware, partition, partition_cost, real, results, rounds, signals, tuning  # noqa: E402
from corunlib.identity import Identity  # noqa: E402
from corunlib.program import Program  # noqa: E402
from stub_rig import StubRig  # noqa: E402

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FACTS = {"gpu": "G", "driver": "D", "cuda": "C", "date": "2026-01-31", "commit": "0123456", "command": "bench/x.py", "runs": 5}
LIMIT = 240  # for what happens sooner or later, on a busy machine


def value(median):
    return {"median": median, "min": median, "max": median}


def some_row(case="c", runs=1, **more):
    return {**results.row(case, "shared", {"renderer_fps": value(1.0)}, runs=runs), **more}


def interrupt_after(count):
    """A patch: SIGTERM to this process when a result file has been written so often."""
    write, left = results.write_whole, [count]

    def write_and_end(path, text):
        write(path, text)
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGTERM)

    return mock.patch.object(results, "write_whole", write_and_end)


def processes_of(folder):
    """Pids of programs from there."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if os.fsencode(folder) in file.read() and int(pid) != os.getpid():
                found.append(int(pid))
    return found


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.path = os.path.join(self.folder, "x.json")

    def file(self, runs=5):
        return results.ResultFile(self.path, "x", {**FACTS, "runs": runs})

    def written(self, name="x.json"):
        path = os.path.join(self.folder, name)
        if name == "x.json":
            self.assertEqual(check_results.check_file(path), [])
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def test_incomplete_until_all_was_measured(self):
        file = self.file()
        file.progress([])
        self.assertEqual(os.listdir(self.folder), [])
        self.assertEqual(file.held(), "no run was complete; x.json was not written")
        file.progress([some_row("a", 2), some_row("a", 1, config="mixed")])
        found = self.written()
        self.assertEqual((found["complete"], found["runs_done"], found["unfinished"]), (False, 1, ["a"]))
        self.assertEqual(file.held(), "x.json is incomplete: 2 rows, of 1 to 2 of 5 runs")
        file.add([some_row("a", 5)])
        found = self.written()
        self.assertEqual((found["complete"], found["runs_done"], found["unfinished"]), (False, 5, []))
        file.add([some_row("b", 3)], "Xid 31")
        found = self.written()
        self.assertEqual((found["complete"], found["runs_done"], found["unfinished"]), (False, 3, ["b"]))
        self.assertEqual([entry["case"] for entry in file.rows], ["a", "b"])

    def test_complete(self):
        file = self.file()
        file.add([some_row(runs=5)])
        file.finish()
        self.assertEqual(self.written()["complete"], True)
        self.assertNotIn("runs_done", self.written())
        self.assertEqual(os.listdir(self.folder), ["x.json"])

    def test_a_complete_file_stays_beside_until_another_is_complete(self):
        old = self.file()
        old.add([some_row("old", 5)])
        old.finish()
        for _ in range(2):
            self.file().progress([some_row("new", 1)])
            self.assertEqual([entry["case"] for entry in self.written()["rows"]], ["new"])
            self.assertEqual([entry["case"] for entry in self.written("x.json.before")["rows"]], ["old"])
        file = self.file()
        file.add([some_row("new", 5)])
        file.finish()
        self.assertEqual(os.listdir(self.folder), ["x.json"])

    def test_merging_with_an_incomplete_file(self):
        cut = self.file()
        cut.add([some_row("a", 5)])
        cut.progress([some_row("b", 2)])
        for again, complete in ((["c"], False), (["b", "c"], True)):
            file = self.file()
            file.keep_other_cases(lambda case, again=again: case in again)
            file.add([some_row(case, 5) for case in again])
            with mock.patch.object(results, "write_whole") as write:
                file.finish()
            found = json.loads(write.call_args.args[1])
            self.assertEqual((found["complete"], found.get("unfinished", [])), (complete, [] if complete else ["b"]))

    def test_rows_of_files_of_before_are_of_all_runs(self):
        row = some_row("a")
        del row["runs"]
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump({**FACTS, "experiment": "x", "rows": [row]}, file)
        file = self.file()
        file.keep_other_cases(lambda case: False)
        file.progress([some_row("b", 2)])
        self.assertEqual([entry["runs"] for entry in self.written()["rows"]], [5, 2])

    def test_a_write_that_fails_leaves_what_was_there(self):
        results.write_whole(self.path, "before")
        for step in ("os.fsync", "os.replace"):
            with mock.patch("corunlib.results." + step, side_effect=OSError("disk full")), self.assertRaises(OSError):
                results.write_whole(self.path, "after")
            with open(self.path, encoding="utf-8") as file:
                self.assertEqual(file.read(), "before")
            self.assertEqual(os.listdir(self.folder), ["x.json"])

    def test_it_takes_its_name_when_it_is_whole(self):
        seen = []

        def replace(source, target):
            with open(source, encoding="utf-8") as file:
                seen.append((os.path.dirname(source), file.read(), os.path.exists(target)))

        with mock.patch("corunlib.results.os.replace", replace):
            results.write_whole(self.path, "text")
        self.assertEqual(seen, [(self.folder, "text", False)])

    def test_single_runs_are_lines(self):
        document = {"a": [1, 2], "measured": [{"run": 1, "programs": {"x": {"rate": 1.5}}}, {"run": 2, "failed": "no"}]}
        text = results.text_of(document)
        self.assertEqual(json.loads(text), document)
        self.assertIn('\n    {"run": 2, "failed": "no"}\n', text)
        self.assertEqual(json.loads(results.text_of({"a": 1, "measured": []})), {"a": 1, "measured": []})


class Signals(unittest.TestCase):
    def test_one_is_heard_and_what_was_before_comes_back(self):
        before = signal.getsignal(signal.SIGTERM)
        with signals.heard():
            with self.assertRaises(errors.Interrupted) as caught:
                os.kill(os.getpid(), signal.SIGTERM)
            self.assertEqual((caught.exception.status, str(caught.exception)), (143, "ended by SIGTERM"))
            os.kill(os.getpid(), signal.SIGTERM)  # it is on its way out
        self.assertEqual(signal.getsignal(signal.SIGTERM), before)

    def test_what_must_be_whole_is_whole(self):
        done = []
        with signals.heard(), self.assertRaises(errors.Interrupted):
            with signals.uninterrupted():
                with signals.uninterrupted():
                    os.kill(os.getpid(), signal.SIGTERM)
                done.append("inner")
            done.append("not reached")
        self.assertEqual(done, ["inner"])

    def test_a_signal_while_a_file_is_written(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        path = os.path.join(folder, "x.json")
        with signals.heard(), mock.patch("corunlib.results.os.fsync", lambda number: os.kill(os.getpid(), signal.SIGTERM)), self.assertRaises(errors.Interrupted):
            results.write_whole(path, "text")
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "text")
        self.assertEqual(os.listdir(folder), ["x.json"])

    def test_a_signal_while_a_program_is_looked_at(self):
        """Seen: it came where subprocess had taken the lock of the process and was not yet about to let go of it. Nobody could wait for the end any more."""

        class Lock:
            def __init__(self, lock, heard):
                self.lock, self.release = lock, lock.release
                self.__enter__, self.__exit__ = lock.__enter__, lock.__exit__
                self.heard = heard

            def acquire(self, *words):
                taken = self.lock.acquire(*words)
                os.kill(os.getpid(), signal.SIGTERM)
                self.heard.append(taken)
                return taken

        folder = self.enterContext(tempfile.TemporaryDirectory())
        for look in (Program.alive, Program.kill):
            taken = []
            with signals.heard():
                program = Program("p", ["/bin/sleep", "600"], folder, Identity())
                lock = program._process._waitpid_lock
                program._process._waitpid_lock = Lock(lock, taken)
                with self.assertRaises(errors.Interrupted):
                    look(program)
                self.assertFalse(lock.locked())
                program._process._waitpid_lock = lock
                program.kill()
            self.assertFalse(program.alive())
            self.assertTrue(taken)

    def test_a_signal_while_a_command_is_waited_for(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        path = os.path.join(folder, "done")
        with signals.heard(), self.assertRaises(errors.Interrupted):
            commands.run(["/bin/sh", "-c", 'kill -TERM "$1"; sleep 0.2; : > "$2"', "sh", str(os.getpid()), path], check=True)
        self.assertTrue(os.path.exists(path))

    def test_nobody_waits_for_a_command_otherwise(self):
        """What is ended by signals. tuner_sim.py has nothing to put in order."""
        found = []
        for folder in (BENCH, os.path.join(BENCH, "corunlib")):
            for name in set(os.listdir(folder)) - {"commands.py", "program.py", "tuner_sim.py"}:
                if name.endswith(".py"):
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        found += [name for line in file if re.search(r"\bsubprocess\.(?!TimeoutExpired)", line)]
        self.assertEqual(found, [])

    def test_what_is_ignored_stays_so(self):
        self.addCleanup(signal.signal, signal.SIGHUP, signal.signal(signal.SIGHUP, signal.SIG_IGN))
        with signals.heard():
            os.kill(os.getpid(), signal.SIGHUP)

    def test_an_ending_says_what_there_is(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())

        def body():
            file = results.ResultFile(os.path.join(folder, "x.json"), "x", FACTS)
            file.progress([some_row(runs=2)])
            results.ResultFile(None, "y", FACTS).progress([some_row()])
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError("not reached")

        # A job in the background is started with SIGINT ignored.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        with contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(ending.orderly("p", body), 130)
        self.assertEqual(err.getvalue(), "p: x.json is incomplete: 1 rows, of 2 of 5 runs\np: ended by SIGINT\n")


    def test_an_ending_by_what_nobody_expected(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        path = os.path.join(folder, "x.json")

        def body():
            results.ResultFile(path, "x", FACTS).progress([some_row(runs=2)])
            raise KeyError("tsgs")

        with contextlib.redirect_stderr(io.StringIO()) as err, self.assertRaises(KeyError):
            ending.orderly("p", body)
        self.assertIn("p: x.json is incomplete", err.getvalue())
        with open(path, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["stopped"], "'tsgs'")

    def test_an_ending_leaves_no_program(self):
        """Whoever started it and could not end it."""
        folder = self.enterContext(tempfile.TemporaryDirectory())
        for raised in (None, errors.RunFailed("x")):
            started = []

            def body():
                started.append(Program("p", ["/bin/sleep", "600"], folder, Identity()))
                if raised:
                    raise raised
                os.kill(os.getpid(), signal.SIGTERM)

            with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(errors.RunFailed):
                ending.orderly("p", body)
            self.assertFalse(started[0].alive())


class Tools(StubRig):
    """Programs that measure, ended by a signal to this process."""

    def result(self, name):
        path = os.path.join(self.output, name + ".json")
        self.assertEqual(check_results.check_file(path), [])
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def ended(self, program, name, *words, patch=None, **environment):
        """The result file and stderr of a program that is ended by a signal."""
        argv = ["--bin", self.prefix, "--output", self.output, "--commit", COMMIT, *words]
        with mock.patch("corunlib.program._TERM_SECONDS", 0.2), mock.patch.object(corun, "open_xid_log", lambda options, stack: hardware.NoXidLog()):
            status, _, err = self.run_program(program.main, argv, environment, patch or contextlib.nullcontext())
        self.assertEqual(status, 143, err)
        self.assertEqual(processes_of(self.prefix), [])
        self.assertEqual([file for file in os.listdir(self.output) if file.endswith(".new")], [])
        found = self.result(name)
        self.assertEqual((found["complete"], found["stopped"]), (False, "ended by SIGTERM"))
        self.assertIn(f"{name}.json is incomplete: ", err)
        self.assertEqual(check_results.main([self.output]), 0)
        return found, err

    def test_corun_between_runs(self):
        found, err = self.ended(corun, "corun", "--cases", "two-process,one-process", "--runs", "3", "--seconds", "0.02", patch=interrupt_after(7))
        self.assertEqual([(row["config"], row["runs"]) for row in found["rows"]], list(zip(("alone-renderer", "alone-compute", "time-slicing", "shared", "partitioned"), (2, 2, 1, 1, 1))))
        self.assertEqual((found["runs"], found["runs_done"], found["unfinished"]), (3, 1, ["two-process"]))
        self.assertIn("corun: corun.json is incomplete: 5 rows, of 1 to 2 of 3 runs\n", err)

    def test_corun_in_the_midst_of_a_run(self):
        found, _ = self.ended(corun, "corun", "--cases", "two-process", "--runs", "3", "--seconds", "0.02", STUB_SIGNAL=str(os.getpid()))
        self.assertEqual([row["config"] for row in found["rows"]], ["alone-renderer", "alone-compute", "time-slicing"])

    def test_corun_before_anything_was_complete(self):
        status, _, err = self.run_program(
            corun.main,
            ["--bin", self.prefix, "--output", self.output, "--commit", COMMIT, "--ignore-xids"],
            {},
            mock.patch.object(rounds, "measure", lambda *words: os.kill(os.getpid(), signal.SIGTERM)),
        )
        self.assertEqual(status, 143)
        self.assertIn("corun: no run was complete; corun.json was not written\n", err)
        self.assertEqual(os.listdir(self.output), [])

    def test_costs(self):
        found, _ = self.ended(corun, "costs", "--cases", "attach-cost", "--attach-runs", "3", patch=interrupt_after(2))
        self.assertEqual([(row["case"], row["config"], row["runs"]) for row in found["rows"]], [("attach-cost-quiet", config, runs) for config, runs in (("alone-compute", 3), ("time-slicing", 2), ("shared", 2))])

    def test_features(self):
        cases = [{"case": name, "risk": "plain", "split": False} for name in ("launch", "printf")]
        found, _ = self.ended(features, "features", "--runs", "2", patch=interrupt_after(4), STUB_LIST=json.dumps(cases))
        self.assertEqual([(row["case"], row["config"], row["runs"]) for row in found["rows"]][:3], [("launch", "alone-compute", 1), ("printf", "alone-compute", 1), ("launch", "shared", 1)])

    def test_integrity_ends_its_renderer_and_tells_of_its_frames(self):
        found, _ = self.ended(integrity, "integrity", "--no-torch", "--seconds", "60", "--attach-seconds", "0.5", patch=interrupt_after(2), STUB_SECONDS="600")
        rows = {row["case"]: row["metrics"] for row in found["rows"]}
        self.assertEqual((rows["renderer"]["frames_checked"]["median"], rows["all"]["frames_wrong"]["median"]), (50, 0))
        self.assertGreaterEqual(rows["all"]["shared_s"]["median"], 1)
        self.assertIn("60 s are asked for", found["rows"][-1]["note"])

    def test_integrity_before_its_renderer_ended(self):
        seen = []

        def look(path, text):
            seen.append({row["case"]: row for row in json.loads(text)["rows"]})
            if len(seen) == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            write(path, text)

        write = results.write_whole
        self.ended(integrity, "integrity", "--no-torch", "--seconds", "60", "--attach-seconds", "0.5", patch=mock.patch.object(results, "write_whole", look), STUB_SECONDS="600")
        self.assertNotIn("renderer", seen[0])
        self.assertNotIn("frames_checked", seen[0]["all"]["metrics"])
        self.assertIn("has not told of its frames", seen[0]["all"]["note"])


class RealPrograms(StubRig):
    def run_it(self, *words, output=True, patch=None, **environment):
        argv = ["--bin", self.prefix, "--commit", COMMIT, "--seconds", "0.02", "--programs", "sort,scan", "--configs", "alone-native,alone,shared", *words]
        argv += ["--python", os.path.join(self.prefix, "bin", "stub-python"), *(["--output", self.output] if output else [])]
        with mock.patch("corunlib.program._TERM_SECONDS", 0.2):
            return self.run_program(real_programs.main, argv, environment, patch or contextlib.nullcontext())

    def path(self):
        return os.path.join(self.output, "real_programs.json")

    def result(self):
        self.assertEqual(check_results.check_file(self.path()), [])
        with open(self.path(), encoding="utf-8") as file:
            return json.load(file)

    def rows(self):
        return {(row["case"], row["config"]): row for row in self.result()["rows"]}

    def test_what_surrounds_each_configuration(self):
        programs = real._Process._programs
        seen = []

        def look(process, number, config):
            renderer = process.renderer
            with contextlib.ExitStack() as stack:
                state = "none"
                if renderer:
                    state = stack.enter_context(open(f"/proc/{renderer.pid}/stat", encoding="ascii")).read().rsplit(")", 1)[1].split()[0]
            seen.append((config, "stopped" if state == "T" else "draws" if renderer else "none", bool(renderer) and "--register" in renderer.command, process.compute.pid))
            return programs(process, number, config)

        status, _, err = self.run_it("--runs", "1", "--configs", ",".join(real.CONFIGS), patch=mock.patch.object(real._Process, "_programs", look))
        self.assertEqual(status, 0, err)
        self.assertEqual([entry[:3] for entry in seen], [
            ("alone-native", "none", False), ("time-slicing", "draws", False), ("sliced", "draws", True), ("alone", "none", False),
            ("resting", "stopped", True), ("shared", "draws", True), ("mixed", "draws", True)])
        pids = [entry[3] for entry in seen]
        self.assertEqual([pids.index(pid) for pid in pids], [0, 0, 0, 3, 4, 4, 6])
        rows = self.rows()
        self.assertEqual(rows["sort", "sliced"]["metrics"]["percent_of_native"]["median"], 100.0)
        self.assertEqual({name for name, config in rows if config == "shared"}, {"sort", "scan", "renderer"})
        self.assertNotIn(("renderer", "resting"), rows)

    def test_a_program_that_ends_badly_after_its_last_answer_failed(self):
        finish = real.Program.finish

        def badly(program, seconds, guard):
            status, answer = finish(program, seconds, guard)
            return (3 if program.label == "compute" else status), answer

        status, _, err = self.run_it("--runs", "1", "--configs", "alone", patch=mock.patch.object(real.Program, "finish", badly))
        self.assertEqual(status, 1, err)
        self.assertIn("alone, run 1 of 1: FAILED: compute ended with 3", err)

    def cut(self):
        """One round and the beginning of another. Nothing is written after the very first run, which has no row of its own."""
        status, _, err = self.run_it("--runs", "3", patch=interrupt_after(3))
        self.assertEqual(status, 143, err)
        return err

    def test_cut_short(self):
        self.assertIn("real_programs: real_programs.json is incomplete: 5 rows, of 1 of 3 runs\n", self.cut())
        found = self.result()
        self.assertEqual((found["complete"], found["runs"], found["runs_done"]), (False, 3, 1))
        self.assertEqual([(run["config"], run["run"], run["driver"]) for run in found["measured"]], [("alone-native", 1, "1.0"), ("alone", 1, "1.0"), ("shared", 1, "1.0"), ("alone-native", 2, "1.0")])
        self.assertEqual(processes_of(self.prefix), [])

    def test_in_the_midst_of_a_run(self):
        status, _, err = self.run_it("--runs", "3", STUB_SIGNAL=str(os.getpid()))
        self.assertEqual(status, 143, err)
        self.assertEqual([run["config"] for run in self.result()["measured"]], ["alone-native", "alone"])
        self.assertEqual(processes_of(self.prefix), [])

    def test_continued(self):
        self.cut()
        before = self.result()["measured"]
        status, _, err = self.run_it("--runs", "3", "--continue", self.path(), output=False)
        self.assertEqual(status, 0, err)
        # What was there is not measured again, and the round that was cut is made whole first.
        self.assertEqual([line.split(":")[0] for line in err.splitlines() if ", run " in line], [f"{config}, run {run} of 3" for run in (2, 3) for config in ("alone-native", "alone", "shared") if (config, run) != ("alone-native", 2)])
        found = self.result()
        self.assertEqual((found["complete"], found["measured"][:4], len(found["measured"])), (True, before, 9))
        self.assertEqual({row["runs"] for row in found["rows"]}, {3})
        self.assertNotIn("--continue", found["command"])
        self.assertIn("--runs 3", found["command"])

    def test_a_complete_file_gets_more(self):
        self.assertEqual(self.run_it("--runs", "1")[0], 0)
        self.assertEqual(self.run_it("--runs", "2", f"--continue={self.path()}")[0], 0)
        self.assertEqual(self.rows()["sort", "shared"]["runs"], 2)
        self.assertEqual(os.listdir(self.output), ["real_programs.json"])

    def test_medians_are_over_the_runs_of_both_sessions(self):
        self.assertEqual(self.run_it("--runs", "2")[0], 0)
        with open(self.path(), encoding="utf-8") as file:
            document = json.load(file)
        for run in document["measured"]:
            if run["config"] == "shared":
                run["programs"]["sort"]["rate"] = 100.0 * run["run"]
        with open(self.path(), "w", encoding="utf-8") as file:
            json.dump(document, file)
        self.assertIn("its compute_rate is not that of the runs in measured", check_results.check_file(self.path())[0])
        self.assertEqual(self.run_it("--runs", "3", "--continue", self.path())[0], 0)
        self.assertEqual(self.rows()["sort", "shared"]["metrics"]["compute_rate"], {"median": 200.0, "min": 100.0, "max": 1000.0})

    def test_frames_are_those_of_the_first_session(self):
        self.cut()
        asked = []
        calibrations = hardware.HardwareWorkload.calibrations

        def look(workload):
            asked.extend(label for label, *_ in calibrations(workload))
            return calibrations(workload)

        self.run_it("--runs", "3", "--continue", self.path(), patch=mock.patch.object(hardware.HardwareWorkload, "calibrations", look))
        self.assertNotIn("calibrate-render", asked)

    def refused(self, words, *more, **environment):
        with open(self.path(), "rb") as file:
            before = file.read()
        status, _, err = self.run_it("--runs", "3", "--continue", self.path(), *more, **environment)
        self.assertEqual(status, 69)
        self.assertIn(words, err)
        with open(self.path(), "rb") as file:
            self.assertEqual(file.read(), before)

    def test_refused(self):
        self.cut()
        self.refused("it was measured otherwise: seconds: 0.02 there, 0.5 here", "--seconds", "0.5")
        self.refused("programs: sort,scan there, sort here", "--programs", "sort")
        self.refused("configs: ['alone-native', 'alone', 'shared'] there, ['alone'] here", "--configs", "alone")
        self.refused("frame_ms: 10 there, 8.0 here", "--frame-ms", "8")
        self.refused("commit: ", "--commit", COMMIT[::-1])
        with mock.patch.object(corun, "kernel_driver", lambda: "2.0"):
            self.refused("driver: 1.0 there, 2.0 here")
        for key, words in (("gpu", "gpu: other there, Stub GPU here"), ("cuda", "cuda: other there, 13.0 here")):
            with open(self.path(), encoding="utf-8") as file:
                document = json.load(file)
            with open(self.path(), "w", encoding="utf-8") as file:
                json.dump({**document, key: "other"}, file)
            self.refused(words)
            with open(self.path(), "w", encoding="utf-8") as file:
                json.dump(document, file)
        self.refused("it holds 1 runs; --runs says how many there shall be in all", "--runs", "1")

    def test_files_that_cannot_be_continued(self):
        os.mkdir(self.output)
        for text, words in (("{", "Expecting"), ('{"experiment": "corun"}', "it is no result file of real_programs"), ('{"experiment": "real_programs", "rows": []}', "does not hold the values of single runs")):
            with open(self.path(), "w", encoding="utf-8") as file:
                file.write(text)
            self.refused(words)
        os.unlink(self.path())
        status, _, err = self.run_it("--continue", self.path())
        self.assertEqual(status, 69)
        self.assertIn("No such file", err)

    def test_an_xid_keeps_what_was_complete_and_stays_in_the_file(self):
        run = real.SuiteRunner.run
        calls = []

        def run_or_xid(suite, config):
            calls.append(config)
            if len(calls) == 5:
                with open(self.xids, "a", encoding="ascii") as file:
                    file.write("6,1,2,-;NVRM: Xid (PCI:0000:00:04): 31, pid=1, name=stub\n")
                suite.runner.guard()
            return run(suite, config)

        status, _, err = self.run_it("--runs", "3", patch=mock.patch.object(real.SuiteRunner, "run", run_or_xid))
        self.assertEqual(status, 3, err)
        found = self.rows()
        self.assertEqual((found["suite", "alone-compute"]["xids"], found["sort", "shared"]["runs"]), (1, 1))
        self.assertIn("alone, run 2: stopped at Xid 31", found["suite", "alone-compute"]["note"])
        self.assertEqual((self.result()["complete"], self.result()["stopped"][:6]), (False, "Xid 31"))
        os.unlink(self.xids)
        status, out, err = self.run_it("--runs", "3", "--continue", self.path())
        self.assertEqual(status, 1, err)
        self.assertIn("problem: alone, run 2: stopped at Xid 31", out)
        self.assertEqual((self.rows()["suite", "alone-compute"]["xids"], self.rows()["sort", "alone-compute"]["runs"]), (1, 2))


class WithoutPrograms(unittest.TestCase):
    """Tools whose programs have no stand-in here: what they measure is replaced."""

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def ended(self, name, function, *patches):
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            err = stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            self.assertEqual(ending.orderly(name, function), 143)
        self.assertIn("is incomplete", err.getvalue())
        self.assertEqual(check_results.incomplete(os.path.join(self.folder, name + ".json"))[0].rpartition("; ")[2], "ended by SIGTERM")
        path = os.path.join(self.folder, name + ".json")
        self.assertEqual(check_results.check_file(path), [])
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def hardware(self, program, name, *words, patches=(), runner=None):
        def run(_program, options, argv, body, *more):
            body(types.SimpleNamespace(program=lambda name: __file__), runner or types.SimpleNamespace(workload=types.SimpleNamespace(frame_iterations=1)), dict(FACTS))
            raise AssertionError("not ended")

        return self.ended(name, lambda: program.main([*words, "--output", self.folder]), mock.patch.object(hardware, "run", run), *patches)

    @staticmethod
    def two_runs(runner, case, configs, repetitions, say, save):
        """rounds.measure() that is ended in its second case."""
        rows = [results.row(case, next(iter(configs)), {name: value(1.0) for name in (*check_results.RENDERER_METRICS, *check_results.COMPUTE_METRICS)}, runs=2)]
        for name in check_results.COMPUTE_METRICS if rows[0]["config"] == "alone-renderer" else ():
            del rows[0]["metrics"][name]
        save(rows)
        if case.startswith(("draws-100", "dual-slo", "sweep-fragment-q16", "reconfigure")):
            os.kill(os.getpid(), signal.SIGTERM)
        return rows, [], None

    def test_sliced(self):
        found = self.hardware(sliced, "sliced", "--cases", "draws-1,draws-100", patches=[mock.patch.object(rounds, "measure", self.two_runs), mock.patch.object(sliced, "use_draws", lambda *words: None)])
        self.assertEqual(([row["case"] for row in found["rows"]], found["unfinished"]), (["draws-1", "draws-100"], ["draws-100"]))

    def test_partition(self):
        split = types.SimpleNamespace(learn=lambda: None, levels=[8, 16, 64], total=66, trace=[])
        patches = [mock.patch.object(rounds, "measure", self.two_runs), mock.patch.object(partition, "PartitionRunner", lambda *words: split), mock.patch.object(partition_program, "Load", mock.Mock())]
        found = self.hardware(partition_program, "partition", "--cases", "full-quota,sweep-fragment", patches=patches)
        # A sweep is whole with its last level.
        self.assertEqual(([row["case"] for row in found["rows"]], found["unfinished"]), (["full-quota", "sweep-fragment-q8", "sweep-fragment-q16"], ["sweep-fragment-q8", "sweep-fragment-q16"]))

    def test_partition_cost(self):
        runner = types.SimpleNamespace(guard=lambda: None)
        file = results.ResultFile(os.path.join(self.folder, "partition_cost.json"), "partition_cost", FACTS)
        names = {"_launches": lambda *words: {"mask_ns": 1.0}, "_changes": lambda *words: {"quota_change_ms": 1.0}, "_own_changes": lambda *words: os.kill(os.getpid(), signal.SIGTERM)}

        def measure():
            results.opened.append(file)
            partition_cost.measure(runner, None, 1, 5, lambda text: None, file.progress)

        found = self.ended("partition_cost", measure, mock.patch.multiple(partition_cost, **names))
        self.assertEqual([row["case"] for row in found["rows"]], ["launch", "quota-change"])

    def test_tuner(self):
        made = types.SimpleNamespace(learn=lambda: None, levels=[8, 64], total=66, runner=None)
        patches = [mock.patch.object(rounds, "measure", self.two_runs), mock.patch.object(tuning, "TuningRunner", lambda *words: made), mock.patch.object(tuner, "Load", mock.Mock())]
        found = self.hardware(tuner, "tuner", "--starts", "low", patches=patches)
        self.assertEqual(([row["case"] for row in found["rows"]], found["unfinished"]), (["ai-gaming", "dual-slo"], ["dual-slo"]))

    def test_mirror(self):
        times = [{"count": 1, "memory_ms": 1.0, "address_ms": 1.0, "map_ms": 1.0, "map_max_ms": 1.0}]
        answers = iter([{"renderer": {"alone": times, "mirrored": times}, "attach": {"attach_ms": 5.0, "control_buffers": 8, "late": 0.0}}])

        def run_once(*words):
            return next(answers, None) or os.kill(os.getpid(), signal.SIGTERM)

        found = self.hardware(mirror, "mirror", "--counts", "1", patches=[mock.patch.object(mirror, "run_once", run_once)], runner=types.SimpleNamespace(simple=mock.Mock(side_effect=errors.RunFailed("no"))))
        self.assertEqual([(row["case"], row["runs"]) for row in found["rows"]], [("attach", 1), ("buffers-1", 1)])

    def test_blas_fit(self):
        def measure(blas, name, limit):
            return blas_fit.row(name, "alone-compute", {"native_us": value(1.0)}) if name == "bf16-4096" else os.kill(os.getpid(), signal.SIGTERM)

        options = types.SimpleNamespace(output=self.folder, limit=1)
        found = self.ended("blas_fit", lambda: blas_fit.measure_all(None, options, {**FACTS, "runs": 1}), mock.patch.object(blas_fit, "measure", measure))
        self.assertEqual([row["case"] for row in found["rows"]], ["bf16-4096"])

    def test_tuner_cost(self):
        answer = json.dumps({"benchmarks": [{"name": "tick/64/9/0/x", "mean_cpu_us": 1.0, "p50_cpu_us": 1.0, "p99_cpu_us": 1.0, "memory_KiB": 1.0}]})
        answers = iter([types.SimpleNamespace(returncode=0, stdout=answer)])
        options = types.SimpleNamespace(output=self.folder, runs=5, commit=COMMIT)
        patch = mock.patch.object(tuner_cost.commands, "run", lambda *words, **more: next(answers, None) or os.kill(os.getpid(), signal.SIGTERM))
        found = self.ended("tuner_cost", lambda: tuner_cost.measure(options, "/", "/bin/true"), patch)
        self.assertEqual(found["runs_done"], 1)


class FromOutside(StubRig):
    """A whole program, and a signal from somebody else."""

    def start(self):
        words = [sys.executable, "-B", os.path.join(BENCH, "corun.py"), "--bin", self.prefix, "--output", self.output, "--commit", COMMIT, "--ignore-xids"]
        words += ["--cases", "two-process", "--runs", "100000", "--seconds", "0.02"]
        heard = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
        process = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env={**os.environ, "TMPDIR": self.work},
                                   preexec_fn=lambda: [signal.signal(number, signal.SIG_DFL) for number in heard])
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def read(self):
        with open(os.path.join(self.output, "corun.json"), encoding="utf-8") as file:
            return json.load(file)

    def wait_for_rows(self, process):
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(FileNotFoundError):
                if len(self.read()["rows"]) >= 2:  # never half of a file
                    return
            time.sleep(0.01)
        self.fail(f"no file: {process.poll()}")

    def test_each_signal(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            process = self.start()
            self.wait_for_rows(process)
            process.send_signal(number)
            _, err = process.communicate(timeout=LIMIT)
            self.assertEqual(process.returncode, 128 + number, err)
            self.assertIn("corun: corun.json is incomplete: ", err)
            self.assertEqual(check_results.check_file(os.path.join(self.output, "corun.json")), [])
            self.assertEqual((processes_of(self.prefix), os.listdir(self.work)), ([], []))
            os.unlink(os.path.join(self.output, "corun.json"))

    def test_what_nobody_can_hear_leaves_a_file_too(self):
        process = self.start()
        self.wait_for_rows(process)
        process.kill()
        process.wait()
        self.assertEqual(check_results.check_file(os.path.join(self.output, "corun.json")), [])
        self.assertEqual(self.read()["complete"], False)
        for pid in processes_of(self.prefix):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()
