"""Medians, the way the result files hold them."""

import statistics


def summary(values):
    """{"median", "min", "max"} of at least one value, at most six digits after the point."""
    return {
        "median": round(statistics.median(values), 6),
        "min": round(min(values), 6),
        "max": round(max(values), 6),
    }


def summaries(runs):
    """[{metric: value}, ...] -> {metric: summary}; a metric may be missing from some runs."""
    names = []
    for run in runs:
        names += [name for name in run if name not in names]
    return {name: summary([run[name] for run in runs if name in run]) for name in names}
