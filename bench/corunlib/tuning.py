"""Targets for a renderer and a compute program: what each way of sharing makes of them, and what the SLO tuner does."""

import json
import os
import time

from . import trace as traces
from .errors import RunFailed
from .identity import Identity
from .matrix import TSG_NAME
from .program import Program
from .table import format_table

CONVERGE_SECONDS = 2.0  # the targets must be met by then
_LEAD_SECONDS = 1.0  # at the worst quota, before the targets are set
_TAIL_SECONDS = 1.5  # after the hold: traces must reach beyond it
_LINGER_SECONDS = 0.5
_LIMIT_SECONDS = 60
_RISEN = 0.9


class Shape:
    """A paced renderer, and compute that is paced too or never pauses. Times stretched by `stretch`."""

    def __init__(self, fps, frame_share, step_fps=0.0, step_share=0.0, kernel_ms=0.0, stretch=1.0):
        self.fps = fps / stretch
        self.frame_bound_ms = 1000 / self.fps
        self.frame_ms = frame_share * self.frame_bound_ms
        self.step_fps = step_fps / stretch
        self.step_bound_ms = 1000 / self.step_fps if step_fps else None
        self._step_share = step_share
        self._kernel_ms = kernel_ms * stretch

    def kernel_ms(self, levels, total):
        """On the whole GPU. A paced step takes its share of the deadline at the middle level: a kernel of many short blocks is as fast as
        it has TPCs, so that at low levels it misses."""
        if not self.step_bound_ms:
            return self._kernel_ms
        return self._step_share * self.step_bound_ms * levels[len(levels) // 2] / total

    def targets(self, allowed):
        """Words for `vudactl slo`."""
        words = ["--frame-ms", f"{self.frame_bound_ms:.2f}", "--frame-miss", f"{allowed:g}"]
        if self.step_bound_ms:
            words += ["--latency-ms", f"{self.step_bound_ms:.2f}", "--latency-miss", f"{allowed:g}"]
        return words


def shapes(stretch=1.0):
    return {
        "ai-gaming": Shape(60, 0.70, kernel_ms=2.88, stretch=stretch),
        "dual-slo": Shape(90, 0.65, step_fps=60, step_share=0.65, stretch=stretch),
    }


class TuningRunner:
    """Runs one shape after the other; `allowed`: fraction that may be late."""

    def __init__(self, runner, splitter, allowed, reference_seconds):
        self.runner = runner
        self.splitter = splitter
        self.allowed = allowed
        self.reference_seconds = reference_seconds
        self.shape = None
        self.levels = []
        self.total = 0

    def learn(self):
        """The levels that this GPU offers."""
        self._run("shared", 0.2, learn=True)

    def reference(self, config):
        """{metric: value} and a note: alone-renderer, alone-compute, time-slicing or shared, at what the shape asks for."""
        return self._run(config, self.reference_seconds)

    def tuned(self, start, hold):
        """From level `start` on: the targets are set, and what comes of it is watched for CONVERGE_SECONDS and `hold` seconds."""
        return self._run("tuned", _LEAD_SECONDS + CONVERGE_SECONDS + hold + _TAIL_SECONDS, start=start, hold=hold)

    def _run(self, config, seconds, start=None, hold=0.0, learn=False):
        runner = self.runner
        identity = Identity()
        directory = runner.run_directory(identity)
        start_file = os.path.join(directory, "start")
        gate = ["--start-file", start_file, "--linger", f"{_LINGER_SECONDS:g}"]
        shared = config in ("shared", "tuned")
        shape = self.shape
        running = []
        before = runner.workload.render_extra
        try:
            runner.workload.render_extra = ["--report-trace"]
            renderer = compute = watch = None
            if config != "alone-compute":
                renderer = runner.start_renderer(directory, identity, shared, seconds, gate, shape.fps if shape else None)
                running.append(renderer)
            if shared:
                # Targets outlive the run that set them.
                self.splitter.slo("--clear")
                watch = Program("watch", runner.stack.vudactl("watch", "--json"), directory, identity)
                running.append(watch)
            if config != "alone-renderer":
                ready = os.path.join(directory, "compute.ready")
                words = runner.stack.run("--attach", TSG_NAME, "--require") if shared else runner.workload.native()
                steps = runner.workload.steps(shape.step_fps if shape else 0)
                compute = Program(
                    "compute",
                    [*words, *runner.workload.compute(seconds, ["--ready-file", ready, *gate], steps)],
                    directory,
                    identity,
                )
                running.append(compute)
                compute.wait_ready(ready, _LIMIT_SECONDS, runner.guard)
            if shared:
                self._split(config, start, learn)
                watch.wait_for(lambda: os.path.getsize(watch.output), 10, "it told of the split", runner.guard)
            open(start_file, "w", encoding="ascii").close()
            opened = time.monotonic()
            asked = self._ask_and_hold(opened, hold, running) if config == "tuned" else None
            slo = self._slo() if config == "tuned" else {}
            answers = {}
            for name, program in (("renderer", renderer), ("compute", compute)):
                if program:
                    answers[name] = program.result(seconds + _LIMIT_SECONDS, runner.guard)
            if renderer:
                runner._check_pixels(answers["renderer"])
            if compute and shared and not answers["compute"].get("marked", True):
                raise RunFailed("compute found no VUDA in its process to mark its steps for")
            runner.guard()
            if learn:
                return {}, ""
            if config != "tuned":
                return self._figures(answers, opened, opened + seconds), self._note(config)
            watch.kill()
            return self._judge(answers, opened, asked, hold, watch.lines(), slo)
        finally:
            runner.workload.render_extra = before
            for program in reversed(running):
                program.kill()
            runner.discard(directory, config if start is None else f"{config} from {start}")

    def _split(self, config, start, learn):
        runner, splitter = self.runner, self.splitter
        splitter.wait_backend(runner.guard)
        tuned = config == "tuned" or learn
        splitter.set_mode("inter-sm" if tuned else "intra-sm")
        splitter.set_quota(start if start is not None else "none")
        partition = splitter.wait_applied(runner.guard)
        if learn:
            self.levels = partition["levels"]
            self.total = partition["topology"]["tpcs"]

    def _ask_and_hold(self, opened, hold, running):
        """Sets the targets after a while, and waits until the hold must be over. Returns when they were set."""
        self._sleep_until(opened + _LEAD_SECONDS, running)
        asked = time.monotonic()
        self.splitter.slo(*self.shape.targets(self.allowed))
        self.splitter.set_quota("auto")
        self._sleep_until(asked + CONVERGE_SECONDS + hold, running)
        return asked

    def _sleep_until(self, moment, running):
        while time.monotonic() < moment:
            self.runner.guard()
            for program in running:
                if not program.alive():
                    raise RunFailed(f"{program.label} ended early: {program.errors()}")
            time.sleep(min(0.1, max(0.0, moment - time.monotonic())))

    def _slo(self):
        """What `vudactl slo` shows at the end of the hold."""
        for tsg in self.runner.stack.status().get("tsgs", ()):
            if tsg.get("name") == TSG_NAME:
                return tsg.get("slo") or {}
        return {}

    def _note(self, config):
        return "no tuner, every TPC for both sides" if config == "shared" else ""

    def _figures(self, answers, begin, end):
        """What both sides reached in [begin, end)."""
        metrics = {}
        span = end - begin
        if "renderer" in answers:
            frames = traces.between(traces.from_answer(answers["renderer"]), begin, end)
            gaps = traces.intervals(frames)
            metrics["renderer_fps"] = len(frames) / span
            metrics["frame_p50_ms"], metrics["frame_p99_ms"] = traces.percentile(gaps, 50), traces.percentile(gaps, 99)
            metrics["frame_latency_p50_ms"] = traces.percentile(frames, 50)
            metrics["frame_latency_p99_ms"] = traces.percentile(frames, 99)
            metrics["frame_miss"] = traces.miss(frames, self.shape.frame_bound_ms)
        if "compute" in answers:
            steps = traces.between(traces.from_answer(answers["compute"]), begin, end)
            metrics["compute_rate"] = len(steps) / span
            metrics["compute_p50_ms"], metrics["compute_p99_ms"] = traces.percentile(steps, 50), traces.percentile(steps, 99)
            if self.shape.step_bound_ms:
                metrics["step_miss"] = traces.miss(steps, self.shape.step_bound_ms)
        return metrics

    def _judge(self, answers, opened, asked, hold, lines, slo):
        frames = traces.from_answer(answers["renderer"])
        steps = traces.from_answer(answers["compute"])
        bound = [(frames, self.shape.frame_bound_ms)]
        if self.shape.step_bound_ms:
            bound.append((steps, self.shape.step_bound_ms))
        met = traces.first_met(bound, asked)
        begin = asked + CONVERGE_SECONDS if met is None else met
        end = min(begin + hold, frames[-1][0], steps[-1][0])
        if end - begin < 0.5 * hold:
            begin = max(asked, end - hold)
        metrics = self._figures(answers, begin, end)
        metrics["hold_s"] = end - begin
        if met is not None:
            metrics["convergence_s"] = met - asked
        risen = traces.risen(steps, asked, _RISEN * metrics["compute_rate"])
        if risen is not None:
            metrics["compute_rise_s"] = risen - asked
        worst = self._figures(answers, opened, asked)
        for name in ("frame_miss", "step_miss"):
            if name in worst:
                metrics[name + "_before"] = worst[name]
        changes = level_changes(lines, asked)
        held = [(old, new) for at, old, new in changes if begin <= at < end]
        metrics["decisions"] = len(changes)
        metrics["decisions_in_hold"] = len(held)
        metrics["reversals"] = traces.reversals(held)
        metrics["compute_tpcs"] = self.splitter_level(slo)
        states = ", ".join(f"{target['kind']} {target['state']}" for target in slo.get("targets", ()))
        path = " ".join(f"{at - asked:.2f}s:{old}->{new}" for at, old, new in changes[:12])
        note = f"at the end {states}; changes {path or 'none'}"
        return metrics, note + ("" if met is not None else "; the targets were never met for a second")

    @staticmethod
    def splitter_level(slo):
        return slo.get("level_tpcs") or 0


def level_changes(lines, since):
    """[(seconds on CLOCK_MONOTONIC, old TPCs, new TPCs), ...] of the lines of `vudactl watch --json`."""
    changes = []
    for line in lines:
        try:
            event = json.loads(line)
            if event["kind"] != "tuner-level" or event["name"] != TSG_NAME:
                continue
            at = event["monotonic_us"] / 1e6
            old, new = (int(event["fields"][name]) for name in ("VUDA_OLD_TPCS", "VUDA_NEW_TPCS"))
        except (KeyError, TypeError, ValueError) as error:
            raise RunFailed(f"vudactl watch --json: {error!r} in {line[:200]}") from error
        if at >= since and old != new:
            changes.append((at, old, new))
    return changes


_NAMES = {
    "alone-renderer": "renderer alone",
    "alone-compute": "compute alone",
    "time-slicing": "time slicing (default)",
    "shared": "shared, no tuner",
    "tuned": "tuned",
}


def table(rows):
    def figure(metrics, name, digits, factor=1.0):
        return f"{factor * metrics[name]['median']:.{digits}f}" if name in metrics else ""

    header = ["case, configuration", "frames/s", "frame p50 ms", "p99 ms", "late %", "steps/s", "step p50 ms", "p99 ms", "late %"]
    header += ["met after s", "TPCs", "changes, in hold", "reversals"]
    lines = []
    for entry in rows:
        m = entry["metrics"]
        lines.append(
            [
                f"{entry['case']}, {_NAMES.get(entry['config'], entry['config'])}",
                figure(m, "renderer_fps", 1),
                figure(m, "frame_latency_p50_ms", 2),
                figure(m, "frame_latency_p99_ms", 2),
                figure(m, "frame_miss", 2, 100),
                figure(m, "compute_rate", 1),
                figure(m, "compute_p50_ms", 2),
                figure(m, "compute_p99_ms", 2),
                figure(m, "step_miss", 2, 100),
                figure(m, "convergence_s", 2),
                figure(m, "compute_tpcs", 0),
                f"{figure(m, 'decisions', 0)}, {figure(m, 'decisions_in_hold', 0)}" if "decisions" in m else "",
                figure(m, "reversals", 0),
            ]
        )
    return format_table(header, lines)


def verdicts(rows, allowed, hold):
    """'ok' or 'MISSED' for what must be reached: by the worst run, not by the median."""
    lines = []

    def line(case, text, value, limit, digits=2):
        lines.append(f"{'ok    ' if value <= limit else 'MISSED'} {case}: {text} {value:.{digits}f} (<= {limit:g})")

    for entry in rows:
        if entry["config"] != "tuned":
            continue
        case, m = entry["case"], entry["metrics"]
        unmet = "never met" in entry["note"] or "convergence_s" not in m
        if unmet:
            lines.append(f"MISSED {case}: targets were not met for a second")
        else:
            line(case, "seconds from setting the targets until they are met,", m["convergence_s"]["max"], CONVERGE_SECONDS)
        for name, text in (("frame_miss", "late frames in the hold, %,"), ("step_miss", "late steps in the hold, %,")):
            if name in m:
                line(case, text, 100 * m[name]["max"], 100 * allowed)
        wanted = hold[case]
        if m["hold_s"]["min"] < wanted - 1.0:
            lines.append(f"MISSED {case}: only {m['hold_s']['min']:.1f} s of {wanted:g} s were left to hold")
    return lines
