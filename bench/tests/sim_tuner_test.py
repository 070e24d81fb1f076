"""bench/tuner.py from end to end on the simulated GPU: vudad, shim, tuner, and the drivers' stand-ins. BENCH_BIN: the build tree."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(BENCH, "..", "scripts"))

import check_results  # noqa: E402


class SimulatedTuner(unittest.TestCase):
    def test_both_targets_from_the_worst_quota(self):
        with tempfile.TemporaryDirectory() as folder:
            # Slow and forgiving: what is looked at is the way of things, which a busy machine must not change.
            words = ["--sim", "--cases", "dual-slo", "--starts", "low", "--runs", "1", "--stretch", "4", "--miss", "0.3"]
            words += ["--seconds", "3", "--reference-seconds", "1", "--output", folder]
            command = [sys.executable, "-B", os.path.join(BENCH, "tuner.py"), "--bin", os.environ["BENCH_BIN"], *words]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            path = os.path.join(folder, "tuner.json")
            self.assertEqual(check_results.check_file(path), [])
            with open(path, encoding="utf-8") as file:
                rows = {row["config"]: row for row in json.load(file)["rows"]}
        self.assertEqual(list(rows), ["alone-renderer", "alone-compute", "time-slicing", "shared", "tuned"])
        tuned = {name: value["median"] for name, value in rows["tuned"]["metrics"].items()}
        self.assertGreater(tuned["step_miss_before"], 0.9, "the lowest level misses the deadline")
        self.assertGreaterEqual(tuned["decisions"], 1)
        self.assertGreater(tuned["compute_tpcs"], 8)
        self.assertLess(tuned["step_miss"], 0.5)
        self.assertIn("at the end ", rows["tuned"]["note"])
        self.assertIn("->", rows["tuned"]["note"])


if __name__ == "__main__":
    unittest.main()
