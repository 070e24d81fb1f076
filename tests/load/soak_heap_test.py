"""Unit tests of scripts/soak_heap.py: what heaptrack's stream says about live bytes."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import soak_heap  # noqa: E402


def live_at(text, moments):
    return soak_heap.live_at(text.encode().splitlines(keepends=True), moments)


class Stream(unittest.TestCase):
    def test_bytes_that_live_at_each_moment(self):
        stream = ("v 10400 3\nx 4 /bin\nt 1 0\nI 1000 5e298f\nc 1\n+ 10 1 aa\n+ 20 1 bb\nc a\n- aa\nc 14\n+ 5 2 cc\nR 77\nc 1e\n- bb\n- cc\n")
        self.assertEqual(live_at(stream, [5, 15, 25]), ([0x30, 0x20, 0x25], 0, 3, 0x30))

    def test_a_moment_behind_the_last_is_the_end(self):
        self.assertEqual(live_at("+ 10 1 aa\nc a\n+ 1 1 bb\n", [50]), ([0x11], 0x11, 2, 0x11))

    def test_memory_from_before_the_tracing_is_not_taken_away(self):
        self.assertEqual(live_at("- ff\n+ 8 1 ff\n- ff\n- ff\nc 9\n", [1]), ([0], 0, 1, 8))

    def test_an_address_that_comes_again_counts_once(self):
        self.assertEqual(live_at("+ 10 1 aa\n+ 4 1 aa\nc 9\n", [1])[0], [4])


if __name__ == "__main__":
    unittest.main()
