"""What becomes of a renderer, of CUDA programs and of vudad when one of them faults, does not fit, or is killed: case by case, with figures."""

import json
import os
import signal
import time

from . import commands
from .errors import CorunError, RunFailed
from .identity import Identity
from .matrix import TSG_NAME
from .program import Program
from .results import row
from .stats import summary

# What may take the GPU with it comes last.
CASES = ("unshare", "cuda-killed", "renderer-killed", "illegal-address")
# vudad's own figure: a dead TSG is noticed so soon.
NOTICED_MS = 100

_SECONDS = 60  # for anything that happens sooner or later
_SETTLE = 0.3  # both work side by side
_LIMIT_BYTES = 65536  # of shared memory a block: over the limit of every chip
_A_DAY = 86400
# So long a bad access may go untold, where the GPU repeats it instead of ending the TSG.
_STUCK_SECONDS = 3
# Of a fault, as `vudactl watch` tells it.
_STORY = ("faulted", "quarantined", "unquarantined")


class Case:
    """What one case found: named checks, 1 or 0, and figures."""

    def __init__(self, name):
        self.name = name
        self.figures = {}
        self.failed = []
        self.notes = []
        self.xids = 0

    def check(self, name, good, otherwise=""):
        self.figures[name] = float(bool(good))
        if not good:
            self.failed.append(f"{name}: no{'; ' + str(otherwise)[:300] if otherwise else ''}")
        return bool(good)

    def figure(self, name, value):
        self.figures[name] = float(value)

    def row(self):
        return row(self.name, "shared", {name: summary([value]) for name, value in self.figures.items()}, self.xids, "; ".join([*self.failed, *self.notes])[:2000])


class Short:
    """A CUDA program that ran to its end."""

    def __init__(self, status, answer, lines, shared):
        self.status = status
        self.answer = answer or {}
        self.lines = lines  # of VUDA on stderr
        self.shared = shared  # contexts of it

    def __str__(self):
        return f"ended with {self.status}, {self.shared} contexts shared; {self.answer.get('error', '')}; {' / '.join(self.lines)}"


class HardwarePrograms:
    """The measuring programs on a GPU."""

    def __init__(self, stack, workload, device):
        self._stack = stack
        self._workload = workload
        self._device = ["--device", device] if device else []

    def steady(self, seconds):
        return self._workload.compute(seconds)

    def other(self):
        """Another executable than the culprit's."""
        return self._workload.compute(0.5)

    def large(self):
        """The same executable as steady(), with kernels over the limit."""
        return self._workload.compute(0.5, extra=["--warmup", "5"], smem=_LIMIT_BYTES)

    def harmless(self):
        """The culprit's executable, in peace."""
        return [self._stack.program("vuda-bench-features"), "--case", "launch", "--seconds", "0.2", *self._device]

    def right(self, short):
        return short.status == 0 and not short.answer.get("result_errors") and short.answer.get("outcome", "passed") == "passed"

    def refused(self, short):
        """CUDA error 701 and nothing else."""
        return short.status != 0 and "OUT_OF_RESOURCES" in short.answer.get("error", "") and not short.answer.get("device_lost")

    def done(self, answer):
        return answer.get("kernels", 0)

    culprit_name = "vuda-bench-features"

    def culprit(self, files):
        words = [self._stack.program("vuda-bench-features"), "--case", "bad-address", "--seconds", "0", *self._device]
        for name in ("ready", "start", "done", "end"):
            words += [f"--{name}-file", files[name]]
        return words

    def fault(self, files, pid):
        """The culprit's own kernel does it. Nothing is known of when until the culprit says so."""
        _touch(files["start"])
        return None

    def end(self, program, files, guard):
        """(microseconds of the launch and of its error, both monotonic; exit status)"""
        program.wait_for(lambda: os.path.exists(files["done"]), _SECONDS, "its kernel had failed", guard)
        _touch(files["end"])
        status, answer = program.finish(_SECONDS, guard)
        figures = (answer or {}).get("figures", {})
        return figures.get("launched_us"), figures.get("failed_us"), status


class SimulatedPrograms:
    """The drivers' stand-ins; a fault is planted."""

    def __init__(self, stack, other_program):
        """`other_program`: a copy of vuda-sim-compute under another name, since vudad tells programs apart by that."""
        self._stack = stack
        self._compute = [stack.program("vuda-sim-compute"), "--kernel-ms", "0.5"]
        self._other = [other_program, "--kernel-ms", "0.5"]

    def steady(self, seconds):
        return [*self._compute, "--seconds", f"{seconds:g}"]

    def other(self):
        return [*self._other, "--kernels", "20"]

    def large(self):
        return [*self._compute, "--kernels", "20", "--guard", "--smem", str(_LIMIT_BYTES)]

    def harmless(self):
        return [*self._compute, "--kernels", "20"]

    def right(self, short):
        return short.status == 0 and short.answer.get("verified", False)

    def refused(self, short):
        return short.status != 0 and short.answer.get("cuda_error") == 701 and not short.answer.get("device_lost")

    def done(self, answer):
        return answer.get("kernels", 0)

    culprit_name = "vuda-sim-compute"

    def culprit(self, files):
        return [*self._compute, "--seconds", str(_A_DAY), "--keep-lost", "--ready-file", files["ready"]]

    def fault(self, files, pid):
        return self._plant(f"stuck@{pid}")

    def _plant(self, what):
        socket = self._stack.status()["daemon"]["sim_socket"]
        planted = time.monotonic()
        commands.run([self._stack.program("vuda-simctl"), "--socket", socket, "fault", what], check=True, timeout=30)
        return planted

    def end(self, program, files, guard):
        program.interrupt()
        status, _ = program.finish(_SECONDS, guard)
        return None, None, status


class Containment:
    def __init__(self, runner, programs, unshare_ms, say):
        """`unshare_ms`: how long vudad keeps a program unshared that did not fit."""
        self.runner = runner
        self.stack = runner.stack
        self.programs = programs
        self.unshare_ms = unshare_ms
        self.say = say
        self._identity = Identity()
        self._running = []

    # --- What every case does.

    def run(self, name):
        """The case, whatever becomes of it."""
        case = Case(name)
        before = len(self.runner.xids.poll())
        try:
            {"unshare": self._unshare, "cuda-killed": self._cuda_killed, "renderer-killed": self._renderer_killed, "illegal-address": self._illegal_address}[name](case)
        except (RunFailed, OSError, ValueError, KeyError) as error:
            case.check("ran_to_its_end", False, error)
        finally:
            for program, directory in reversed(self._running):
                program.kill()
                self.runner.discard(directory, f"{name}, {program.label}")
            self._running = []
        try:
            self.stack.check_alive()
            self.stack.status()
            case.check("vudad_lives", True)
        except (CorunError, RunFailed) as error:
            case.check("vudad_lives", False, error)
        self._wait_xids(before + 1 if name == "illegal-address" else 0)
        seen = self.runner.xids.poll()[before:]
        case.xids = len(seen)
        if seen:
            case.notes.append("Xid " + "; Xid ".join(seen))
        if name != "illegal-address":
            case.check("no_xid", not seen, seen)
        self.say(f"{name}: " + ("all as it should be" if not case.failed else "; ".join(case.failed)))
        return case

    def _wait_xids(self, count):
        """The kernel writes one a moment after the programs see the fault."""
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline and len(self.runner.xids.poll()) < max(count, 1):
            time.sleep(0.05)

    def _guard(self):
        # Xids are looked at afterwards: here they are wanted.
        self.stack.check_alive()

    def _start(self, label, command):
        directory = self.runner.run_directory(self._identity)
        program = Program(label, command(directory), directory, self._identity)
        self._running.append((program, directory))
        return program

    def _renderer(self):
        directory = self.runner.run_directory(self._identity)
        ready = os.path.join(directory, "ready")
        words = [*self.stack.run("--register", TSG_NAME, "--require"), *self.runner.workload.render(_A_DAY, ["--ready-file", ready])]
        program = Program("renderer", words, directory, self._identity)
        self._running.append((program, directory))
        program.wait_ready(ready, _SECONDS, self._guard)
        program.wait_for(lambda: self.stack.registered(TSG_NAME), 10, "it was registered", self._guard)
        return program

    def _end_renderer(self, case, renderer, name="frames_right"):
        """Its last word: every frame was right."""
        alive = renderer.alive()
        renderer.interrupt()
        status, answer = renderer.finish(_SECONDS, self._guard)
        answer = answer or {}
        wrong = answer.get("checksum_errors", 0 if answer.get("verified") else 1)
        frames = answer.get("checked_frames", answer.get("frames", 0))
        case.check(name, alive and status == 0 and frames > 0 and wrong == 0, f"ended with {status}, {frames} frames, {wrong} wrong: {renderer.errors()}")
        case.figure(name.replace("right", "checked"), frames)

    def _short(self, words, *options):
        """A program that attaches, to its end."""
        before = self.stack.attach_seconds()[0]
        program = self._start("compute", lambda directory: [*self.stack.run("--attach", TSG_NAME, *options), *words])
        status, answer = program.finish(_SECONDS, self._guard)
        said = [line for line in program.said("vuda: ").split(" / ") if line]
        return Short(status, answer, said, self.stack.attach_seconds()[0] - before)

    def _right(self, short):
        return self.programs.right(short)

    def _sharing(self):
        """Pids of programs that share."""
        found = self.stack.status().get("sessions", ())
        return [s["peer"]["pid"] for s in found if s.get("name") == TSG_NAME and s.get("role", "compute") == "compute" and s.get("state") == "sharing"]

    def _steady(self, seconds):
        ready = []

        def command(directory):
            ready.append(os.path.join(directory, "ready"))
            return [*self.stack.run("--attach", TSG_NAME, "--require"), *self.programs.steady(seconds), "--ready-file", ready[0]]

        program = self._start("compute", command)
        program.wait_ready(ready[0], _SECONDS, self._guard)
        program.wait_for(self._sharing, 10, "it shared", self._guard)
        time.sleep(_SETTLE)
        return program

    def _known(self):
        """What vudad knows of a fault of that name, {} when of none."""
        status = self.stack.status()
        for tsg in status.get("tsgs", ()):
            if tsg.get("name") == TSG_NAME:
                return tsg.get("fault") or {}
        return next((fault for fault in status.get("faults", ()) if fault.get("name") == TSG_NAME), {})

    def _wait(self, condition, seconds=_SECONDS):
        """What condition() returned, or what it returned last when it never was anything."""
        deadline = time.monotonic() + seconds
        while True:
            self._guard()
            value = condition()
            if value or time.monotonic() > deadline:
                return value
            time.sleep(0.02)

    # --- The cases.

    def _unshare(self, case):
        """A program whose kernels do not fit, and that wishes to run unshared then."""
        renderer = self._renderer()
        large = self.programs.large()
        first = self._short(large, "--over-limit", "unshare")
        case.check("shared_first", first.shared == 1, first)
        case.check("refused_701", self.programs.refused(first), first)
        case.check("refused_in_one_line", len(first.lines) == 1 and "701" in first.lines[0], first)
        known = self.stack.status().get("unfit", ())
        case.check("status_says_so", len(known) == 1 and known[0]["bytes"] >= _LIMIT_BYTES, known)
        begin = time.monotonic()
        second = self._short(large, "--over-limit", "unshare")
        case.check("next_one_unshared", second.shared == 0 and any("runs unshared" in line for line in second.lines), second)
        case.check("unshared_is_right", self._right(second), second)
        case.check("back_in_time", self._wait(lambda: not self.stack.status().get("unfit", ()), self.unshare_ms / 1000 + 10))
        case.figure("held_off_s", time.monotonic() - begin)
        third = self._short(self.programs.steady(0.5), "--require", "--over-limit", "unshare")
        case.check("shares_again", third.shared == 1 and self._right(third), third)
        case.check("renderer_lives", renderer.alive())
        case.check("no_fault_known", not self._known(), self._known())
        self._end_renderer(case, renderer)

    def _cuda_killed(self, case):
        """SIGKILL in the midst of its kernels."""
        renderer = self._renderer()
        self._steady(_A_DAY)
        for pid in self._sharing():
            os.kill(pid, signal.SIGKILL)
        begin = time.monotonic()
        case.check("vudad_hears_of_it", self._wait(lambda: not self._sharing(), 10))
        case.figure("heard_ms", 1000 * (time.monotonic() - begin))
        time.sleep(_SETTLE)
        case.check("renderer_lives", renderer.alive(), renderer.errors())
        case.check("no_fault_known", not self._known(), self._known())
        again = self._short(self.programs.steady(0.5), "--require")
        case.check("shares_again", again.shared == 1 and self._right(again), again)
        self._end_renderer(case, renderer)

    def _renderer_killed(self, case):
        """SIGKILL of the renderer: CUDA goes on, and the name is free for the next one."""
        renderer = self._renderer()
        compute = self._steady(_A_DAY)
        owner = [tsg["owner"]["pid"] for tsg in self.stack.status()["tsgs"] if tsg["name"] == TSG_NAME]
        for pid in owner:
            os.kill(pid, signal.SIGKILL)
        begin = time.monotonic()
        renderer.finish(10, self._guard)
        case.check("name_is_free", self._wait(lambda: not self.stack.registered(TSG_NAME), 10))
        case.figure("free_ms", 1000 * (time.monotonic() - begin))
        time.sleep(2 * _SETTLE)
        lives = compute.alive()
        compute.interrupt()
        status, answer = compute.finish(_SECONDS, self._guard)
        went_on = Short(status, answer, [line for line in compute.said("vuda: ").split(" / ") if line], 1)
        case.check("cuda_went_on", lives and self._right(went_on), went_on)
        case.figure("kernels", self.programs.done(went_on.answer))
        case.check("no_fault_known", not self._known(), self._known())
        again = self._renderer()
        shares = self._short(self.programs.steady(0.5), "--require")
        case.check("shares_again", shares.shared == 1 and self._right(shares), shares)
        self._end_renderer(case, again)

    def _illegal_address(self, case):
        """A kernel that writes to where nothing is, in the shared TSG."""
        watch = self._start("watch", lambda directory: self.stack.vudactl("watch", "--json"))
        renderer = self._renderer()
        # It is heard from the registration on, at the latest; a second one is not to be had.
        self._wait(lambda: watch.lines() or not watch.alive(), 5)
        culprit, files = self._culprit()
        pid = (self._sharing() or [0])[0]
        seen = len(self.runner.xids.seen)
        xid_at = []
        begin = time.monotonic()
        planted = self.programs.fault(files, pid)

        def event(kind):
            if not xid_at and len(self.runner.xids.poll()) > seen:
                xid_at.append(time.monotonic())
            return next((one for one in _events(watch) if one["kind"] == kind), None)

        self._wait(lambda: event("stuck") or event("faulted"), _STUCK_SECONDS)
        killed = not event("faulted")
        if killed:
            # Nothing died: it is to be told that the GPU repeats the access, and the renderer draws on until the program ends.
            self._stuck(case, event("stuck"), begin, renderer, culprit)
            planted = time.monotonic() if planted else None
            os.kill(pid, signal.SIGKILL)
        faulted = self._wait(lambda: event("faulted"))
        case.check("noticed", faulted, "no event 'faulted'")
        # It may have been faster than the kernel's log.
        self._wait(lambda: event("faulted") and xid_at, 2)
        status, answer = renderer.finish(_SECONDS, self._guard)
        case.check("renderer_sees_device_lost", (answer or {}).get("device_lost"), f"ended with {status}: {renderer.errors()}")
        before = answer or {}
        case.check("frames_right_before", before.get("checksum_errors", 0) == 0, before.get("checksum_errors"))
        launched, failed = (None, None) if killed else self.programs.end(culprit, files, self._guard)[:2]
        if faulted:
            at = faulted["monotonic_us"] / 1000
            notices = [failed / 1000] if failed else []
            notices += [1000 * moment for moment in xid_at if not planted] + ([1000 * planted] if planted else [])
            if notices:
                case.figure("detect_ms", at - min(notices))
                case.check("detected_in_time", at - min(notices) < self._budget(), f"{at - min(notices):.1f} ms")
            if launched:
                case.figure("launch_to_event_ms", at - launched / 1000)
                case.figure("launch_to_error_ms", (failed - launched) / 1000)
        told = "wait for ever" if killed else "died"
        case.check("culprit_was_told", any(told in line for line in culprit.said("vuda: ").split(" / ")), culprit.errors())
        self._wait(lambda: self._known().get("state") == "quarantined", 10)
        known = self._known()
        case.check("quarantined", known.get("state") == "quarantined", known)
        case.check("name_stays", known.get("name") == TSG_NAME, known)
        case.check("culprit_is_right", self.programs.culprit_name in str((known.get("culprit") or {}).get("program")), known)
        case.check("cause_is_known", known.get("xid", 0) > 0 and known.get("text"), known)
        case.figure("xid", known.get("xid", 0))
        logged = self.runner.xids.poll()[seen:]
        if logged:
            case.check("cause_is_the_logs", any(entry.split(" ", 1)[0] == str(known.get("xid")) for entry in logged), f"{known.get('text')}, {logged}")
        case.notes.append(str(known.get("text")))
        self._recover(case)
        kinds = [one["kind"] for one in _events(watch) if one["kind"] in _STORY]
        case.check("events_tell_it", list(dict.fromkeys(kinds)) == list(_STORY), kinds)

    def _stuck(self, case, told, begin, renderer, culprit):
        case.check("stuck_is_told", told, f"no event 'stuck' within {_STUCK_SECONDS} s")
        if told:
            case.figure("stuck_ms", told["monotonic_us"] / 1000 - 1000 * begin)
        shown = [session for session in self.stack.status().get("sessions", ()) if session.get("stuck")]
        case.check("status_says_stuck", len(shown) == 1 and shown[0].get("state") == "sharing", shown)
        case.check("no_fault_while_stuck", not self._known(), self._known())
        case.check("renderer_lives_while_stuck", renderer.alive() and culprit.alive(), renderer.errors())

    def _budget(self):
        # On the simulated GPU it is the machine's time that is measured.
        return 3000 if self.runner.workload.simulated else NOTICED_MS

    def _culprit(self):
        files = {}

        def command(directory):
            files.update({name: os.path.join(directory, name) for name in ("ready", "start", "done", "end")})
            return [*self.stack.run("--attach", TSG_NAME, "--require"), *self.programs.culprit(files)]

        program = self._start("culprit", command)
        program.wait_ready(files["ready"], _SECONDS, self._guard)
        program.wait_for(self._sharing, 10, "it shared", self._guard)
        time.sleep(_SETTLE)
        return program, files

    def _recover(self, case):
        """The way out that docs/faults.md describes, step by step."""
        begin = time.monotonic()
        renderer = self._renderer()
        case.figure("renderer_back_s", time.monotonic() - begin)
        case.check("renderer_registers_again", True)
        held = self._short(self.programs.harmless())
        case.check("culprit_is_held_off", held.shared == 0 and any("is held off" in line for line in held.lines), held)
        case.check("held_off_it_runs_unshared", self._right(held), held)
        other = self._short(self.programs.other(), "--require")
        case.check("another_shares", other.shared >= 1 and self._right(other), other)
        words = self.stack.vudactl("unquarantine", TSG_NAME)
        directory = self.runner.run_directory(self._identity)
        lifted = Program("unquarantine", words, directory, self._identity)
        self._running.append((lifted, directory))
        status, _ = lifted.finish(10, self._guard)
        case.check("unquarantine", status == 0, lifted.errors())
        back = self._short(self.programs.harmless(), "--require")
        case.check("culprit_shares_again", back.shared >= 1 and self._right(back), back)
        self._end_renderer(case, renderer)


def _events(watch):
    found = []
    for line in watch.lines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [one for one in found if isinstance(one, dict) and "kind" in one]


def _touch(path):
    open(path, "w", encoding="ascii").close()
