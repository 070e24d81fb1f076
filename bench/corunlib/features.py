"""Features of CUDA, one small program for each (vuda-bench-features), alone and in a renderer's TSG: what came of each."""

import os
import time

from . import surroundings
from .errors import RunFailed, XidSeen
from .feature_verdicts import findings, verdict
from .identity import Identity
from .matrix import TSG_NAME
from .program import Program
from .results import row
from .stats import summaries
from .trace import between, from_answer

CONFIGS = ("alone", "shared", "split")
# As result files call them.
FILED = {"alone": "alone-compute", "shared": "shared", "split": "partitioned"}
_MODES = {"shared": "intra-sm", "split": "inter-sm"}

_READY_SECONDS = 30
_CASE_SECONDS = 30
_END_SECONDS = 10
_PROGRAM = "vuda-bench-features"
_REPORT_SECONDS = 4  # for a program that shares to say how it follows a split
_XID_SECONDS = 1.0  # the kernel writes one a moment after the programs see the fault


class RendererEnded(RunFailed):
    """The case took the renderer along: nothing measured after it counts."""


class FeatureRunner:
    """Runs one case at a time; the renderer of a sharing configuration draws through all of its cases."""

    def __init__(self, runner, splitter, seconds):
        self.runner = runner
        self.splitter = splitter
        self.seconds = seconds
        self._renderer = None
        self._directory = None
        self._identity = Identity()

    def start_renderer(self, config):
        runner = self.runner
        self._directory = runner.run_directory(self._identity)
        before = runner.workload.render_extra
        runner.workload.render_extra = [*before, "--report-trace"]
        try:
            self._renderer = runner.start_renderer(self._directory, self._identity, True, 0)
        finally:
            runner.workload.render_extra = before
        self.splitter.set_mode(_MODES[config])
        time.sleep(0.5)  # of frames with nothing beside them, to compare with

    def end_renderer(self):
        """Its trace; raises when a frame had wrong pixels."""
        renderer, self._renderer = self._renderer, None
        try:
            renderer.interrupt()
            answer = renderer.result(30, self.runner.guard)
            self.runner._check_pixels(answer)
            return from_answer(answer)
        finally:
            renderer.kill()
            self.runner.discard(self._directory, "features, renderer")

    def kill_renderer(self):
        if self._renderer:
            self._renderer.kill()
            self._renderer = None
            self.runner.discard(self._directory, "features, renderer")

    def _session(self):
        """The case's: vudactl run starts it as a child, so that its pid is not known here. It may have children of its own, later ones."""
        for session in self.runner.stack.status().get("sessions", ()):
            if session.get("peer", {}).get("program") == _PROGRAM and session.get("state") != "idle":
                return session
        return {}

    def _known(self):
        """The session once it is decided whether it shares and how its launches are watched."""
        deadline = time.monotonic() + _REPORT_SECONDS
        while True:
            self.runner.guard()
            session = self._session()
            if session.get("reason") or session.get("backend_reason") or session.get("backend") not in (None, "", "none"):
                return session
            if time.monotonic() > deadline:
                return session
            time.sleep(0.03)

    def _check_renderer(self, case):
        if self._renderer and not self._renderer.alive():
            deadline = time.monotonic() + _XID_SECONDS
            while time.monotonic() < deadline:
                self.runner.guard()
                time.sleep(0.05)
            raise RendererEnded(f"the renderer ended during '{case}': {self._renderer.errors()}")

    def run(self, case, config):
        """{outcome, checksum, round_ms, first_ms, error, said, attaches, state, reason, refused, begin, end}"""
        why_not = surroundings.missing(case)
        if why_not:
            now = time.monotonic()
            return {**_nothing("skipped", why_not), "begin": now, "end": now}
        with surroundings.around(case) as around:
            return self._run(case, config, around)

    def _run(self, case, config, around):
        runner = self.runner
        directory = runner.run_directory(self._identity)
        files = {name: os.path.join(directory, name) for name in ("ready", "start", "done", "end")}
        shared = config in _MODES
        words = runner.stack.run("--attach", TSG_NAME) if shared else runner.workload.native()
        command = [*words, *around, runner.stack.program(_PROGRAM), "--case", surroundings.case_of(case), "--seconds", f"{self.seconds:g}"]
        for name, path in files.items():
            command += [f"--{name}-file", path]
        if runner.workload.device:
            command += ["--device", runner.workload.device]
        result = _nothing("failed", "")
        attaches = runner.stack.attach_seconds()[0] if shared else 0
        program = Program("compute", command, directory, self._identity)
        result["begin"] = time.monotonic()

        def guard():
            runner.guard()
            self._check_renderer(case)

        def wait(name, seconds):
            """False: the program ended instead, and its answer says why."""
            try:
                program.wait_for(lambda: os.path.exists(files[name]), seconds, f"'{name}'", guard)
            except RendererEnded:
                raise
            except RunFailed:
                if program.alive():
                    raise
                return False
            return True

        try:
            if wait("ready", _READY_SECONDS):
                if shared:
                    self._known()
                _touch(files["start"])
                if wait("done", _CASE_SECONDS) and shared:
                    session = self._known()
                    result["state"] = session.get("state", "")
                    result["reason"] = (session.get("reason") or {}).get("text", "")
                    result["refused"] = session.get("launches_refused", 0)
                    # Why kernels over the limit did not run on a TSG of the program's own.
                    result["native_reason"] = session.get("native_reason", "")
                    result["native"] = session.get("launches_native", 0)
                result["end"] = time.monotonic()
                _touch(files["end"])
            status, answer = program.finish(_END_SECONDS, guard)
            if answer is None:
                result["error"] = f"ended with {status} and printed no result: {program.errors()}"
            else:
                result.update({key: answer[key] for key in ("outcome", "checksum", "rounds", "first_ms")}, round_ms=answer["round_p50_ms"])
                result["error"] = answer.get("error", "")
                result["figures"] = answer.get("figures", {})
            if shared:
                result["attaches"] = runner.stack.attach_seconds()[0] - attaches
            result["said"] = program.said("vuda: ")
            guard()
        except RendererEnded:
            raise
        except RunFailed as error:
            # It hangs, most likely; its end may be the end of the TSG.
            result.update(error=str(error), killed=True)
            program.kill()
            guard()
        finally:
            result.setdefault("end", time.monotonic())
            program.kill()
            runner.discard(directory, f"features, {case}, {config}")
        return result


def _nothing(outcome, error):
    return {"outcome": outcome, "checksum": "", "error": error, "said": "", "attaches": 0, "state": "", "reason": "", "refused": 0}


def _touch(path):
    open(path, "w", encoding="ascii").close()


def phases(listed, chosen, configs):
    """[(cases, configs)]: what can hurt comes last, what ends a context only when it is chosen by name."""
    risks = {entry["case"]: entry for entry in listed}
    names = [entry["case"] for entry in listed if entry["case"] in chosen]
    safe = [name for name in names if risks[name]["risk"] in ("plain", "unusual")]
    parts = [(safe, configs)]
    parts += [([name], [c for c in configs if c != "split" or risks[name]["split"]]) for name in names if risks[name]["risk"] == "stalls"]
    parts += [([name], [c for c in configs if c != "split"][-1:]) for name in names if risks[name]["risk"] == "harmful"]
    return [(cases, wanted) for cases, wanted in parts if cases and wanted]


class Measurement:
    """All runs, and what they tell."""

    def __init__(self, features, listed, say):
        self.features = features
        self.splits = {entry["case"] for entry in listed if entry["split"]}
        self.say = say
        self.runs = {}  # (case, config): [result]
        self.frames = {}  # (case, config): [{renderer_fps, frame_p99_ms}]
        self.problems = []
        self.stopped = None
        self.stopped_at = None

    def measure(self, parts, repetitions, save):
        """`save` is called after each run of a case, and when the renderer's figures are there."""
        for cases, configs in parts:
            for repetition in range(1, repetitions + 1):
                for config in configs:
                    wanted = [case for case in cases if config != "split" or case in self.splits]
                    if wanted:
                        self._config(wanted, config, repetition, save)
                        save()
                    if self.stopped:
                        return

    def _config(self, cases, config, repetition, save):
        features = self.features
        done = []
        case = None
        try:
            if config in _MODES:
                features.start_renderer(config)
                began = time.monotonic()
            for case in cases:
                result = features.run(case, config)
                self.runs.setdefault((case, config), []).append(result)
                done.append((case, result))
                self.say(f"{case}, {config}, run {repetition}: {_short(result, config)}")
                save()
                if result.get("killed") and config in _MODES:
                    # A renderer of their own for those that follow.
                    self._frames(done, config, began)
                    done = []
                    features.start_renderer(config)
                    began = time.monotonic()
            case = None
            if config in _MODES:
                self._frames(done, config, began)
        except XidSeen as error:
            self._stop(case or done[-1][0], config, str(error))
        except RunFailed as error:
            # The renderer died, gave wrong frames, or did not start.
            self._stop(case or (done[-1][0] if done else cases[0]), config, str(error))
        finally:
            features.kill_renderer()

    def _stop(self, case, config, why):
        self.stopped, self.stopped_at = why, (case, config)
        self.problems.append(f"{case}, {config}: stopped: {why}")
        self.say(f"{case}, {config}: STOPPED: {why}")

    def _frames(self, done, config, began):
        trace = self.features.end_renderer()
        before = between(trace, began - 0.5, began)
        if len(before) > 1:
            self.frames.setdefault(("renderer", "alone-renderer"), []).append(_frame_figures(before))
        for case, result in done:
            during = between(trace, result["begin"], result["end"])
            if len(during) > 1:
                self.frames.setdefault((case, config), []).append(_frame_figures(during))

    def verdicts(self):
        """{case: {config: (verdict, words)}} of the sharing configurations."""
        verdicts = {}
        for case, config in self.runs:
            if config in _MODES:
                verdicts.setdefault(case, {})[config] = verdict(self.runs.get((case, "alone"), ()), self.runs[case, config])
        if self.stopped and self.stopped_at[1] in _MODES:
            verdicts.setdefault(self.stopped_at[0], {})[self.stopped_at[1]] = ("fails", f"ended the run: {self.stopped}")
        return verdicts

    def rows(self, xids):
        verdicts = self.verdicts()
        rows = []
        keys = list(self.runs)
        if self.stopped and self.stopped_at not in keys:
            keys.append(self.stopped_at)
        for case, config in keys:
            runs = self.runs.get((case, config), ())
            figures = [{"passed": float(run["outcome"] == "passed")} for run in runs]
            for figure, run in zip(figures, runs):
                if run["outcome"] == "passed":
                    figure.update(round_ms=run["round_ms"], first_ms=run["first_ms"], **findings(case, run))
                if config in _MODES:
                    figure.update(attaches=float(run["attaches"]), launches_refused=float(run["refused"]))
            metrics = summaries(figures + self.frames.get((case, config), []))
            kind, words = verdicts.get(case, {}).get(config, ("", ""))
            note = f"{kind}: {words}" if words else kind
            if config == "alone":
                note = next((run["error"] for run in runs if run["error"]), "")
            # One that stopped everything is a run that did not pass.
            rows.append(row(case, FILED[config], metrics or summaries([{"passed": 0.0}]), xids if (case, config) == self.stopped_at else 0, note, max(1, len(runs))))
        alone = self.frames.get(("renderer", "alone-renderer"))
        if alone:
            rows.append(row("renderer", "alone-renderer", summaries(alone), runs=len(alone)))
        return rows

    def all_problems(self):
        """What ought not to be: anything but sharing, running natively for a reason (as what is to be kept out has to), or not being offered here."""
        found = list(self.problems)
        for case, configs in self.verdicts().items():
            for config, (kind, words) in configs.items():
                if kind in ("differs", "fails", "broken") or (kind == "native" and not words) or (kind == "partly" and "no reason" in words):
                    found.append(f"{case}, {config}: {kind}: {words or 'no reason given'}")
                elif case in surroundings.NAMES and kind != "absent" and (kind != "native" or surroundings.NAMES[case] not in words):
                    found.append(f"{case}, {config}: {kind}: {words or 'no reason given'}; it ought to be kept out, with a reason that names {surroundings.NAMES[case]}")
        for (case, config), runs in self.runs.items():
            if config == "alone" and (case, "shared") not in self.runs:
                found += [f"{case}, alone: {run['error']}" for run in runs if run["outcome"] not in ("passed", "skipped")][:1]
        return list(dict.fromkeys(found))


def _frame_figures(trace):
    ends = [end for end, _ in trace]
    gaps = sorted(1000 * (later - earlier) for earlier, later in zip(ends, ends[1:]))
    return {"renderer_fps": (len(ends) - 1) / (ends[-1] - ends[0]), "frame_p99_ms": gaps[min(len(gaps) - 1, int(0.99 * len(gaps)))]}


def _short(result, config):
    text = result["outcome"]
    if result["outcome"] == "passed":
        text += f", {result['round_ms']:.2f} ms a round (first {result['first_ms']:.0f})"
    if config in _MODES:
        text += f", {result['attaches']} contexts shared"
    if result.get("native"):
        text += f", {result['native']} launches on a TSG of its own"
    for name, figure in result.get("figures", {}).items():
        text += f", {name} {figure:.1f}" if isinstance(figure, float) else f", {name} {figure}"
    why = result["error"] or result["reason"] or result["said"]
    if result["outcome"] != "passed" and result.get("native_reason"):
        why = f"{why}; {result['native_reason']}"
    return f"{text}; {why}" if why else text
