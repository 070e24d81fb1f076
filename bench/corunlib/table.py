"""Tables for people: Markdown, readable as plain text too."""

_CONFIG_NAMES = {
    "alone-renderer": "renderer alone",
    "alone-compute": "compute alone",
    "time-slicing": "time slicing (default)",
    "shared": "shared (VUDA)",
    "partitioned": "partitioned (VUDA)",
}


def format_table(header, rows):
    cells = [header] + rows
    widths = [max(len(str(line[i])) for line in cells) for i in range(len(header))]
    lines = []
    for number, line in enumerate(cells):
        # The first column is text, the others are figures.
        padded = [str(c).ljust(w) if i == 0 else str(c).rjust(w) for i, (c, w) in enumerate(zip(line, widths))]
        lines.append("| " + " | ".join(padded) + " |")
        if number == 0:
            lines.append("|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|")
    return "\n".join(lines)


def _figure(metrics, name, digits):
    return f"{metrics[name]['median']:.{digits}f}" if name in metrics else ""


def _share(metrics, alone, name):
    if name not in metrics or name not in alone or not alone[name]["median"]:
        return ""
    return f"{100 * metrics[name]['median'] / alone[name]['median']:.1f} %"


def alone_metrics(rows):
    """What each side reaches alone: the base of all percentages."""
    alone = {}
    for entry in rows:
        if entry["config"] in ("alone-renderer", "alone-compute"):
            alone.update(entry["metrics"])
    return alone


def corun_table(case, rows):
    """One case of the co-run matrix, medians, with shares of the rates alone."""
    rows = [entry for entry in rows if entry["case"] == case]
    alone = alone_metrics(rows)
    lines = []
    for entry in rows:
        m = entry["metrics"]
        lines.append(
            [
                _CONFIG_NAMES.get(entry["config"], entry["config"]),
                _figure(m, "renderer_fps", 1),
                _share(m, alone, "renderer_fps"),
                _figure(m, "frame_p99_ms", 2),
                _figure(m, "compute_rate", 1),
                _share(m, alone, "compute_rate"),
                _figure(m, "compute_p50_ms", 3),
                _figure(m, "compute_p99_ms", 3),
                entry["xids"],
            ]
        )
    header = [case, "frames/s", "of alone", "frame p99 ms", "kernels/s", "of alone", "p50 ms", "p99 ms", "Xids"]
    return format_table(header, lines)


def cost_table(rows):
    lines = []
    for entry in rows:
        for name, value in entry["metrics"].items():
            lines.append(
                [f"{entry['case']}, {_CONFIG_NAMES.get(entry['config'], entry['config'])}", name]
                + [f"{value[k]:.3f}" for k in ("median", "min", "max")]
                + [entry["xids"]]
            )
    return format_table(["cost", "metric", "median", "min", "max", "Xids"], lines)


# The figures that the project wants to reach on an H200, and how they read.
RENDERER_SHARE = 0.98
COMPUTE_SHARE = 0.85
P99_FACTOR = 1.25


def target_lines(case, rows):
    """'ok' or 'MISSED' for each target of one case."""
    rows = [entry for entry in rows if entry["case"] == case]
    alone = alone_metrics(rows)
    shared = next((entry["metrics"] for entry in rows if entry["config"] == "shared"), {})
    lines = []

    def line(name, text, limit, above):
        if name in shared and name in alone and alone[name]["median"]:
            ratio = shared[name]["median"] / alone[name]["median"]
            good = ratio >= limit if above else ratio <= limit
            bound = ">=" if above else "<="
            lines.append(f"{'ok    ' if good else 'MISSED'} {case}: {text} {ratio:.3f} of alone ({bound} {limit})")

    line("renderer_fps", "renderer's rate", RENDERER_SHARE, True)
    line("compute_rate", "compute's rate", COMPUTE_SHARE, True)
    line("compute_p99_ms", "compute's p99 latency", P99_FACTOR, False)
    return lines
