"""How the programs that measure on a GPU set up and end, with everything that needs one replaced."""

import contextlib
import io
import json
import os
import sys
import tempfile
import types
import unittest
import unittest.mock

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, BENCH)

import partition as partition_program  # noqa: E402
import real_programs  # noqa: E402
import sliced  # noqa: E402
from corunlib import errors, hardware, partition, real, rounds  # noqa: E402

ROWS = [{"case": "draws-1", "config": "target", "metrics": {"frame_p99_ms": {"median": 16.5, "min": 16.4, "max": 16.6}}, "runs": 1, "xids": 0, "note": ""}]
FACTS = {"gpu": "G", "driver": "D", "cuda": "C", "date": "2026-01-31", "commit": "0", "command": "bench/corun.py --runs 1", "runs": 1}


class Xids:
    seen = ()

    def close(self):
        pass


class OnHardware(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.xids = Xids()
        stack = contextlib.nullcontext(types.SimpleNamespace(append_log=lambda path: None))
        exists = os.path.exists
        for target, value in (
            ("corunlib.hardware.os.path.exists", lambda path: path == "/dev/nvidiactl" or exists(path)),
            ("corunlib.hardware.Stack", lambda prefix, work, options=(): stack),
            ("corunlib.hardware.KernelXidLog", lambda: self.xids),
            ("corunlib.hardware.Runner", lambda *words: types.SimpleNamespace(workload=types.SimpleNamespace(frame_iterations=1))),
            ("corunlib.hardware.HardwareWorkload", lambda *words: None),
            ("corunlib.hardware.corun.learn_facts", lambda *words: dict(FACTS)),
        ):
            patch = unittest.mock.patch(target, value)
            patch.start()
            self.addCleanup(patch.stop)

    def run_body(self, body):
        options = types.SimpleNamespace(bin="b", output=None, ignore_xids=False, seconds=1, log=None)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = hardware.run("sliced", options, [], body)
        return status, out.getvalue()

    def run_program(self, program, *words):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = program.main([*words, "--output", self.folder])
        return status, out.getvalue()

    def written(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return json.load(file)

    def test_how_it_ends(self):
        self.assertEqual(self.run_body(lambda *words: (["ok"], [], None)), (0, "ok\n"))
        self.assertEqual(self.run_body(lambda *words: ([], ["p"], None)), (1, "problem: p\n"))
        self.xids.seen = ("Xid 13",)
        self.assertEqual(self.run_body(lambda *words: ([], ["p"], "Xid 13"))[0], 3)
        for error, status in ((errors.CorunError("x"), 69), (errors.RunFailed("x"), 69), (errors.XidSeen("x"), 3)):
            self.assertEqual(self.run_body(unittest.mock.Mock(side_effect=error))[0], status)

    def test_the_command_is_the_programs_own(self):
        self.run_body(lambda stack, runner, facts: (self.assertEqual(facts["command"], "bench/sliced.py --runs 1"), ([], [], None))[1])

    def test_sliced(self):
        with unittest.mock.patch.object(rounds, "measure", lambda *words: (ROWS, [], None)):
            status, out = self.run_program(sliced, "--cases", "draws-1")
        self.assertEqual((status, self.written("sliced.json")["rows"][0]["case"]), (0, "draws-1-target"))

    def test_real_programs(self):
        def measure(suite, configs, repetitions, say, measured, origin, save):
            measured.take("shared", origin(), {"sort": {"rate": 1.0, "p50_ms": 1.0, "p99_ms": 1.0, "checksum": 1.0}}, None)
            measured.fail("mixed", origin(), "no")

        with unittest.mock.patch.object(real, "measure", measure), unittest.mock.patch.object(
            real_programs.commands, "run", lambda *words, **more: types.SimpleNamespace(returncode=0, stdout="2.11\n")
        ):
            status, out = self.run_program(real_programs)
        found = self.written("real_programs.json")
        self.assertEqual((status, found["experiment"], found["complete"], found["options"]["torch"]), (1, "real_programs", True, "2.11"))

    def test_partition(self):
        split = types.SimpleNamespace(learn=lambda: None, levels=[8], total=66, trace=[10.0])
        with unittest.mock.patch.object(partition, "PartitionRunner", lambda *words: split), unittest.mock.patch.object(
            partition_program, "run_case", lambda case, *words: ([{**ROWS[0], "case": case, "config": "partitioned", "metrics": {}}], [], None)
        ), unittest.mock.patch.object(partition, "verdicts", lambda rows: ["ok"]):
            status, out = self.run_program(partition_program, "--cases", "reconfigure,churn")
        self.assertEqual(status, 0)
        self.assertEqual(self.written("partition.json")["rows"][0]["case"], "reconfigure")
        self.assertEqual(self.written("partition_cost.json")["rows"][0]["case"], "churn")
        self.assertTrue(os.path.exists(os.path.join(self.folder, "partition-trace.csv")))


if __name__ == "__main__":
    unittest.main()
