"""What bench/real_programs.py makes of a suite's answers, without a GPU."""

import os
import sys
import types
import unittest

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, BENCH)

from corunlib import errors, real  # noqa: E402


def figures(rate, checksum=10.0):
    return {"rate": rate, "p50_ms": 1000 / rate, "p99_ms": 1100 / rate, "checksum": checksum}


class Suite:
    def __init__(self, answers):
        self.answers = answers
        self.runner = types.SimpleNamespace(guard=lambda: None)

    def run(self, config):
        answer = self.answers[config]
        if isinstance(answer, Exception):
            raise answer
        return answer, None if config.startswith("alone") else (98.0, 10.5)


def measure(suite, configs, runs=1, measured=None):
    """(rows, problems)"""
    measured = measured or real.Measured()
    real.measure(suite, configs, runs, lambda text: None, measured, lambda: {"date": "2026-01-31", "driver": "1.0"}, lambda: None)
    return measured.rows(), measured.problems()


def measured(answers, runs=1):
    return measure(Suite(answers), list(answers), runs)


class Measure(unittest.TestCase):
    def test_each_program_in_each_configuration(self):
        rows, problems = measured({"alone": {"sort": figures(1000)}, "shared": {"sort": figures(950)}}, 2)
        self.assertEqual(problems, [])
        self.assertEqual([(row["case"], row["config"]) for row in rows], [("sort", "alone-compute"), ("sort", "shared"), ("renderer", "shared")])

    def test_what_was_refused_has_a_row_that_says_why(self):
        rows, problems = measured({"shared": {"big": {"error": "CUDA error: too many resources"}}})
        self.assertEqual(rows[0]["note"], "did not run: CUDA error: too many resources")
        self.assertEqual(list(rows[0]["metrics"]), ["ran"])
        self.assertEqual(problems, [])

    def test_other_results_than_alone_are_a_problem(self):
        for other in ("alone", "resting"):
            rows, problems = measured({other: {"sort": figures(1000)}, "shared": {"sort": figures(950, 10.5)}})
            self.assertEqual(len(problems), 1)
            self.assertIn(f"sort: shared results differ from {other}", problems[0])

    def test_a_renderer_at_rest_is_no_other_workload_for_long(self):
        started = []
        workload = types.SimpleNamespace(render_extra=["--x"])

        def start(directory, identity, shared, seconds, fps=None):
            started.append((shared, fps, list(workload.render_extra)))

        suite = real.SuiteRunner(types.SimpleNamespace(workload=workload, start_renderer=start), None, [], "")
        suite._start_renderer("", None, True, True)
        suite._start_renderer("", None, True, False)
        self.assertEqual(started, [(True, real.RESTING_FPS, ["--x", "--warmup-frames", "1"]), (True, None, ["--x"])])

    def test_results_that_change_from_run_to_run_are_a_problem(self):
        suite = Suite({})
        sums = iter((10.0, 11.0))
        suite.run = lambda config: ({"sort": figures(1000, next(sums))}, None)
        self.assertEqual(len(measure(suite, ["alone"], 2)[1]), 1)

    def test_a_run_that_fails_does_not_end_the_others(self):
        rows, problems = measured({"alone": errors.RunFailed("no"), "shared": {"sort": figures(950)}})
        self.assertEqual(len(problems), 1)
        self.assertEqual(len(rows), 2)


class Table(unittest.TestCase):
    def test_against_the_right_base(self):
        rows, _ = measured({
            "alone-native": {"mm": figures(1000), "big": figures(500)},
            "alone": {"mm": figures(900), "big": figures(500)},
            "resting": {"mm": figures(800), "big": {"error": "701"}},
            "time-slicing": {"mm": figures(20), "big": figures(10)},
            "shared": {"mm": figures(760), "big": {"error": "701"}},
            "sliced": {"mm": figures(400), "big": figures(200)},
            "mixed": {"mm": figures(900), "big": figures(100)},
        })
        lines = real.table(rows)
        self.assertEqual(lines[2], "| mm | 1000 | 900 | 800 | 2.0 | 95.0 | 40.0 | 90.0 |")
        self.assertEqual(lines[3], "| big | 500 | 500 | - | 2.0 | did not run | 40.0 | 20.0 |")
        self.assertIn("shared 98.0 (p99 10.50 ms)", lines[-1])


if __name__ == "__main__":
    unittest.main()
