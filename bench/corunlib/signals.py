"""Signals that end a program: heard once, as the exception Interrupted, and not in the midst of what must be done whole."""

import contextlib
import signal

from .errors import Interrupted

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _Ears:
    told = False  # one is enough: the way out is not interrupted again
    depth = 0  # of uninterrupted()
    waiting = None  # the signal that came meanwhile


def _hear(number, _frame):
    if _Ears.told:
        return
    _Ears.told = True
    if _Ears.depth:
        _Ears.waiting = number
    else:
        raise Interrupted(number)


@contextlib.contextmanager
def heard():
    """Inside it the first of ENDING raises Interrupted. What is ignored (nohup, a job in the background) stays so."""
    _Ears.told, _Ears.depth, _Ears.waiting = False, 0, None
    before = {number: signal.signal(number, _hear) for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def hear_no_more():
    """From here to the end of heard(), for cleaning up."""
    _Ears.told = True


@contextlib.contextmanager
def uninterrupted():
    """What comes inside it is heard at its end."""
    _Ears.depth += 1
    try:
        yield
    finally:
        _Ears.depth -= 1
        if _Ears.waiting is not None and not _Ears.depth:
            number, _Ears.waiting = _Ears.waiting, None
            raise Interrupted(number)
