#!/usr/bin/env python3
"""Measures turns: compute that cannot share its TSG, beside a renderer whose frames are held back for it (vudactl mode NAME sliced).

  bench/sliced.py --output docs/results              all cases, 5 runs of each: sliced.json
  bench/sliced.py --cases draws-1 --runs 1           one look

Cases: draws-1 (each alone, time slicing, a frame target of 16.67 ms, and 20, 40, 60 and 80 % of the time for compute; frames of one draw),
draws-100 and draws-1000 (time slicing, the target), self-paced (a renderer that keeps to 60 Hz by itself, with and without that target). The
kernels take 200 KiB of shared memory a block, so that they can never run beside graphics.

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
from corunlib import partition, slicing
from corunlib.errors import CorunError, RunFailed, XidSeen
from corunlib.matrix import Runner
from corunlib.results import ResultFile
from corunlib.split import Splitter
from corunlib.stack import Stack
from corunlib.workload import HardwareWorkload
from corunlib.xid import KernelXidLog, NoXidLog

CASES = ("draws-1", "draws-100", "draws-1000", "self-paced")
_SHARES = (20, 40, 60, 80)


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=corun.default_prefix(), metavar="DIR", help="build or packed tree: has bin/ and lib/")
    parser.add_argument("--cases", default=",".join(CASES), help="comma-separated; default: all")
    parser.add_argument("--runs", type=int, default=5, help="repetitions of each configuration")
    parser.add_argument("--seconds", type=float, default=2, help="of measuring in each run")
    parser.add_argument("--output", metavar="DIR", help="where sliced.json goes; without it only lines are printed")
    parser.add_argument("--merge", action="store_true", help="keep the existing file's other cases, if from the same set-up")
    parser.add_argument("--commit", help="what is measured; default: git's HEAD, or DIR/COMMIT")
    parser.add_argument("--ignore-xids", action="store_true", help="go on without the kernel log")
    parser.add_argument("--log", metavar="FILE", help="append what vudad and every program wrote")
    parser.add_argument("--device", help="GPU UUID")
    parser.add_argument("--frame-ms", type=float, default=10)
    parser.add_argument("--kernel-us", type=float, default=200)
    parser.add_argument("--smem", type=int, default=204800, help="bytes of shared memory a block")
    options = parser.parse_args(argv)
    options.cases = options.cases.split(",")
    for case in options.cases:
        if case not in CASES:
            parser.error(f"unknown case '{case}'")
    # What HardwareWorkload wants to know beyond that.
    options.sim, options.fps, options.draws = False, 0.0, 1
    options.width, options.height, options.frames_in_flight = 1920, 1080, 2
    options.frame_iterations = options.kernel_iterations = None
    options.render_load, options.compute_load, options.blocks = "fragment", "fma", 0
    return options


def configs_of(case, run):
    """{name: function}"""
    if case == "self-paced":
        return {"alone": lambda: run.alone_renderer(60.0), "target": lambda: run.target(60.0, compute=False)}
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
    if not os.path.exists("/dev/nvidiactl"):
        print("sliced: this machine has no NVIDIA GPU; nothing is measured", file=sys.stderr)
        return 77
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = tempfile.mkdtemp(prefix="vuda-sliced-")
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
            facts["command"] = facts["command"].replace("bench/corun.py", "bench/sliced.py", 1)
            file = ResultFile(os.path.join(options.output, "sliced.json") if options.output else None, "sliced", facts)
            if options.output and options.merge:
                file.keep_other_cases(lambda case: re.sub("-(target|share-[0-9]+)$", "", case) in options.cases)
            run = slicing.SlicingRunner(runner, Splitter(stack), options)
            problems, stopped = [], None
            for case in options.cases:
                use_draws(case, options, runner)
                rows, wrong, stopped = partition.measure(runner, case, configs_of(case, run), options.runs, say)
                file.add([slicing.filed(entry) for entry in rows])
                file.write()
                problems += wrong
                if stopped:
                    break
            if options.log:
                stack.append_log(options.log)
            xids.close()
        for text in slicing.verdicts(file.rows):
            print(text)
        for problem in problems:
            print("problem: " + problem)
        return 3 if stopped and xids.seen else 1 if problems else 0
    except (CorunError, RunFailed) as error:
        say(f"sliced: {error}")
        return 69
    except XidSeen as error:
        say(f"sliced: stopped at {error}")
        return 3
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
