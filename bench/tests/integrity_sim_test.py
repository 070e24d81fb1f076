"""bench/integrity.py with VUDA's own programs on the simulated GPU: all is right, and a fault is seen."""

import glob
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
import check_results  # noqa: E402

BIN = os.environ["BENCH_BIN"]
LIMIT = 240


class OnTheSimulatedGpu(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def start(self, seconds):
        words = [sys.executable, "-B", os.path.join(HERE, "..", "integrity.py"), "--bin", BIN, "--sim", "--seconds", seconds]
        words += ["--output", self.folder, "--commit", "0123456"]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "TMPDIR": self.folder})

    def rows(self):
        path = os.path.join(self.folder, "integrity.json")
        self.assertEqual(check_results.check_file(path), [])
        with open(path, encoding="utf-8") as file:
            return {row["case"]: row for row in json.load(file)["rows"]}

    def test_all_is_right(self):
        process = self.start("5")
        out, _ = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 0, out)
        figures = {name: value["median"] for name, value in self.rows()["all"]["metrics"].items()}
        self.assertGreaterEqual(figures["shared_s"], 5)
        self.assertGreaterEqual(figures["attaches"], 10)
        self.assertGreater(figures["frames_checked"], 0)
        self.assertEqual(figures["frames_checked"], figures["frames_drawn"])
        self.assertEqual((figures["frames_wrong"], figures["results_wrong"]), (0, 0))

    def vudactl(self, *words):
        sockets = glob.glob(os.path.join(self.folder, "vuda-integrity-*", "vudad.sock"))
        if not sockets:
            return ""
        done = subprocess.run([os.path.join(BIN, "bin", "vudactl"), "--socket", sockets[0], *words], capture_output=True, text=True, timeout=30, check=False)
        return done.stdout if done.returncode == 0 else ""

    def test_a_fault_ends_it(self):
        process = self.start("600")
        deadline = time.monotonic() + LIMIT
        sharing = []
        while not sharing and process.poll() is None and time.monotonic() < deadline:
            status = json.loads(self.vudactl("status", "--json") or "{}")
            sharing = [one["peer"]["pid"] for one in status.get("sessions", ()) if one["state"] == "sharing"]
            time.sleep(0.05)
        self.assertTrue(sharing, "nobody shared")
        subprocess.run([os.path.join(BIN, "bin", "vuda-simctl"), "--socket", status["daemon"]["sim_socket"], "fault", f"31@{sharing[0]}"], check=True, timeout=30)
        out, _ = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 3, out)
        self.assertIn("Xid 31", out)
        self.assertIn("600 s are asked for", out)
        self.assertEqual(self.rows()["all"]["xids"], 1)


if __name__ == "__main__":
    unittest.main()
