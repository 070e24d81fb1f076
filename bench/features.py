#!/usr/bin/env python3
"""Tries what CUDA offers, feature by feature, in a renderer's TSG: each case of vuda-bench-features alone and shared.

  bench/features.py --runs 3 --output docs/results      every case that cannot hurt: features.json and a table
  bench/features.py --cases printf,cluster --runs 1     one look
  bench/features.py --table docs/results/features.json  the table of an earlier run, in Markdown

Configurations: alone; shared (vudactl run --attach; compute may use every TPC); split (compute kept off the TPCs that draw; only launches that
count on their number). The renderer draws through all cases of a round; each of its frames is compared. From the harmless to the risky: what
may wait for ever comes last, what ends its context (assert-fails, bad-address, native-fault) only when it is named. After the first Xid, or when the renderer
has ended, nothing more is run, and the case is named.

Exit status: as bench/corun.py; 77 when this machine has no NVIDIA GPU.
"""

import argparse
import json
import os
import sys

import corun
from corunlib import commands, feature_verdicts, features, hardware, surroundings
from corunlib.split import Splitter


def listed_cases(prefix):
    program = os.path.join(os.path.abspath(prefix), "bin", "vuda-bench-features")
    return json.loads(commands.run([program, "--list"], capture_output=True, text=True, timeout=30, check=True).stdout)


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    hardware.add_arguments(parser, "features.json goes", 0.2, "in which rounds of a case begin")
    parser.add_argument("--cases", help="comma-separated; default: all but those that end a context and " + ", ".join(surroundings.NAMES))
    parser.add_argument("--configs", default=",".join(features.CONFIGS), help="comma-separated; default: all")
    parser.add_argument("--table", metavar="FILE.json", help="print an earlier run's table and end")
    options = parser.parse_args(argv)
    options.configs = hardware.list_of(parser, options.configs, features.CONFIGS, "configuration")
    if options.cases:
        options.cases = hardware.list_of(parser, options.cases, tuple(feature_verdicts.WORDS), "case")
    hardware.complete(options, kernel_us=720, kernel_iterations=20000)
    return options


def main(argv):
    options = parse_arguments(argv)
    if options.table:
        with open(options.table, encoding="utf-8") as file:
            print("\n".join(feature_verdicts.table(json.load(file)["rows"])))
        return 0

    def body(stack, runner, facts):
        listed = listed_cases(options.bin)
        if options.cases:
            # Beside what a program does, where it does it.
            listed += surroundings.LISTED
        chosen = options.cases or [entry["case"] for entry in listed if entry["risk"] != "harmful"]
        runner.workload.device = options.device
        measurement = features.Measurement(features.FeatureRunner(runner, Splitter(stack), options.seconds), listed, corun.say)
        file = hardware.result_file(options, "features", facts)

        def rows():
            return measurement.rows(len(runner.xids.seen))

        measurement.measure(features.phases(listed, chosen, options.configs), options.runs, lambda: file.progress(rows()))
        file.add(rows(), measurement.stopped)
        return feature_verdicts.table(file.rows), measurement.all_problems(), measurement.stopped

    return hardware.run("features", options, argv, body)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
