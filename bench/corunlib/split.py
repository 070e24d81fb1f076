"""Splits of the GPU, as the partitioner makes them and as a run shows them."""

import re
import time

from . import commands
from .errors import RunFailed
from .matrix import TSG_NAME

_APPLY_SECONDS = 10
_IN_FORCE = re.compile(r"in force after ([0-9.]+) ms")


class Splitter:
    """Asks a Stack's vudad for splits and reads back what came of it."""

    def __init__(self, stack):
        self._stack = stack

    def _vudactl(self, *words):
        command = [self._stack.program("vudactl"), "--socket", self._stack.socket, *words]
        done = commands.run(command, capture_output=True, text=True, timeout=10, check=False)
        if done.returncode != 0:
            raise RunFailed(f"vudactl {' '.join(words)} failed: {done.stderr.strip()[:300]}")
        return done.stdout

    def set_mode(self, mode):
        self._vudactl("mode", TSG_NAME, mode)

    def set_quota(self, quota):
        """Milliseconds until it was in force, as vudactl says."""
        said = self._vudactl("quota", TSG_NAME, str(quota))
        found = _IN_FORCE.search(said)
        if not found:
            raise RunFailed(f"vudactl quota does not say how long it took: {said.strip()[:300]}")
        return float(found.group(1))

    def slo(self, *words):
        """Sets or clears targets of the TSG."""
        self._vudactl("slo", TSG_NAME, *words)

    def partition(self):
        for tsg in self._stack.status().get("tsgs", ()):
            if tsg.get("name") == TSG_NAME:
                return tsg.get("partition") or {}
        return {}

    def session(self):
        """The attached program, as vudad knows it."""
        for session in self._stack.status().get("sessions", ()):
            if session.get("name") == TSG_NAME and session.get("backend"):
                return session
        return {}

    def _wait(self, condition, what, guard):
        deadline = time.monotonic() + _APPLY_SECONDS
        while True:
            guard()
            value = condition()
            if value:
                return value
            if time.monotonic() > deadline:
                raise RunFailed(f"{what} did not happen in {_APPLY_SECONDS} s; {self.session().get('backend_reason')}")
            time.sleep(0.02)

    def wait_backend(self, guard):
        """Until the attached program can follow a split: the name of how."""
        return self._wait(
            lambda: self.session().get("backend") not in (None, "", "none") and self.session()["backend"],
            "a proved backend in the attached program",
            guard,
        )

    def wait_applied(self, guard):
        """Until its launches follow the split in force: that split."""

        def applied():
            partition = self.partition()
            return partition if self.session().get("applied_generation", 0) >= partition.get("generation", 0) else None

        return self._wait(applied, "the split", guard)


def compute_tpcs(topology, tpcs, mode="inter-sm"):
    """TPCs that compute gets of `topology` (as `vudactl status --json` shows it): one of each GPC at a time, those without graphics first;
    graphics keeps one TPC of each GPC that does graphics, and all of them where only some do. The rule anew, so that it checks vudad's."""
    all_tpcs = topology["tpc"]
    limited = 0 < sum(t["graphics"] for t in all_tpcs) < len(all_tpcs)
    free = {}
    for graphics in (False, True):
        for number, tpc in enumerate(all_tpcs):
            if tpc["graphics"] == graphics and not (graphics and limited and mode == "inter-sm"):
                free.setdefault(tpc["gpc"], []).append(number)
    if mode == "inter-sm" and not limited:
        free = {gpc: numbers[:-1] if any(all_tpcs[n]["graphics"] for n in numbers) else numbers for gpc, numbers in free.items()}
    order = []
    for turn in range(max(map(len, free.values()), default=0)):
        order += [numbers[turn] for _, numbers in sorted(free.items()) if turn < len(numbers)]
    return sorted(order[:tpcs])


def sms_of(topology, tpcs):
    return sorted(sm for number in tpcs for sm in topology["tpc"][number]["sms"])


def wrong_sms(observed, expected):
    """How many multiprocessors ran blocks that should not have, or ran none that should have."""
    return len(set(observed) ^ set(expected))
