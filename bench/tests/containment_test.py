"""What bench/containment.py makes of what its programs say, without a GPU. containment_sim_test.py runs the whole of it on the simulated one."""

import contextlib
import io
import os
import sys
import tempfile
import types
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "scripts")]
import check_results  # noqa: E402
import containment as program  # noqa: E402
from corunlib import containment, errors, xid  # noqa: E402
from corunlib.workload import HardwareWorkload  # noqa: E402


def short(status=0, answer=None, lines=(), shared=1):
    return containment.Short(status, answer, list(lines), shared)


class Stack:
    socket = "s"

    def __init__(self, alive=True, status=None):
        self.alive = alive
        self.answer = status or {}

    def program(self, name):
        return "/bin/" + name

    def check_alive(self):
        if not self.alive:
            raise errors.CorunError("vudad ended by itself")

    def status(self):
        return self.answer


def test_of(stack, case=None):
    """A Containment whose case "unshare" is `case`."""
    runner = types.SimpleNamespace(stack=stack, xids=xid.NoXidLog(), workload=types.SimpleNamespace(simulated=False))
    test = containment.Containment(runner, None, 5000, lambda text: None)
    test._unshare = case
    test._wait_xids = lambda count: None
    return test


class Cases(unittest.TestCase):
    def test_checks_and_figures(self):
        def case(found):
            found.check("shares_again", True)
            found.check("frames_right", False, "2 wrong")
            found.figure("held_off_s", 4.5)

        found = test_of(Stack(), case).run("unshare")
        row = found.row()
        self.assertEqual(check_results.check_row("row", "containment", row), [])
        self.assertEqual({name: value["median"] for name, value in row["metrics"].items()}, {"shares_again": 1, "frames_right": 0, "held_off_s": 4.5, "vudad_lives": 1, "no_xid": 1})
        self.assertEqual(row["note"], "frames_right: no; 2 wrong")

    def test_a_case_that_breaks_off_is_a_row_that_says_so(self):
        def case(found):
            found.check("refused_701", True)
            raise errors.RunFailed("renderer: it was ready did not happen in 60 s")

        found = test_of(Stack(), case).run("unshare")
        self.assertEqual(found.figures["ran_to_its_end"], 0)
        self.assertIn("did not happen", found.row()["note"])
        self.assertEqual(found.figures["refused_701"], 1)

    def test_vudad_that_ended(self):
        found = test_of(Stack(alive=False), lambda case: None).run("unshare")
        self.assertEqual(found.failed, ["vudad_lives: no; vudad ended by itself"])

    def test_an_xid_where_there_should_be_none(self):
        test = test_of(Stack(), lambda case: test.runner.xids.seen.append("13 (PCI)"))
        found = test.run("unshare")
        self.assertEqual((found.xids, found.figures["no_xid"]), (1, 0))
        self.assertIn("Xid 13", found.row()["note"])

    def test_what_is_known_of_a_fault(self):
        fault = {"name": "corun", "state": "quarantined"}
        self.assertEqual(test_of(Stack())._known(), {})
        self.assertEqual(test_of(Stack(status={"tsgs": [{"name": "corun", "fault": fault}]}))._known(), fault)
        self.assertEqual(test_of(Stack(status={"tsgs": [{"name": "corun", "fault": None}]}))._known(), {})
        self.assertEqual(test_of(Stack(status={"faults": [{"name": "other"}, fault]}))._known(), fault)


class OnHardware(unittest.TestCase):
    def setUp(self):
        options = types.SimpleNamespace(frame_iterations=1, kernel_iterations=500, compute_load="fma", smem=0, blocks=0, device=None)
        self.programs = containment.HardwarePrograms(Stack(), HardwareWorkload(Stack(), options), "GPU-1")

    def test_what_is_right(self):
        self.assertTrue(self.programs.right(short(answer={"result_errors": 0})))
        self.assertTrue(self.programs.right(short(answer={"outcome": "passed"})))
        self.assertFalse(self.programs.right(short(answer={"result_errors": 1})))
        self.assertFalse(self.programs.right(short(answer={"outcome": "lost"})))
        self.assertFalse(self.programs.right(short(status=70)))

    def test_what_is_refused(self):
        refused = {"error": "launch a kernel: too many resources requested for launch (CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701)", "device_lost": False}
        self.assertTrue(self.programs.refused(short(70, refused)))
        self.assertFalse(self.programs.refused(short(75, {"error": "x (CUDA_ERROR_LAUNCH_FAILED, 719)", "device_lost": True})))
        self.assertFalse(self.programs.refused(short(0, {})))

    def test_command_lines(self):
        self.assertIn("--smem 65536", " ".join(self.programs.large()))
        self.assertEqual(" ".join(self.programs.large()).count("--smem"), 1)
        self.assertEqual(self.programs.large()[0], self.programs.steady(1)[0], "vudad knows a program by its executable")
        culprit = self.programs.culprit({name: name for name in ("ready", "start", "done", "end")})
        self.assertEqual(culprit[0], self.programs.harmless()[0])
        self.assertNotEqual(culprit[0], self.programs.other()[0])
        self.assertIn("bad-address", culprit)

    def test_what_the_culprit_says(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        culprit = types.SimpleNamespace(wait_for=lambda *words: None, finish=lambda *words: (0, {"figures": {"launched_us": 5, "failed_us": 9}}))
        files = {name: os.path.join(folder, name) for name in ("start", "done", "end")}
        self.assertEqual(self.programs.end(culprit, files, None), (5, 9, 0))
        self.assertTrue(os.path.exists(files["end"]))


class Program(unittest.TestCase):
    def test_order(self):
        options = program.parse_arguments(["--cases", "illegal-address,unshare"])
        self.assertEqual(options.cases, ["unshare", "illegal-address"])
        for wrong in (["--cases", "x"], ["--runs", "3"]):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
                program.parse_arguments(wrong)

    def test_events(self):
        watch = types.SimpleNamespace(lines=lambda: ['{"kind": "faulted", "monotonic_us": 5}', "no JSON", "[]"])
        self.assertEqual(containment._events(watch), [{"kind": "faulted", "monotonic_us": 5}])


if __name__ == "__main__":
    unittest.main()
