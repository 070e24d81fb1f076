"""Commands that are waited for, in programs that are ended by signals.

An exception from a signal's handler, in the midst of subprocess, may leave the lock of that process taken, and then nobody can wait for it any more: not even
to end it. So what is under way ends first; the signal is heard then."""

import subprocess

from .signals import uninterrupted


def run(command, **more):
    """subprocess.run()."""
    with uninterrupted():
        return subprocess.run(command, **more)
