"""Repetitions of a case's configurations, interleaved, so that drift hits all alike."""

from .errors import CorunError, DeviceLost, RunFailed, XidSeen
from .results import row
from .stats import summaries


def figures(metrics, _note):
    return ", ".join(f"{key} {value:.3f}" for key, value in metrics.items())


def measure(runner, case, configs, repetitions, say, save, tell=figures):
    """`configs`: {name: function that returns (metrics, note)}. `save(rows)`: called after each run with what there is. `tell(metrics, note)`: a
    run in words. Returns (rows, problems, why it stopped or None)."""
    values = {name: [] for name in configs}
    notes = dict.fromkeys(configs, "")
    problems = {name: [] for name in configs}
    stopped = None
    current = next(iter(configs))

    def rows():
        found = []
        for name in configs:
            xids = len(runner.xids.seen) if stopped and name == current else 0
            if values[name] or xids:
                note = "; ".join(filter(None, [notes[name], *problems[name]]))
                found.append(row(case, name, summaries(values[name]), xids, note, len(values[name])))
        return found

    try:
        for repetition in range(1, repetitions + 1):
            for name, function in configs.items():
                current = name
                label = f"{case}, {name}, run {repetition} of {repetitions}"
                try:
                    metrics, note = function()
                except RunFailed as error:
                    problems[name].append(f"run {repetition}: {error}")
                    say(f"{label}: FAILED: {error}")
                    runner.guard()
                    if isinstance(error, DeviceLost):
                        raise CorunError("the GPU was lost") from error
                    continue
                values[name].append(metrics)
                notes[name] = note or notes[name]
                say(f"{label}: {tell(metrics, note)}")
                save(rows())
    except (XidSeen, CorunError) as error:
        stopped = str(error)
        problems[current].append(f"stopped{' at' if isinstance(error, XidSeen) else ':'} {stopped}")
        say(f"{case}, {current}: STOPPED: {stopped}")
    return rows(), [f"{case}, {name}: {text}" for name in configs for text in problems[name]], stopped
