"""What bench/tuner.py makes of traces and events, without a GPU."""

import json
import os
import subprocess
import sys
import unittest

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, BENCH)

from corunlib import trace, tuning  # noqa: E402
from corunlib.errors import RunFailed  # noqa: E402


def steady(begin, end, ms, period=0.01):
    count = round((end - begin) / period)
    return [(begin + period * (n + 1), ms) for n in range(count)]


def value(median):
    return {"median": median, "min": median, "max": median}


class Trace(unittest.TestCase):
    def test_met_from_the_last_late_one_on(self):
        frames = steady(0, 1.5, 20.0) + steady(1.5, 5, 10.0)
        self.assertAlmostEqual(trace.first_met([(frames, 16.67)], 1.0), 1.5)
        # What was late before anybody asked does not count.
        self.assertEqual(trace.first_met([(frames, 16.67)], 2.0), 2.0)

    def test_all_targets_have_to_be_met_at_the_same_time(self):
        frames = steady(0, 2, 10.0) + steady(2, 3, 20.0) + steady(3, 6, 10.0)
        steps = steady(0, 1.2, 20.0) + steady(1.2, 6, 10.0)
        self.assertAlmostEqual(trace.first_met([(frames, 16.67), (steps, 16.67)], 0.5), 3.0)

    def test_one_late_frame_a_second_is_never_met(self):
        frames = [(0.01 * n, 20.0 if n % 50 == 0 else 10.0) for n in range(1, 500)]
        self.assertIsNone(trace.first_met([(frames, 16.67)], 0.0))

    def test_silence_is_not_met(self):
        frames = steady(0, 5, 10.0)
        self.assertIsNone(trace.first_met([(frames, 16.67), ([], 16.67)], 0.0))
        self.assertIsNone(trace.first_met([(frames, 16.67)], 4.5))
        # A stall of two seconds in which nothing ends.
        stalled = steady(0, 1, 10.0) + steady(3, 6, 10.0)
        self.assertAlmostEqual(trace.first_met([(steady(0, 6, 10.0), 16.67), (stalled, 16.67)], 0.0), 0.0)
        self.assertIsNone(trace.first_met([(steady(0, 3, 10.0), 16.67), (stalled, 16.67)], 1.0))

    def test_figures(self):
        self.assertEqual(trace.miss([(0, 5), (1, 20), (2, 16.67)], 16.67), 1 / 3)
        self.assertEqual(trace.miss([], 1), 0)
        self.assertEqual(trace.percentile([(n, n) for n in range(1, 101)], 99), 99)
        self.assertEqual(trace.percentile([], 50), 0)
        self.assertEqual([round(ms) for _, ms in trace.intervals([(1.0, 3), (1.5, 3), (2.5, 3)])], [500, 1000])
        self.assertEqual(trace.between([(1, 0), (2, 0), (3, 0)], 2, 3), [(2, 0)])
        self.assertEqual(trace.from_answer({"trace": [[1500.0, 2.5]]}), [(1.5, 2.5)])

    def test_risen(self):
        steps = steady(0, 2, 1.0, 0.1) + steady(2, 5, 1.0, 0.01)
        self.assertAlmostEqual(trace.risen(steps, 0.5, 90), 1.9, delta=0.15)
        self.assertIsNone(trace.risen(steps, 0.5, 200))

    def test_reversals(self):
        self.assertEqual(trace.reversals([(8, 16), (16, 32), (32, 24), (24, 32)]), 2)
        self.assertEqual(trace.reversals([(8, 16), (16, 16), (16, 32)]), 0)
        self.assertEqual(trace.reversals([]), 0)


class Shapes(unittest.TestCase):
    def test_loads_and_targets(self):
        shapes = tuning.shapes()
        gaming, dual = shapes["ai-gaming"], shapes["dual-slo"]
        self.assertAlmostEqual(gaming.frame_ms, 0.7 * 16.667, 2)
        self.assertEqual(gaming.targets(0.01), ["--frame-ms", "16.67", "--frame-miss", "0.01"])
        self.assertEqual(dual.targets(0.01)[4:], ["--latency-ms", "16.67", "--latency-miss", "0.01"])
        self.assertAlmostEqual(dual.frame_bound_ms, 11.111, 3)

    def test_steps_fit_at_the_middle_level_and_miss_at_the_lowest(self):
        dual = tuning.shapes()["dual-slo"]
        levels = [8, 16, 24, 32, 40, 48, 55, 62, 64]
        kernel = dual.kernel_ms(levels, 66)
        self.assertAlmostEqual(kernel * 66 / 40, 0.65 * 16.667, 2)
        self.assertGreater(kernel * 66 / 8, 2 * dual.step_bound_ms)

    def test_stretched(self):
        slow = tuning.shapes(4)["ai-gaming"]
        self.assertAlmostEqual(slow.frame_bound_ms, 66.667, 2)
        self.assertAlmostEqual(slow.kernel_ms([8], 66), 4 * 2.88)


class Events(unittest.TestCase):
    @staticmethod
    def event(at, old, new, kind="tuner-level", name="corun"):
        fields = {"VUDA_OLD_TPCS": str(old), "VUDA_NEW_TPCS": str(new)}
        return json.dumps({"monotonic_us": round(at * 1e6), "kind": kind, "name": name, "fields": fields})

    def test_changes_of_our_tsg_since_the_targets_were_set(self):
        lines = [
            self.event(1.0, 8, 16),
            self.event(2.5, 16, 64),
            self.event(2.6, 64, 64),
            self.event(2.7, 64, 8, name="other"),
            self.event(2.8, 64, 8, kind="tuner-state"),
            self.event(3.0, 64, 55),
        ]
        self.assertEqual(tuning.level_changes(lines, 2.0), [(2.5, 16, 64), (3.0, 64, 55)])

    def test_what_is_no_event_fails_the_run(self):
        for line in ("{", "[]", '{"kind": "tuner-level", "name": "corun", "monotonic_us": 1, "fields": {}}'):
            with self.assertRaises(RunFailed):
                tuning.level_changes([line], 0)


class Verdicts(unittest.TestCase):
    @staticmethod
    def rows(**changed):
        metrics = {"convergence_s": 0.4, "frame_miss": 0.001, "step_miss": 0.004, "hold_s": 60.0, **changed}
        tuned = {name: value(number) for name, number in metrics.items() if number is not None}
        note = "the targets were never met for a second" if metrics["convergence_s"] is None else ""
        return [
            {"case": "dual-slo", "config": "shared", "metrics": {"step_miss": value(0.5)}, "note": ""},
            {"case": "dual-slo", "config": "tuned", "metrics": tuned, "note": note},
        ]

    def test_all_reached(self):
        lines = tuning.verdicts(self.rows(), 0.01, {"dual-slo": 60})
        self.assertEqual(len(lines), 3)
        self.assertTrue(all(line.startswith("ok") for line in lines), lines)

    def test_each_can_be_missed(self):
        for changed in ({"convergence_s": 2.1}, {"convergence_s": None}, {"frame_miss": 0.011}, {"step_miss": 0.02}, {"hold_s": 40.0}):
            missed = [line for line in tuning.verdicts(self.rows(**changed), 0.01, {"dual-slo": 60}) if line.startswith("MISSED")]
            self.assertEqual(len(missed), 1, changed)

    def test_table(self):
        text = tuning.table(self.rows(compute_tpcs=40, decisions=3, decisions_in_hold=1, reversals=0))
        self.assertIn("| dual-slo, shared, no tuner |", text)
        self.assertIn("3, 1", text)


class Program(unittest.TestCase):
    def run_it(self, *words):
        return subprocess.run([os.path.join(BENCH, "tuner.py"), *words], capture_output=True, text=True, check=False)

    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "this machine has a GPU")
    def test_without_a_gpu_it_says_so(self):
        done = self.run_it()
        self.assertEqual(done.returncode, 77)
        self.assertIn("no NVIDIA GPU", done.stderr)

    def test_bad_words_are_refused(self):
        for words in (("--cases", "x"), ("--starts", "middle"), ("--miss", "0"), ("--miss", "1"), ("--runs", "0"), ("--stretch", "2")):
            self.assertEqual(self.run_it(*words).returncode, 2, words)


if __name__ == "__main__":
    unittest.main()
