#!/usr/bin/env python3
"""Measures the SLO tuner: do a renderer and a compute program get what was promised to them, how soon, and for how long?

  bench/tuner.py --runs 1 --output docs/results      both shapes, 60 s of holding: tuner.json; below six minutes on the GPU
  bench/tuner.py --runs 1 --quick                    one look, 10 s of holding
  bench/tuner.py --runs 1 --quick --sim              on the simulated GPU: shows that the machinery works, says nothing about speed

Shapes: ai-gaming (a renderer paced at 60 Hz that needs 70 % of its budget, and compute without a pause; frames have a target), dual-slo (a
renderer at 90 Hz and compute steps at 60 Hz with a deadline; both have targets). Each alone, in time slices, shared without a tuner, and
tuned: from the lowest level of the quota on, where steps miss their deadline, and again from the highest one (case NAME-from-top, held
for 10 s at most). Targets are set with vudactl while both programs run; whether and when they are met is judged by the programs' own
records.

Exit status: as bench/corun.py; 77 when this machine has no NVIDIA GPU and --sim was not given.
"""

import argparse
import sys

import corun
from corunlib import hardware, rounds, tuning
from corunlib.split import Splitter

CASES = ("ai-gaming", "dual-slo")
STARTS = ("low", "high")
_TOP_HOLD_SECONDS = 10.0
_QUICK_SECONDS = 10.0
_QUICK_REFERENCE_SECONDS = 2.0


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=corun.default_prefix(), metavar="DIR", help="build or packed tree: has bin/ and lib/")
    parser.add_argument("--cases", default=",".join(CASES), help="comma-separated; default: both")
    parser.add_argument("--starts", default=",".join(STARTS), help="ends of the quota to start from, comma-separated; default: low,high")
    parser.add_argument("--runs", type=int, default=5, help="repetitions of each configuration")
    parser.add_argument("--seconds", type=float, default=60, help="of holding")
    parser.add_argument("--reference-seconds", type=float, default=5, help="of measuring each configuration without a tuner")
    parser.add_argument("--quick", action="store_true", help="10 s of holding, 2 s of the others")
    parser.add_argument("--miss", type=float, default=0.01, help="fraction of frames and steps that may be late")
    parser.add_argument("--output", metavar="DIR", help="where the result file goes; without it only a table is printed")
    parser.add_argument("--merge", action="store_true", help="keep an existing result file's other cases, if from the same set-up")
    parser.add_argument("--sim", action="store_true", help="on the simulated GPU")
    parser.add_argument("--stretch", type=float, default=1, help="with --sim: every duration times this, for a busy machine")
    parser.add_argument("--commit", help="what is measured; default: git's HEAD, or DIR/COMMIT")
    parser.add_argument("--ignore-xids", action="store_true", help="go on without the kernel log")
    parser.add_argument("--log", metavar="FILE", help="append what vudad and every program wrote")
    parser.add_argument("--device", help="GPU UUID")
    options = parser.parse_args(argv)
    options.cases, options.starts = options.cases.split(","), options.starts.split(",")
    for given, known in ((options.cases, CASES), (options.starts, STARTS)):
        for name in given:
            if name not in known:
                parser.error(f"'{name}' is none of {', '.join(known)}")
    if options.quick:
        options.seconds, options.reference_seconds = _QUICK_SECONDS, _QUICK_REFERENCE_SECONDS
    if options.runs < 1 or options.seconds < 1 or options.reference_seconds <= 0 or not 0 < options.miss < 1:
        parser.error("--runs and --seconds must be 1 at least, --reference-seconds positive, --miss between 0 and 1")
    if options.stretch != 1 and not options.sim:
        parser.error("--stretch goes with --sim")
    # What the workloads want to know beyond that. The loads are chosen for each shape.
    options.smem, options.fps, options.draws = 0, 0.0, 1
    options.width, options.height, options.frames_in_flight = 1920, 1080, 2
    options.frame_iterations = options.kernel_iterations = None
    options.render_load, options.compute_load, options.blocks = "fragment", "fma", 0
    options.frame_ms, options.kernel_us = 10.0, 720.0
    return options


class Load:
    """Sets the loads of a shape."""

    def __init__(self, tuner, options):
        self._tuner = tuner
        self._options = options

    def use(self, shape):
        tuner, options = self._tuner, self._options
        tuner.shape = shape
        options.frame_ms = shape.frame_ms
        options.kernel_us = 1000 * shape.kernel_ms(tuner.levels, tuner.total)
        # Many short blocks, so that a kernel is as fast as it has TPCs.
        options.blocks = 8 * 2 * tuner.total * (4 if options.sim else 16)
        workload = tuner.runner.workload
        workload.frame_iterations = workload.kernel_iterations = None
        tuner.runner.checksum = None
        tuner.runner.calibrate(corun.Identity())


def holds(options):
    """{case: seconds to hold}, in order."""
    chosen = {}
    for case in options.cases:
        if "low" in options.starts:
            chosen[case] = options.seconds
        if "high" in options.starts:
            chosen[case + "-from-top"] = min(options.seconds, _TOP_HOLD_SECONDS)
    return chosen


def run_case(case, options, tuner, hold, say, save):
    """As rounds.measure()."""
    rows, problems, stopped = [], [], None
    low, high = tuner.levels[0], tuner.levels[-1]
    groups = {case: {c: lambda c=c: tuner.reference(c) for c in ("alone-renderer", "alone-compute", "time-slicing", "shared")}}
    if case in hold:
        groups[case]["tuned"] = lambda: tuner.tuned(low, hold[case])
    top = case + "-from-top"
    if top in hold:
        groups[top] = {"tuned": lambda: tuner.tuned(high, hold[top])}
    for name, configs in groups.items():
        found, wrong, stopped = rounds.measure(tuner.runner, name, configs, options.runs, say, lambda found: save(rows + found))
        rows += found
        problems += wrong
        if stopped:
            break
    return rows, problems, stopped


def main(argv):
    options = parse_arguments(argv)
    hold = holds(options)

    def body(stack, runner, facts):
        result = hardware.result_file(options, "tuner", facts)
        if options.output and options.merge:
            result.keep_other_cases(lambda case: case.removesuffix("-from-top") in options.cases)
        tuner = tuning.TuningRunner(runner, Splitter(stack), options.miss, options.reference_seconds)
        tuner.learn()
        corun.say(f"levels: {', '.join(map(str, tuner.levels))} of {tuner.total} TPCs")
        load = Load(tuner, options)
        problems, stopped = [], None
        for case, shape in tuning.shapes(options.stretch).items():
            if case not in options.cases or stopped:
                continue
            load.use(shape)
            kernel_ms = options.kernel_us / 1000
            corun.say(f"{case}: frames of {shape.frame_ms:.2f} ms at {shape.fps:g} Hz, kernels of {kernel_ms:.2f} ms on the whole GPU")
            rows, wrong, stopped = run_case(case, options, tuner, hold, corun.say, result.progress)
            result.add(rows, stopped)
            problems += wrong
        simulated = ["Simulated GPU: these figures show how VUDA works, and say nothing about the speed of any hardware.\n"] if options.sim else []
        return [*simulated, tuning.table(result.rows) + "\n", *tuning.verdicts(result.rows, options.miss, hold)], problems, stopped

    return hardware.run("tuner", options, argv, body)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
