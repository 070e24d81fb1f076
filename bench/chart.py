#!/usr/bin/env python3
"""Draws the charts of docs/results/partition.json: partition-sweep.png and partition-trace.png.

  bench/chart.py docs/results          reads partition.json and partition-trace.csv there, writes the pictures beside them

Needs matplotlib (Debian: python3-matplotlib). Exit status: 0, 69 when matplotlib or a file is missing.
"""

import csv
import json
import os
import re
import sys


def sweep_points(document, load):
    """[(TPCs, compute rate, renderer rate)], ascending, and the renderer's rate alone (0: not measured)."""
    points, alone = [], 0.0
    for entry in document["rows"]:
        if not re.fullmatch(f"sweep-{load}-q[0-9]+", entry["case"]):
            continue
        metrics = entry["metrics"]
        if entry["config"] == "alone-renderer":
            alone = metrics["renderer_fps"]["median"]
        elif entry["config"] == "partitioned":
            points.append(tuple(metrics[name]["median"] for name in ("compute_tpcs", "compute_rate", "renderer_fps")))
    return sorted(points), alone


def sweep_table(document):
    """The sweeps as Markdown."""
    lines = []
    for load in ("fragment", "vertex"):
        points, alone = sweep_points(document, load)
        if not points:
            continue
        lines += [f"| {load}-bound, TPCs | kernels/s | a TPC | frames/s | of alone |", "| ---: | ---: | ---: | ---: | ---: |"]
        for tpcs, rate, fps in points:
            share = f"{100 * fps / alone:.1f} %" if alone else ""
            lines.append(f"| {tpcs:.0f} | {rate:.1f} | {rate / tpcs:.3f} | {fps:.1f} | {share} |")
        lines.append("")
    return "\n".join(lines)


def draw_sweep(plt, document, path):
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for panel, load in zip(panels, ("fragment", "vertex")):
        points, alone = sweep_points(document, load)
        if not points:
            continue
        tpcs = [point[0] for point in points]
        full = points[-1][1]
        panel.plot([0, tpcs[-1]], [0, 100], color="0.7", linestyle="--", label="proportional")
        panel.plot(tpcs, [100 * point[1] / full for point in points], marker="o", label="compute, % of full quota")
        if alone:
            panel.plot(tpcs, [100 * point[2] / alone for point in points], marker="s", label="renderer, % of alone")
        panel.set_title(f"{load}-bound renderer")
        panel.set_xlabel("TPCs that compute may use")
        panel.set_xlim(0)
        panel.set_ylim(0, 110)
        panel.grid(True, alpha=0.3)
    panels[0].set_ylabel("rate, %")
    panels[0].legend(loc="lower right")
    figure.suptitle(f"{document['gpu']}, driver {document['driver']}, commit {document['commit'][:12]}")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def draw_trace(plt, rows, path):
    figure, panel = plt.subplots(figsize=(10, 3))
    panel.plot([int(row["frame"]) for row in rows], [float(row["ms"]) for row in rows], linewidth=0.9)
    for frame in range(30, len(rows), 30):
        panel.axvline(frame, color="0.85", zorder=0)
    panel.set_xlabel("frame; the quota changes about every 30")
    panel.set_ylabel("ms")
    panel.set_ylim(0)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main(argv):
    if len(argv) != 1:
        print(__doc__, file=sys.stderr)
        return 64
    folder = argv[0]
    try:
        with open(os.path.join(folder, "partition.json"), encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        print(f"chart: {error}", file=sys.stderr)
        return 69
    print(sweep_table(document))
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("chart: matplotlib is missing (apt-get install python3-matplotlib); only the table was made", file=sys.stderr)
        return 69
    draw_sweep(plt, document, os.path.join(folder, "partition-sweep.png"))
    trace = os.path.join(folder, "partition-trace.csv")
    if os.path.exists(trace):
        with open(trace, encoding="ascii") as file:
            draw_trace(plt, list(csv.DictReader(file)), os.path.join(folder, "partition-trace.png"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
