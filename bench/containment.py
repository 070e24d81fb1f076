#!/usr/bin/env python3
"""Lets programs that share a TSG fault, not fit, and be killed, and looks what becomes of the others.

  bench/containment.py --output docs/results          all cases on an NVIDIA GPU: containment.json. THE LAST CASE CAUSES AN Xid
  bench/containment.py --cases unshare,cuda-killed    some
  bench/containment.py --sim                          on the simulated GPU, where the fault is planted

Cases, each with a renderer and CUDA programs of its own:
  unshare          vudactl run --over-limit unshare, kernels over the limit: error 701 once, then unshared, then let back
  cuda-killed      SIGKILL of a CUDA program that shares, in the midst of its kernels
  renderer-killed  SIGKILL of the renderer: what CUDA sees; the next renderer shares again
  illegal-address  a kernel that writes to where nothing is: how soon it is noticed, who is told and held off, and every step of the way out. Where the GPU
                   repeats the access instead of ending the TSG, it is to be told within 3 s that the program is stuck, which is killed then
The last one ends the TSG, and it may leave the GPU unable to share until it is reset (docs/faults.md); rows say what was not to be had then.
A row's figures are times and checks, which are 1 or 0.

Exit status: 0 all as it should be, 1 not, 64 usage, 69 something is missing, 77 no NVIDIA GPU; as bench/corun.py when a signal ended it.
"""

import argparse
import os
import shutil
import sys

import corun
from corunlib import containment, hardware

# Short, so that their ends are seen; a culprit has to start within the first one.
_FAULT_MS, _UNSHARE_MS = 60000, 5000


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    hardware.add_arguments(parser, "containment.json goes", 0.5, "not used", runs=1)
    parser.add_argument("--cases", default=",".join(containment.CASES), help="comma-separated; default: all")
    parser.add_argument("--sim", action="store_true", help="on the simulated GPU")
    parser.add_argument("--kernel-us", type=float, default=300)
    options = parser.parse_args(argv)
    chosen = hardware.list_of(parser, options.cases, containment.CASES, "case")
    options.cases = [name for name in containment.CASES if name in chosen]
    if options.runs != 1:
        parser.error("--runs: every case is run once")
    hardware.complete(options, kernel_us=options.kernel_us, sim=options.sim)
    return options


def settings(work):
    """Words for vudad: back-offs that end while one looks, and nothing remembered from elsewhere."""
    path = os.path.join(work, "vudad.toml")
    with open(path, "w", encoding="ascii") as file:
        file.write(f"[faults]\nbackoff_ms = {_FAULT_MS}\n[unshare]\nbackoff_ms = {_UNSHARE_MS}\n")
    state = os.path.join(work, "vudad-state")
    os.mkdir(state, 0o700)
    return ["--config", path, "--state-dir", state]


def programs_of(stack, runner, options):
    if not options.sim:
        return containment.HardwarePrograms(stack, runner.workload, options.device)
    other = os.path.join(runner.work, "another-program")
    shutil.copy(stack.program("vuda-sim-compute"), other)
    return containment.SimulatedPrograms(stack, other)


def main(argv):
    options = parse_arguments(argv)

    def body(stack, runner, facts):
        file = hardware.result_file(options, "containment", facts)
        test = containment.Containment(runner, programs_of(stack, runner, options), _UNSHARE_MS, corun.say)
        lines, problems = [], []
        for name in options.cases:
            case = test.run(name)
            file.add([case.row()])
            lines.append(f"{name}: " + ", ".join(f"{figure} {value:g}" for figure, value in case.figures.items()))
            problems += [f"{name}: {text}" for text in case.failed]
        return lines, problems, None

    return hardware.run("containment", options, argv, body, settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
