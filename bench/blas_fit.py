#!/usr/bin/env python3
"""Which kernels cuBLASLt has for a matrix product, and how fast the fastest is that may run beside graphics.

  bench/blas_fit.py --output docs/results       blas_fit.json and a table
  bench/blas_fit.py --limit 49152               bytes of shared memory a block that may run beside graphics, as launch descriptors count it

For each product: the answers of cublasLtMatmulAlgoGetHeuristic, of which the first is what programs run, and all that cublasLtMatmulAlgoCheck lets pass
of every algorithm with every tile and every number of stages. What a kernel wants is read from a captured launch, so that nothing over the limit
needs to run. Alone on the GPU, without VUDA. Needs PyTorch (for memory, streams and cuBLASLt itself).

Exit status: 0; 64 usage; 77 when this machine has no NVIDIA GPU or no PyTorch; as bench/corun.py when a signal ended it.
"""

import argparse
import ctypes
import datetime
import os
import re
import statistics
import sys

from corunlib import commands, ending, results
from corunlib.results import row

RESERVED = 1024  # bytes that CUDA adds to each block's shared memory
REPEATS = 20
WORKSPACE = 32 << 20
HEURISTICS = 64

# Numbers of cublasLt.h, cublas_api.h and library_types.h.
TRANSPOSE_A, MOST_WORKSPACE = 3, 1
TILE, STAGES = 1, 6  # CUBLASLT_ALGO_CONFIG_*
TILES_OF, STAGES_OF = 6, 13  # CUBLASLT_ALGO_CAP_*
COMPUTE_32F, COMPUTE_TF32 = 68, 77
R_32F, R_16F, R_16BF = 0, 2, 14
SHARED_OF_FUNCTION = 1  # CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES

PRODUCTS = {  # name: m, n, k, type, how it is computed, first operand transposed
    "bf16-4096": (4096, 4096, 4096, R_16BF, COMPUTE_32F, False),
    "bf16-2048x2048x512": (2048, 2048, 512, R_16BF, COMPUTE_32F, True),
    "fp16-1024": (1024, 1024, 1024, R_16F, COMPUTE_32F, False),
    "tf32-2048": (2048, 2048, 2048, R_32F, COMPUTE_TF32, False),
    "fp32-2048": (2048, 2048, 2048, R_32F, COMPUTE_32F, False),
}


class Algorithm(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64 * 8)]


class Heuristic(ctypes.Structure):
    _fields_ = [("algorithm", Algorithm), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int), ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4)]


class KernelNode(ctypes.Structure):
    _fields_ = [("func", ctypes.c_void_p), ("shape", ctypes.c_uint * 6), ("shared", ctypes.c_uint), ("pad", ctypes.c_uint)]
    _fields_ += [("params", ctypes.c_void_p), ("extra", ctypes.c_void_p), ("kern", ctypes.c_void_p), ("ctx", ctypes.c_void_p)]


def library(name):
    """A library that PyTorch has loaded."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            path = line.split()[-1]
            if re.search(rf"/{name}\.so\.\d+[^/]*$", path):
                return ctypes.CDLL(path)
    raise OSError(f"{name} is not loaded")


class Blas:
    def __init__(self, torch):
        self.torch = torch
        torch.zeros(8, 8, device="cuda") @ torch.zeros(8, 8, device="cuda")
        self.lt, self.cuda = library("libcublasLt"), library("libcuda")
        self.handle = ctypes.c_void_p()
        self._good(self.lt.cublasLtCreate(ctypes.byref(self.handle)))
        self.workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device="cuda")
        self.stream = torch.cuda.Stream()

    @staticmethod
    def _good(status):
        if status != 0:
            raise RuntimeError(f"cuBLASLt or CUDA says {status}")

    def _layout(self, kind, rows, columns):
        layout = ctypes.c_void_p()
        self._good(self.lt.cublasLtMatrixLayoutCreate(ctypes.byref(layout), kind, ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)))
        return layout

    def prepare(self, m, n, k, kind, compute, transposed):
        self.kind, self.compute = kind, compute
        self.operation, self.preference = ctypes.c_void_p(), ctypes.c_void_p()
        self._good(self.lt.cublasLtMatmulDescCreate(ctypes.byref(self.operation), compute, R_32F))
        flag = ctypes.c_int(int(transposed))
        self._good(self.lt.cublasLtMatmulDescSetAttribute(self.operation, TRANSPOSE_A, ctypes.byref(flag), ctypes.c_size_t(4)))
        self.layouts = [self._layout(kind, *((k, m) if transposed else (m, k))), self._layout(kind, k, n), self._layout(kind, m, n)]
        self._good(self.lt.cublasLtMatmulPreferenceCreate(ctypes.byref(self.preference)))
        most = ctypes.c_size_t(WORKSPACE)
        self._good(self.lt.cublasLtMatmulPreferenceSetAttribute(self.preference, MOST_WORKSPACE, ctypes.byref(most), ctypes.c_size_t(8)))
        self.memory = [self.torch.zeros(size, dtype=self.torch.float32, device="cuda") for size in (m * k, k * n, m * n)]

    def heuristics(self):
        a, b, c = self.layouts
        found, count = (Heuristic * HEURISTICS)(), ctypes.c_int()
        self._good(self.lt.cublasLtMatmulAlgoGetHeuristic(self.handle, self.operation, a, b, c, c, self.preference, HEURISTICS, found, ctypes.byref(count)))
        return [found[i].algorithm for i in range(count.value)]

    def _numbers(self, algorithm, capability):
        written = ctypes.c_size_t()
        self.lt.cublasLtMatmulAlgoCapGetAttribute(ctypes.byref(algorithm), capability, None, ctypes.c_size_t(0), ctypes.byref(written))
        numbers = (ctypes.c_int * max(1, written.value // 4))()
        self.lt.cublasLtMatmulAlgoCapGetAttribute(ctypes.byref(algorithm), capability, numbers, written, ctypes.byref(written))
        return list(numbers)[: written.value // 4] or [0]

    def every(self):
        """Each algorithm with each tile and number of stages that works for this product."""
        a, b, c = self.layouts
        ids, count = (ctypes.c_int * 512)(), ctypes.c_int()
        kinds = (self.kind,) * 4
        self._good(self.lt.cublasLtMatmulAlgoGetIds(self.handle, self.compute, R_32F, *kinds, 512, ids, ctypes.byref(count)))
        for number in list(ids)[: count.value]:
            base = Algorithm()
            if self.lt.cublasLtMatmulAlgoInit(self.handle, self.compute, R_32F, *kinds, number, ctypes.byref(base)) != 0:
                continue
            for tile in self._numbers(base, TILES_OF):
                for stages in self._numbers(base, STAGES_OF):
                    algorithm = Algorithm.from_buffer_copy(base)
                    for key, value in ((TILE, tile), (STAGES, stages)):
                        setting = ctypes.c_int(value)
                        if value:
                            self.lt.cublasLtMatmulAlgoConfigSetAttribute(ctypes.byref(algorithm), key, ctypes.byref(setting), ctypes.c_size_t(4))
                    checked = Heuristic()
                    status = self.lt.cublasLtMatmulAlgoCheck(self.handle, self.operation, a, b, c, c, ctypes.byref(algorithm), ctypes.byref(checked))
                    if status == 0 and checked.workspace <= WORKSPACE:
                        yield algorithm

    def run(self, algorithm):
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        a, b, c = (ctypes.c_void_p(tensor.data_ptr()) for tensor in self.memory)
        la, lb, lc = self.layouts
        space, stream = ctypes.c_void_p(self.workspace.data_ptr()), ctypes.c_void_p(self.stream.cuda_stream)
        scale = (ctypes.byref(one), a, la, b, lb, ctypes.byref(zero), c, lc, c, lc)
        return self.lt.cublasLtMatmul(self.handle, self.operation, *scale, ctypes.byref(algorithm), space, ctypes.c_size_t(WORKSPACE), stream)

    def shared(self, algorithm):
        """Bytes of shared memory a block of the largest kernel, as launch descriptors count it; None: it does not run."""
        stream, graph = ctypes.c_void_p(self.stream.cuda_stream), ctypes.c_void_p()
        self._good(self.cuda.cuStreamBeginCapture_v2(stream, 2))
        status = self.run(algorithm)
        if self.cuda.cuStreamEndCapture(stream, ctypes.byref(graph)) != 0 or not graph:
            return None
        count = ctypes.c_size_t()
        self.cuda.cuGraphGetNodes(graph, None, ctypes.byref(count))
        nodes = (ctypes.c_void_p * max(1, count.value))()
        self.cuda.cuGraphGetNodes(graph, nodes, ctypes.byref(count))
        largest = 0
        for node in list(nodes)[: count.value]:
            kernel, function, fixed = KernelNode(), ctypes.c_void_p(), ctypes.c_int()
            if self.cuda.cuGraphKernelNodeGetParams_v2(ctypes.c_void_p(node), ctypes.byref(kernel)) != 0:
                continue  # no kernel
            function.value = kernel.func
            if not function:
                self._good(self.cuda.cuKernelGetFunction(ctypes.byref(function), ctypes.c_void_p(kernel.kern)))
            self._good(self.cuda.cuFuncGetAttribute(ctypes.byref(fixed), SHARED_OF_FUNCTION, function))
            largest = max(largest, kernel.shared + fixed.value + RESERVED)
        self.cuda.cuGraphDestroy(graph)
        return largest if status == 0 and largest else None

    def microseconds(self, algorithm):
        torch = self.torch
        for _ in range(3):
            self._good(self.run(algorithm))
        times = []
        for _ in range(5):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record(self.stream)
            for _ in range(REPEATS):
                self.run(algorithm)
            end.record(self.stream)
            end.synchronize()
            times.append(1e3 * begin.elapsed_time(end) / REPEATS)
        return statistics.median(times)


def fastest(candidates, limit, bytes_of, time_of):
    """(how many fit, the fastest of them: (microseconds, bytes) or None)"""
    fitting = [(time_of(one), size) for one in candidates if (size := bytes_of(one)) is not None and size <= limit]
    return len(fitting), min(fitting) if fitting else None


def single(value):
    return {"median": value, "min": value, "max": value}


def measure(blas, name, limit):
    blas.prepare(*PRODUCTS[name])
    answers = blas.heuristics()
    metrics = {"native_us": blas.microseconds(answers[0]), "native_bytes": blas.shared(answers[0])}
    metrics["answers"] = len(answers)
    metrics["answers_that_fit"], _ = fastest(answers, limit, blas.shared, blas.microseconds)
    metrics["that_fit"], best = fastest(blas.every(), limit, blas.shared, blas.microseconds)
    if best:
        metrics["fastest_that_fits_us"], metrics["fastest_that_fits_bytes"] = best
    return row(name, "alone-compute", {key: single(value) for key, value in metrics.items()})


def table(rows):
    lines = ["| product | cuBLASLt's choice, us | its bytes a block | answers that fit | fastest that fits, us | % of its choice |", "| --- | --- | --- | --- | --- | --- |"]
    for entry in rows:
        m = {key: value["median"] for key, value in entry["metrics"].items()}
        best = m.get("fastest_that_fits_us")
        found = f"{best:.1f} | {100 * m['native_us'] / best:.0f}" if best else "none | -"
        lines.append(f"| {entry['case']} | {m['native_us']:.1f} | {m['native_bytes']} | {m['answers_that_fit']} of {m['answers']} | {found} |")
    return lines


def facts(torch, options, argv):
    with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
        driver = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", file.read()).group(1)
    here = os.path.dirname(os.path.abspath(__file__))
    commit = options.commit or commands.run(["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    command = " ".join(["bench/blas_fit.py", *argv])
    date = datetime.date.today().isoformat()
    return {"gpu": torch.cuda.get_device_name(0), "driver": driver, "cuda": torch.version.cuda, "commit": commit, "command": command, "date": date, "runs": 1}


def measure_all(blas, options, found):
    """Every product; the file is written after each. Exit status."""
    file = results.ResultFile(os.path.join(options.output, "blas_fit.json") if options.output else None, "blas_fit", found)
    for name in PRODUCTS:
        file.add([measure(blas, name, options.limit)])
    file.finish()
    print("\n".join(table(file.rows)))
    return 0


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=49152, help="bytes")
    parser.add_argument("--output", metavar="DIR")
    parser.add_argument("--commit")
    options = parser.parse_args(argv)
    try:
        import torch

        usable = torch.cuda.is_available()
    except ImportError:
        usable = False
    if not usable:
        print("blas_fit: no NVIDIA GPU, or no PyTorch; nothing is measured", file=sys.stderr)
        return 77
    return ending.orderly("blas_fit", lambda: measure_all(Blas(torch), options, facts(torch, options, argv)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
