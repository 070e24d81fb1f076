#!/usr/bin/env python3
"""Measures real, unmodified CUDA programs (PyTorch: bench/programs/torch_suite.py) beside a renderer.

  bench/real_programs.py --output docs/results       every program, 5 runs of each configuration: real_programs.json and a table
  bench/real_programs.py --programs sdpa --runs 1    one look

Configurations: alone-native; alone (libvuda_fit.so tells the libraries what fits); time-slicing; shared (vudactl run --attach --fit-kernels,
compute off the graphics TPCs); sliced (native kernels, frames held to a target of 16.67 ms). Results are compared within each run, from
run to run, and between shared and alone. A kernel that cannot share is refused, and its row says so.

Exit status: as bench/corun.py; 77 when this machine has no NVIDIA GPU or no PyTorch.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import corun
from corunlib import real
from corunlib.errors import CorunError, RunFailed, XidSeen
from corunlib.matrix import Runner
from corunlib.results import ResultFile
from corunlib.split import Splitter
from corunlib.stack import Stack
from corunlib.workload import HardwareWorkload
from corunlib.xid import KernelXidLog, NoXidLog


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=corun.default_prefix(), metavar="DIR", help="build or packed tree: has bin/ and lib/")
    parser.add_argument("--programs", help="comma-separated; default: all")
    parser.add_argument("--configs", default=",".join(real.CONFIGS), help="comma-separated; default: all")
    parser.add_argument("--runs", type=int, default=5, help="repetitions of each configuration")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each program in each run")
    parser.add_argument("--python", default="python3", help="the one that has PyTorch")
    parser.add_argument("--output", metavar="DIR", help="where real_programs.json goes; without it only the table is printed")
    parser.add_argument("--commit", help="what is measured; default: git's HEAD, or DIR/COMMIT")
    parser.add_argument("--ignore-xids", action="store_true", help="go on without the kernel log")
    parser.add_argument("--log", metavar="FILE", help="append what vudad and every program wrote")
    parser.add_argument("--device", help="GPU UUID")
    parser.add_argument("--frame-ms", type=float, default=10)
    options = parser.parse_args(argv)
    options.configs = options.configs.split(",")
    for config in options.configs:
        if config not in real.CONFIGS:
            parser.error(f"unknown configuration '{config}'")
    # What HardwareWorkload wants to know beyond that.
    options.sim, options.smem, options.fps, options.draws, options.kernel_us = False, 0, 0.0, 1, 720
    options.width, options.height, options.frames_in_flight = 1920, 1080, 2
    options.frame_iterations = options.kernel_iterations = None
    options.render_load, options.compute_load, options.blocks = "fragment", "fma", 0
    return options


def main(argv):
    options = parse_arguments(argv)
    if not os.path.exists("/dev/nvidiactl"):
        print("real_programs: this machine has no NVIDIA GPU; nothing is measured", file=sys.stderr)
        return 77
    if subprocess.run([options.python, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
        print(f"real_programs: {options.python} has no PyTorch; nothing is measured", file=sys.stderr)
        return 77
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = tempfile.mkdtemp(prefix="vuda-real-")
    say = corun.say
    try:
        os.chmod(work, 0o755)
        prefix = os.path.abspath(options.bin)
        if options.output:
            os.makedirs(options.output, exist_ok=True)
        with Stack(prefix, work) as stack:
            xids = NoXidLog() if options.ignore_xids else KernelXidLog()
            runner = Runner(stack, HardwareWorkload(stack, options), xids, options.seconds, work, options.log)
            facts = corun.learn_facts(options, prefix, runner, argv)
            facts["command"] = facts["command"].replace("bench/corun.py", "bench/real_programs.py", 1)
            command = [options.python, os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "torch_suite.py")]
            command += ["--seconds", f"{options.seconds:g}", *(["--programs", options.programs] if options.programs else [])]
            suite = real.SuiteRunner(runner, Splitter(stack), command, os.path.join(prefix, "lib", "libvuda_fit.so"))
            rows, problems = real.measure(suite, options.configs, options.runs, say)
            file = ResultFile(os.path.join(options.output, "real_programs.json") if options.output else None, "real_programs", facts)
            file.add(rows)
            file.write()
            if options.log:
                stack.append_log(options.log)
            xids.close()
        print("\n".join(real.table(rows)))
        for problem in problems:
            print("problem: " + problem)
        return 1 if problems else 0
    except (CorunError, RunFailed) as error:
        say(f"real_programs: {error}")
        return 69
    except XidSeen as error:
        say(f"real_programs: stopped at {error}")
        return 3
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
