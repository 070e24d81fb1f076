"""Whether sharing leaves everything right: a renderer whose every frame is compared, CUDA programs whose every result is verified, for minutes,
while programs come and go, the split changes and the renderer maps and unmaps control buffers."""

import json
import os
import time

from .errors import DeviceLost, Interrupted, RunFailed, XidSeen
from .identity import Identity
from .matrix import TSG_NAME
from .program import Program
from .results import row
from .stats import summary

_READY_SECONDS = 90  # PyTorch's start, and every kernel of its suite for the first time
_SHARE_SECONDS = 10
_END_SECONDS = 60
_BACKEND_SECONDS = 5
_PROGRESS_SECONDS = 10
_A_DAY = 86400  # it draws until it is told to end
_REFERENCE_SECONDS = 180
_ALONE_SECONDS = 4
# What the split changes to, in turns. Per cent, so that they mean something on every GPU.
CHANGES = (("inter-sm", "50%"), (None, "25%"), (None, "75%"), (None, "none"), ("intra-sm", "none"), (None, "25%"))

# Kernels that fit beside graphics; and with those that do not, which run in a TSG of CUDA's own. The others of the suite did not run that way.
FITTING = (
    "copy,softmax,layer-norm,sort,scan,embedding,matmul-fp32-1024,gelu,matmul-fp32-2048,attention-sdpa,mlp-policy,particles,gelu-graph,"
    "conv2d-cudnn,conv2d-own,cnn-training"
)
MIXED = "copy,softmax,layer-norm,gelu,matmul-fp32-1024,attention-sdpa,mlp-policy,gelu-graph,matmul-bf16-4096,conv2d-cudnn,transformer-bf16"


class Kind:
    """One sort of CUDA program. `words(seconds)`: its command line, which gets --ready-file and --start-file."""

    def __init__(self, name, words, options=(), native=False, suite=False, environment=None):
        self.name = name
        self.words = words
        self.options = list(options)  # of vudactl run --attach
        self.native = native  # has kernels that must run in a TSG of CUDA's own
        self.suite = suite  # of torch_suite.py --verify: compared with itself alone; can be started before its turn
        self.environment = environment  # of its run alone
        self.reference = None  # file with what it found alone


def compute_kinds(stack, workload, device):
    """vuda-bench-compute: every launch verifies what the one before it left."""

    def words(*load):
        common = [stack.program("vuda-bench-compute"), "--json", *(["--device", device] if device else []), *load]
        return lambda seconds: [*common, "--seconds", f"{seconds:g}"]

    iterations = str(workload.kernel_iterations)
    return [
        Kind("compute-fma", words("--load", "fma", "--iterations", iterations)),
        Kind("compute-memory", words("--load", "memory", "--iterations", "1", "--bytes", str(64 << 20))),
        Kind("compute-native", words("--load", "fma", "--iterations", iterations, "--smem", "65536"), ("--over-limit", "native"), native=True),
    ]


def suite_kinds(python, suite, fit_library, fitting, mixed):
    """PyTorch: with kernels that fit, and with those that do not among them."""

    def words(programs):
        return lambda seconds: [python, suite, "--verify", "--programs", programs, "--seconds", f"{seconds:g}"]

    return [
        Kind("torch-fitting", words(fitting), ("--fit-kernels", "--over-limit", "reject"), suite=True, environment={"LD_PRELOAD": fit_library}),
        Kind("torch-native", words(mixed), ("--over-limit", "native"), native=True, suite=True),
    ]


def in_turns(compute, suites):
    """The order in which kinds come: a suite after every program of ours, so that each follows each sooner or later."""
    if not suites:
        return list(compute)
    return [kind for number, one in enumerate(compute) for kind in (one, suites[number % len(suites)])]


def simulated_kinds(workload):
    """The stand-in checks that its kernels end in order, on TPCs that they were allowed."""
    return [
        Kind("compute", lambda seconds: workload.compute(seconds)),
        Kind("compute-threads", lambda seconds: workload.compute(seconds, extra=["--threads", "4"])),
        Kind("compute-contexts", lambda seconds: workload.compute(seconds, extra=["--contexts", "2"])),
    ]


class Verdict:
    """What one program says of itself."""

    def __init__(self, kind, status, answer):
        self.seconds = answer.get("seconds", 0.0)
        self.problems = []
        self.as_alone = None  # programs of a suite with the same bits as alone
        if kind.suite:
            programs = answer["programs"]
            self.checked = sum(one.get("checks", 0) for one in programs.values())
            self.wrong = sum(one.get("wrong", 0) for one in programs.values())
            self.problems += [f"{name} did not run: {one['error']}" for name, one in programs.items() if "error" in one]
            self.problems += [f"{name}: {one['text']}" for name, one in programs.items() if one.get("text")]
            self.as_alone = [name for name, one in programs.items() if one.get("as_alone")]
        elif "result_errors" in answer:
            self.checked, self.wrong = answer["launches"], answer["result_errors"]
        else:  # the stand-in
            self.checked, self.wrong = answer.get("kernels", 0), 0 if answer.get("verified") else max(1, answer.get("astray", 0))
        if answer.get("error"):
            self.problems.append(answer["error"])
        if status != 0 and not self.problems and not self.wrong:
            self.problems.append(f"ended with {status}")
        self.lost = bool(answer.get("device_lost"))


class Totals:
    """Of one kind of program, or of all."""

    def __init__(self):
        self.shared_s = 0.0
        self.programs = 0
        self.checked = 0
        self.wrong = 0
        self.changes = 0
        self.native = 0
        self.refused = 0
        self.as_alone = None

    def metrics(self):
        figures = {
            "shared_s": self.shared_s,
            "programs": self.programs,
            "results_checked": self.checked,
            "results_wrong": self.wrong,
            "quota_changes": self.changes,
            "launches_native": self.native,
            "launches_refused": self.refused,
        }
        return {name: summary([float(value)]) for name, value in figures.items()}


class Started:
    """A program that runs, or waits for its turn."""

    def __init__(self, kind, program, directory, files):
        self.kind, self.program, self.directory, self.files = kind, program, directory, files


class Integrity:
    def __init__(self, runner, splitter, kinds, options, say, save):
        """`options`: seconds (of sharing), attach_seconds (of one program), change_seconds (between two changes of the split). `save`: called after each
        program, to write rows()."""
        self.runner = runner
        self.splitter = splitter
        self.kinds = kinds
        self.options = options
        self.say = say
        self.save = save
        self.totals = {kind.name: Totals() for kind in kinds}
        self.problems = []
        self.stopped = None
        self.ended = False  # the renderer
        self.frames = None  # its answer
        self.attaches = 0
        self.late = 0
        self._identity = Identity()
        self._renderer = None
        self._image = None
        self._change = 0
        self._slot_since = None
        self._begin = self._said = time.monotonic()
        self._running = []

    # What is measured.

    def sum(self, name):
        return sum(getattr(total, name) for total in self.totals.values())

    def learn(self):
        """Each suite alone, which says what is right and which of its programs always give the same bits."""
        for kind in self.kinds:
            if not kind.suite or kind.reference:
                continue
            directory = self.runner.run_directory(self._identity)
            environment = {**os.environ, **kind.environment} if kind.environment else None
            program = Program(f"{kind.name}-alone", kind.words(_ALONE_SECONDS), directory, self._identity, environment)
            try:
                answer = program.result(_REFERENCE_SECONDS, self.runner.guard)
            finally:
                program.kill()
                self.runner.discard(directory, f"{kind.name}, alone")
            kind.reference = os.path.join(self.runner.work, kind.name + ".json")
            with open(kind.reference, "w", encoding="utf-8") as file:
                json.dump(answer["programs"], file)
            exact = sum(bool(one.get("exact")) for one in answer["programs"].values())
            self.say(f"{kind.name} alone: {len(answer['programs'])} programs, {exact} of them give the same bits each time")
            for name, one in answer["programs"].items():
                if "error" in one:
                    self.problems.append(f"{kind.name}: {name} fails alone as well: {one['error']}")

    def run(self):
        """All of it. What came of it is in the members, whatever ended it; a signal that did is raised again when that was saved."""
        directory = self.runner.run_directory(self._identity)
        interrupted = None
        try:
            self._image = self.runner.simple("render", [*self.runner.workload.native(), *self.runner.workload.render(0.2)], self._identity)
            self._begin = self._said = time.monotonic()
            attaches = self.runner.stack.attach_seconds()[0]
            self._renderer = self.runner.start_renderer(directory, self._identity, True, _A_DAY)
            try:
                self._share()
            except XidSeen as error:
                self.stopped = str(error)
            except Interrupted as error:
                self.stopped = str(error)
                interrupted = error
            except RunFailed as error:
                self.stopped = str(error)
                if not isinstance(error, DeviceLost):
                    self._wait_xid()
            finally:
                for started in self._running:
                    started.program.kill()
                    self.runner.discard(started.directory, f"integrity, {started.kind.name}")
            self.attaches = self.runner.stack.attach_seconds()[0] - attaches
            self.late = self.runner.stack.metric("vuda_mirrors_late_total")
            self._end_renderer()
        finally:
            if self._renderer:
                self._renderer.kill()
            self.runner.discard(directory, "integrity, renderer")
        if self.stopped:
            self.problems.append(f"stopped: {self.stopped}")
        self.problems += self._judge()
        if interrupted:
            self.save()
            raise interrupted

    def _wait_xid(self):
        """The kernel writes one a moment after the programs see the fault."""
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline and not self.runner.xids.poll():
            time.sleep(0.05)

    def _end_renderer(self):
        self._renderer.interrupt()
        try:
            _, self.frames = self._renderer.finish(30, lambda: None)
        except RunFailed as error:
            self.problems.append(str(error))
        if self.frames is None:
            self.problems.append(f"the renderer says nothing of its frames: {self._renderer.errors()}")
        self.ended = True

    def _guard(self):
        self.runner.guard()
        if not self._renderer.alive():
            raise RunFailed(f"the renderer ended: {self._renderer.errors()}")
        self._progress()

    def _progress(self):
        now = time.monotonic()
        if now - self._said < _PROGRESS_SECONDS:
            return
        self._said = now
        self.say(
            f"{now - self._begin:.0f} s: {self._shared_now():.0f} of {self.options.seconds:g} s shared; {self.sum('programs')} programs came, {self._change} changes of the split; "
            f"{self.sum('checked')} results of those that went, {self.sum('wrong')} wrong; {self._frames_so_far()} frames; {len(self.runner.xids.seen)} Xids"
        )

    def _shared_now(self):
        return self.sum("shared_s") + (time.monotonic() - self._slot_since if self._slot_since else 0)

    def _frames_so_far(self):
        try:
            owner = [s for s in self.runner.stack.status().get("sessions", ()) if s.get("role") == "renderer" and s.get("name") == TSG_NAME]
        except RunFailed:
            return "?"
        return owner[0].get("samples", "?") if owner else "?"

    # Programs, one after the other.

    def _share(self):
        limit = time.monotonic() + 120 + 2 * self.options.seconds
        turn = 0
        ahead = None
        while self.sum("shared_s") < self.options.seconds:
            if time.monotonic() > limit:
                raise RunFailed("sharing takes up too little of the time")
            kind = self.kinds[turn % len(self.kinds)]
            turn += 1
            following = self.kinds[turn % len(self.kinds)]
            # The last one makes up what is left.
            seconds = min(self.options.attach_seconds, max(1.0, self.options.seconds - self.sum("shared_s") + 0.5))
            self._wait_alone()
            started = ahead or self._start(kind, seconds)
            ahead = None
            self._let_in(started)
            # A suite takes long to start and needs no GPU until it is its turn.
            if following.suite and self.sum("shared_s") + seconds < self.options.seconds:
                ahead = self._start(following, self.options.attach_seconds)
            self._follow(started)

    def _start(self, kind, seconds):
        directory = self.runner.run_directory(self._identity)
        files = {name: os.path.join(directory, name) for name in ("context", "ready", "start")}
        command = [*self.runner.stack.run("--attach", TSG_NAME, "--require", *kind.options), *kind.words(seconds)]
        command += ["--ready-file", files["ready"], "--start-file", files["start"]]
        if kind.suite:
            command += ["--context-file", files["context"], "--reference", kind.reference]
        started = Started(kind, Program("compute", command, directory, self._identity), directory, files)
        self._running.append(started)
        return started

    def _sharing(self):
        """Sessions that share the renderer's TSG, or are about to."""
        found = self.runner.stack.status().get("sessions", ())
        return [s for s in found if s.get("name") == TSG_NAME and s.get("role", "compute") == "compute" and s.get("state") in ("sharing", "waiting")]

    def _wait_alone(self):
        """One program shares at a time; vudad learns that the last one went a moment after it ended."""
        deadline = time.monotonic() + _SHARE_SECONDS
        while self._sharing():
            self._guard()
            if time.monotonic() > deadline:
                raise RunFailed("the program before this one has ended, and vudad says that it shares")
            time.sleep(0.02)

    def _let_in(self, started):
        """Until it shares and works."""
        name = started.kind.name
        _touch(started.files["context"])
        started.program.wait_ready(started.files["ready"], _READY_SECONDS, self._guard)

        def shares():
            return any(s["state"] == "sharing" and s.get("channels_moved") for s in self._sharing())

        started.program.wait_for(shares, _SHARE_SECONDS, f"it shared ({name})", self._guard)

    def _follow(self, started):
        """From its start to its end, with changes of the split meanwhile."""
        total = self.totals[started.kind.name]
        total.programs += 1
        changing = self._can_be_split(started)
        _touch(started.files["start"])
        self._slot_since = time.monotonic()
        deadline = self._slot_since + self.options.attach_seconds + _END_SECONDS
        due = self._slot_since + self.options.change_seconds / 2
        launches = {}
        while started.program.alive():
            self._guard()
            if time.monotonic() > deadline:
                raise RunFailed(f"{started.kind.name} did not end: {started.program.errors()}")
            if time.monotonic() >= due:
                due += self.options.change_seconds
                launches = (self._sharing() or [launches])[0]
                if changing:
                    total.changes += self._change_split(started)
            time.sleep(0.02)
        self._slot_since = None
        self._take(started, total, launches)

    def _can_be_split(self, started):
        """Whether its launches follow a split; they do a moment after it attached, and not where all of them run natively."""
        deadline = time.monotonic() + _BACKEND_SECONDS
        while started.program.alive() and time.monotonic() < deadline:
            self._guard()
            if self.splitter.session().get("backend") not in (None, "", "none"):
                return True
            if started.kind.native:
                return False
            time.sleep(0.05)
        return False

    def _change_split(self, started):
        mode, quota = CHANGES[self._change % len(CHANGES)]
        try:
            if mode:
                self.splitter.set_mode(mode)
            self.splitter.set_quota(quota)
        except RunFailed as error:
            # It may be on its way out; then there is nobody to split.
            if started.program.alive() and not started.kind.native:
                self.problems.append(f"{started.kind.name}: {error}")
            return 0
        self._change += 1
        return 1

    def _take(self, started, total, launches):
        status, answer = started.program.finish(1, self._guard)
        errors = started.program.errors()
        self._running.remove(started)
        self.runner.discard(started.directory, f"integrity, {started.kind.name}")
        name = started.kind.name
        total.native += launches.get("launches_native", 0)
        total.refused += launches.get("launches_refused", 0)
        if answer is None:
            self._wait_xid()
            self.runner.guard()
            raise RunFailed(f"{name} ended with {status} and printed no result: {errors}")
        verdict = Verdict(started.kind, status, answer)
        total.checked += verdict.checked
        total.wrong += verdict.wrong
        total.shared_s += verdict.seconds
        if verdict.as_alone is not None:
            total.as_alone = [one for one in verdict.as_alone if total.as_alone is None or one in total.as_alone]
        self.problems += [f"{name}: {text}" for text in verdict.problems]
        if verdict.lost:
            self._wait_xid()
            self.runner.guard()
            raise DeviceLost(f"{name} lost the GPU")
        if verdict.seconds <= 0:
            raise RunFailed(f"{name} shared for no time")
        self.save()

    # What came of it.

    def _judge(self):
        problems = []
        if self.sum("shared_s") < self.options.seconds:
            problems.append(f"{self.sum('shared_s'):.1f} s of sharing were verified, {self.options.seconds:g} s are asked for")
        for name, total in self.totals.items():
            if total.wrong:
                problems.append(f"{name}: {total.wrong} wrong results")
            if not total.programs and not self.stopped and self.options.seconds >= self.options.attach_seconds * len(self.kinds):
                problems.append(f"{name} never had its turn")
            if total.programs and not total.checked:
                problems.append(f"{name}: no result was checked")
        for kind in dict.fromkeys(self.kinds):
            if kind.native and self.totals[kind.name].programs and not self.totals[kind.name].native and not self.stopped:
                problems.append(f"{kind.name}: no kernel ran in a TSG of CUDA's own")
        if not self.stopped:
            if self.attaches < self.sum("programs"):
                problems.append(f"vudad counted {self.attaches} attaches of {self.sum('programs')} programs")
            if not self._change:
                problems.append("the split never changed")
        drawn, checked, wrong = self.frame_counts()
        if wrong:
            problems.append(f"{wrong} wrong frames")
        if checked != drawn or not drawn:
            problems.append(f"{checked} frames checked of {drawn} drawn")
        if self.frames and self.runner.workload.comparable_images and self.frames.get("checksum") != self._image.get("checksum"):
            problems.append(f"the image's checksum is {self.frames.get('checksum')}, alone it is {self._image.get('checksum')}")
        if self.runner.xids.seen:
            problems.append(f"{len(self.runner.xids.seen)} Xids: {'; '.join(self.runner.xids.seen)[:300]}")
        return problems

    def frame_counts(self):
        """(drawn, checked, wrong)"""
        if not self.frames:
            return 0, 0, 0
        if "checked_frames" in self.frames:
            return self.frames.get("drawn_frames", self.frames["checked_frames"]), self.frames["checked_frames"], self.frames["checksum_errors"]
        frames = self.frames.get("frames", 0)  # the stand-in, whose frames have no pixels: they end in order, or not
        return frames, frames, 0 if self.frames.get("verified") else 1

    def rows(self, notes=()):
        """One row for each kind of program, one for the renderer, one for all; of frames once the renderer has ended."""
        rows = []
        for name, total in self.totals.items():
            if total.programs:
                alike = f"the same bits as alone: {', '.join(total.as_alone) or 'none'}" if total.as_alone is not None else ""
                rows.append(row(name, "shared", total.metrics(), 0, alike))
        every = {"shared_s": "shared_s", "results_checked": "checked", "results_wrong": "wrong", "quota_changes": "changes"}
        total = {metric: summary([float(self.sum(name))]) for metric, name in every.items()}
        if not self.ended:
            note = f"{self.options.seconds:g} s of sharing are asked for; the renderer has not told of its frames"
            return [*rows, row("all", "shared", total, len(self.runner.xids.seen), "; ".join([*notes, note, *self.problems])[:2000])]
        drawn, checked, wrong = self.frame_counts()
        figures = {"frames_drawn": drawn, "frames_checked": checked, "frames_wrong": wrong}
        for key, metric in (("fps", "renderer_fps"), ("frame_p99_ms", "frame_p99_ms"), ("frame_max_ms", "frame_max_ms"), ("maps", "control_buffers_mapped")):
            if self.frames and key in self.frames:
                figures[metric] = self.frames[key]
        frames = {name: summary([float(value)]) for name, value in figures.items()}
        frames["mirrors_late"] = summary([float(self.late)])
        rows.append(row("renderer", "shared", frames, 0, ""))
        total["attaches"] = summary([float(self.attaches)])
        total.update({name: frames[name] for name in ("frames_drawn", "frames_checked", "frames_wrong")})
        rows.append(row("all", "shared", total, len(self.runner.xids.seen), "; ".join([*notes, *self.problems])[:2000]))
        return rows

    def lines(self):
        drawn, checked, wrong = self.frame_counts()
        lines = [f"{name}: {t.programs} programs, {t.shared_s:.1f} s, {t.checked} results, {t.wrong} wrong, {t.changes} changes of the split" for name, t in self.totals.items()]
        good = "MISSED" if self.problems else "ok    "
        return [
            *lines,
            f"{good} {self.sum('shared_s'):.1f} s of sharing ({self.options.seconds:g} asked for), {self.attaches} attaches: {drawn} frames drawn, {checked} checked, {wrong} wrong; "
            f"{self.sum('checked')} results checked, {self.sum('wrong')} wrong; {len(self.runner.xids.seen)} Xids",
        ]


def _touch(path):
    open(path, "w", encoding="ascii").close()
