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
import shutil
import signal
import sys
import tempfile

import corun
from corunlib import partition, partition_cost
from corunlib.errors import CorunError, RunFailed, XidSeen
from corunlib.matrix import Runner
from corunlib.results import ResultFile
from corunlib.split import Splitter
from corunlib.stack import Stack
from corunlib.workload import HardwareWorkload
from corunlib.xid import KernelXidLog, NoXidLog

CASES = ("full-quota", "sweep-fragment", "sweep-vertex", "churn", "reconfigure", "cost")
_CHURN_SECONDS = 60


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=corun.default_prefix(), metavar="DIR", help="build or packed tree: has bin/ and lib/")
    parser.add_argument("--cases", default=",".join(CASES), help="comma-separated; default: all")
    parser.add_argument("--runs", type=int, default=5, help="repetitions of each configuration")
    parser.add_argument("--seconds", type=float, default=2, help="of measuring in each run")
    parser.add_argument("--output", metavar="DIR", help="where result files go; without it only lines are printed")
    parser.add_argument("--merge", action="store_true", help="keep existing result files' other cases, if from the same set-up")
    parser.add_argument("--commit", help="what is measured; default: git's HEAD, or DIR/COMMIT")
    parser.add_argument("--ignore-xids", action="store_true", help="go on without the kernel log")
    parser.add_argument("--log", metavar="FILE", help="append what vudad and every program wrote")
    parser.add_argument("--device", help="GPU UUID")
    parser.add_argument("--frame-ms", type=float, default=10)
    parser.add_argument("--kernel-us", type=float, default=720)
    parser.add_argument("--launches", type=int, default=1000000, help="for cost")
    options = parser.parse_args(argv)
    options.cases = options.cases.split(",")
    for case in options.cases:
        if case not in CASES:
            parser.error(f"unknown case '{case}'")
    # What HardwareWorkload wants to know beyond that.
    options.sim, options.smem, options.fps, options.draws = False, 0, 0.0, 1
    options.width, options.height, options.frames_in_flight = 1920, 1080, 2
    options.frame_iterations = options.kernel_iterations = None
    options.render_load, options.compute_load, options.blocks = "fragment", "fma", 0
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


def run_case(case, options, runner, load, split, say):
    """(rows, problems, why it stopped or None)"""
    alone = {"alone-renderer": lambda: split.alone("renderer"), "alone-compute": lambda: split.alone("compute")}
    sms = 2 * split.total
    if case == "full-quota":
        # As many blocks as are resident at a time on the SMs that compute keeps.
        load.use("fragment", 8 * 2 * split.levels[-1])
        configs = {**alone, "shared": lambda: split.split("intra-sm", "none"), "partitioned": lambda: split.split("inter-sm", "none")}
        return partition.measure(runner, case, configs, options.runs, say)
    if case == "reconfigure":
        load.use("fragment", 8 * sms)
        quotas = (split.levels[-1], split.levels[len(split.levels) // 2])
        configs = {"alone-renderer": lambda: split.undisturbed(30), "partitioned": lambda: split.reconfigure(quotas, 30)}
        return partition.measure(runner, case, configs, options.runs, say)
    if case == "churn":
        load.use("fragment", 8 * sms)
        quotas = (split.levels[-1], split.levels[0], split.levels[len(split.levels) // 2])
        return partition.measure(runner, case, {"partitioned": lambda: split.churn(quotas, 10, _CHURN_SECONDS)}, 1, say)
    rows, problems = [], []
    # Many short blocks, so that what does not fill the last wave is little.
    load.use(case.removeprefix("sweep-"), 8 * sms * 16, times=4)
    for number, level in enumerate(split.levels):
        configs = {"partitioned": lambda level=level: split.split("inter-sm", level)}
        if number == 0:
            configs = {**alone, **configs}
        found, wrong, stopped = partition.measure(runner, f"{case}-q{level}", configs, options.runs, say)
        rows += found
        problems += wrong
        if stopped:
            return rows, problems, stopped
    return rows, problems, None


def main(argv):
    options = parse_arguments(argv)
    if not os.path.exists("/dev/nvidiactl"):
        print("partition: this machine has no NVIDIA GPU; nothing is measured", file=sys.stderr)
        return 77
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = tempfile.mkdtemp(prefix="vuda-partition-")
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
            facts["command"] = facts["command"].replace("bench/corun.py", "bench/partition.py", 1)
            files = {}
            for name in ("partition", "partition_cost"):
                files[name] = ResultFile(os.path.join(options.output, name + ".json") if options.output else None, name, facts)
                if options.output and options.merge:
                    files[name].keep_other_cases(lambda case, name=name: case_asked_for(name, case) in options.cases)
            split = partition.PartitionRunner(runner, Splitter(stack))
            split.learn()
            say(f"levels: {', '.join(map(str, split.levels))} of {split.total} TPCs")
            load = Load(runner, options)
            problems, stopped = [], None
            for case in options.cases:
                if case == "cost":
                    rows, wrong, stopped = partition_cost.measure(runner, split, options.launches, options.runs, say)
                else:
                    rows, wrong, stopped = run_case(case, options, runner, load, split, say)
                target = files["partition_cost" if case in ("cost", "churn") else "partition"]
                target.add(rows)
                target.write()
                problems += wrong
                if case == "reconfigure" and options.output and split.trace:
                    with open(os.path.join(options.output, "partition-trace.csv"), "w", encoding="ascii") as file:
                        file.write("frame,ms\n" + "".join(f"{n},{ms:.4f}\n" for n, ms in enumerate(split.trace, 1)))
                if stopped:
                    break
            if options.log:
                stack.append_log(options.log)
            xids.close()
        costs = files["partition_cost"].rows
        for text in partition.verdicts(files["partition"].rows + costs) + partition_cost.verdicts(costs):
            print(text)
        for problem in problems:
            print("problem: " + problem)
        return 3 if stopped and xids.seen else 1 if problems else 0
    except (CorunError, RunFailed) as error:
        say(f"partition: {error}")
        return 69
    except XidSeen as error:
        say(f"partition: stopped at {error}")
        return 3
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
