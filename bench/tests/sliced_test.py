"""What bench/sliced.py decides, without a GPU."""

import os
import sys
import types
import unittest

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, BENCH)

import sliced  # noqa: E402
from corunlib import errors, slicing  # noqa: E402


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


if __name__ == "__main__":
    unittest.main()
