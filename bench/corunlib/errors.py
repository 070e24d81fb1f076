"""What ends a run early."""


class CorunError(Exception):
    """Something that the user must put right; the text says what."""


class RunFailed(Exception):
    """One run gave no valid figures; the others may."""


class DeviceLost(RunFailed):
    """A program lost the GPU: as with an Xid, nothing measured after it counts."""


class XidSeen(Exception):
    """The GPU driver reported an error: nothing measured after it counts."""
