"""What ends a run early."""

import signal


class CorunError(Exception):
    """Something that the user must put right; the text says what."""


class RunFailed(Exception):
    """One run gave no valid figures; the others may."""


class DeviceLost(RunFailed):
    """A program lost the GPU: as with an Xid, nothing measured after it counts."""


class XidSeen(Exception):
    """The GPU driver reported an error: nothing measured after it counts."""


class Interrupted(BaseException):
    """A signal asked this program to end. Not an Exception: no handler of failed runs takes it for one."""

    def __init__(self, number):
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.status = 128 + number
