"""Real CUDA programs beside a renderer: a suite of them in one process, once for each configuration."""

import os
import statistics

from .errors import RunFailed, XidSeen
from .identity import Identity
from .matrix import TSG_NAME
from .program import Program
from .results import row
from .stats import summaries

# Each alone, with the kernels that its libraries choose by themselves and with those that are told what fits; in the TSG of a renderer that draws
# next to nothing, where what does not fit is refused; in turns as the GPU gives them; in the renderer's TSG as before, while it draws all it can; in
# turns that the renderer gives; both: attached, and what does not fit in turns.
CONFIGS = ("alone-native", "alone", "resting", "time-slicing", "shared", "sliced", "mixed")
TARGET_MS = 16.67
RESTING_FPS = 1
# As result files call them; what native kernels do alone is a figure of the row of those that fit.
FILED = {"alone": "alone-compute"}
_LIMIT_SECONDS = 240
# cuDNN and PyTorch go on to another kernel when one is refused.
_FITTING = ("--fit-kernels", "--over-limit", "reject")
_ATTACHED = {"resting": _FITTING, "shared": _FITTING, "mixed": ()}


class SuiteRunner:
    def __init__(self, runner, splitter, command, fit_library):
        """`command`: of the suite; it gets --ready-file and --start-file. `fit_library`: path of libvuda_fit.so."""
        self.runner = runner
        self.splitter = splitter
        self.command = command
        self.fit_library = fit_library

    def _compute(self, config, directory, identity, gate):
        words, environment = self.runner.workload.native(), None
        if config in _ATTACHED:
            words = self.runner.stack.run("--attach", TSG_NAME, "--require", *_ATTACHED[config])
        elif config == "alone":
            environment = {**os.environ, "LD_PRELOAD": self.fit_library}
        return Program("compute", [*words, *self.command, *gate], directory, identity, environment)

    def _start_renderer(self, directory, identity, shared, rests):
        runner = self.runner
        if not rests:
            return runner.start_renderer(directory, identity, shared, 0)
        extra = runner.workload.render_extra
        runner.workload.render_extra = [*extra, "--warmup-frames", "1"]
        try:
            return runner.start_renderer(directory, identity, shared, 0, fps=RESTING_FPS)
        finally:
            runner.workload.render_extra = extra

    def run(self, config):
        """({program: its figures or error}, renderer's frames a second or None)"""
        runner = self.runner
        identity = Identity()
        directory = runner.run_directory(identity)
        start = os.path.join(directory, "start")
        running = []
        try:
            renderer = None
            if not config.startswith("alone"):
                # It draws until it is told to end.
                shared = config != "time-slicing"
                renderer = self._start_renderer(directory, identity, shared, config == "resting")
                running.append(renderer)
                if config in ("sliced", "mixed"):
                    self.splitter.set_mode("sliced")
                    self.splitter.slo("--frame-ms", f"{TARGET_MS:g}", "--frame-miss", "1%")
                    self.splitter.set_quota("none")
                elif shared:
                    self.splitter.slo("--clear")
                    self.splitter.set_mode("intra-sm")
                    self.splitter.set_quota("none")
            ready = os.path.join(directory, "compute.ready")
            compute = self._compute(config, directory, identity, ["--ready-file", ready, "--start-file", start])
            running.append(compute)
            compute.wait_ready(ready, _LIMIT_SECONDS, runner.guard)
            if config in _ATTACHED:
                self.splitter.wait_backend(runner.guard)
            if config in ("resting", "shared"):
                self.splitter.set_mode("inter-sm")
            open(start, "w", encoding="ascii").close()
            answer = compute.result(_LIMIT_SECONDS, runner.guard)
            fps = None
            if renderer:
                renderer.interrupt()
                drawn = renderer.result(30, runner.guard)
                runner._check_pixels(drawn)
                fps = (drawn["fps"], drawn["frame_p99_ms"])
            runner.guard()
            return answer["programs"], fps
        finally:
            for program in reversed(running):
                program.kill()
            runner.discard(directory, f"real programs, {config}")


def alike(one, other):
    """Sums of results: kernels that add in any order differ in the last digits."""
    return abs(one - other) <= 1e-3 * max(abs(one), abs(other))


def _rounded(figures):
    """As files keep them: the same medians now and when a file is continued."""
    return {name: value if name == "checksum" or isinstance(value, str) else round(value, 6) for name, value in figures.items()}


class Measured:
    """Every run of a configuration, as a file keeps them, and what they tell. A run: its configuration, its number, what `origin` says of when and where,
    and "programs" (with "renderer", where there was one) or why it "failed"."""

    def __init__(self, runs=()):
        self.runs = list(runs)

    def count(self, config):
        return sum(run["config"] == config for run in self.runs)

    def take(self, config, origin, programs, frames):
        run = {"config": config, "run": self.count(config) + 1, **origin, "programs": {name: _rounded(figures) for name, figures in programs.items()}}
        if frames:
            run["renderer"] = _rounded({"renderer_fps": frames[0], "frame_p99_ms": frames[1]})
        self.runs.append(run)

    def fail(self, config, origin, why, xids=0):
        self.runs.append({"config": config, "run": self.count(config) + 1, **origin, "failed": why, **({"xids": xids} if xids else {})})

    def _sorted(self):
        """({(program, configuration): [figures]}, {(program, configuration): [error]}, {configuration: [the renderer's figures]})"""
        values, errors, frames = {}, {}, {}
        for run in self.runs:
            for name, figures in run.get("programs", {}).items():
                key = name, run["config"]
                if "error" in figures:
                    errors.setdefault(key, []).append(figures["error"])
                else:
                    values.setdefault(key, []).append(figures)
            if "renderer" in run:
                frames.setdefault(run["config"], []).append(run["renderer"])
        return values, errors, frames

    def rows(self):
        """One row for each program and configuration, one for the renderer in each, one for an Xid."""
        values, errors, frames = self._sorted()
        rows = []
        for (name, config), runs in values.items():
            if config == "alone-native":
                continue
            metrics = summaries([{"compute_rate": r["rate"], "compute_p50_ms": r["p50_ms"], "compute_p99_ms": r["p99_ms"]} for r in runs])
            if config == "alone" and (name, "alone-native") in values:
                metrics.update(summaries([{"native_rate": r["rate"]} for r in values[name, "alone-native"]]))
            rows.append(row(name, FILED.get(config, config), metrics, 0, errors.get((name, config), [""])[0], len(runs)))
        for (name, config), texts in errors.items():
            if (name, config) not in values and config != "alone-native":
                metrics = {"ran": 0.0}
                if config == "alone" and (name, "alone-native") in values:
                    metrics["native_rate"] = statistics.median(r["rate"] for r in values[name, "alone-native"])
                rows.append(row(name, FILED.get(config, config), summaries([metrics]), 0, f"did not run: {texts[0]}", len(texts)))
        for config, runs in frames.items():
            rows.append(row("renderer", config, summaries(runs), runs=len(runs)))
        stops = [run for run in self.runs if run.get("xids")]
        for config in dict.fromkeys(FILED.get(run["config"], run["config"]) for run in stops):
            of = [run for run in stops if FILED.get(run["config"], run["config"]) == config]
            note = "; ".join(f"{run['config']}, run {run['run']}: {run['failed']}" for run in of)
            rows.append(row("suite", config, {}, sum(run["xids"] for run in of), note, 0))
        return rows

    def problems(self):
        values = self._sorted()[0]
        problems = [f"{run['config']}, run {run['run']}: {run['failed']}" for run in self.runs if "failed" in run]
        for (name, config), runs in values.items():
            checksums = [run["checksum"] for run in runs]
            if not alike(min(checksums), max(checksums)):
                problems.append(f"{name}, {config}: results differ from run to run: {sorted(checksums)}")
        # With the same kernels the results are the same beside a renderer, beside one that rests, and alone.
        for name in dict.fromkeys(name for name, _ in values):
            shared = values.get((name, "shared"))
            for other in ("alone", "resting"):
                beside = values.get((name, other))
                if beside and shared and not alike(beside[0]["checksum"], shared[0]["checksum"]):
                    problems.append(f"{name}: shared results differ from {other}: {shared[0]['checksum']} and {beside[0]['checksum']}")
        return problems


def measure(suite, configs, repetitions, say, measured, origin, save):
    """Adds runs to `measured` until there are `repetitions` of each configuration, interleaved. `origin()`: {"date", "driver"} of a run; `save()`:
    called after each. Returns why it stopped or None."""
    for repetition in range(1, repetitions + 1):
        for config in configs:
            if measured.count(config) >= repetition:
                continue
            label = f"{config}, run {repetition} of {repetitions}"
            try:
                programs, fps = suite.run(config)
            except XidSeen as error:
                measured.fail(config, origin(), f"stopped at {error}", len(suite.runner.xids.seen))
                say(f"{label}: STOPPED: {error}")
                save()
                return str(error)
            except RunFailed as error:
                say(f"{label}: FAILED: {error}")
                try:
                    suite.runner.guard()
                except XidSeen as seen:
                    measured.fail(config, origin(), f"stopped at {seen}", len(suite.runner.xids.seen))
                    save()
                    return str(seen)
                measured.fail(config, origin(), str(error))
                save()
                continue
            measured.take(config, origin(), programs, fps)
            ran = sum("error" not in figures for figures in programs.values())
            say(f"{label}: {ran} of {len(programs)} programs ran" + (f", {fps[0]:.1f} frames/s" if fps else ""))
            save()
    return None


def table(rows):
    """Lines of Markdown: each program against itself alone."""
    figures = {(entry["case"], entry["config"]): entry for entry in rows}
    names = list(dict.fromkeys(entry["case"] for entry in rows if entry["case"] != "renderer"))
    lines = [
        "| program | alone, native kernels, /s | alone, told what fits, /s | in the TSG, renderer at rest, /s | time slicing, % of native | shared, % of at rest | in turns, % of native | shared in turns, % of native |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]

    def rate(name, config, metric="compute_rate"):
        entry = figures.get((name, config))
        return entry["metrics"][metric]["median"] if entry and metric in entry["metrics"] else None

    for name in names:
        native, rest = rate(name, "alone-compute", "native_rate"), rate(name, "resting")

        def against(config, base):
            value = rate(name, config)
            if value is not None and base:
                return f"{100 * value / base:.1f}"
            return "did not run" if (name, config) in figures else "-"

        rates = " | ".join(f"{value:.0f}" if value else "-" for value in (native, rate(name, "alone-compute"), rest))
        lines.append(f"| {name} | {rates} | {against('time-slicing', native)} | {against('shared', rest)} | {against('sliced', native)} | {against('mixed', native)} |")
    beside = ", ".join(
        f"{config} {figures['renderer', config]['metrics']['renderer_fps']['median']:.1f} (p99 {figures['renderer', config]['metrics']['frame_p99_ms']['median']:.2f} ms)"
        for config in CONFIGS
        if ("renderer", config) in figures
    )
    return [*lines, "", f"Renderer, frames a second: {beside}."]
