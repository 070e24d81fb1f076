"""VUDA's own part: a vudad on sockets of its own, and programs started through `vudactl run`."""

import json
import os
import socket

from . import commands
from .errors import CorunError, RunFailed
from .identity import Identity
from .program import Program

_START_SECONDS = 20


class Stack:
    """A context manager: vudad runs inside it."""

    def __init__(self, prefix, work, simulated=False, options=()):
        """`options`: further words for vudad's command line."""
        self._options = list(options)
        self._prefix = prefix
        self._work = work
        self._simulated = simulated
        self.socket = os.path.join(work, "vudad.sock")
        self.handle_socket = os.path.join(work, "handles.sock")
        self._daemon = None

    def program(self, name):
        return os.path.join(self._prefix, "bin", name)

    @property
    def log(self):
        return os.path.join(self._work, "vudad.err")

    def __enter__(self):
        command = [self.program("vudad"), "--socket", self.socket, "--handle-socket", self.handle_socket, "--log-level", "info", *self._options]
        if self._simulated:
            command.append("--sim")
            if "--config" not in self._options:
                command += ["--config", self._patient()]
        notify_path = os.path.join(self._work, "notify.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.bind(notify_path)
            notify.settimeout(0.05)
            env = dict(os.environ, NOTIFY_SOCKET=notify_path)
            try:
                self._daemon = Program("vudad", command, self._work, Identity(), env)
            except RunFailed as error:
                raise CorunError(str(error)) from error
            try:
                self._daemon.wait_for(lambda: _says_ready(notify), _START_SECONDS, "vudad was ready", lambda: None)
            except RunFailed as error:
                self._daemon.kill()
                raise CorunError(str(error)) from error
            except BaseException:
                self._daemon.kill()
                raise
        return self

    def __exit__(self, *_):
        self._daemon.kill()

    def _patient(self):
        """A configuration by which nobody is late. The simulated GPU ends a TSG when a kernel runs before a buffer was mirrored, and a machine
        with more to do than it can is not what is looked at."""
        path = os.path.join(self._work, "vudad.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("[attach]\nmirror_ms = 20000\n")
        return path

    def append_log(self, path):
        with open(self.log, encoding="utf-8", errors="replace") as source, open(path, "a", encoding="utf-8") as target:
            target.write("--- vudad\n" + source.read())

    def check_alive(self):
        if not self._daemon.alive():
            raise CorunError(f"vudad ended by itself: {self._daemon.errors()}")

    def run(self, *options):
        """The words that go before a program's own command line."""
        return [self.program("vudactl"), "--socket", self.socket, "run", *options, "--"]

    def vudactl(self, *words):
        return [self.program("vudactl"), "--socket", self.socket, *words]

    def status(self):
        command = self.vudactl("status", "--json")
        done = commands.run(command, capture_output=True, text=True, timeout=10, check=False)
        if done.returncode != 0:
            raise RunFailed(f"vudactl status failed: {done.stderr.strip()[:300]}")
        return json.loads(done.stdout)

    def attach_seconds(self):
        """What the shims of all attached programs reported until now, summed up: (attaches, seconds in them)."""
        command = [self.program("vudactl"), "--socket", self.socket, "metrics"]
        done = commands.run(command, capture_output=True, text=True, timeout=10, check=False)
        values = dict(line.rsplit(maxsplit=1) for line in done.stdout.splitlines() if line and not line.startswith("#"))
        try:
            return int(values['vuda_attaches_total{result="sharing"}']), float(values["vuda_attach_seconds_total"])
        except (KeyError, ValueError) as error:
            raise RunFailed(f"vudactl metrics: {error}: {done.stderr.strip()[:300]}") from error

    def metric(self, name):
        """A number that vudad counts; 0 when it knows none of that name."""
        command = self.vudactl("metrics")
        done = commands.run(command, capture_output=True, text=True, timeout=10, check=False)
        values = dict(line.rsplit(maxsplit=1) for line in done.stdout.splitlines() if line and not line.startswith("#"))
        return float(values.get(name, 0))

    def registered(self, name):
        return any(tsg.get("name") == name for tsg in self.status().get("tsgs", ()))


def _says_ready(notify):
    try:
        return b"READY=1" in notify.recv(4096)
    except TimeoutError:
        return False
