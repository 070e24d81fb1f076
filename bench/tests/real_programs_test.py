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

    def run(self, configs):
        for config in configs:
            answer = self.answers[config]
            if isinstance(answer, Exception):
                raise answer
            yield config, answer, None if config.startswith("alone") else {"renderer_fps": 98.0, "frame_p99_ms": 10.5, "alone_fps": 99.5}


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
        for other, config in (("alone-native", "alone"), ("alone-native", "sliced"), ("alone", "shared"), ("resting", "shared"), ("alone-native", "mixed")):
            for wrong in (10.5, float("nan")):
                _, problems = measured({other: {"sort": figures(1000)}, config: {"sort": figures(950, wrong)}})
                self.assertIn(f"sort: {config} results differ from {other}", "; ".join(problems))

    def test_results_that_change_from_run_to_run_are_a_problem(self):
        suite = Suite({})
        sums = iter((10.0, 11.0))
        suite.run = lambda configs: (entry for entry in [(configs[0], {"sort": figures(1000, next(sums))}, None)])
        self.assertEqual(len(measure(suite, ["alone"], 2)[1]), 1)

    def test_percentages_are_of_the_same_run(self):
        suite = Suite({})
        rates = iter((1000.0, 400.0, 500.0, 210.0, 800.0, 300.0))  # alone and in turns: 40, 42 and 37.5 %
        suite.run = lambda configs: ((config, {"sort": figures(next(rates))}, None) for config in configs)
        rows, _ = measure(suite, ["alone-native", "sliced"], 3)
        self.assertEqual(rows[0]["metrics"]["percent_of_native"], {"median": 40.0, "min": 37.5, "max": 42.0})
        self.assertEqual(rows[0]["metrics"]["compute_rate"]["median"], 300.0)

    def test_frames_are_those_that_ended_while_the_program_ran(self):
        trace = [(0.01 * i, 10.0) for i in range(1, 11)] + [(0.1 + 0.02 * i, 20.0) for i in range(1, 6)]
        programs = {"a": {**figures(1), "begin": 0.015, "end": 0.1001}, "b": {**figures(1), "begin": 0.105, "end": 0.3}, "late": {**figures(1), "begin": 7.0, "end": 8.0}, "no": {"error": "701"}}
        found = real.beside(programs, trace)
        self.assertAlmostEqual(found["a"]["renderer_fps"], 100)
        self.assertAlmostEqual(found["b"]["renderer_fps"], 50)
        self.assertNotIn("renderer_fps", found["late"])
        self.assertEqual(found["no"], {"error": "701"})
        # Moments of one machine's clock are no figures.
        self.assertFalse([name for one in found.values() for name in one if name in ("begin", "end")])

    def test_no_percentage_of_what_did_not_run(self):
        rows, _ = measured({"resting": {"big": {"error": "701"}}, "shared": {"big": figures(5)}})
        self.assertNotIn("percent_of_resting", rows[0]["metrics"])

    def test_configurations_of_a_process_stay_together(self):
        self.assertEqual(real.processes_of(["shared", "alone", "sliced", "resting"]), [("sliced",), ("alone",), ("resting", "shared")])

    def test_a_process_that_was_cut_is_measured_as_a_whole(self):
        runs = real.Measured()
        runs.take("alone-native", {}, {"sort": figures(1)}, None)
        runs.take("alone-native", {}, {"sort": figures(2)}, None)
        runs.take("sliced", {}, {"sort": figures(1)}, None)
        asked = []
        suite = Suite({"alone-native": {"sort": figures(1000)}, "sliced": {"sort": figures(400)}})
        run = suite.run
        suite.run = lambda configs: asked.append(configs) or run(configs)
        rows, _ = measure(suite, ["alone-native", "sliced"], 2, runs)
        self.assertEqual(asked, [("alone-native", "sliced")])
        self.assertEqual([(run["config"], run["run"]) for run in runs.runs], [("alone-native", 1), ("sliced", 1), ("alone-native", 2), ("sliced", 2)])

    def test_what_a_failed_process_did_not_come_to_failed_as_well(self):
        runs = real.Measured()
        _, problems = measure(Suite({"alone-native": {"sort": figures(1)}, "time-slicing": errors.RunFailed("no"), "sliced": {"sort": figures(1)}}), ["alone-native", "time-slicing", "sliced"], 1, runs)
        self.assertEqual([run["config"] for run in runs.runs if "failed" in run], ["time-slicing", "sliced"])
        self.assertEqual({runs.count(config) for config in ("alone-native", "time-slicing", "sliced")}, {1})

    def test_a_run_that_fails_does_not_end_the_others(self):
        rows, problems = measured({"alone": errors.RunFailed("no"), "shared": {"sort": figures(950)}})
        self.assertEqual(len(problems), 1)
        self.assertEqual(len(rows), 2)


class Surroundings(unittest.TestCase):
    def test_no_target_of_turns_is_left_in_force_while_sharing(self):
        for config, expected in (
            ("shared", ["slo --clear", "set_mode inter-sm", "set_quota none"]),
            ("resting", ["slo --clear", "set_mode inter-sm", "set_quota none"]),
            ("mixed", ["set_mode sliced", "slo --frame-ms 16.67 --frame-miss 1%", "set_quota none"]),
        ):
            said = []
            splitter = types.SimpleNamespace(**{name: lambda *words, name=name: said.append(" ".join((name, *words))) for name in ("slo", "set_mode", "set_quota")})
            process = real._Process(types.SimpleNamespace(splitter=splitter, runner=types.SimpleNamespace(run_directory=lambda identity: "")), (config,))
            process._split(config)
            self.assertEqual(said, expected)


class Table(unittest.TestCase):
    def test_against_the_right_base(self):
        rows, _ = measured({
            "alone-native": {"mm": figures(1000), "big": figures(500)},
            "alone": {"mm": figures(900), "big": figures(500)},
            "resting": {"mm": figures(800), "big": {"error": "701"}},
            "time-slicing": {"mm": figures(20), "big": figures(10)},
            "shared": {"mm": {**figures(760), "renderer_fps": 97.25}, "big": {"error": "701"}},
            "sliced": {"mm": figures(400), "big": figures(200)},
            "mixed": {"mm": figures(900), "big": figures(100)},
        })
        lines = real.table(rows)
        self.assertEqual(lines[2], "| mm | 1000 | 900 | 800 | 2.0 | 84.4 | 95.0 | 97.2 | 40.0 | 90.0 |")
        self.assertEqual(lines[3], "| big | 500 | 500 | - | 2.0 | did not run | did not run | - | 40.0 | 20.0 |")
        self.assertIn("shared 98.0 (p99 10.50 ms, 99.5 before)", lines[-1])


if __name__ == "__main__":
    unittest.main()
