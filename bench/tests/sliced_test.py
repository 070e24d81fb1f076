"""What bench/sliced.py decides, without a GPU."""

import json
import os
import sys
import types
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.dirname(HERE)
sys.path[:0] = [HERE, BENCH, os.path.join(BENCH, "..", "scripts")]

import check_results  # noqa: E402
import sliced  # noqa: E402
from corunlib import errors, slicing  # noqa: E402
from stub_rig import StubRig  # noqa: E402


def value(median):
    return {"median": median, "min": median, "max": median}


def rows(p99=16.5, rate=400.0, share_fps=50.0, share_rate=500.0, paced=16.7):
    return [
        slicing.filed({"case": case, "config": config, "metrics": metrics})
        for case, config, metrics in (
            ("draws-1", "alone-renderer", {"renderer_fps": value(98.0), "frame_gpu_p50_ms": value(10.0)}),
            ("draws-1", "alone-compute", {"compute_rate": value(1000.0)}),
            ("draws-1", "target", {"frame_p99_ms": value(p99), "compute_rate": value(rate)}),
            ("draws-1", "share-50", {"renderer_fps": value(share_fps), "compute_rate": value(share_rate)}),
            ("self-paced", "alone", {"frame_p50_ms": value(16.67)}),
            ("self-paced", "target", {"frame_p50_ms": value(paced)}),
        )
    ]


class Verdicts(unittest.TestCase):
    def missed(self, **changed):
        return [line for line in slicing.verdicts(rows(**changed)) if line.startswith("MISSED")]

    def test_all_well(self):
        self.assertEqual(len(slicing.verdicts(rows())), 5)
        self.assertEqual(self.missed(), [])

    def test_each_can_be_missed(self):
        for changed in ({"p99": 16.68}, {"rate": 379.0}, {"share_fps": 56.0}, {"share_rate": 440.0}, {"paced": 16.9}):
            self.assertEqual(len(self.missed(**changed)), 1, changed)

    def test_kernels_that_look_at_the_clock_are_not_judged_by_those_alone(self):
        case = {"case": "switches", "config": "target", "metrics": {"frame_p99_ms": value(17.0), "compute_rate": value(1.0)}}
        self.assertEqual(slicing.verdicts([*rows(), slicing.filed(case)]), slicing.verdicts(rows()))

    def test_nothing_measured_says_nothing(self):
        self.assertEqual(slicing.verdicts([]), [])


class Files(unittest.TestCase):
    def test_what_was_asked_for_is_part_of_the_case(self):
        found = [(row["case"], row["config"]) for row in rows()]
        self.assertIn(("draws-1-target", "sliced"), found)
        self.assertIn(("draws-1-share-50", "sliced"), found)
        self.assertIn(("self-paced", "alone-renderer"), found)


class Asking(unittest.TestCase):
    def runner(self, partition):
        self.said = []
        splitter = types.SimpleNamespace(
            set_mode=lambda mode: self.said.append(("mode", mode)),
            set_quota=lambda quota: self.said.append(("quota", quota)),
            slo=lambda *words: self.said.append(("slo", *words)),
            partition=lambda: partition,
        )
        return slicing.SlicingRunner(None, splitter)

    def test_a_target(self):
        self.runner({"mode": "sliced", "frame_us": 16670})._ask(("target", slicing.TARGET_MS))
        self.assertEqual(self.said, [("mode", "sliced"), ("slo", "--frame-ms", "16.67", "--frame-miss", "1%"), ("quota", "none")])

    def test_a_share(self):
        self.runner({"mode": "sliced", "compute_percent": 40})._ask(("share", 40))
        self.assertEqual(self.said, [("mode", "sliced"), ("slo", "--clear"), ("quota", "40%")])

    def test_what_is_not_in_force_is_not_measured(self):
        for partition in ({}, {"mode": "inter-sm", "compute_percent": 40}, {"mode": "sliced", "compute_percent": 20}):
            with self.assertRaises(errors.RunFailed):
                self.runner(partition)._ask(("share", 40))


class Configurations(unittest.TestCase):
    def test_each_case_has_some(self):
        run = slicing.SlicingRunner(None, None)
        self.assertEqual(list(sliced.configs_of("draws-1", run))[:2], ["alone-renderer", "alone-compute"])
        for case in sliced.CASES:
            self.assertIn("target", sliced.configs_of(case, run))

    def test_draws_are_calibrated_once(self):
        calls = []
        runner = types.SimpleNamespace(
            workload=types.SimpleNamespace(frame_iterations=7), checksum="x", calibrate=lambda identity: calls.append(options.draws)
        )
        options = types.SimpleNamespace(draws=1)
        sliced.use_draws("draws-1", options, runner)
        self.assertEqual(calls, [])
        sliced.use_draws("draws-100", options, runner)
        self.assertEqual((calls, runner.checksum), ([100], None))


class Switches(StubRig):
    """A whole run, with make-believe programs."""

    HOLES = {"hole_frame_ms": 10.3, "hole_after_ms": 0.3, "holes_per_frame": 2.0, "compute_bound_percent": 35.757576}

    def measure(self, *words, **environment):
        argv = ["--bin", self.prefix, "--seconds", "0.02", "--output", self.output, "--commit", "0123456", *words]
        status, out, err = self.run_program(sliced.main, argv, environment)
        path = os.path.join(self.output, "sliced.json")
        self.assertEqual(check_results.check_file(path), [], err)
        with open(path, encoding="utf-8") as file:
            return status, out, json.load(file)

    def test_what_is_in_the_file(self):
        status, out, found = self.measure("--cases", "switches", "--runs", "2")
        self.assertEqual((status, out), (0, ""))
        self.assertEqual((found["experiment"], found["complete"]), ("sliced", True))
        self.assertEqual([(row["case"], row["config"], row["runs"]) for row in found["rows"]], [("switches", "time-slicing", 2), ("switches-target", "sliced", 2)])
        for row in found["rows"]:
            self.assertEqual({name: row["metrics"][name]["median"] for name in self.HOLES}, self.HOLES)
            self.assertTrue({"renderer_fps", "frame_p50_ms", "compute_rate"} <= row["metrics"].keys())

    def test_merging(self):
        self.measure("--cases", "self-paced,switches", "--runs", "1")
        before = [("self-paced", "alone-renderer"), ("self-paced-target", "sliced")]
        _, _, found = self.measure("--cases", "switches", "--runs", "1", "--merge")
        self.assertEqual([(row["case"], row["config"]) for row in found["rows"]], [*before, ("switches", "time-slicing"), ("switches-target", "sliced")])
        _, _, found = self.measure("--cases", "self-paced", "--runs", "1", "--merge")
        self.assertEqual(len(found["rows"]), 4)

    def test_what_is_asked_of_the_programs(self):
        log = os.path.join(self.directory, "log")
        self.measure("--cases", "switches", "--runs", "1", "--log", log, STUB_SAY_COMMAND="1")
        with open(log, encoding="utf-8") as file:
            said = [line.split() for line in file if line.startswith("stub: vuda-bench-")]
        measured = [words for words in said if "--start-file" in words]
        self.assertEqual([words[1] for words in measured], ["vuda-bench-compute", "vuda-bench-render"] * 2)
        for words in measured[::2]:
            self.assertIn("--report-holes", words)
            self.assertEqual(words[words.index("--smem") + 1], "204800")
        self.assertEqual([words[words.index("--fps") + 1] for words in measured[1::2]], ["60", "0"], "paced by itself, and held back")

    def test_no_frames_in_the_holes(self):
        status, _, found = self.measure("--cases", "self-paced,switches", "--runs", "1", "--frame-ms", "40")
        self.assertEqual(status, 1)
        self.assertEqual([row["case"] for row in found["rows"]], ["self-paced", "self-paced-target"])


if __name__ == "__main__":
    unittest.main()
