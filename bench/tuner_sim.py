#!/usr/bin/env python3
"""Evaluates the SLO tuner on the simulated GPU: 200 seeds of each scenario, against the best fixed quota (the oracle), additive
increase, and no tuner.

  bench/tuner_sim.py --bin build/release --output docs/results     about two minutes on two cores

Writes tuner_sim.json and, with matplotlib (Debian: python3-matplotlib), tuner_sim_*.png to the output folder, and replaces the
table between the markers in docs/tuner.md when --table names it. All of it is simulated: it tells how the controller behaves,
not how fast a GPU is.

Exit status: 0, 1 when something that must be reached is not (everything is written all the same), 69 not built, 70 the run failed.
"""

import argparse
import csv
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile

from corunlib import results

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Scenario and what its trace is good for.
TRACES = (
    ("step-load", "graphics work times 1.4 from second 20 to 40"),
    ("ramp", "graphics work from 0.8 to 1.5 and back"),
    ("bursts", "bursts of graphics work, times 1.4"),
    ("periodic", "graphics work alternates between 1 and 1.4"),
    ("vertex-bound", "figure 11: one of 18 quotas holds the target"),
    ("vr-heavy", "section 7.6, heavy: both targets"),
)
# As vuda-tuner-eval says what must be reached (bench/tuner/musts.h): lines after the table, and its exit status.
MUST = "must: "
MISSED = "MISSED"
MUST_MISSED = 3
NAMES = {"tuned": "tuner", "partitioned": "best fixed quota", "additive-increase": "additive increase", "shared": "no tuner"}
COLOURS = {"tuned": "#1b6ca8", "partitioned": "#2e8b57", "additive-increase": "#c8553d", "shared": "#8a8a8a"}


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(TOP, "build", "release"), metavar="DIR", help="build tree")
    parser.add_argument("--output", default=os.path.join(TOP, "docs", "results"), metavar="DIR")
    parser.add_argument("--table", metavar="FILE", help="Markdown file whose table is replaced, e.g. docs/tuner.md")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-charts", action="store_true")
    return parser.parse_args(argv)


def commit():
    run = subprocess.run(["git", "-C", TOP, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return "0000000"
    dirty = subprocess.run(["git", "-C", TOP, "status", "--porcelain", "--", "tuner", "bench/tuner", "sim/model"],
                           capture_output=True, text=True, check=False).stdout.strip()
    return run.stdout.strip() + ("-dirty" if dirty else "")


def document(rows, seeds):
    return {
        "experiment": "tuner_sim",
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "gpu": "simulated",
        "driver": "none",
        "cuda": "none",
        "commit": commit(),
        "command": "bench/tuner_sim.py --bin build/release --output docs/results",
        "runs": seeds,
        "rows": rows,
    }


def replace_table(path, table):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    pattern = re.compile(r"(<!-- begin: tuner_sim -->\n).*?(<!-- end: tuner_sim -->)", re.DOTALL)
    if not pattern.search(text):
        sys.exit(f"tuner_sim.py: {path} has no tuner_sim markers")
    with open(path, "w", encoding="utf-8") as file:
        file.write(pattern.sub(lambda match: match.group(1) + table.strip() + "\n" + match.group(2), text))


def read_trace(path):
    series = {}
    with open(path, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            series.setdefault((row["config"], row["what"]), []).append((float(row["seconds"]), float(row["value"])))
    return series


def draw_traces(plt, folder, targets, output):
    figure, axes = plt.subplots(len(TRACES), 2, figsize=(13, 2.5 * len(TRACES)), constrained_layout=True)
    for (name, text), (levels, frames) in zip(TRACES, axes):
        series = read_trace(os.path.join(folder, name + ".csv"))
        end = max(seconds for (_, what), points in series.items() if what == "frame_ms" for seconds, _ in points)
        for config in ("additive-increase", "partitioned", "tuned"):
            steps = series[(config, "level")] + [(end, series[(config, "level")][-1][1])]
            levels.step(*zip(*steps), where="post", color=COLOURS[config], label=NAMES[config], linewidth=1.6 if config == "tuned" else 1)
        levels.set_title(f"{name}: {text}", fontsize=9, loc="left")
        levels.set_ylabel("compute TPCs")
        for config in ("additive-increase", "tuned"):
            seconds, values = zip(*series[(config, "frame_ms")])
            frames.plot(seconds, values, ".", markersize=1.2, color=COLOURS[config], label=NAMES[config])
        frames.axhline(targets[name], color="black", linewidth=0.8, linestyle="--", label="target")
        frames.set_ylim(0, 3 * targets[name])
        frames.set_ylabel("frame time, ms")
    axes[0][0].legend(fontsize=7, loc="upper right")
    axes[0][1].legend(fontsize=7, loc="upper right", markerscale=6)
    for axis in axes[-1]:
        axis.set_xlabel("seconds (simulated; first seed)")
    figure.savefig(os.path.join(output, "tuner_sim_traces.png"), dpi=80)


def draw_summary(plt, rows, output):
    value = {(row["case"], row["config"]): row["metrics"] for row in rows}
    cases = list(dict.fromkeys(row["case"] for row in rows))
    figure, axes = plt.subplots(1, 2, figsize=(13, 0.36 * len(cases) + 1.4), constrained_layout=True, sharey=True)
    configs = ("tuned", "additive-increase", "shared")
    for axis, metric, title, least in (
        (axes[0], "attainment_vs_oracle", "SLO attainment", 99),
        (axes[1], "throughput_vs_oracle", "Throughput", 95),
    ):
        for offset, config in enumerate(configs):
            for place, case in enumerate(cases):
                summary = value[(case, config)].get(metric)
                if summary is None:
                    continue
                y = place + 0.25 * (offset - 1)
                low, middle, high = (100 * summary[key] for key in ("min", "median", "max"))
                axis.plot([low, high], [y, y], color=COLOURS[config], linewidth=1.2, alpha=0.6)
                axis.plot(middle, y, "o", color=COLOURS[config], markersize=3.5, label=NAMES[config] if place == 0 else None)
        axis.axvline(least, color="black", linewidth=0.8, linestyle="--")
        axis.set_title(title + " against the best fixed quota, %", fontsize=9, loc="left")
        axis.set_xlabel("point: median; line: worst to best seed; dashed: what must be reached", fontsize=8)
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(cases)), cases, fontsize=8)
    axes[0].invert_yaxis()
    axes[0].set_xlim(0, 112)
    axes[1].set_xlim(0, 260)
    axes[0].legend(fontsize=7, loc="lower left")
    figure.savefig(os.path.join(output, "tuner_sim_summary.png"), dpi=80)


def main(argv):
    arguments = parse_arguments(argv)
    program = os.path.join(arguments.bin, "bin", "vuda-tuner-eval")
    if not os.path.exists(program):
        print(f"tuner_sim.py: {program} is missing; build it with: ninja -C {arguments.bin} vuda-tuner-eval", file=sys.stderr)
        return 69
    plt = None
    if not arguments.no_charts:
        try:
            import matplotlib

            matplotlib.use("Agg")
            import matplotlib.pyplot as plt
        except ImportError:
            print("tuner_sim.py: no charts: python3-matplotlib is missing", file=sys.stderr)
    os.makedirs(arguments.output, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        rows_path = os.path.join(folder, "rows.json")
        command = [program, "--seeds", str(arguments.seeds), "--threads", str(arguments.threads), "--json", rows_path, "--traces", folder]
        table = []
        missed = 0
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
            for line in run.stdout:
                print(line, end="", flush=True)
                if not line.startswith(MUST):
                    table.append(line)
                elif MISSED in line:
                    missed += 1
        if run.returncode not in (0, MUST_MISSED):
            print(f"tuner_sim.py: {program} ended with {run.returncode}", file=sys.stderr)
            return 70
        with open(rows_path, encoding="utf-8") as file:
            rows = json.load(file)
        results.write_whole(os.path.join(arguments.output, "tuner_sim.json"), results.text_of(document(rows, arguments.seeds)))
        if arguments.table:
            replace_table(arguments.table, "".join(table))
        if plt is not None:
            targets = dict.fromkeys((name for name, _ in TRACES), 16.67) | {"vertex-bound": 38.0, "vr-heavy": 9.0}
            draw_traces(plt, folder, targets, arguments.output)
            draw_summary(plt, rows, arguments.output)
    if missed or run.returncode == MUST_MISSED:
        print(f"tuner_sim.py: {missed} of the things that must be reached are MISSED, see above", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
