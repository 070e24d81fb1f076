"""One program under test: started in its own process group, bounded in time, its JSON line read."""

import json
import os
import signal
import subprocess
import time

from .errors import DeviceLost, RunFailed
from .signals import uninterrupted

_POLL_SECONDS = 0.01
_TERM_SECONDS = 5
_running = set()  # those that were not told to end


class Program:
    def __init__(self, label, command, work, identity, env=None):
        self.label = label
        self.command = command
        self._stdout_path = os.path.join(work, label + ".out")
        self._stderr_path = os.path.join(work, label + ".err")
        base = dict(os.environ if env is None else env)
        with uninterrupted(), open(self._stdout_path, "wb") as out, open(self._stderr_path, "wb") as err:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    cwd=work,
                    env=identity.environment(base),
                    start_new_session=True,
                    **identity.popen_arguments(),
                )
            except OSError as error:
                raise RunFailed(f"{label}: cannot start {command[0]}: {error.strerror}") from error
            _running.add(self)

    @property
    def output(self):
        """The file that takes its stdout."""
        return self._stdout_path

    def lines(self):
        """The whole lines that it wrote to stdout."""
        with open(self._stdout_path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        return text[: text.rfind("\n") + 1].splitlines()

    @property
    def pid(self):
        return self._process.pid

    def alive(self):
        with uninterrupted():  # it takes a lock of the process's: see commands.py
            return self._process.poll() is None

    def errors(self):
        """The end of what it wrote to stderr, on one line."""
        with open(self._stderr_path, encoding="utf-8", errors="replace") as file:
            return " / ".join(file.read().strip().splitlines()[-4:])[:600]

    def said(self, prefix):
        """Its lines on stderr that begin with `prefix`, without it, on one line."""
        with open(self._stderr_path, encoding="utf-8", errors="replace") as file:
            return " / ".join(line.removeprefix(prefix) for line in file.read().splitlines() if line.startswith(prefix))[:600]

    def wait_for(self, condition, seconds, what, guard):
        """Waits until condition(); fails when the program ends first or `seconds` pass. `guard` may raise."""
        deadline = time.monotonic() + seconds
        while not condition():
            guard()
            if not self.alive():
                raise RunFailed(f"{self.label} ended with {self._process.returncode} before {what}: {self.errors()}")
            if time.monotonic() > deadline:
                raise RunFailed(f"{self.label}: {what} did not happen in {seconds:g} s: {self.errors()}")
            time.sleep(_POLL_SECONDS)

    def wait_ready(self, path, seconds, guard):
        self.wait_for(lambda: os.path.exists(path), seconds, "it was ready", guard)

    def interrupt(self):
        """Asks it to end and print its results."""
        if self.alive():
            self._process.send_signal(signal.SIGTERM)

    def finish(self, seconds, guard):
        """Waits for the end. Returns (exit status, JSON or None)."""
        deadline = time.monotonic() + seconds
        while self.alive():
            guard()
            if time.monotonic() > deadline:
                self.kill()
                raise RunFailed(f"{self.label} did not end in {seconds:g} s and was killed: {self.errors()}")
            time.sleep(_POLL_SECONDS)
        return self._process.returncode, self._json()

    def result(self, seconds, guard):
        """As finish(), but anything except success with a JSON line fails."""
        status, answer = self.finish(seconds, guard)
        if answer is None:
            raise RunFailed(f"{self.label} ended with {status} and printed no result: {self.errors()}")
        if status != 0:
            # vuda-bench-both answers for each of its two sides.
            sides = [answer] + [side for side in answer.values() if isinstance(side, dict)]
            why = next((side["error"] for side in sides if side.get("error")), None) or self.errors() or "wrong results"
            lost = any(side.get("device_lost") for side in sides)
            raise (DeviceLost if lost else RunFailed)(f"{self.label} ended with {status}: {why}")
        return answer

    def answers(self):
        """Its whole lines of JSON."""
        found = []
        for line in self.lines():
            try:
                found += [json.loads(line)] if line.startswith("{") else []
            except ValueError:
                pass
        return found

    def _json(self):
        with open(self._stdout_path, encoding="utf-8", errors="replace") as file:
            lines = [line for line in file.read().splitlines() if line.startswith("{")]
        try:
            return json.loads(lines[-1]) if lines else None
        except ValueError:
            return None

    def kill(self):
        """Ends it and everything in its process group, gently first. Safe to call at any time."""
        with uninterrupted():
            if self.alive():
                self._signal_group(signal.SIGTERM)
                try:
                    self._process.wait(_TERM_SECONDS)
                except subprocess.TimeoutExpired:
                    pass
            self._signal_group(signal.SIGKILL)
            self._process.wait()
            _running.discard(self)

    def _signal_group(self, number):
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def end_all():
    """Ends what an interrupted caller could not."""
    for program in list(_running):
        program.kill()
