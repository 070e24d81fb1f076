#!/usr/bin/env python3
"""Measures how the GPU is split between a renderer and a compute program.

  bench/partition.py --output docs/results            all cases, 5 runs of each: partition.json and partition_cost.json
  bench/partition.py --cases full-quota --runs 1      one look

Cases: full-quota (each alone, shared without a split, split with compute keeping off the graphics TPCs), sweep-fragment and sweep-vertex
(every level of the quota), reconfigure (the quota alternates every 30 frames; writes DIR/partition-trace.csv), churn (it changes ten times a
second for a minute; one run), cost (what a launch and a change of the quota cost). bench/chart.py draws them.

Exit status: as bench/corun.py; 77 when this machine has no NVIDIA GPU.
"""

import argparse
import os
import re
import sys

import corun
from corunlib import hardware, partition, partition_cost, rounds
from corunlib.split import Splitter

CASES = ("full-quota", "sweep-fragment", "sweep-vertex", "churn", "reconfigure", "cost")
_CHURN_SECONDS = 60


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    hardware.add_arguments(parser, "result files go", 2)
    parser.add_argument("--cases", default=",".join(CASES), help="comma-separated; default: all")
    parser.add_argument("--merge", action="store_true", help="keep existing result files' other cases, if from the same set-up")
    parser.add_argument("--kernel-us", type=float, default=720)
    parser.add_argument("--launches", type=int, default=1000000, help="for cost")
    options = parser.parse_args(argv)
    options.cases = hardware.list_of(parser, options.cases, CASES, "case")
    hardware.complete(options)
    return options


class Load:
    """Sets the loads of a case: what the renderer does, how large a grid is, how long a kernel takes."""

    def __init__(self, runner, options):
        self._runner = runner
        self._options = options
        self._kernel_us = options.kernel_us
        self._known = {}

    def use(self, render_load, blocks, times=1):
        """`times`: how many times as long as --kernel-us says."""
        kernel_us = times * self._kernel_us
        self._options.render_load, self._options.blocks, self._options.kernel_us = render_load, blocks, kernel_us
        workload = self._runner.workload
        key = (render_load, blocks, kernel_us)
        if key not in self._known:
            workload.frame_iterations = workload.kernel_iterations = None
            self._runner.calibrate(corun.Identity())
            self._known[key] = (workload.frame_iterations, workload.kernel_iterations)
        workload.frame_iterations, workload.kernel_iterations = self._known[key]
        self._runner.checksum = None


def case_asked_for(file, case):
    """The case on the command line that makes a row's case of a result file."""
    if file == "partition_cost":
        return case if case == "churn" else "cost"
    return re.sub("-q[0-9]+$", "", case)


def run_case(case, options, runner, load, split, say, save):
    """As rounds.measure()."""
    alone = {"alone-renderer": lambda: split.alone("renderer"), "alone-compute": lambda: split.alone("compute")}
    sms = 2 * split.total
    if case == "full-quota":
        # As many blocks as are resident at a time on the SMs that compute keeps.
        load.use("fragment", 8 * 2 * split.levels[-1])
        configs = {**alone, "shared": lambda: split.split("intra-sm", "none"), "partitioned": lambda: split.split("inter-sm", "none")}
        return rounds.measure(runner, case, configs, options.runs, say, save)
    if case == "reconfigure":
        load.use("fragment", 8 * sms)
        quotas = (split.levels[-1], split.levels[len(split.levels) // 2])
        configs = {"alone-renderer": lambda: split.undisturbed(30), "partitioned": lambda: split.reconfigure(quotas, 30)}
        return rounds.measure(runner, case, configs, options.runs, say, save)
    if case == "churn":
        load.use("fragment", 8 * sms)
        quotas = (split.levels[-1], split.levels[0], split.levels[len(split.levels) // 2])
        return rounds.measure(runner, case, {"partitioned": lambda: split.churn(quotas, 10, _CHURN_SECONDS)}, 1, say, save)
    rows, problems = [], []
    # Many short blocks, so that what does not fill the last wave is little.
    load.use(case.removeprefix("sweep-"), 8 * sms * 16, times=4)
    for number, level in enumerate(split.levels):
        configs = {"partitioned": lambda level=level: split.split("inter-sm", level)}
        if number == 0:
            configs = {**alone, **configs}
        found, wrong, stopped = rounds.measure(runner, f"{case}-q{level}", configs, options.runs, say, lambda found: save(rows + found))
        rows += found
        problems += wrong
        if stopped:
            return rows, problems, stopped
    return rows, problems, None


def main(argv):
    options = parse_arguments(argv)

    def body(stack, runner, facts):
        files = {}
        for name in ("partition", "partition_cost"):
            files[name] = hardware.result_file(options, name, facts)
            if options.output and options.merge:
                files[name].keep_other_cases(lambda case, name=name: case_asked_for(name, case) in options.cases)
        split = partition.PartitionRunner(runner, Splitter(stack))
        split.learn()
        corun.say(f"levels: {', '.join(map(str, split.levels))} of {split.total} TPCs")
        load = Load(runner, options)
        problems, stopped = [], None
        for case in options.cases:
            target = files["partition_cost" if case in ("cost", "churn") else "partition"]
            if case == "cost":
                rows, wrong, stopped = partition_cost.measure(runner, split, options.launches, options.runs, corun.say, target.progress)
            else:
                rows, wrong, stopped = run_case(case, options, runner, load, split, corun.say, target.progress)
            target.add(rows, stopped)
            problems += wrong
            if case == "reconfigure" and options.output and split.trace:
                with open(os.path.join(options.output, "partition-trace.csv"), "w", encoding="ascii") as file:
                    file.write("frame,ms\n" + "".join(f"{n},{ms:.4f}\n" for n, ms in enumerate(split.trace, 1)))
            if stopped:
                break
        costs = files["partition_cost"].rows
        return partition.verdicts(files["partition"].rows + costs) + partition_cost.verdicts(costs), problems, stopped

    return hardware.run("partition", options, argv, body)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
