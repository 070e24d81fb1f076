"""What bench/blas_fit.py makes of what cuBLASLt says, without a GPU."""

import os
import subprocess
import sys
import unittest

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, BENCH)

import blas_fit  # noqa: E402


class Fastest(unittest.TestCase):
    def test_of_those_that_fit(self):
        sizes = {"a": 50176, "b": 49152, "c": 20000, "d": None}
        times = {"a": 1.0, "b": 9.0, "c": 7.0}
        self.assertEqual(blas_fit.fastest(list(sizes), 49152, sizes.get, lambda one: times[one]), (2, (7.0, 20000)))

    def test_what_is_too_large_is_never_run(self):
        def run(one):
            raise AssertionError(f"{one} was run")

        self.assertEqual(blas_fit.fastest(["a"], 49152, lambda one: 49153, run), (0, None))


class Table(unittest.TestCase):
    def test_with_and_without_a_kernel_that_fits(self):
        figures = {"native_us": 10.0, "native_bytes": 200000, "answers": 8, "answers_that_fit": 0, "that_fit": 2}
        some = {**figures, "fastest_that_fits_us": 40.0, "fastest_that_fits_bytes": 30000}
        rows = [blas_fit.row(name, "alone-compute", {key: blas_fit.single(value) for key, value in metrics.items()}) for name, metrics in (("x", some), ("y", figures))]
        self.assertEqual(blas_fit.table(rows)[2:], ["| x | 10.0 | 200000 | 0 of 8 | 40.0 | 25 |", "| y | 10.0 | 200000 | 0 of 8 | none | - |"])


class Alone(unittest.TestCase):
    def test_without_a_gpu_it_says_so(self):
        done = subprocess.run([sys.executable, os.path.join(BENCH, "blas_fit.py")], capture_output=True, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, check=False)
        self.assertEqual(done.returncode, 77)
        self.assertIn("nothing is measured", done.stderr)


if __name__ == "__main__":
    unittest.main()
