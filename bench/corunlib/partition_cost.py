"""What following a split costs a launch, and what changing it costs."""

import contextlib
import os
import statistics
import subprocess
import time

from .errors import CorunError, RunFailed, XidSeen
from .identity import Identity
from .matrix import TSG_NAME
from .program import Program
from .results import row
from .stats import summaries

_LIMIT_SECONDS = 120
_CHANGES = 50
_OWN_CHANGES = 2000


@contextlib.contextmanager
def _attached(runner, split, what, seconds, extra=(), load=None, gated=True):
    """A compute program beside a renderer, in mode inter-sm, ready: a function that lets it start and returns what it found."""
    identity = Identity()
    directory = runner.run_directory(identity)
    start = os.path.join(directory, "start")
    running = []
    try:
        running.append(runner.start_renderer(directory, identity, True, 0))
        ready = os.path.join(directory, "compute.ready")
        words = runner.stack.run("--attach", TSG_NAME, "--require")
        gate = ["--ready-file", ready, *(["--start-file", start] if gated else [])]
        compute = Program("compute", [*words, *runner.workload.compute(seconds, gate, extra, load)], directory, identity)
        running.append(compute)
        compute.wait_ready(ready, _LIMIT_SECONDS, runner.guard)
        split.splitter.wait_backend(runner.guard)
        split.splitter.set_mode("inter-sm")

        def answer():
            split.splitter.wait_applied(runner.guard)
            open(start, "w", encoding="ascii").close()
            return compute.result(_LIMIT_SECONDS, runner.guard)

        yield answer
        runner.guard()
    finally:
        for program in reversed(running):
            program.kill()
        runner.discard(directory, what)


def _launches(runner, split, launches):
    """Nanoseconds that one asynchronous launch takes the program, attached: with the partitioner's mask, and without its hook; both in
    turns in the same process."""
    with _attached(runner, split, "launch cost", 1, ["--launch-cost", str(launches)], "tiny") as answer:
        split.splitter.set_quota("none")
        found = answer()
    if "watched_p50_ns" not in found:
        raise RunFailed("the partitioner did not follow the program's launches")
    return {
        "launch_p50_ns": found["watched_p50_ns"],
        "launch_p99_ns": found["watched_p99_ns"],
        "unwatched_p50_ns": found["launch_p50_ns"],
        "unwatched_p99_ns": found["launch_p99_ns"],
        "mask_ns": found["watched_p50_ns"] - found["launch_p50_ns"],
    }


def _changes(runner, split):
    """Milliseconds from vudactl's request until the split is in force (by vudactl's own clock: it is on every session page when vudad
    answers, so the next launch follows it), and of the whole command: loading libraries, gRPC's start, connecting, the request, the end."""
    whole, applied = [], []
    with _attached(runner, split, "quota changes", 0, gated=False):
        for number in range(_CHANGES):
            began = time.monotonic()
            applied.append(split.splitter.set_quota(split.levels[number % len(split.levels)]))
            whole.append(1000 * (time.monotonic() - began))
    return {"vudactl_quota_ms": statistics.median(whole), "quota_change_ms": statistics.median(applied), "quota_change_max_ms": max(applied)}


def _own_changes(runner, split):
    """Microseconds that the attached program itself pays for changing its quota, and until the change is in force."""
    with _attached(runner, split, "own quota changes", 1, ["--quota-changes", str(_OWN_CHANGES)]) as answer:
        found = answer()
    return {name: found[name] for name in ("quota_call_p50_us", "quota_call_p99_us", "quota_applied_p50_us", "quota_applied_p99_us")}


def measure(runner, split, launches, repetitions, say, save):
    """As rounds.measure()."""
    functions = {
        ("launch", "partitioned"): lambda: _launches(runner, split, launches),
        ("quota-change", "partitioned"): lambda: _changes(runner, split),
        ("own-quota-change", "partitioned"): lambda: _own_changes(runner, split),
    }
    values = {key: [] for key in functions}
    problems = []
    stopped = None

    def rows():
        return [row(case, config, summaries(found), 0, "", len(found)) for (case, config), found in values.items() if found]

    try:
        for repetition in range(1, repetitions + 1):
            for key, function in functions.items():
                try:
                    metrics = function()
                except (RunFailed, subprocess.TimeoutExpired) as error:
                    problems.append(f"{key[0]}, {key[1]}, run {repetition}: {error}")
                    say(f"{problems[-1]}: FAILED")
                    runner.guard()
                    continue
                values[key].append(metrics)
                say(f"{key[0]}, {key[1]}, run {repetition}: " + ", ".join(f"{name} {value:.3f}" for name, value in metrics.items()))
                save(rows())
    except (XidSeen, CorunError) as error:
        stopped = str(error)
        problems.append(f"stopped: {stopped}")
    return rows(), problems, stopped


def verdicts(rows):
    metrics = {(entry["case"], entry["config"]): entry["metrics"] for entry in rows}
    lines = []
    launch = metrics.get(("launch", "partitioned"))
    if launch:
        cost = launch["mask_ns"]["median"]
        lines.append(f"{'ok    ' if cost <= 100 else 'MISSED'} launch: the mask's cost at p50 {cost:.0f} ns (<= 100)")
    change = metrics.get(("quota-change", "partitioned"))
    if change:
        value = change["quota_change_ms"]["median"]
        text = "vudactl's request until the split is in force,"
        lines.append(f"{'ok    ' if value <= 5 else 'MISSED'} quota-change: {text} {value:.2f} ms (<= 5)")
    own = metrics.get(("own-quota-change", "partitioned"))
    if own:
        call, applied = own["quota_call_p50_us"]["median"], own["quota_applied_p50_us"]["median"]
        lines.append(f"{'ok    ' if call <= 71 else 'MISSED'} own-quota-change: what it costs the program's thread at p50 {call:.1f} us (<= 71)")
        lines.append(f"{'ok    ' if applied <= 5000 else 'MISSED'} own-quota-change: until it is in force at p50 {applied:.0f} us (<= 5000)")
    return lines
