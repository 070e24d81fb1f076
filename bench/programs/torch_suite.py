#!/usr/bin/env python3
"""Real CUDA work, unmodified: PyTorch programs, one after the other, each for a moment, as one line of JSON.

  torch_suite.py --seconds 0.5 [--programs softmax,sdpa] [--ready-file FILE --start-file FILE]

{"torch", "gpu", "programs": {NAME: {"rate", "p50_ms", "p99_ms", "checksum"} or {"error"}}}. A program whose last result is not its first one is
an error: within a thousandth, since libraries may choose kernels that add in any order. bench/real_programs.py runs it beside a renderer."""

import argparse
import json
import os
import time
import torch


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
        "conv2d-cudnn": lambda: convolution(True),
        "conv2d-own": lambda: convolution(False),
        "transformer-bf16": lambda: torch.inference_mode()(transformer()),
        "transformer-bf16-graph": lambda: graph_of(torch.inference_mode()(transformer())),
        "cnn-training": cnn_training,
    }


def measure(prepare, seconds):
    torch.manual_seed(7)
    function = prepare()
    for _ in range(3):
        first = function()
    torch.cuda.synchronize()
    first = first.detach().float().clone()
    times = []
    end = time.monotonic() + seconds
    begin = last = time.monotonic()
    while last < end:
        out = function()
        torch.cuda.synchronize()
        now = time.monotonic()
        times.append(now - last)
        last = now
    scale = first.abs().max().item()
    if not torch.allclose(out.detach().float(), first, rtol=1e-3, atol=1e-3 * scale):
        raise RuntimeError("the last result is not the first one")
    times.sort()
    return {
        "rate": len(times) / (last - begin),
        "p50_ms": 1e3 * times[len(times) // 2],
        "p99_ms": 1e3 * times[min(len(times) - 1, int(0.99 * len(times)))],
        "checksum": float(first.double().abs().sum()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each program")
    parser.add_argument("--programs", help="comma-separated; default: all")
    parser.add_argument("--ready-file")
    parser.add_argument("--start-file")
    options = parser.parse_args()
    known = programs()
    names = options.programs.split(",") if options.programs else list(known)
    torch.ones(1, device="cuda").sum().item()
    if options.ready_file:
        open(options.ready_file, "w", encoding="ascii").close()
    while options.start_file and not os.path.exists(options.start_file):
        time.sleep(0.01)
    results = {}
    for name in names:
        try:
            results[name] = measure(known[name], options.seconds)
        except Exception as error:  # whatever it is, the others are measured
            results[name] = {"error": str(error).splitlines()[0][:200]}
        torch.cuda.empty_cache()
    print(json.dumps({"program": "torch_suite", "torch": torch.__version__, "gpu": torch.cuda.get_device_name(0), "programs": results}))


if __name__ == "__main__":
    main()
