"""bench/containment.py with VUDA's own programs on the simulated GPU; and that it fails when something is not as it should be."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "scripts")]
import check_results  # noqa: E402
import containment as program  # noqa: E402
from corunlib import containment  # noqa: E402

BIN = os.environ["BENCH_BIN"]


class OnTheSimulatedGpu(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def run_cases(self, *words):
        """(exit status, {case: its row}, stdout)"""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            status = program.main(["--bin", BIN, "--sim", "--output", self.folder, "--commit", "0123456", *words])
        path = os.path.join(self.folder, "containment.json")
        self.assertEqual(check_results.check_file(path), [])
        with open(path, encoding="utf-8") as file:
            return status, {row["case"]: row for row in json.load(file)["rows"]}, out.getvalue()

    def test_all_is_as_it_should_be(self):
        status, rows, out = self.run_cases()
        self.assertEqual(status, 0, out)
        self.assertEqual(list(rows), list(containment.CASES))
        fault = {name: value["median"] for name, value in rows["illegal-address"]["metrics"].items()}
        self.assertEqual((fault["xid"], rows["illegal-address"]["xids"]), (31, 1))
        for check in ("noticed", "renderer_sees_device_lost", "quarantined", "culprit_is_held_off", "another_shares", "culprit_shares_again", "events_tell_it", "stuck_is_told", "status_says_stuck", "renderer_lives_while_stuck", "culprit_was_told"):
            self.assertEqual(fault[check], 1, check)
        self.assertGreater(fault["stuck_ms"], 400, "half a second of looks")
        self.assertEqual(rows["unshare"]["metrics"]["refused_in_one_line"]["median"], 1)

    def test_a_kernel_that_is_not_refused(self):
        with mock.patch.object(containment.SimulatedPrograms, "large", containment.SimulatedPrograms.harmless):
            status, rows, out = self.run_cases("--cases", "unshare")
        self.assertEqual(status, 1)
        self.assertIn("problem: unshare: refused_701", out)
        self.assertIn("refused_701", rows["unshare"]["note"])

    def test_a_gpu_that_ends_the_tsg_at_once(self):
        with mock.patch.object(containment.SimulatedPrograms, "fault", lambda self, files, pid: self._plant(f"31@{pid}")):
            status, rows, out = self.run_cases("--cases", "illegal-address")
        self.assertEqual(status, 0, out)
        self.assertNotIn("stuck_ms", rows["illegal-address"]["metrics"])
        self.assertEqual(rows["illegal-address"]["metrics"]["culprit_was_told"]["median"], 1)

    def test_the_wrong_culprit_and_a_late_notice(self):
        with mock.patch.object(containment.SimulatedPrograms, "culprit_name", "somebody"), mock.patch.object(containment.Containment, "_budget", lambda self: 0):
            status, rows, out = self.run_cases("--cases", "illegal-address")
        self.assertEqual(status, 1)
        for check in ("culprit_is_right", "detected_in_time"):
            self.assertIn(f"problem: illegal-address: {check}", out)
            self.assertEqual(rows["illegal-address"]["metrics"][check]["median"], 0)


if __name__ == "__main__":
    unittest.main()
