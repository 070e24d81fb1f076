#!/usr/bin/env python3
"""Real CUDA work, unmodified: PyTorch programs, one after the other, each for a moment, as one line of JSON.

  torch_suite.py --seconds 0.5 [--programs softmax,sdpa] [--ready-file FILE --start-file FILE ...]
  torch_suite.py --verify --seconds 20 [--reference FILE] [--context-file FILE]

{"torch", "gpu", "programs": {NAME: {"rate", "p50_ms", "p99_ms", "checksum", "begin", "end"} or {"error"}}}. A program whose last result is not its first one is
an error: within a thousandth, since libraries may choose kernels that add in any order. All are prepared first. With several --start-file they are
measured anew, with a line, each time that the next one appears: what surrounds them can change while the process stays the same.
bench/real_programs.py runs it beside a renderer.

--verify: all programs in turns, round and round, each result compared with the first one: bit for bit, where the "programs" of an earlier run (FILE)
say that the program is "exact" and the first result has their bits, else within a thousandth. {"programs": {NAME: {"checks", "wrong", "exact", "bits", "sum", "text"} or {"error"}}}.
With a reference "as_alone" says whether the first result has the reference's bits. Exit status 1 when anything was wrong. bench/integrity.py runs it."""

import argparse
import hashlib
import json
import math
import os
import signal
import sys
import time
import torch

import verify


def programs():
    """{name: function that prepares it and returns what is to be run again and again}"""
    dev, f = "cuda", torch.nn.functional
    bf16 = torch.bfloat16

    def rand(*shape, dtype=torch.float32):
        return torch.randn(*shape, device=dev, dtype=dtype)

    def graph_of(function):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                function()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = function()

        def replay():
            graph.replay()
            return out

        replay.inputs = function  # the graph reads them where they are
        return replay

    def copy():
        a, b = rand(1 << 26), torch.empty(1 << 26, device=dev)
        return lambda: b.copy_(a)

    def softmax():
        x = rand(4096, 4096)
        return lambda: torch.softmax(x, 1)

    def layer_norm():
        x = rand(16384, 1024)
        return lambda: f.layer_norm(x, (1024,))

    def sort():
        x = rand(1 << 22)
        return lambda: torch.sort(x)[0]

    def scan():
        x = torch.randint(0, 8, (1 << 24,), device=dev)
        return lambda: torch.cumsum(x, 0)

    def embedding():
        table, index = rand(100000, 256), torch.randint(0, 100000, (65536,), device=dev)
        return lambda: f.embedding(index, table)

    def gelu():
        x = rand(1 << 24)
        return lambda: f.gelu(x)

    def matmul(n, dtype=torch.float32):
        a, b = rand(n, n, dtype=dtype), rand(n, n, dtype=dtype)
        return lambda: a @ b

    def triton_matmul():
        from triton_matmul import product

        a, b = rand(4096, 4096, dtype=bf16), rand(4096, 4096, dtype=bf16)
        return lambda: product(a, b)

    def sdpa():
        q, k, v = (rand(4, 16, 1024, 64, dtype=bf16) for _ in range(3))
        return lambda: f.scaled_dot_product_attention(q, k, v)

    def mlp_policy():
        net = torch.nn.Sequential(torch.nn.Linear(48, 256), torch.nn.ELU(), torch.nn.Linear(256, 128), torch.nn.ELU(), torch.nn.Linear(128, 12))
        net, x = net.to(dev), rand(4096, 48)
        return lambda: net(x)

    def particles():
        position, velocity = rand(1 << 20, 3), rand(1 << 20, 3)

        def step():
            p, v = position, velocity
            for _ in range(4):
                v = v - 0.01 * p - 0.001 * v * v.norm(dim=1, keepdim=True)
                p = p + 0.01 * v
            return p

        return step

    def convolution(cudnn):
        x, w = rand(8, 64, 128, 128), rand(64, 64, 3, 3)

        def run():
            with torch.backends.cudnn.flags(enabled=cudnn, deterministic=True):
                return f.conv2d(x, w, padding=1)

        return run

    def transformer():
        layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0).to(dev, bf16).eval()
        x = rand(8, 256, 512, dtype=bf16)
        return lambda: layer(x)

    def cnn_training():
        torch.manual_seed(1)
        net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10)
        ).to(dev)
        x, y = rand(32, 3, 64, 64), torch.randint(0, 10, (32,), device=dev)

        def step():
            with torch.backends.cudnn.flags(enabled=True, deterministic=True):
                net.zero_grad(set_to_none=True)
                loss = f.cross_entropy(net(x), y)
                loss.backward()
            return net[0].weight.grad

        return step

    return {
        "copy": copy,
        "softmax": softmax,
        "layer-norm": layer_norm,
        "sort": sort,
        "scan": scan,
        "embedding": embedding,
        "matmul-fp32-1024": lambda: matmul(1024),
        "gelu": gelu,
        "matmul-fp32-2048": lambda: matmul(2048),
        "attention-sdpa": sdpa,
        "mlp-policy": mlp_policy,
        "particles": particles,
        "gelu-graph": lambda: graph_of(gelu()),
        "matmul-bf16-4096": lambda: matmul(4096, bf16),
        "matmul-bf16-triton": triton_matmul,
        "conv2d-cudnn": lambda: convolution(True),
        "conv2d-own": lambda: convolution(False),
        "transformer-bf16": lambda: torch.inference_mode()(transformer()),
        "transformer-bf16-graph": lambda: graph_of(torch.inference_mode()(transformer())),
        "cnn-training": cnn_training,
    }


class Prepared:
    """One program with its first result, or why there is none."""

    def __init__(self, prepare):
        self.error = None
        try:
            torch.manual_seed(7)
            self._function = prepare()
            for _ in range(3):
                first = self._function()
            torch.cuda.synchronize()
            self._first = first.detach().float().clone()
            self._scale = self._first.abs().max().item()
            if not math.isfinite(self._scale):
                raise RuntimeError("the first result holds something that is no number")
        except Exception as error:  # whatever it is, the others are measured
            self.error = _line(error)

    def measure(self, seconds):
        if self.error:
            return {"error": self.error}
        try:
            return self._measure(seconds)
        except Exception as error:
            return {"error": _line(error)}

    def _measure(self, seconds):
        times = []
        end = time.monotonic() + seconds
        begin = last = time.monotonic()
        while last < end:
            out = self._function()
            torch.cuda.synchronize()
            now = time.monotonic()
            times.append(now - last)
            last = now
        if not torch.allclose(out.detach().float(), self._first, rtol=1e-3, atol=1e-3 * self._scale):
            raise RuntimeError("the last result is not the first one")
        times.sort()
        return {
            "rate": len(times) / (last - begin),
            "p50_ms": 1e3 * times[len(times) // 2],
            "p99_ms": 1e3 * times[min(len(times) - 1, int(0.99 * len(times)))],
            "checksum": float(self._first.double().abs().sum()),
            "begin": begin,
            "end": last,
        }


def _line(error):
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


class TorchOps:
    """What verify.py has to know of tensors."""

    seed = staticmethod(lambda: torch.manual_seed(7))
    wait = staticmethod(torch.cuda.synchronize)

    @staticmethod
    def keep(tensor):
        return tensor.detach().clone()

    @staticmethod
    def same(one, other):
        one, other = one.detach().contiguous(), other.contiguous()
        return one.shape == other.shape and torch.equal(one.view(torch.uint8), other.view(torch.uint8))

    @staticmethod
    def close(one, other):
        one, other = one.detach().float(), other.float()
        return torch.allclose(one, other, rtol=1e-3, atol=1e-3 * other.abs().max().item())

    @staticmethod
    def difference(one, other):
        one, other = one.detach().double().flatten(), other.double().flatten()
        return f"{int((one != other).sum())} of {one.numel()} elements differ, by {float((one - other).abs().max()):g} at most"

    @staticmethod
    def digest(tensor):
        """(the bits' hash, the sum of what they mean), both made on the host."""
        host = tensor.detach().contiguous().cpu()
        return hashlib.sha256(memoryview(host.view(torch.uint8).numpy()).cast("B")).hexdigest(), float(host.double().abs().sum())


def verified(names, known, options):
    """(seconds, {name: its figures})"""
    reference = None
    if options.reference:
        with open(options.reference, encoding="utf-8") as file:
            reference = json.load(file)
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    prepared, errors = verify.prepare_all(TorchOps, known, names, reference)
    be_ready(options)
    wait_for(options.start_file[0] if options.start_file else None)
    seconds = verify.go_round(prepared, errors, options.seconds, lambda: bool(stop))
    return seconds, verify.results(prepared, errors)


def be_ready(options):
    if options.ready_file:
        open(options.ready_file, "w", encoding="ascii").close()


def wait_for(path):
    while path and not os.path.exists(path):
        time.sleep(0.01)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each program")
    parser.add_argument("--programs", help="comma-separated; default: all")
    parser.add_argument("--ready-file")
    parser.add_argument("--start-file", action="append", default=[], help="measure when it exists; once for each that is named")
    parser.add_argument("--verify", action="store_true", help="compare every result instead of measuring; --seconds is for all programs together")
    parser.add_argument("--reference", metavar="FILE", help="JSON: what --verify printed as programs")
    parser.add_argument("--context-file", metavar="FILE", help="touch no GPU before this file exists")
    options = parser.parse_args()
    known = programs()
    names = options.programs.split(",") if options.programs else list(known)
    wait_for(options.context_file)
    torch.ones(1, device="cuda").sum().item()
    facts = {"program": "torch_suite", "torch": torch.__version__, "gpu": torch.cuda.get_device_name(0)}
    if options.verify:
        seconds, found = verified(names, known, options)
        print(json.dumps({**facts, "seconds": seconds, "programs": found}))
        sys.exit(1 if any(one.get("wrong") for one in found.values()) else 0)
    prepared = {name: Prepared(known[name]) for name in names}
    be_ready(options)
    for path in options.start_file or [None]:
        wait_for(path)
        print(json.dumps({**facts, "programs": {name: program.measure(options.seconds) for name, program in prepared.items()}}), flush=True)


if __name__ == "__main__":
    main()
