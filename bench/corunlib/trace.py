"""What a run's trace tells: [(when a frame or step ended, in seconds; how long it took, in milliseconds)]. Pure functions."""

import math

# A target counts as met from the first moment that begins so many seconds without a late frame or step.
CLEAN_SECONDS = 1.0


def from_answer(answer):
    """A program's trace, ends on CLOCK_MONOTONIC (Python's time.monotonic())."""
    return [(end / 1000, ms) for end, ms in answer["trace"]]


def between(trace, begin, end):
    """Entries that ended in [begin, end)."""
    return [entry for entry in trace if begin <= entry[0] < end]


def miss(trace, bound_ms):
    """Fraction of entries over the bound."""
    return sum(ms > bound_ms for _, ms in trace) / len(trace) if trace else 0.0


def percentile(trace, percent):
    """Nearest rank, of the durations."""
    values = sorted(ms for _, ms in trace)
    return values[max(1, math.ceil(percent / 100 * len(values))) - 1] if values else 0.0


def intervals(trace):
    """Milliseconds from one end to the next one."""
    return [(b[0], (b[0] - a[0]) * 1000) for a, b in zip(trace, trace[1:])]


def first_met(traces, begin):
    """The first moment from `begin` on that starts CLEAN_SECONDS without a late one in any of [(trace, bound_ms), ...]; None if there is
    none. A trace that says nothing in that time, or ends before it is over, does not count as met."""
    late = sorted(end for trace, bound in traces for end, ms in trace if ms > bound and end >= begin)
    for moment in [begin, *late]:
        until = moment + CLEAN_SECONDS
        if any(moment < end <= until for end in late):
            continue
        if all(trace and trace[-1][0] >= until and any(moment < end <= until for end, _ in trace) for trace, _ in traces):
            return moment
    return None


def risen(trace, begin, rate):
    """The first moment from `begin` on that starts a second with at least `rate` entries; None if there is none."""
    ends = [end for end, _ in trace if end >= begin]
    last = 0
    for number, end in enumerate([begin, *ends]):
        while last < len(ends) and ends[last] <= end + 1:
            last += 1
        if last - number >= rate:
            return end
    return None


def reversals(levels):
    """How often a row of changes, [(old, new), ...], turned round."""
    ways = [new > old for old, new in levels if new != old]
    return sum(a != b for a, b in zip(ways, ways[1:]))
