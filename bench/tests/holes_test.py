"""What bench/corunlib/holes.py makes of the holes in a compute program's time."""

import os
import random
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from corunlib import errors, holes  # noqa: E402


def frames(count, period=16.5, frame=10.3, after=0.3, begin=3.0):
    """A frame each period, and a hole when compute has had the GPU for 0.2 ms."""
    return [hole for i in range(count) for hole in ([begin + period * i, frame], [begin + period * i + frame + 0.2, after])]


class Holes(unittest.TestCase):
    def assert_metrics(self, found, **wanted):
        self.assertEqual(list(found), list(wanted))
        for name, value in wanted.items():
            self.assertAlmostEqual(found[name], value, places=6, msg=name)

    def test_two_a_frame(self):
        self.assert_metrics(holes.metrics(frames(30), 10.0), hole_frame_ms=10.3, hole_after_ms=0.3, holes_per_frame=2.0, compute_bound_percent=100 * 5.9 / 16.5)

    def test_where_the_measurement_begins_and_ends_changes_nothing(self):
        """Part of a period at either end, which is not one."""
        wanted = holes.metrics(frames(30), 10.0)
        whole = frames(30)
        for cut in (whole[1:], whole[:-1], [[0.0, 4.0], *whole], [[2.9, 0.01], *whole], [*whole, [whole[-1][0] + 1.0, 4.9]]):
            self.assert_metrics(holes.metrics(cut, 10.0), **wanted)
        self.assert_metrics(holes.metrics([[0.0, 4.0], *frames(2), [80.0, 4.0]], 10.0), **wanted)

    def test_only_those_of_frames(self):
        found = holes.metrics([hole for hole in frames(10) if hole[1] > 5], 10.0)
        self.assert_metrics(found, hole_frame_ms=10.3, holes_per_frame=1.0, compute_bound_percent=100 * 6.2 / 16.5)

    def test_what_is_longer_than_half_a_frame_is_a_frames(self):
        found = holes.metrics(frames(3, after=5.0), 10.0)
        self.assert_metrics(found, hole_frame_ms=10.3, hole_after_ms=5.0, holes_per_frame=2.0, compute_bound_percent=100 * 1.2 / 16.5)
        self.assertEqual(holes.metrics(frames(3, after=5.0), 9.0)["hole_frame_ms"], 7.65)

    def test_medians(self):
        """One of each that took longer moves the bound, and not the medians."""
        late = frames(11)
        late[6][1] += 1.0
        late[7][1] += 2.0
        found = holes.metrics(late, 10.0)
        self.assert_metrics(found, hole_frame_ms=10.3, hole_after_ms=0.3, holes_per_frame=2.0, compute_bound_percent=100 * (1 - (10 * 10.6 + 3.0) / 165))

    def test_one_that_has_no_frame_counts(self):
        found = holes.metrics(sorted([*frames(11), [3.0 + 16.5 * 4 + 14.0, 0.1]]), 10.0)
        self.assertAlmostEqual(found["holes_per_frame"], 2.1)
        self.assertAlmostEqual(found["compute_bound_percent"], 100 * (1 - (10 * 10.6 + 0.1) / 165))

    def test_frames_that_come_unevenly(self):
        """Each period is another; the bound is of their sum."""
        chance = random.Random(7)
        begins = [3.0]
        for _ in range(20):
            begins.append(begins[-1] + chance.uniform(15.0, 18.0))
        uneven = [hole for begin in begins for hole in ([begin, 10.3], [begin + 10.5, 0.3])]
        found = holes.metrics(uneven, 10.0)
        self.assertAlmostEqual(found["compute_bound_percent"], 100 * (1 - 20 * 10.6 / (begins[-1] - begins[0])))

    def test_two_frames_are_needed(self):
        for few in ([], [[1.0, 0.3]], frames(1), frames(20, frame=5.0)):
            with self.assertRaises(errors.RunFailed):
                holes.metrics(few, 10.0)
        self.assertAlmostEqual(holes.metrics(frames(2), 10.0)["holes_per_frame"], 2.0)


if __name__ == "__main__":
    unittest.main()
