"""Turns: a compute program that cannot share, beside a renderer whose frames are held back for it (mode sliced)."""

import os

from . import holes
from .errors import RunFailed
from .identity import Identity
from .matrix import TSG_NAME, compute_metrics, renderer_metrics
from .program import Program

_LINGER_SECONDS = 0.5
_LIMIT_SECONDS = 60
TARGET_MS = 16.67
PACED_FPS = 60.0


class SlicingRunner:
    """One renderer and one compute program for each run; the compute program never joins the renderer's TSG."""

    def __init__(self, runner, splitter, frame_ms=10.0):
        self.runner = runner
        self.splitter = splitter
        self.frame_ms = frame_ms

    def alone_renderer(self, fps=None):
        return self._run(None, compute=False, fps=fps)

    def alone_compute(self):
        return self._run(None, renderer=False)

    def time_slicing(self):
        return self._run(None)

    def target(self, fps=None, compute=True):
        """Frames come as often as a target of 16.67 ms wants."""
        return self._run(("target", TARGET_MS), fps=fps, compute=compute)

    def switches(self, vuda=True):
        """What frames take from compute, by the GPU's clock: held back for the target, or of a renderer that paces itself, without VUDA."""
        return self._run(("target", TARGET_MS), look_at_holes=True) if vuda else self._run(None, fps=PACED_FPS, look_at_holes=True)

    def share(self, percent):
        """Compute gets so much of the GPU's time."""
        return self._run(("share", percent))

    def _ask(self, terms):
        """What vudad says that it put into force."""
        self.splitter.set_mode("sliced")
        kind, value = terms
        if kind == "target":
            self.splitter.slo("--frame-ms", f"{value:g}", "--frame-miss", "1%")
            self.splitter.set_quota("none")
        else:
            self.splitter.slo("--clear")
            self.splitter.set_quota(f"{value}%")
        partition = self.splitter.partition()
        wanted = {"target": round(TARGET_MS * 1000), "share": value}[kind]
        if partition.get("mode") != "sliced" or partition.get({"target": "frame_us", "share": "compute_percent"}[kind]) != wanted:
            raise RunFailed(f"vudad put something else into force: {partition}")

    def _run(self, terms, renderer=True, compute=True, fps=None, look_at_holes=False):
        runner = self.runner
        identity = Identity()
        directory = runner.run_directory(identity)
        start = os.path.join(directory, "start")
        gate = ["--start-file", start, "--linger", f"{_LINGER_SECONDS:g}"]
        running = []
        try:
            frames = kernels = None
            if renderer:
                frames = runner.start_renderer(directory, identity, terms is not None, runner.seconds, gate, fps)
                running.append(frames)
                if terms:
                    self._ask(terms)
            if compute:
                ready = os.path.join(directory, "compute.ready")
                extra = ["--report-holes"] if look_at_holes else []
                command = [*runner.workload.native(), *runner.workload.compute(runner.seconds, ["--ready-file", ready, *gate], extra)]
                kernels = Program("compute", command, directory, identity)
                running.append(kernels)
                kernels.wait_ready(ready, _LIMIT_SECONDS, runner.guard)
            open(start, "w", encoding="ascii").close()
            metrics = {}
            if frames:
                answer = frames.result(runner.seconds + _LIMIT_SECONDS, runner.guard)
                runner._check_pixels(answer)
                metrics.update(renderer_metrics(answer))
                metrics["frame_p50_ms"] = answer["frame_p50_ms"]
                if "gpu_p50_ms" in answer:
                    metrics["frame_gpu_p50_ms"] = answer["gpu_p50_ms"]
            if kernels:
                answer = kernels.result(runner.seconds + _LIMIT_SECONDS, runner.guard)
                metrics.update(compute_metrics(answer))
                if look_at_holes:
                    metrics.update(holes.metrics(answer["holes"], self.frame_ms))
            runner.guard()
            return metrics, ""
        finally:
            for program in reversed(running):
                program.kill()
            runner.discard(directory, f"{terms}")


def filed(entry):
    """A row as result files have it: what was asked for is part of the case."""
    case, config = entry["case"], entry["config"]
    if config == "target" or config.startswith("share-"):
        return {**entry, "case": f"{case}-{config}", "config": "sliced"}
    return {**entry, "config": "alone-renderer"} if config == "alone" else entry


def _unfiled(entry):
    case, config = entry["case"], entry["config"]
    if config == "sliced":
        for mark in ("-target", "-share-"):
            base, found, rest = case.partition(mark)
            if found:
                return base, (found + rest)[1:], entry["metrics"]
    if case == "self-paced" and config == "alone-renderer":
        return case, "alone", entry["metrics"]
    return case, config, entry["metrics"]


def shares(metrics, alone):
    """Percent of the GPU's time, (graphics, compute): frames a second times what one takes alone; kernels against alone."""
    frame_ms = alone["alone-renderer"]["frame_gpu_p50_ms"]["median"]
    return (
        metrics["renderer_fps"]["median"] * frame_ms / 10,
        100 * metrics["compute_rate"]["median"] / alone["alone-compute"]["compute_rate"]["median"],
    )


def verdicts(rows):
    """'ok' or 'MISSED' for each target on an H200."""
    cases = {}
    for case, config, metrics in map(_unfiled, rows):
        cases.setdefault(case, {})[config] = metrics
    alone = {name: m for configs in cases.values() for name, m in configs.items() if name.startswith("alone-")}
    lines = []

    def line(case, text, value, bound, good):
        lines.append(f"{'ok    ' if good else 'MISSED'} {case}: {text} {value:.2f} ({bound})")

    for case, configs in cases.items():
        # Of `switches` the kernels do more than those that ran alone: they look at the clock.
        found = None if case == "switches" else configs.get("target")
        if found and "compute_rate" in found and "alone-compute" in alone:
            p99 = found["frame_p99_ms"]["median"]
            line(case, "target of 16.67 ms, frames' p99", p99, f"<= {TARGET_MS} ms", p99 <= TARGET_MS)
            percent = 100 * found["compute_rate"]["median"] / alone["alone-compute"]["compute_rate"]["median"]
            line(case, "target of 16.67 ms, compute against alone", percent, ">= 38 %", percent >= 38)
        for config, metrics in configs.items():
            if not config.startswith("share-") or not {"alone-renderer", "alone-compute"} <= alone.keys():
                continue
            asked = int(config.removeprefix("share-"))
            graphics, compute = shares(metrics, alone)
            line(case, f"{asked} % of the time for compute: it gets", compute, "within 5", abs(compute - asked) <= 5)
            line(case, f"{asked} % of the time for compute: graphics gets", graphics, "within 5", abs(graphics - (100 - asked)) <= 5)
    paced = cases.get("self-paced", {})
    if {"alone", "target"} <= paced.keys():
        lost = paced["target"]["frame_p50_ms"]["median"] - paced["alone"]["frame_p50_ms"]["median"]
        line("self-paced", "what a renderer that paces itself loses a frame", lost, "<= 0.2 ms", lost <= 0.2)
    return lines
