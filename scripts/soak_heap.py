#!/usr/bin/env python3
"""Counts vudad's allocations over many session operations: what it holds when nobody is connected must not grow.

  scripts/soak_heap.py --bin build/release                             100,000 operations, about a minute
  scripts/soak_heap.py --bin build/release --json heap.json            and its rows, for scripts/robustness.py --merge or --add

Runs `vuda-load soak` (tests/load) with a vudad under heaptrack (Debian: heaptrack) and adds up the bytes that are allocated and not freed, at
moments at which all sessions have ended: from a quarter of the operations on, when pools and caches are filled, and at the end. Each
allocation counts, so that 16 bytes lost in a hundredth of the operations show. Of five such moments the median counts, since gRPC keeps
something for a while now and then. What is left when vudad has stopped is compared with the same run at a tenth of the length: tables that
libraries keep are the same, a leak is ten times as much.

Exit status: 0; 1 when a limit was missed; 69 not built, or no heaptrack; 70 the run failed; with --skip 77 in place of 69.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIBRARY = "/usr/lib/heaptrack/libheaptrack_preload.so"
# Growth, in KB: a table may double once more. 16 bytes lost in a hundredth of the 50,000 operations in between would be 8. At the very end
# nothing of that is left.
GROWTH_KB = 6
LEFT_KB = 1
REST_MS = 200


def live_at(lines, moments):
    """Bytes that were allocated and not freed at each moment (milliseconds, ascending), and at the end; all allocations; the peak.

    Of heaptrack's raw format: `+ SIZE TRACE ADDRESS`, `- ADDRESS`, `c MILLISECONDS` since the program was started, all hexadecimal.
    """
    sizes = {}
    live = peak = count = 0
    found = []
    for line in lines:
        kind = line[:2]
        if kind == b"+ ":
            size, _, address = line[2:].split()
            size = int(size, 16)
            count += 1
            # One that was freed before the tracing began to listen comes again without its end.
            live += size - sizes.get(address, 0)
            sizes[address] = size
            peak = max(peak, live)
        elif kind == b"- ":
            live -= sizes.pop(line[2:].strip(), 0)
        elif kind == b"c ":
            now = int(line[2:], 16)
            while len(found) < len(moments) and moments[len(found)] < now:
                found.append(live)
    found += [live] * (len(moments) - len(found))
    return found, live, count, peak


def fail(status, text):
    print(f"soak_heap.py: {text}", file=sys.stderr)
    sys.exit(status)


def soak(binaries, count, folder, rest_ms):
    """One run: (live bytes at each rest, at the end, allocations, peak)."""
    raw, rests, wrapper = (os.path.join(folder, name) for name in ("heap.raw", "rests", "vudad"))
    with open(wrapper, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexport DUMP_HEAPTRACK_OUTPUT="{raw}" LD_PRELOAD="{LIBRARY}"\nexec "{binaries}/vudad" "$@"\n')
    os.chmod(wrapper, 0o755)
    command = [os.path.join(binaries, "vuda-load"), "--record-only", "--vudad", wrapper, "soak", "--count", str(count),
               "--rest-ms", str(rest_ms), "--rests", rests]
    status = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    if status != 0:
        fail(70, f"vuda-load ended with status {status}")
    with open(rests, encoding="utf-8") as file:
        moments = [int(line) for line in file]
    with open(raw, "rb") as file:
        return live_at(file, moments)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(TOP, "build", "release"), metavar="DIR", help="build tree (build/release)")
    parser.add_argument("--count", type=int, default=100_000, help="session operations (100,000)")
    parser.add_argument("--json", metavar="FILE", help="write the rows to this file")
    parser.add_argument("--skip", action="store_true", help="without heaptrack exit with 77")
    arguments = parser.parse_args(argv)
    absent = 77 if arguments.skip else 69
    if not os.path.exists(LIBRARY):
        fail(absent, f"{LIBRARY} is not there; install heaptrack")
    binaries = os.path.join(os.path.abspath(arguments.bin), "bin")
    if not os.access(os.path.join(binaries, "vuda-load"), os.X_OK):
        fail(absent, f"{binaries}/vuda-load is not there; build it, or name the build tree with --bin")
    with tempfile.TemporaryDirectory() as folder:
        _, short_left, _, _ = soak(binaries, max(arguments.count // 10, 1), folder, 0)
        rests, left, allocations, peak = soak(binaries, arguments.count, folder, REST_MS)
    quarter = len(rests) // 4
    first, last = statistics.median(rests[quarter:quarter + 5]), statistics.median(rests[-5:])
    command = f"scripts/soak_heap.py --bin build/release --count {arguments.count}"
    rows = []

    def row(name, value, unit, limit=None):
        rows.append({"name": name, "value": value, "unit": unit, "limit": limit, "command": command})
        print(f"{name:24} {value:>14,} {unit}" + ("" if limit is None else f"  (limit {limit:,})"))

    row("heap-operations", arguments.count, "operations")
    row("heap-allocations", allocations, "allocations")
    row("heap-peak", round(peak / 1024, 1), "KB")
    row("heap-at-rest", round(last / 1024, 1), "KB")
    row("heap-growth", round((last - first) / 1024, 1), "KB", GROWTH_KB)
    row("heap-left-growth", round((left - short_left) / 1024, 1), "KB", LEFT_KB)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"rows": rows}, file, indent=1)
            file.write("\n")
    missed = [entry["name"] for entry in rows if entry["limit"] is not None and entry["value"] > entry["limit"]]
    if missed:
        print(f"missed limits: {', '.join(missed)}; at rest, KB: {[round(value / 1024, 1) for value in rests]}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
