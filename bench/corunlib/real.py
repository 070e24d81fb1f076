"""Real CUDA programs beside a renderer: a suite of them, in a few processes, each measured in several surroundings."""

import contextlib
import os
import signal
import statistics
import time

from .errors import RunFailed, XidSeen
from .identity import Identity
from .matrix import TSG_NAME
from .program import Program
from .results import row
from .stats import summaries
from .trace import between, from_answer, intervals

# One process each, since no two are equally fast on the CPU, which is what many programs wait for: what is compared is measured in one process where it can
# be. Native kernels alone, in turns as the GPU gives them, in turns that the renderer gives; alone with kernels that are told what fits; in the TSG of
# a renderer that is stopped, where what does not fit is refused, then while it draws all it can; both: attached, and what does not fit in turns.
PROCESSES = (("alone-native", "time-slicing", "sliced"), ("alone",), ("resting", "shared"), ("mixed",))
CONFIGS = tuple(config for process in PROCESSES for config in process)
TARGET_MS = 16.67
# As result files call them; what native kernels do alone is a figure of the row of those that fit.
FILED = {"alone": "alone-compute"}
# Of which configuration's rate a configuration's is so many per cent, in the same run: {configuration: {metric: the other}}.
_PERCENT = {
    "time-slicing": {"percent_of_native": "alone-native"},
    "sliced": {"percent_of_native": "alone-native"},
    "mixed": {"percent_of_native": "alone-native"},
    "resting": {"percent_of_alone": "alone"},
    "shared": {"percent_of_alone": "alone", "percent_of_resting": "resting"},
}
_LIMIT_SECONDS = 240
_FIRST_FRAMES_SECONDS = 0.1  # a renderer that was just told to begin, or had stood still
_ALONE_SECONDS = 0.3  # of frames with nothing beside them, in each configuration
# cuDNN and PyTorch go on to another kernel when one is refused.
_FITTING = ("--fit-kernels", "--over-limit", "reject")
_ATTACHED = {"resting": _FITTING, "shared": _FITTING, "mixed": ()}
# A renderer has two frames on the GPU when it is stopped, of tens of milliseconds at most.
_SETTLE_SECONDS = 0.2


class SuiteRunner:
    def __init__(self, runner, splitter, command, fit_library):
        """`command`: of the suite; it gets --ready-file and --start-file. `fit_library`: path of libvuda_fit.so."""
        self.runner = runner
        self.splitter = splitter
        self.command = command
        self.fit_library = fit_library

    def run(self, configs):
        """Measures in one process; yields (configuration, {program: its figures or error}, the renderer's figures or None)."""
        run = _Process(self, configs)
        try:
            yield from run.measure()
        finally:
            run.end()


class _Process:
    """One process of the suite, and the renderers that come and go beside it."""

    def __init__(self, suite, configs):
        self.suite = suite
        self.runner = suite.runner
        self.configs = configs
        self.attached = configs[0] in _ATTACHED
        self.directory = self.runner.run_directory(Identity())
        self.renderer = None
        self.compute = None

    def end(self):
        for program in (self.compute, self.renderer):
            if program:
                program.kill()
        self.runner.discard(self.directory, f"real programs, {', '.join(self.configs)}")

    def _path(self, name):
        return os.path.join(self.directory, name)

    def _start_compute(self):
        words, environment = self.runner.workload.native(), None
        if self.attached:
            words = self.runner.stack.run("--attach", TSG_NAME, "--require", *_ATTACHED[self.configs[0]])
        elif self.configs[0] == "alone":
            environment = {**os.environ, "LD_PRELOAD": self.suite.fit_library}
        gate = ["--ready-file", self._path("compute.ready")]
        for config in self.configs:
            gate += ["--start-file", self._path(f"start.{config}")]
        self.compute = Program("compute", [*words, *self.suite.command, *gate], self.directory, Identity(), environment)
        self.compute.wait_ready(self._path("compute.ready"), _LIMIT_SECONDS, self.runner.guard)
        if self.attached:
            self.suite.splitter.wait_backend(self.runner.guard)

    def _start_renderer(self, shared):
        """One that is measured from when renderer.start exists; it draws until _end_renderer()."""
        for name in ("renderer.ready", "renderer.start"):
            if os.path.exists(self._path(name)):
                os.unlink(self._path(name))
        gate = ["--start-file", self._path("renderer.start"), "--start-timeout", str(2 * _LIMIT_SECONDS), "--report-trace"]
        self.renderer = self.runner.start_renderer(self.directory, Identity(), shared, 0, gate)

    def _end_renderer(self):
        """(frames a second, p99 from frame to frame, its trace)"""
        self.renderer.interrupt()
        drawn = self.renderer.result(30, self.runner.guard)
        self.renderer = None
        self.runner._check_pixels(drawn)
        return drawn["fps"], drawn["frame_p99_ms"], from_answer(drawn)

    def _split(self, config):
        splitter = self.suite.splitter
        if config in ("sliced", "mixed"):
            splitter.set_mode("sliced")
            splitter.slo("--frame-ms", f"{TARGET_MS:g}", "--frame-miss", "1%")
        else:
            # The name keeps the targets of the renderer before, and samples of frames are taken for them.
            splitter.slo("--clear")
            splitter.set_mode("inter-sm")
        splitter.set_quota("none")

    def _programs(self, number, config):
        """What the suite answers for this configuration, its `number`th."""
        open(self._path(f"start.{config}"), "w", encoding="ascii").close()
        if config == self.configs[-1]:
            self.compute.result(_LIMIT_SECONDS, self.runner.guard)
        else:
            self.compute.wait_for(lambda: len(self.compute.answers()) > number, _LIMIT_SECONDS, f"it answered for {config}", self.runner.guard)
        self.runner.guard()
        return self.compute.answers()[number]["programs"]

    def _at_rest(self, measure):
        """While the renderer is stopped."""
        os.kill(self.renderer.pid, signal.SIGSTOP)
        try:
            time.sleep(_SETTLE_SECONDS)
            return measure()
        finally:
            os.kill(self.renderer.pid, signal.SIGCONT)

    def measure(self):
        if self.attached:
            self._start_renderer(True)
        self._start_compute()
        for number, config in enumerate(self.configs):
            if config.startswith("alone"):
                yield config, beside(self._programs(number, config), ()), None
                continue
            if not self.renderer:
                self._start_renderer(config != "time-slicing")
            if config != "time-slicing":
                self._split(config)
            if config == "resting":
                yield config, beside(self._at_rest(lambda: self._programs(number, config)), ()), None
                continue
            open(self._path("renderer.start"), "w", encoding="ascii").close()
            # Both are there, and one of them does nothing.
            began = time.monotonic() + _FIRST_FRAMES_SECONDS
            time.sleep(_FIRST_FRAMES_SECONDS + _ALONE_SECONDS)
            ended = time.monotonic()
            programs = self._programs(number, config)
            fps, p99_ms, trace = self._end_renderer()
            frames = {"renderer_fps": fps, "frame_p99_ms": p99_ms}
            alone = rate_in(trace, began, ended)
            yield config, beside(programs, trace), {**frames, "alone_fps": alone} if alone else frames


def rate_in(trace, begin, end):
    """Frames a second of those that ended in [begin, end), each from the end of the one before; None of none."""
    during = [ms for _, ms in between(intervals(trace), begin, end)]
    return 1000 * len(during) / sum(during) if during else None


def beside(programs, trace):
    """The programs' figures: when each ran has become the frames a second that were drawn beside it, if any were."""
    for figures in programs.values():
        if "begin" not in figures:
            continue
        rate = rate_in(trace, figures.pop("begin"), figures.pop("end"))
        if rate:
            figures["renderer_fps"] = rate
    return programs


def alike(one, other):
    """Sums of results: kernels that add in any order differ in the last digits."""
    return abs(one - other) <= 1e-3 * max(abs(one), abs(other))  # no number is like one that is none


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

    def keep(self, configs, runs):
        """No more than so many runs of these configurations."""
        self.runs[:] = [run for run in self.runs if run["config"] not in configs or run["run"] <= runs]

    def take(self, config, origin, programs, frames):
        run = {"config": config, "run": self.count(config) + 1, **origin, "programs": {name: _rounded(figures) for name, figures in programs.items()}}
        if frames:
            run["renderer"] = _rounded(frames)
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

    def _percents(self, name, config, base):
        """Of each run: this configuration's rate against the other's."""
        rates = {(run["config"], run["run"]): run.get("programs", {}).get(name, {}).get("rate") for run in self.runs}
        numbers = [number for of, number in rates if of == config]
        return [100 * rates[config, number] / rates[base, number] for number in numbers if rates[config, number] and rates.get((base, number))]

    def rows(self):
        """One row for each program and configuration, one for the renderer in each, one for an Xid."""
        values, errors, frames = self._sorted()
        rows = []
        for (name, config), runs in values.items():
            if config == "alone-native":
                continue
            metrics = summaries([{"compute_rate": r["rate"], "compute_p50_ms": r["p50_ms"], "compute_p99_ms": r["p99_ms"]} for r in runs])
            metrics.update(summaries([{"renderer_fps": r["renderer_fps"]} for r in runs if "renderer_fps" in r]))
            for metric, base in _PERCENT.get(config, {}).items():
                metrics.update(summaries([{metric: percent} for percent in self._percents(name, config, base)]))
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
        # Wherever a program runs, and whatever kernels it is told to choose: what it computes is what it computes alone and untold.
        for (name, config), runs in values.items():
            base = next((other for other in ("alone-native", "alone", "resting") if (name, other) in values), config)
            expected, found = values[name, base][0]["checksum"], runs[0]["checksum"]
            if not alike(expected, found):
                problems.append(f"{name}: {config} results differ from {base}: {found} and {expected}")
        return problems


def processes_of(configs):
    """The processes that measure these configurations: tuples of them."""
    chosen = (tuple(config for config in process if config in configs) for process in PROCESSES)
    return [process for process in chosen if process]


def measure(suite, configs, repetitions, say, measured, origin, save):
    """Adds runs to `measured` until there are `repetitions` of each configuration, interleaved. `origin()`: {"date", "driver"} of a run; `save()`:
    called after each process. Returns why it stopped or None."""
    for repetition in range(1, repetitions + 1):
        for process in processes_of(configs):
            # One that was cut short is measured anew as a whole: its runs belong together.
            measured.keep(process, min(map(measured.count, process)))
            if measured.count(process[0]) >= repetition:
                continue
            stopped = _measure_process(suite, process, f"run {repetition} of {repetitions}", say, measured, origin)
            save()
            if stopped:
                return stopped
    return None


def _measure_process(suite, process, label, say, measured, origin):
    """One run of each of its configurations, failed or not. Why everything stops, or None."""
    left = list(process)

    def fail(why, xids=0):
        for number, config in enumerate(left):
            measured.fail(config, origin(), why, 0 if number else xids)

    try:
        with contextlib.closing(suite.run(process)) as results:
            for config, programs, frames in results:
                measured.take(config, origin(), programs, frames)
                left.remove(config)
                ran = sum("error" not in figures for figures in programs.values())
                say(f"{config}, {label}: {ran} of {len(programs)} programs ran" + (f", {frames['renderer_fps']:.1f} frames/s" if frames else ""))
        return None
    except XidSeen as error:
        fail(f"stopped at {error}", len(suite.runner.xids.seen))
        say(f"{left[0]}, {label}: STOPPED: {error}")
        return str(error)
    except RunFailed as error:
        say(f"{left[0]}, {label}: FAILED: {error}")
        try:
            suite.runner.guard()
        except XidSeen as seen:
            fail(f"stopped at {seen}", len(suite.runner.xids.seen))
            return str(seen)
        fail(str(error))
        return None


def table(rows):
    """Lines of Markdown: each program against itself alone."""
    figures = {(entry["case"], entry["config"]): entry for entry in rows}
    names = list(dict.fromkeys(entry["case"] for entry in rows if entry["case"] != "renderer"))
    lines = [
        "| program | alone, native kernels, /s | alone, told what fits, /s | in the TSG, renderer at rest, /s | time slicing, % of native | shared, % of alone | shared, % of at rest | frames/s beside it, shared | in turns, % of native | shared in turns, % of native |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]

    def rate(name, config, metric="compute_rate"):
        entry = figures.get((name, config))
        return entry["metrics"][metric]["median"] if entry and metric in entry["metrics"] else None

    for name in names:

        def against(config, metric="percent_of_native"):
            value = rate(name, config, metric)
            if value is not None:
                return f"{value:.1f}"
            return "did not run" if (name, config) in figures and rate(name, config) is None else "-"

        fps = rate(name, "shared", "renderer_fps")
        frames = f"{fps:.1f}" if fps else "-"
        rates = " | ".join(f"{value:.0f}" if value else "-" for value in (rate(name, "alone-compute", "native_rate"), rate(name, "alone-compute"), rate(name, "resting")))
        shared = f"{against('shared', 'percent_of_alone')} | {against('shared', 'percent_of_resting')} | {frames}"
        lines.append(f"| {name} | {rates} | {against('time-slicing')} | {shared} | {against('sliced')} | {against('mixed')} |")
    drawn = []
    for config in CONFIGS:
        metrics = figures.get(("renderer", config), {}).get("metrics")
        if metrics:
            alone = f", {metrics['alone_fps']['median']:.1f} before" if "alone_fps" in metrics else ""
            drawn.append(f"{config} {metrics['renderer_fps']['median']:.1f} (p99 {metrics['frame_p99_ms']['median']:.2f} ms{alone})")
    return [*lines, "", f"Renderer, frames a second: {', '.join(drawn)}."]
