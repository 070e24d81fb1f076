#!/usr/bin/env python3
"""Verifies every frame and every CUDA result while a renderer and CUDA programs share a TSG.

  bench/integrity.py --output docs/results           ten minutes of sharing on an NVIDIA GPU (twelve by the clock): integrity.json
  bench/integrity.py --seconds 60                    a look
  bench/integrity.py --sim --seconds 5               how it works, on the simulated GPU

The renderer (vuda-bench-mirror draw) compares each of its frames whole with the one that the CPU has checked, and maps and unmaps control buffers
all the time. Beside it come, one after the other, each a new process that attaches: vuda-bench-compute (arithmetic; memory; kernels over the
limit, which policy native runs elsewhere), each launch verified by the next; and PyTorch programs (programs/torch_suite.py --verify), with kernels that
fit and, under policy native, with others among them, each result compared with the first one. The split changes every few seconds.

Says every ten seconds how far it is. May run detached: setsid nohup bench/integrity.py ... >integrity.out 2>&1 &. The result file is written after each
program, without the renderer's figures, which are there when the renderer has ended; it ends, and tells them, at SIGTERM too.

Exit status: 0 all right; 1 anything wrong, or less sharing verified than --seconds; 3 stopped by an Xid; 64 usage; 69 something is missing; 77 no GPU; as
bench/corun.py when a signal ended it.
"""

import argparse
import os
import sys

import corun
from corunlib import commands, hardware, integrity
from corunlib.errors import CorunError
from corunlib.split import Splitter


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    hardware.add_arguments(parser, "integrity.json goes", 600, "of sharing that are verified", runs=1)
    parser.add_argument("--sim", action="store_true", help="on the simulated GPU")
    parser.add_argument("--attach-seconds", type=float, default=20, help="that each program shares")
    parser.add_argument("--change-seconds", type=float, default=2, help="between two changes of the split")
    parser.add_argument("--map-ms", type=float, default=200, help="between two control buffers that the renderer maps; 0: it maps none")
    parser.add_argument("--check-stride", type=int, default=1, help="compare every n-th row of each frame")
    parser.add_argument("--python", default="python3", help="the one that has PyTorch")
    parser.add_argument("--kinds", help="comma-separated: only these kinds of programs (compute-fma, torch-fitting, ...)")
    parser.add_argument("--no-torch", action="store_true", help="without the PyTorch programs")
    parser.add_argument("--fitting", default=integrity.FITTING, help="programs of the suite whose kernels fit")
    parser.add_argument("--mixed", default=integrity.MIXED, help="programs of the suite for policy native")
    parser.add_argument("--kernel-us", type=float, default=300)
    options = parser.parse_args(argv)
    if options.runs != 1:
        parser.error("--runs: one run, of --seconds")
    if options.seconds <= 0 or options.attach_seconds <= 0 or options.change_seconds <= 0 or options.map_ms < 0:
        parser.error("--seconds, --attach-seconds and --change-seconds must be positive")
    # Each kind of program has its turn in a short run too.
    options.attach_seconds = min(options.attach_seconds, max(0.5, options.seconds / 10))
    options.change_seconds = min(options.change_seconds, options.attach_seconds / 4)
    hardware.complete(options, kernel_us=options.kernel_us, sim=options.sim)
    return options


def has_torch(python):
    return commands.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0


def chosen(kinds, names):
    known = {kind.name for kind in kinds}
    if names and not set(names.split(",")) <= known:
        raise CorunError(f"--kinds {names}: no such kind; there are {', '.join(sorted(known))}")
    return [kind for kind in kinds if not names or kind.name in names.split(",")]


def all_kinds(stack, runner, options):
    if options.sim:
        return integrity.simulated_kinds(runner.workload)
    compute = integrity.compute_kinds(stack, runner.workload, options.device)
    if options.no_torch:
        return compute
    if not has_torch(options.python):
        raise CorunError(f"{options.python} has no PyTorch: name one that has with --python, or give --no-torch")
    here = os.path.dirname(os.path.abspath(__file__))
    fit_library = os.path.join(os.path.abspath(options.bin), "lib", "libvuda_fit.so")
    suites = integrity.suite_kinds(options.python, os.path.join(here, "programs", "torch_suite.py"), fit_library, options.fitting, options.mixed)
    return integrity.in_turns(compute, suites)


def prepare_renderer(workload, options):
    """One that maps control buffers meanwhile and compares whole frames."""
    if options.sim:
        workload.render_extra = ["--map-every", "20"] if options.map_ms else []
        return
    workload.render_extra = ["--check-stride", str(options.check_stride)]
    if options.map_ms:
        workload.render_program = ("vuda-bench-mirror", "draw")
        workload.render_extra += ["--map-ms", f"{options.map_ms:g}"]


def main(argv):
    options = parse_arguments(argv)

    def body(stack, runner, facts):
        prepare_renderer(runner.workload, options)
        kinds = chosen(all_kinds(stack, runner, options), options.kinds)
        notes = ["Xids not watched"] if options.ignore_xids else []
        file = hardware.result_file(options, "integrity", facts)
        test = integrity.Integrity(runner, Splitter(stack), kinds, options, corun.say, lambda: file.progress(test.rows(notes)))
        test.learn()
        test.run()
        file.add(test.rows(notes), test.stopped)
        return test.lines(), test.problems, test.stopped

    return hardware.run("integrity", options, argv, body)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
