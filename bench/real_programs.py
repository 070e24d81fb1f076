#!/usr/bin/env python3
"""Measures real, unmodified CUDA programs (PyTorch: bench/programs/torch_suite.py) beside a renderer.

  bench/real_programs.py --output docs/results       every program, 5 runs of each configuration: real_programs.json and a table
  bench/real_programs.py --programs sdpa --runs 1    one look

Configurations: alone-native; alone (libvuda_fit.so tells the libraries what fits); resting (vudactl run --attach --fit-kernels --over-limit reject,
compute off the graphics TPCs, beside a renderer that draws one frame a second); time-slicing; shared (the same beside one that draws all it can); sliced (native kernels, frames held to a target of 16.67 ms); mixed (vudactl run --attach, native kernels,
frames held to that target). Results are compared within each run, from run to run, and between shared, resting and alone. A kernel that cannot
share is refused (shared), or runs on a TSG of CUDA's own in turns with the renderer (mixed), or is refused there too; rows say so.

Exit status: as bench/corun.py; 77 when this machine has no NVIDIA GPU or no PyTorch.
"""

import argparse
import os
import subprocess
import sys

import corun
from corunlib import hardware, real
from corunlib.results import ResultFile
from corunlib.split import Splitter


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    hardware.add_arguments(parser, "real_programs.json goes", 0.5, "for each program in each run")
    parser.add_argument("--programs", help="comma-separated; default: all")
    parser.add_argument("--configs", default=",".join(real.CONFIGS), help="comma-separated; default: all")
    parser.add_argument("--python", default="python3", help="the one that has PyTorch")
    options = parser.parse_args(argv)
    options.configs = hardware.list_of(parser, options.configs, real.CONFIGS, "configuration")
    hardware.complete(options, kernel_us=720)
    return options


def main(argv):
    options = parse_arguments(argv)

    def body(stack, runner, facts):
        command = [options.python, os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "torch_suite.py")]
        command += ["--seconds", f"{options.seconds:g}", *(["--programs", options.programs] if options.programs else [])]
        fit_library = os.path.join(os.path.abspath(options.bin), "lib", "libvuda_fit.so")
        suite = real.SuiteRunner(runner, Splitter(stack), command, fit_library)
        rows, problems = real.measure(suite, options.configs, options.runs, corun.say)
        file = ResultFile(os.path.join(options.output, "real_programs.json") if options.output else None, "real_programs", facts)
        file.add(rows)
        file.write()
        return real.table(rows), problems, None

    if os.path.exists("/dev/nvidiactl") and subprocess.run([options.python, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
        print(f"real_programs: {options.python} has no PyTorch; nothing is measured", file=sys.stderr)
        return 77
    return hardware.run("real_programs", options, argv, body)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
