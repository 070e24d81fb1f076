"""What sharing costs: attaching, the preload in every exec, and many attach/detach cycles."""

import os
import time

from . import commands
from .errors import RunFailed, XidSeen
from .matrix import TSG_NAME, renderer_metrics
from .results import row
from .stats import summaries, summary

ATTACH_BUDGET_MS = 30
EXEC_BUDGET_MS = 0.5

_EXEC_BLOCK = 20
_SHORT_SECONDS = 0.05


def _short_compute(runner, identity, shared):
    words = runner.stack.run("--attach", TSG_NAME, "--require") if shared else runner.workload.native()
    return runner.simple("compute", [*words, *runner.workload.compute(_SHORT_SECONDS, extra=["--warmup", "5"])], identity, 60)


def _context(runner, identity, shared):
    """One context: how long it took to make, and what the shim itself spent on attaching (import and mapping)."""
    before = runner.stack.attach_seconds()
    metrics = {"context_ms": _short_compute(runner, identity, shared)["context_ms"]}
    if shared:
        attaches, seconds = (b - a for a, b in zip(before, runner.stack.attach_seconds()))
        if attaches != 1:
            raise RunFailed(f"attach-cost: vudad counted {attaches} attaches of one program")
        metrics["attach_ms"] = seconds * 1000
    return metrics


def attach_cost(runner, identity, repetitions, say, save):
    """Milliseconds to make a CUDA context: with the GPU to itself, then beside a renderer, natively and attached.

    Two renderers: one that draws a frame a second, so that the GPU is idle and only the work is timed ("attach-cost-quiet"), and
    the usual one ("attach-cost"), where both ways of making a context also wait for frames to end. `save(rows)`: called with what there is.
    """
    entries = []

    def rows_of(case, values):
        return [row(case, config, summaries(runs), 0, f"{len(runs)} contexts", len(runs)) for config, runs in values.items() if runs]

    verdicts = []
    for case, fps in (("attach-cost-quiet", 1.0), ("attach-cost", None)):
        directory = runner.run_directory(identity)
        values = {"alone-compute": [], "time-slicing": [], "shared": []}
        try:
            for _ in range(repetitions):
                values["alone-compute"].append(_context(runner, identity, False))
            renderer = runner.start_renderer(directory, identity, True, 0, fps=fps)
            try:
                for _ in range(repetitions):
                    for config in ("time-slicing", "shared"):
                        values[config].append(_context(runner, identity, config == "shared"))
                    save(entries + rows_of(case, values))
                renderer.interrupt()
                renderer.result(30, runner.guard)
            finally:
                renderer.kill()
        finally:
            runner.discard(directory, f"{case}, renderer")
        rows = rows_of(case, values)
        entries += rows
        alone, sliced, shared = (rows[i]["metrics"]["context_ms"]["median"] for i in range(3))
        attach = rows[2]["metrics"]["attach_ms"]
        say(f"{case}: context {alone:.1f} ms alone, {sliced:.1f} ms beside, {shared:.1f} ms attached; attaching {attach['median']:.1f} ms")
        against = sliced if fps is None else alone
        verdicts.append(_verdict(f"{case}: an attached context takes longer by", shared - against, ATTACH_BUDGET_MS))
        verdicts.append(_verdict(f"{case}: attaching itself takes, at most", attach["max"], ATTACH_BUDGET_MS))
    return entries, verdicts


def _exec_block(env):
    """Milliseconds for one exec of /bin/true, from posix_spawn to its end; mean over a block."""
    start = time.perf_counter()
    for _ in range(_EXEC_BLOCK):
        pid = os.posix_spawn("/bin/true", ["/bin/true"], env)
        os.waitpid(pid, 0)
    return (time.perf_counter() - start) * 1000 / _EXEC_BLOCK


def exec_cost(runner, say, count=200):
    """What the preloaded shim adds to a program that never touches the GPU."""
    words = runner.stack.run("--attach", TSG_NAME)
    done = commands.run([*words, "/usr/bin/env", "-0"], capture_output=True, timeout=30, check=False)
    preloaded = dict(entry.split("=", 1) for entry in os.fsdecode(done.stdout).split("\0") if "=" in entry)
    if "LD_PRELOAD" not in preloaded:
        raise RunFailed(f"vudactl run sets no LD_PRELOAD: {os.fsdecode(done.stderr).strip()[:300]}")
    plain = {name: value for name, value in preloaded.items() if name != "LD_PRELOAD"}
    _exec_block(plain)
    _exec_block(preloaded)
    blocks = max(1, count // _EXEC_BLOCK)
    values = {"alone-compute": [], "shared": []}
    for _ in range(blocks):
        values["alone-compute"].append(_exec_block(plain))
        values["shared"].append(_exec_block(preloaded))
    notes = {"alone-compute": "without LD_PRELOAD", "shared": "with LD_PRELOAD, as vudactl run --attach sets it"}
    rows = [
        row("exec-cost", config, {"exec_ms": summary(runs)}, 0, f"{blocks * _EXEC_BLOCK} x /bin/true {notes[config]}", blocks)
        for config, runs in values.items()
    ]
    added = rows[1]["metrics"]["exec_ms"]["median"] - rows[0]["metrics"]["exec_ms"]["median"]
    say(f"exec-cost: {added:+.3f} ms an exec")
    return rows, [_verdict("exec-cost: the preload adds", added, EXEC_BUDGET_MS)]


def cycles(runner, identity, count, in_process, say):
    """Attaches and detaches `count` times beside one renderer, which must not notice."""
    directory = runner.run_directory(identity)
    contexts = []
    note = ""
    try:
        renderer = runner.start_renderer(directory, identity, True, 0)
        try:
            if in_process:
                words = [*runner.stack.run("--attach", TSG_NAME, "--require")]
                command = [*words, *runner.workload.compute(0, extra=["--warmup", "5", "--cycles", str(count)])]
                answer = runner.simple("compute", command, identity, 60 + 3 * count)
                contexts.append({"context_ms": answer["context_ms"]})
                done = answer["cycles"]
            else:
                for done in range(1, count + 1):
                    contexts.append({"context_ms": _short_compute(runner, identity, True)["context_ms"]})
                    if done % 10 == 0:
                        say(f"cycles: {done} of {count}")
            renderer.interrupt()
            answer = renderer.result(30, runner.guard)
        finally:
            renderer.kill()
        runner.guard()
        note = (
            f"{done} cycles {'in one process' if in_process else 'of a process each'}; {answer['checked_frames']} frames checked, "
            f"{answer['checksum_errors']} wrong"
        )
        metrics = summaries(contexts)
        metrics.update(summaries([renderer_metrics(answer)]))
        entries = [row("cycles", "shared", metrics, 0, note, len(contexts))]
        good = answer["checksum_errors"] == 0 and done == count
    except XidSeen as error:
        entries = [row("cycles", "shared", summaries(contexts), len(runner.xids.seen), f"stopped at {error}", len(contexts))]
        note, good = str(error), False
    finally:
        runner.discard(directory, "cycles, renderer")
    say(f"cycles: {note}")
    return entries, [f"{'ok    ' if good else 'MISSED'} cycles: {note}"]


def _verdict(text, value, budget):
    return f"{'ok    ' if value <= budget else 'MISSED'} {text} {value:.3f} ms (<= {budget} ms)"


