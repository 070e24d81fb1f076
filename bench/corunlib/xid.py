"""Xids: errors that the NVIDIA driver writes to the kernel log."""

import errno
import os
import re

from .errors import CorunError, XidSeen

_XID = re.compile(r"NVRM: Xid \(([^)]*)\): (\d+)(.*)")


def parse_xid(line):
    """'31 (PCI:0000:00:04), pid=...' or None."""
    found = _XID.search(line)
    return f"{found.group(2)} ({found.group(1)}){found.group(3)[:160]}" if found else None


class XidLog:
    """Counts Xids that appear after it was made. Subclasses say where lines come from."""

    def __init__(self):
        self.seen = []

    def _new_lines(self):
        raise NotImplementedError

    def poll(self):
        """Takes in what is new; returns all Xids so far."""
        for line in self._new_lines():
            xid = parse_xid(line)
            if xid:
                self.seen.append(xid)
        return self.seen

    def check(self):
        if self.poll():
            raise XidSeen("Xid " + "; Xid ".join(self.seen))

    def close(self):
        pass


class KernelXidLog(XidLog):
    """Reads /dev/kmsg from its present end on."""

    def __init__(self, path="/dev/kmsg"):
        super().__init__()
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise CorunError(
                f"cannot read the kernel log {path} ({error.strerror}), so Xids would go unseen; "
                "run as root, or give --ignore-xids"
            ) from error
        os.lseek(self._fd, 0, os.SEEK_END)

    def _new_lines(self):
        while True:
            try:
                record = os.read(self._fd, 8192)
            except OSError as error:
                if error.errno == errno.EAGAIN:
                    return
                if error.errno == errno.EPIPE:  # records were overwritten before we read them
                    continue
                raise
            if not record:
                return
            yield record.decode("utf-8", "replace")

    def close(self):
        os.close(self._fd)


class FileXidLog(XidLog):
    """Reads lines that are appended to a file: the simulated GPU's log."""

    def __init__(self, path):
        super().__init__()
        self._path = path
        self._offset = 0

    def _new_lines(self):
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return
        whole = text.rfind(b"\n") + 1
        self._offset += whole
        for line in text[:whole].splitlines():
            yield line.decode("utf-8", "replace")


class NoXidLog(XidLog):
    def _new_lines(self):
        return ()
