"""Holes that a renderer's frames leave in a compute program's time, as vuda-bench-compute --report-holes tells of them."""

import statistics

from .errors import RunFailed


def metrics(holes, frame_ms):
    """`holes`: [[begin, length], ...] in milliseconds, in order of time. One longer than half a frame is a frame's; the others came after it.

    What is counted for a frame is counted between the first frame's hole and the last one's: a window of whole frames, where whatever else
    is at the ends of the measurement would be half of one."""
    long = [(begin, length) for begin, length in holes if length > frame_ms / 2]
    if len(long) < 2:
        raise RunFailed(f"{len(long)} of {len(holes)} holes are as long as a frame of {frame_ms:g} ms: no two frames to count from one to the next")
    first, last = long[0][0], long[-1][0]
    within = [(begin, length) for begin, length in holes if first <= begin < last]
    after = [length for _, length in within if length <= frame_ms / 2]
    found = {"hole_frame_ms": statistics.median(length for _, length in long)}
    if after:
        found["hole_after_ms"] = statistics.median(after)
    found["holes_per_frame"] = len(within) / (len(long) - 1)
    found["compute_bound_percent"] = 100 * (1 - sum(length for _, length in within) / (last - first))
    return found
