#!/usr/bin/env python3
"""Measures what the SLO tuner costs the daemon: CPU time of a tick with 64 attached processes, on this machine's CPU.

  bench/tuner_cost.py --bin build/release --output docs/results      writes tuner_cost.json

Exit status: 0, 1 when a tick with 64 processes takes more than 50 us in the mean or, of three runs or more, as 99th percentile, 69 not built,
70 the run failed; as bench/corun.py when a signal ended it.
"""

import argparse
import json
import os
import sys

import corun
from corunlib import commands, ending
from corunlib.results import ResultFile, row
from corunlib.stats import summaries
from corunlib.table import format_table

BUDGET_US = 50
SESSIONS = 64
# The slowest of a hundred ticks are also those that another program took the cache from: one run says little of them.
RUNS_FOR_P99 = 3


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=corun.default_prefix(), metavar="DIR", help="build tree")
    parser.add_argument("--output", metavar="DIR", help="where the result file goes; without it only a table is printed")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--commit", help="what is measured; default: git's HEAD")
    return parser.parse_args(argv)


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown CPU")
    except OSError:
        return "unknown CPU"


def case_of(name):
    """("tick-64-9-resting", 64, 9) of "tick/64/9/0/iterations:5000"; None for another benchmark."""
    words = name.split("/")
    if words[0] != "tick" or len(words) < 4:
        return None
    sessions, levels, deciding = (int(word) for word in words[1:4])
    return f"tick-{sessions}-{levels}-{'deciding' if deciding else 'resting'}", sessions, levels


def rows_of(runs, note):
    """Rows and [(case, what, us), ...], to which the budget applies, of the programs' JSON answers."""
    found = {}
    for answer in runs:
        for benchmark in answer["benchmarks"]:
            case = case_of(benchmark["name"])
            if case is None:
                continue
            metrics = {f"tick_{key}_us": benchmark[f"{key}_cpu_us"] for key in ("mean", "p50", "p99")}
            metrics["memory_kib"] = benchmark["memory_KiB"]
            found.setdefault(case, []).append(metrics)
    rows, judged = [], []
    for (name, sessions, _), values in found.items():
        metrics = summaries(values)
        rows.append(row(name, "tuned", metrics, 0, note, len(values)))
        if sessions != SESSIONS:
            continue
        judged.append((name, "mean of the worst run", metrics["tick_mean_us"]["max"]))
        if len(values) >= RUNS_FOR_P99:
            judged.append((name, "99th percentile, median of the runs", metrics["tick_p99_us"]["median"]))
    return rows, judged


def main(argv):
    options = parse_arguments(argv)
    prefix = os.path.abspath(options.bin)
    program = os.path.join(prefix, "bin", "vuda-tuner-bench")
    if not os.path.exists(program):
        print(f"tuner_cost: {program} is missing; build it with: ninja -C {options.bin} vuda-tuner-bench", file=sys.stderr)
        return 69
    return ending.orderly("tuner_cost", lambda: measure(options, prefix, program))


def measure(options, prefix, program):
    path = None
    if options.output:
        os.makedirs(options.output, exist_ok=True)
        path = os.path.join(options.output, "tuner_cost.json")
    facts = {
        "gpu": "none",
        "driver": "none",
        "cuda": "none",
        "date": corun.today(),
        "commit": corun.find_commit(options, prefix),
        "command": "bench/tuner_cost.py --bin build/release --output docs/results",
        "runs": options.runs,
    }
    result = ResultFile(path, "tuner_cost", facts)
    runs = []
    for number in range(1, options.runs + 1):
        done = commands.run([program, "--benchmark_filter=^tick", "--benchmark_format=json"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"tuner_cost: {program} ended with {done.returncode}: {done.stderr.strip()[:300]}", file=sys.stderr)
            return 70
        runs.append(json.loads(done.stdout))
        print(f"run {number} of {options.runs}", file=sys.stderr, flush=True)
        rows, judged = rows_of(runs, f"CPU time of the thread; {cpu_name()}")
        result.progress(rows)
    result.add(rows)
    result.finish()
    print(
        format_table(
            ["processes-levels, state", "mean us", "p50 us", "p99 us", "KiB"],
            [
                [entry["case"].removeprefix("tick-")]
                + [f"{entry['metrics'][name]['median']:.1f}" for name in ("tick_mean_us", "tick_p50_us", "tick_p99_us", "memory_kib")]
                for entry in rows
            ],
        )
    )
    missed = False
    for name, what, value in judged:
        good = value <= BUDGET_US
        missed = missed or not good
        print(f"{'ok    ' if good else 'MISSED'} {name}: {what} {value:.1f} us (<= {BUDGET_US})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
