#!/usr/bin/env python3
"""Starts vudad, and checks its metrics: with promtool, and that the Grafana dashboard asks for nothing else.

    check_metrics.py BIN DASHBOARD.JSON [--sim]      BIN: folder with vudad and vudactl; --sim: with two programs that share

Everything runs in a folder of its own, which is removed. Exit status 77: promtool is missing; the rest was checked and is right.
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PATIENCE = 60


class Daemon:
    """vudad on sockets in `folder`; READY comes through NOTIFY_SOCKET."""

    def __init__(self, binaries, folder, sim):
        self.socket = os.path.join(folder, "control.sock")
        self._binaries = binaries
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.bind(os.path.join(folder, "notify"))
        listener.settimeout(PATIENCE)
        self.textfile = os.path.join(folder, "vuda.prom")
        config = os.path.join(folder, "vudad.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f'[metrics]\ntextfile = "{self.textfile}"\ninterval_ms = 1000\n')
        self._process = subprocess.Popen(
            [os.path.join(binaries, "vudad"), "--config", config, "--socket", self.socket, "--handle-socket",
             os.path.join(folder, "handles.sock"), *(["--sim"] if sim else [])],
            env={**os.environ, "NOTIFY_SOCKET": os.path.join(folder, "notify")})
        while b"READY=1" not in listener.recv(4096):
            pass
        listener.close()

    def vudactl(self, *words):
        return subprocess.run([os.path.join(self._binaries, "vudactl"), "--socket", self.socket, *words],
                              capture_output=True, text=True, check=True, timeout=PATIENCE).stdout

    def start(self, *words):
        return subprocess.Popen([os.path.join(self._binaries, "vudactl"), "--socket", self.socket, "run", *words],
                                stdout=subprocess.DEVNULL)

    def stop(self):
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE)


def programs_that_share(daemon, binaries):
    """A renderer and a compute program; returns when the daemon says that they share."""
    started = [daemon.start("--register", "game", "--", os.path.join(binaries, "vuda-sim-renderer"), "--seconds", "120")]
    until = time.monotonic() + PATIENCE

    def status():
        if time.monotonic() > until:
            raise SystemExit("the programs do not share: " + daemon.vudactl("status"))
        return json.loads(daemon.vudactl("status", "--json"))

    while not any(tsg["exported"] for tsg in status()["tsgs"]):
        pass
    started.append(daemon.start("--attach", "game", "--", os.path.join(binaries, "vuda-sim-compute"), "--seconds", "120"))
    while not any(one["state"] == "sharing" for one in status()["sessions"]):
        pass
    return started


def metrics_in_queries(dashboard):
    """{metric: where it is asked for}"""
    found = {}

    def visit(node, where):
        if isinstance(node, dict):
            for key, value in node.items():
                if key in ("expr", "query") and isinstance(value, str):
                    for name in re.findall(r"\bvuda_\w+", value):
                        found[name] = where
                visit(value, node.get("title", where))
        elif isinstance(node, list):
            for value in node:
                visit(value, where)

    visit(dashboard, "dashboard")
    return found


def check(text, dashboard_file, textfile):
    faults = []
    offered = set(re.findall(r"^# TYPE (\w+) ", text, re.M))
    helped = set(re.findall(r"^# HELP (\w+) \S", text, re.M))
    faults += [f"{name} has no HELP" for name in sorted(offered - helped)]
    with open(dashboard_file, encoding="utf-8") as file:
        asked = metrics_in_queries(json.load(file))
    faults += [f"{dashboard_file}: '{where}' asks for {name}, which vudad does not offer" for name, where in sorted(asked.items())
               if name not in offered]
    if not asked or not offered:
        faults.append("no metric was found")
    # The file has the same metrics; the numbers are of another moment.
    if set(re.findall(r"^# TYPE (\w+) ", textfile, re.M)) != offered:
        faults.append("the text file has other metrics than vudactl metrics")
    return faults


def main():
    binaries, dashboard = sys.argv[1], sys.argv[2]
    sim = "--sim" in sys.argv[3:]
    started = []
    with tempfile.TemporaryDirectory(prefix="vuda-metrics-") as folder:
        daemon = Daemon(binaries, folder, sim)
        try:
            if sim:
                started = programs_that_share(daemon, binaries)
            text = daemon.vudactl("metrics")
            until = time.monotonic() + PATIENCE
            while not os.path.exists(daemon.textfile) and time.monotonic() < until:
                time.sleep(0.02)
            with open(daemon.textfile, encoding="utf-8") as file:
                faults = check(text, dashboard, file.read())
        finally:
            for process in started:
                process.send_signal(signal.SIGTERM)
                process.wait(PATIENCE)
            status = daemon.stop()
        if status != 0:
            faults.append(f"vudad ended with status {status}")
        if os.path.exists(daemon.textfile):
            faults.append("the text file is still there after vudad has ended")
    promtool = shutil.which("promtool")
    if promtool:
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0 or done.stderr:
            faults.append(f"promtool check metrics: {done.stdout}{done.stderr}")
    for fault in faults:
        print(fault)
    if faults:
        return 1
    if not promtool:
        print("skipped: promtool is not installed (Debian: prometheus); names and dashboard were checked")
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
