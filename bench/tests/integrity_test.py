"""Tests of bench/integrity.py with make-believe programs (stub_prefix.py), and of how programs/verify.py compares results."""

import contextlib
import io
import json
import os
import sys
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, ".."), os.path.join(HERE, "..", "programs"), os.path.join(HERE, "..", "..", "scripts")]
import check_results  # noqa: E402
import integrity as program  # noqa: E402
from stub_rig import StubRig  # noqa: E402
import verify  # noqa: E402
from corunlib import integrity  # noqa: E402

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Integrity(StubRig):
    def integrity(self, *arguments, seconds="1.6", **environment):
        """(exit status, stdout, stderr)"""
        argv = ["--bin", self.prefix, "--output", self.output, "--commit", COMMIT, "--seconds", seconds, "--fitting", "sort,scan", "--mixed", "gelu"]
        argv += ["--python", os.path.join(self.prefix, "bin", "stub-python"), *arguments]
        environment = {"STUB_SECONDS": "600", **environment}
        return self.run_program(program.main, argv, environment, mock.patch.multiple(integrity, _ALONE_SECONDS=0.05, _PROGRESS_SECONDS=0.3, _BACKEND_SECONDS=1))

    def rows(self):
        path = os.path.join(self.output, "integrity.json")
        self.assertEqual(check_results.check_file(path), [])
        with open(path, encoding="utf-8") as file:
            return {row["case"]: row for row in json.load(file)["rows"]}

    def figure(self, case, metric):
        return self.rows()[case]["metrics"][metric]["median"]

    def test_every_kind_has_its_turn_and_all_is_right(self):
        status, out, err = self.integrity(seconds="3.5")
        self.assertEqual((status, [line for line in out.splitlines() if line.startswith("problem")]), (0, []))
        rows = self.rows()
        self.assertEqual(list(rows), ["compute-fma", "torch-fitting", "compute-memory", "torch-native", "compute-native", "renderer", "all"])
        self.assertGreaterEqual(self.figure("all", "shared_s"), 3.5)
        self.assertGreaterEqual(self.figure("all", "attaches"), 7)
        self.assertGreaterEqual(self.figure("all", "quota_changes"), 3)
        self.assertEqual((self.figure("all", "frames_drawn"), self.figure("all", "frames_wrong"), self.figure("all", "results_wrong")), (50, 0, 0))
        self.assertEqual(self.figure("torch-fitting", "results_checked") % 18, 0)
        self.assertEqual(rows["torch-fitting"]["note"], "the same bits as alone: sort, scan")
        self.assertIn("of 3.5 s shared", err)
        self.assertIn("ok     ", out)

    def test_wrong_frames(self):
        """One with a byte that differs, one that nobody compared, and an image that is not that of a run alone."""
        status, out, _ = self.integrity("--no-torch", STUB_WRONG_PIXELS="1", STUB_UNCHECKED="1", STUB_OTHER_IMAGE="1")
        self.assertEqual(status, 1)
        self.assertIn("problem: 1 wrong frames", out)
        self.assertIn("problem: 50 frames checked of 51 drawn", out)
        self.assertIn("problem: the image's checksum is 5eed, alone it is c0ffee", out)
        self.assertIn("MISSED", out)
        self.assertEqual(self.figure("all", "frames_wrong"), 1)

    def test_a_wrong_result(self):
        status, out, _ = self.integrity("--no-torch", STUB_WRONG_RESULT="1")
        self.assertEqual(status, 1)
        self.assertIn("wrong results", out)
        self.assertGreater(self.figure("compute-fma", "results_wrong"), 0)

    def test_a_wrong_result_of_pytorch_and_a_program_that_did_not_run(self):
        wishes = json.dumps({"scan": {"wrong": 2, "text": "result 3 has other bits"}, "sort": {"error": "CUDA error 701"}})
        status, out, _ = self.integrity(STUB_SUITE=wishes)
        self.assertEqual(status, 1)
        self.assertIn("problem: torch-fitting: scan: result 3 has other bits", out)
        self.assertIn("problem: torch-fitting: sort did not run: CUDA error 701", out)
        self.assertEqual(self.figure("torch-fitting", "results_wrong") % 2, 0)
        self.assertGreater(self.figure("torch-fitting", "results_wrong"), 0)

    def test_an_xid_stops_it(self):
        status, out, _ = self.integrity("--no-torch", STUB_XID=self.xids)
        self.assertEqual(status, 3)
        self.assertIn("problem: stopped: Xid 31", out)
        self.assertIn("0.0 s of sharing were verified, 1.6 s are asked for", out)
        self.assertEqual(self.rows()["all"]["xids"], 1)

    def test_a_program_that_shares_for_no_time(self):
        status, out, _ = self.integrity("--no-torch", STUB_NO_TIME="1")
        self.assertEqual(status, 1)
        self.assertIn("shared for no time", out)
        self.assertIn("s of sharing were verified", out)

    def test_a_program_that_loses_the_gpu(self):
        status, out, _ = self.integrity("--no-torch", STUB_LOST="1")
        self.assertEqual(status, 1)
        self.assertIn("the GPU was lost", out)
        self.assertIn("s of sharing were verified", out)

    def test_native_kernels_that_were_none_and_a_split_that_never_changes(self):
        status, out, _ = self.integrity("--no-torch", STUB_NO_NATIVE="1", STUB_NO_QUOTA="1")
        self.assertEqual(status, 1)
        self.assertIn("problem: compute-native: no kernel ran in a TSG of CUDA's own", out)
        self.assertIn("problem: the split never changed", out)

    def test_only_some_kinds(self):
        status, _, _ = self.integrity("--kinds", "torch-native", seconds="1")
        self.assertEqual(status, 0)
        self.assertEqual(list(self.rows()), ["torch-native", "renderer", "all"])
        status, _, err = self.integrity("--kinds", "compute-fma,torch", "--no-torch")
        self.assertEqual(status, 69)
        self.assertIn("no such kind", err)

    def test_without_pytorch(self):
        status, out, err = self.integrity(STUB_NO_TORCH="1")
        self.assertEqual(status, 69)
        self.assertIn("has no PyTorch", err)

    def test_arguments(self):
        options = program.parse_arguments([])
        self.assertEqual((options.seconds, options.attach_seconds, options.change_seconds), (600, 20, 2))
        for wrong in (["--runs", "2"], ["--seconds", "0"], ["--map-ms", "-1"]):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
                program.parse_arguments(wrong)

    def test_a_stand_in_whose_kernels_went_astray(self):
        kind = integrity.Kind("compute", None)
        good = {"kernels": 5, "seconds": 1.0, "verified": True, "astray": 0}
        self.assertEqual(integrity.Verdict(kind, 0, good).wrong, 0)
        self.assertEqual(integrity.Verdict(kind, 0, {**good, "verified": False, "astray": 3}).wrong, 3)
        self.assertEqual(integrity.Verdict(kind, 0, {**good, "verified": False}).wrong, 1)
        self.assertEqual(integrity.Verdict(kind, 2, good).problems, ["ended with 2"])


class Numbers:
    """verify.py's operations on numbers."""

    seed = staticmethod(lambda: None)
    wait = staticmethod(lambda: None)
    keep = staticmethod(lambda value: value)
    same = staticmethod(lambda one, other: one == other)
    close = staticmethod(lambda one, other: abs(one - other) < 0.1)
    difference = staticmethod(lambda one, other: f"{one - other:g}")
    digest = staticmethod(lambda value: (str(value), value))


def verified(values, reference=None, rounds=4):
    """A program that gives `values`, the last one again and again: its report."""
    given = iter(values)
    last = [None]

    def function():
        last[0] = next(given, last[0])
        if isinstance(last[0], Exception):
            raise last[0]
        return last[0]

    prepared, errors = verify.prepare_all(Numbers, {"p": lambda: function}, ["p"], {"p": reference} if reference else None)
    left = [rounds]

    def stopped():
        left[0] -= 1
        return left[0] < 0

    verify.go_round(prepared, errors, 60, stopped)
    return verify.results(prepared, errors)["p"]


WARM = [1.0, 1.0, 1.0]
EXACT = {"exact": True, "bits": "1.0", "sum": 1.0}


class Verify(unittest.TestCase):
    def test_all_the_same(self):
        report = verified(WARM, EXACT)
        self.assertEqual((report["checks"], report["wrong"], report["exact"], report["as_alone"]), (5, 0, True, True))
        self.assertNotIn("as_alone", verified(WARM))

    def test_one_other_result_of_an_exact_program_is_wrong(self):
        report = verified([*WARM, 1.0, 1.01, 1.0], EXACT)
        self.assertEqual((report["wrong"], report["text"]), (1, "result 2 has other bits than the first: 0.01"))

    def test_of_another_program_it_is_wrong_when_it_is_far_off(self):
        loose = {**EXACT, "exact": False}
        self.assertEqual(verified([*WARM, 1.01, 1.0], loose)["wrong"], 0)
        self.assertEqual(verified([*WARM, 1.2, 1.0], loose)["wrong"], 1)
        self.assertEqual(verified([*WARM, 1.2, 1.0])["wrong"], 1)

    def test_a_first_result_that_is_not_that_of_alone(self):
        report = verified(WARM, {"exact": True, "bits": "2.0", "sum": 2.0})
        self.assertEqual((report["wrong"], report["as_alone"]), (1, False))
        self.assertIn("not that of the program alone", report["text"])
        # Another kernel, which adds in another order.
        near = verified(WARM, {"exact": True, "bits": "1.0001", "sum": 1.0001})
        self.assertEqual((near["wrong"], near["as_alone"]), (0, False))
        self.assertEqual(verified([*WARM, 1.01, 1.0], {"exact": True, "bits": "1.0001", "sum": 1.0001})["wrong"], 0)

    def test_what_the_gpu_takes_for_the_same_and_the_host_does_not(self):
        with mock.patch.object(Numbers, "same", staticmethod(lambda one, other: True)):
            report = verified([*WARM, 1.5], EXACT)
        self.assertEqual((report["wrong"], report["text"]), (1, "the host sees other bits in the last result than in the first"))

    def test_a_program_that_fails_is_left_out(self):
        self.assertEqual(verified([*WARM, 1.0, RuntimeError("CUDA error\nmore")]), {"error": "CUDA error"})
        self.assertEqual(verified([RuntimeError()]), {"error": "RuntimeError"})

    def test_two_rounds_at_least(self):
        prepared, errors = verify.prepare_all(Numbers, {"p": lambda: lambda: 1.0}, ["p"], None)
        verify.go_round(prepared, errors, 0)
        self.assertEqual(verify.results(prepared, errors)["p"]["checks"], 3)


if __name__ == "__main__":
    unittest.main()
