"""The partitioner's measurements: full quota, quota sweeps, changes while it runs, and what each costs."""

import os
import time

from .errors import RunFailed
from .identity import Identity
from .matrix import TSG_NAME, compute_metrics, renderer_metrics
from .program import Program
from .split import compute_tpcs, sms_of, wrong_sms

_LINGER_SECONDS = 0.5
_LIMIT_SECONDS = 60


def _trace_seconds(frames):
    return 5 * frames * 0.0105 + 1


def _longest(answer):
    """Of frames, by the wall clock and by the GPU's own."""
    names = {"frame_max_ms": "frame_max_ms", "frame_p50_ms": "frame_p50_ms", "gpu_max_ms": "frame_gpu_max_ms", "gpu_p50_ms": "frame_gpu_p50_ms"}
    return {ours: answer[theirs] for theirs, ours in names.items() if theirs in answer}


class PartitionRunner:
    """One renderer and one attached compute program for each run, split as asked."""

    def __init__(self, runner, splitter):
        self.runner = runner
        self.splitter = splitter
        self.levels = []
        self.total = 0
        self.trace = []  # of the last reconfiguration: [(milliseconds of a frame), ...]

    def alone(self, side):
        return self.runner.two_process(f"alone-{side}", Identity())

    def learn(self):
        """The splits that this GPU offers."""
        self._run("inter-sm", "none", seconds=0.2)
        partition = self.splitter_partition
        self.levels = partition["levels"]
        self.total = len(partition["topology"]["tpc"])

    def split(self, mode, quota):
        """{metric: value} and a note."""
        return self._run(mode, quota, self.runner.seconds)

    def reconfigure(self, quotas, frames):
        """Alternates the quota every `frames` frames; frame times go to self.trace."""
        return self._run("inter-sm", quotas[0], _trace_seconds(frames), quotas=quotas, pause=frames * 0.01)

    def undisturbed(self, frames):
        """The renderer alone for as long: what its longest frame is without anybody else."""
        runner = self.runner
        identity = Identity()
        directory = runner.run_directory(identity)
        seconds = _trace_seconds(frames)
        renderer = runner.start_renderer(directory, identity, False, seconds)
        try:
            answer = renderer.result(seconds + _LIMIT_SECONDS, runner.guard)
            runner._check_pixels(answer)
            runner.guard()
            return {**renderer_metrics(answer), **_longest(answer)}, ""
        finally:
            renderer.kill()
            runner.discard(directory, "undisturbed")

    def churn(self, quotas, a_second, seconds):
        """Changes the quota that often, for that long. Every frame and every kernel's result is checked."""
        metrics, note = self._run("inter-sm", quotas[0], seconds, quotas=quotas, pause=1 / a_second)
        metrics["changes_a_second"] = metrics["changes"] / seconds
        return metrics, note

    def _run(self, mode, quota, seconds, quotas=(), pause=0.0):
        runner, splitter = self.runner, self.splitter
        identity = Identity()
        directory = runner.run_directory(identity)
        start = os.path.join(directory, "start")
        gate = ["--start-file", start, "--linger", f"{_LINGER_SECONDS:g}"]
        running = []
        before = runner.workload.render_extra
        try:
            runner.workload.render_extra = ["--report-frames"] if quotas else []
            renderer = runner.start_renderer(directory, identity, True, seconds, gate)
            running.append(renderer)
            ready = os.path.join(directory, "compute.ready")
            words = runner.stack.run("--attach", TSG_NAME, "--require")
            command = [*words, *runner.workload.compute(seconds, ["--ready-file", ready, *gate], ["--report-sms"])]
            compute = Program("compute", command, directory, identity)
            running.append(compute)
            compute.wait_ready(ready, _LIMIT_SECONDS, runner.guard)
            backend = splitter.wait_backend(runner.guard)
            splitter.set_mode(mode)
            splitter.set_quota(quota)
            partition = self.splitter_partition = splitter.wait_applied(runner.guard)
            open(start, "w", encoding="ascii").close()
            changes = 0
            if quotas:
                due = time.monotonic()
                end = due + seconds - 0.1
                while due + pause < end:
                    due += pause
                    time.sleep(max(0.0, due - time.monotonic()))
                    changes += 1
                    splitter.set_quota(quotas[changes % len(quotas)])
            answer = renderer.result(seconds + _LIMIT_SECONDS, runner.guard)
            runner._check_pixels(answer)
            result = compute.result(seconds + _LIMIT_SECONDS, runner.guard)
            runner.guard()
            metrics = {**renderer_metrics(answer), **compute_metrics(result)}
            metrics["compute_tpcs"] = partition["applied_tpcs"]
            if quotas:
                self.trace = answer["frame_ms"]
                metrics["frames"] = len(self.trace)
                metrics.update(_longest(answer))
                metrics["changes"] = changes
            else:
                allowed = compute_tpcs(partition["topology"], partition["applied_tpcs"], mode)
                metrics["wrong_sms"] = wrong_sms(result["sms"], sms_of(partition["topology"], allowed))
                if metrics["wrong_sms"]:
                    raise RunFailed(f"blocks ran on SMs {result['sms']}, which are not those of TPCs {allowed}")
            return metrics, f"{backend}; compute may use {partition['applied_tpcs']} TPCs"
        finally:
            runner.workload.render_extra = before
            for program in reversed(running):
                program.kill()
            runner.discard(directory, f"{mode}, {quota}")


def verdicts(rows):
    """'ok' or 'MISSED' for each target on an H200."""
    cases = {}
    for entry in rows:
        cases.setdefault(entry["case"], {})[entry["config"]] = entry["metrics"]
    lines = []

    def line(case, text, value, bound, good):
        lines.append(f"{'ok    ' if good else 'MISSED'} {case}: {text} {value:.3f} ({bound})")

    full = cases.get("full-quota", {})
    alone_renderer, alone_compute, split = (full.get(name, {}) for name in ("alone-renderer", "alone-compute", "partitioned"))
    for metrics, key, text, limit, above in (
        (alone_renderer, "renderer_fps", "renderer's rate against alone", 0.995, True),
        (alone_compute, "compute_rate", "compute's rate against alone", 0.95, True),
        (alone_compute, "compute_p99_ms", "compute's p99 against alone", 1.1, False),
    ):
        if key in metrics and key in split:
            ratio = split[key]["median"] / metrics[key]["median"]
            line("full-quota", text, ratio, f"{'>=' if above else '<='} {limit}", ratio >= limit if above else ratio <= limit)
    for load in ("fragment", "vertex"):
        sweep = {case: configs for case, configs in cases.items() if case.startswith(f"sweep-{load}-q")}
        if not sweep:
            continue
        points = [m["partitioned"] for m in sweep.values() if "partitioned" in m]
        each = [m["compute_rate"]["median"] / m["compute_tpcs"]["median"] for m in points]
        middle = sorted(each)[len(each) // 2]
        worst = max(abs(value / middle - 1) for value in each)
        line(f"sweep-{load}", "compute's rate for each TPC, furthest from the median", worst, "<= 0.05", worst <= 0.05)
        alone = next((m["alone-renderer"] for m in sweep.values() if "alone-renderer" in m), None)
        if alone:
            least = min(m["renderer_fps"]["median"] for m in points) / alone["renderer_fps"]["median"]
            line(f"sweep-{load}", "renderer's least rate against alone", least, ">= 0.99", least >= 0.99)
    churn = cases.get("churn", {}).get("partitioned")
    if churn:
        rate = churn["changes_a_second"]["median"]
        line("churn", "changes a second, with every frame and every result right,", rate, ">= 9.5", rate >= 9.5)
    change = cases.get("reconfigure", {}).get("partitioned")
    if change:
        ratio = change["frame_max_ms"]["median"] / change["frame_p50_ms"]["median"]
        line("reconfigure", "longest frame against the median frame", ratio, "<= 1.1", ratio <= 1.1)
        if "frame_gpu_max_ms" in change:
            ratio = change["frame_gpu_max_ms"]["max"] / change["frame_gpu_p50_ms"]["median"]
            line("reconfigure", "longest frame of all runs by the GPU's clock against the median frame", ratio, "<= 1.1", ratio <= 1.1)
    return lines
