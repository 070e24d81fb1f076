"""The co-run matrix: each side alone, both in time slices, both shared with and without a split; interleaved, so that drift hits all alike."""

import os
import shutil
import tempfile

from . import rounds
from .errors import RunFailed
from .program import Program

CONFIGS = ("alone-renderer", "alone-compute", "time-slicing", "shared", "partitioned")
# What a sharing configuration asks of vudad: compute on every TPC, or kept off those that are left to graphics.
_MODES = {"shared": "intra-sm", "partitioned": "inter-sm"}
TSG_NAME = "corun"

_READY_SECONDS = 60
_LINGER_SECONDS = 0.5
_SPARE_SECONDS = 30  # for starting, ending, and a GPU that is slow to let go


def renderer_metrics(answer):
    return {"renderer_fps": answer["fps"], "frame_p99_ms": answer["frame_p99_ms"]}


def compute_metrics(answer):
    return {
        "compute_rate": answer["rate"],
        "compute_p50_ms": answer["latency_p50_ms"],
        "compute_p99_ms": answer["latency_p99_ms"],
    }


def configs_of(case):
    # One process shares with itself: it has no name that could be split.
    return CONFIGS[:-1] if case == "one-process" else CONFIGS


class Runner:
    """Runs programs beside each other and cleans up after them."""

    def __init__(self, stack, workload, xids, seconds, work, log=None):
        """`log`: file that takes what every program wrote; None: it is dropped."""
        self._log = log
        self.stack = stack
        self.workload = workload
        self.xids = xids
        self.seconds = seconds
        self.work = work
        self.checksum = None

    def guard(self):
        self.xids.check()
        self.stack.check_alive()

    def run_directory(self, identity):
        path = tempfile.mkdtemp(prefix="run-", dir=self.work)
        os.chmod(path, 0o755)
        if identity.uid is not None:
            os.chown(path, identity.uid, identity.uid)
        return path

    def discard(self, directory, title):
        """Ends a run directory; its programs must have ended."""
        if self._log:
            with open(self._log, "a", encoding="utf-8") as log:
                for name in sorted(os.listdir(directory)):
                    if name.endswith((".out", ".err")):
                        with open(os.path.join(directory, name), encoding="utf-8", errors="replace") as file:
                            log.write(f"--- {title}, {name}\n{file.read()}")
        shutil.rmtree(directory, ignore_errors=True)

    def simple(self, label, command, identity, seconds=120):
        """One program, to its end: its JSON."""
        directory = self.run_directory(identity)
        program = Program(label, command, directory, identity)
        try:
            return program.result(seconds, self.guard)
        finally:
            program.kill()
            self.discard(directory, label)

    def calibrate(self, identity):
        answers = {}
        for label, command, take in self.workload.calibrations():
            answer = self.simple(label, command, identity)
            take(answer)
            answers[label] = answer
        return answers

    def _wait_registered(self, renderer):
        """The renderer draws already; vudad hears of it a moment later."""
        renderer.wait_for(
            lambda: self.stack.registered(TSG_NAME), 10, f"it was registered as '{TSG_NAME}' with vudad", self.guard
        )

    def start_renderer(self, directory, identity, shared, seconds, gate=(), fps=None):
        words = self.stack.run("--register", TSG_NAME, "--require") if shared else self.workload.native()
        ready = os.path.join(directory, "renderer.ready")
        command = [*words, *self.workload.render(seconds, ["--ready-file", ready, *gate], fps)]
        renderer = Program("renderer", command, directory, identity)
        try:
            renderer.wait_ready(ready, _READY_SECONDS, self.guard)
            if shared:
                self._wait_registered(renderer)
        except BaseException:
            renderer.kill()
            raise
        return renderer

    def _check_pixels(self, answer):
        if answer.get("checksum_errors"):
            raise RunFailed(f"renderer: {answer['checksum_errors']} frames have wrong pixels")
        if not answer.get("verified", True):
            raise RunFailed("renderer: its frames did not end in order")
        if not self.workload.comparable_images:
            return
        checksum = answer.get("checksum")
        if self.checksum is None:
            self.checksum = checksum
        elif checksum != self.checksum:
            raise RunFailed(f"renderer: image checksum {checksum} differs from the first run's {self.checksum}")

    def two_process(self, config, identity):
        """One run of one configuration: {metric: value} and a short text about the attachment."""
        directory = self.run_directory(identity)
        start = os.path.join(directory, "start")
        gate = ["--start-file", start, "--linger", f"{_LINGER_SECONDS:g}"]
        shared = config in _MODES
        splitter = self._splitter()
        running = []
        attachment = ""
        try:
            renderer = compute = None
            if config != "alone-compute":
                renderer = self.start_renderer(directory, identity, shared, self.seconds, gate)
                running.append(renderer)
            if config != "alone-renderer":
                ready = os.path.join(directory, "compute.ready")
                words = self.stack.run("--attach", TSG_NAME, "--require") if shared else self.workload.native()
                command = [*words, *self.workload.compute(self.seconds, ["--ready-file", ready, *gate])]
                compute = Program("compute", command, directory, identity)
                running.append(compute)
                compute.wait_ready(ready, _READY_SECONDS, self.guard)
                if shared:
                    attachment = self._attachment() + self._split(splitter, _MODES[config])
            open(start, "w", encoding="ascii").close()
            limit = self.seconds + _LINGER_SECONDS + _SPARE_SECONDS
            metrics = {}
            if renderer:
                answer = renderer.result(limit, self.guard)
                self._check_pixels(answer)
                metrics.update(renderer_metrics(answer))
            if compute:
                metrics.update(compute_metrics(compute.result(limit, self.guard)))
            self.guard()
            return metrics, attachment
        finally:
            for program in reversed(running):
                program.kill()
            self.discard(directory, f"two processes, {config}")

    def one_process(self, config, identity):
        directory = self.run_directory(identity)
        only = {"alone-renderer": "render", "alone-compute": "compute"}.get(config)
        words = self.stack.run("--share", "--require") if config == "shared" else self.workload.native()
        command = [*words, *self.workload.both(only, self.seconds, ["--linger", f"{_LINGER_SECONDS:g}"])]
        program = Program("both", command, directory, identity)
        try:
            answer = program.result(_READY_SECONDS + self.seconds + _LINGER_SECONDS + _SPARE_SECONDS, self.guard)
            metrics = {}
            if "renderer" in answer:
                self._check_pixels(answer["renderer"])
                metrics.update(renderer_metrics(answer["renderer"]))
            if "compute" in answer:
                metrics.update(compute_metrics(answer["compute"]))
            self.guard()
            return metrics, ""
        finally:
            program.kill()
            self.discard(directory, f"one process, {config}")

    def _splitter(self):
        from .split import Splitter  # it needs this module's TSG_NAME

        return Splitter(self.stack)

    def _split(self, splitter, mode):
        """Before the measurement begins: both programs work, and compute's launches follow the split."""
        if mode == "inter-sm":
            splitter.wait_backend(self.guard)
        splitter.set_mode(mode)
        if mode != "inter-sm":
            return ""
        partition = splitter.wait_applied(self.guard)
        return f"; compute on {partition['applied_tpcs']} of {partition['topology']['tpcs']} TPCs"

    def _attachment(self):
        """What vudad knows of the attached program: proof that it shares."""
        for session in self.stack.status().get("sessions", ()):
            if session.get("name") == TSG_NAME and session.get("attach_us"):
                return f"{session['channels_moved']} channels moved, attached in {session['attach_us'] / 1000:.1f} ms"
        raise RunFailed("vudad knows no program attached to the renderer")


def run_case(runner, case, identity, repetitions, say, save):
    """All repetitions of one case, as rounds.measure()."""
    measure = runner.one_process if case == "one-process" else runner.two_process
    configs = {config: lambda config=config: measure(config, identity) for config in configs_of(case)}
    runner.checksum = None
    return rounds.measure(runner, case, configs, repetitions, say, save, lambda metrics, note: f"{_short(metrics)}{'; ' + note if note else ''}")


def _short(metrics):
    parts = []
    if "renderer_fps" in metrics:
        parts.append(f"{metrics['renderer_fps']:.1f} frames/s, p99 {metrics['frame_p99_ms']:.2f} ms")
    if "compute_rate" in metrics:
        parts.append(f"{metrics['compute_rate']:.1f} kernels/s, p99 {metrics['compute_p99_ms']:.3f} ms")
    return "; ".join(parts)
