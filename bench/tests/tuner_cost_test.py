"""What bench/tuner_cost.py makes of the benchmark's answer."""

import os
import sys
import unittest

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, BENCH)

import tuner_cost  # noqa: E402


def answer(name, mean, p99=90.0):
    return {"name": name, "mean_cpu_us": mean, "p50_cpu_us": 8.0, "p99_cpu_us": p99, "memory_KiB": 70.0}


class TunerCost(unittest.TestCase):
    def test_names(self):
        self.assertEqual(tuner_cost.case_of("tick/64/9/1/iterations:5000"), ("tick-64-9-deciding", 64, 9))
        self.assertEqual(tuner_cost.case_of("tick/1/5/0"), ("tick-1-5-resting", 1, 5))
        self.assertIsNone(tuner_cost.case_of("add_million"))

    def test_rows_and_the_worst_run(self):
        runs = [
            {"benchmarks": [answer("tick/64/9/0/x", 12.0), answer("tick/1/5/0/x", 60.0), answer("add_million", 1.0)]},
            {"benchmarks": [answer("tick/64/9/0/x", 51.0), answer("tick/1/5/0/x", 60.0)]},
        ]
        rows, judged = tuner_cost.rows_of(runs, "a CPU")
        self.assertEqual([row["case"] for row in rows], ["tick-64-9-resting", "tick-1-5-resting"])
        self.assertEqual(rows[0]["metrics"]["tick_mean_us"], {"median": 31.5, "min": 12.0, "max": 51.0})
        self.assertEqual(rows[0]["note"], "a CPU")
        # The budget is for 64 processes; of the slowest ticks two runs say too little.
        self.assertEqual(judged, [("tick-64-9-resting", "mean of the worst run", 51.0)])

    def test_the_99th_percentile_of_three_runs(self):
        runs = [{"benchmarks": [answer("tick/64/96/1/x", 12.0, p99)]} for p99 in (40.0, 300.0, 51.0)]
        _, judged = tuner_cost.rows_of(runs, "a CPU")
        self.assertEqual(judged[1], ("tick-64-96-deciding", "99th percentile, median of the runs", 51.0))

    def test_not_built(self):
        self.assertEqual(tuner_cost.main(["--bin", "/nonexistent"]), 69)


if __name__ == "__main__":
    unittest.main()
