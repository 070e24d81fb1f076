#!/usr/bin/env python3
"""Measures turns: compute that cannot share its TSG, beside a renderer whose frames are held back for it (vudactl mode NAME sliced).

  bench/sliced.py --output docs/results              all cases, 5 runs of each: sliced.json
  bench/sliced.py --cases draws-1 --runs 1           one look

Cases: draws-1 (each alone, time slicing, a frame target of 16.67 ms, and 20, 40, 60 and 80 % of the time for compute; frames of one draw),
draws-100 and draws-1000 (time slicing, the target), self-paced (a renderer that keeps to 60 Hz by itself, with and without that target),
switches (how long the GPU is away from compute for each frame, by its own clock: with the target, and in time slices beside a renderer that keeps
to 60 Hz by itself). The kernels take 200 KiB of shared memory a block, so that they can never run beside graphics.

Exit status: as bench/corun.py; 77 when this machine has no NVIDIA GPU.
"""

import argparse
import os
import re
import sys

import corun
from corunlib import hardware, rounds, slicing
from corunlib.split import Splitter

CASES = ("draws-1", "draws-100", "draws-1000", "self-paced", "switches")
_SHARES = (20, 40, 60, 80)


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    hardware.add_arguments(parser, "sliced.json goes", 2)
    parser.add_argument("--cases", default=",".join(CASES), help="comma-separated; default: all")
    parser.add_argument("--merge", action="store_true", help="keep the existing file's other cases, if from the same set-up")
    parser.add_argument("--kernel-us", type=float, default=200)
    parser.add_argument("--smem", type=int, default=204800, help="bytes of shared memory a block")
    options = parser.parse_args(argv)
    options.cases = hardware.list_of(parser, options.cases, CASES, "case")
    hardware.complete(options, smem=options.smem)
    return options


def configs_of(case, run):
    """{name: function}"""
    if case == "self-paced":
        return {"alone": lambda: run.alone_renderer(slicing.PACED_FPS), "target": lambda: run.target(slicing.PACED_FPS, compute=False)}
    if case == "switches":
        return {"time-slicing": lambda: run.switches(vuda=False), "target": run.switches}
    beside = {"time-slicing": run.time_slicing, "target": run.target}
    if case != "draws-1":
        return beside
    alone = {"alone-renderer": run.alone_renderer, "alone-compute": run.alone_compute}
    return {**alone, **beside, **{f"share-{percent}": lambda percent=percent: run.share(percent) for percent in _SHARES}}


def use_draws(case, options, runner):
    """Frames of so many draws that take as long together."""
    draws = int(case.removeprefix("draws-")) if case.startswith("draws-") else 1
    if draws == options.draws and runner.workload.frame_iterations is not None:
        return
    options.draws = draws
    runner.workload.frame_iterations = None
    runner.checksum = None
    runner.calibrate(corun.Identity())


def main(argv):
    options = parse_arguments(argv)

    def body(stack, runner, facts):
        file = hardware.result_file(options, "sliced", facts)
        if options.output and options.merge:
            file.keep_other_cases(lambda case: re.sub("-(target|share-[0-9]+)$", "", case) in options.cases)
        run = slicing.SlicingRunner(runner, Splitter(stack), options.frame_ms)
        problems, stopped = [], None

        def filed(rows):
            return [slicing.filed(entry) for entry in rows]

        for case in options.cases:
            use_draws(case, options, runner)
            rows, wrong, stopped = rounds.measure(runner, case, configs_of(case, run), options.runs, corun.say, lambda rows: file.progress(filed(rows)))
            file.add(filed(rows), stopped)
            problems += wrong
            if stopped:
                break
        return slicing.verdicts(file.rows), problems, stopped

    return hardware.run("sliced", options, argv, body)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
