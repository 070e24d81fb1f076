#!/usr/bin/env python3
"""Measures how vudad bears load, and writes the figures of docs/robustness.md.

  scripts/robustness.py --bin build/release                     about three minutes; builds that tree first unless --no-build
  scripts/robustness.py --bin build/release --realtime          on a machine that has other work: its wait for a processor stays out
  scripts/robustness.py --bin build/release --merge rows.json   with rows of other tests, e.g. of the kill matrix (docs/fault-injection.md)
  scripts/robustness.py --add rows.json                         measures nothing: those rows take the place of their namesakes, or come last

Runs build/release/bin/vuda-load (tests/load), writes docs/results/robustness.json and replaces the table between the markers in
docs/robustness.md. A file for --merge is {"rows": [{"name", "value", "unit", "limit", "command"}...]}; the limit is a number, a text
like "<= 5", or null. Needs Python's standard library only, no GPU and no privilege; as root the flood comes from another user.

Exit status: 0; 1 when a limit was missed (everything is written all the same); 69 not built; 70 a run failed (nothing is written).
"""

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BEGIN = "<!-- figures: scripts/robustness.py -->"
END = "<!-- /figures -->"
# What is measured, each by a vudad of its own.
RUNS = (
    ("start", "--seconds", "20"),
    ("rpc", "--sessions", "100", "--buffers", "84", "--seconds", "20"),
    ("rpc", "--sessions", "1000", "--seconds", "20"),
    ("death", "--count", "100"),
    ("silent",),
    ("restart",),
    ("stall", "--seconds", "20"),
    ("soak", "--count", "1000000"),
)
# Short ones, to try the script out.
QUICK = (
    ("start", "--count", "3", "--seconds", "2"),
    ("rpc", "--sessions", "100", "--seconds", "2"),
    ("rpc", "--sessions", "1000", "--seconds", "2"),
    ("death", "--count", "5"),
    ("silent", "--count", "1"),
    ("restart", "--count", "1"),
    ("stall", "--seconds", "2"),
    ("soak", "--count", "20000"),
)
# Those whose figures a wait for a processor spoils.
TIMED = ("rpc", "death", "stall")


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(TOP, "build", "release"), metavar="DIR", help="build tree (build/release)")
    parser.add_argument("--no-build", action="store_true", help="measure what is there")
    parser.add_argument("--merge", action="append", default=[], metavar="FILE", help="rows of another test; may be given again")
    parser.add_argument("--add", action="append", default=[], metavar="FILE", help="put rows of another test into the results that are there")
    parser.add_argument("--output", default=os.path.join(TOP, "docs", "results", "robustness.json"), metavar="FILE")
    parser.add_argument("--table", default=os.path.join(TOP, "docs", "robustness.md"), metavar="FILE", help="'' for none")
    parser.add_argument("--realtime", action="store_true", help="what is timed to the millisecond runs ahead of other programs (chrt -f 10; needs root)")
    parser.add_argument("--quick", action="store_true", help="short runs, to try this out; not for the results")
    return parser.parse_args(argv)


def fail(status, text):
    print(f"robustness.py: {text}", file=sys.stderr)
    sys.exit(status)


def git(*arguments):
    run = subprocess.run(["git", "-C", TOP, *arguments], capture_output=True, text=True, check=False)
    return run.stdout.strip() if run.returncode == 0 else ""


def commit():
    """What was measured: the sources of the daemon and of what loads it."""
    head = git("rev-parse", "HEAD") or "0000000"
    dirty = git("status", "--porcelain", "--", "base", "rm", "proto", "daemon", "shim/partition", "tuner", "tests/load")
    return head + ("-dirty" if dirty else "")


def machine():
    model = ""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{os.cpu_count()} x {model or platform.machine()}, Linux {platform.release()}"


def limit_of(value):
    """A number or None, of any of the forms that a row may have."""
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    match = re.fullmatch(r"\s*(?:<=)?\s*(-?[0-9]+(?:\.[0-9]+)?)\s*", str(value))
    if match:
        return float(match[1])
    if not str(value).strip():
        return None
    raise ValueError(f"limit {value!r} is not a number, '<= number' or null")


def rounded(value):
    """Four digits are more than a repetition agrees on; counts stay whole."""
    value = float(f"{value:.4g}") if abs(value) < 1e5 else float(round(value))
    return int(value) if value == int(value) else value


def read_rows(path):
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    out = []
    for row in rows:
        out.append({
            "name": str(row["name"]),
            "value": rounded(row["value"]),
            "unit": str(row["unit"]),
            "limit": limit_of(row["limit"]),
            "command": str(row["command"]),
        })
    return out


def measure(program, arguments, realtime):
    print(f"== vuda-load {' '.join(arguments)}", flush=True)
    before = ["chrt", "-f", "10"] if realtime and arguments[0] in TIMED else []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.json")
        status = subprocess.run([*before, program, "--json", path, *arguments], check=False).returncode
        if status not in (0, 1):
            fail(70, f"vuda-load {' '.join(arguments)} ended with status {status}")
        rows = read_rows(path)
        for row in rows:
            row["command"] = " ".join([*before, row["command"]])
        return rows


def cell(value):
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def table(document):
    lines = [
        f"{document['machine']}; load average {document['load'][0]:g} before, {document['load'][1]:g} after; {document['date']}, "
        f"commit {document['commit'][:12]}{'-dirty' if document['commit'].endswith('-dirty') else ''}:",
        "",
        "| figure | value | limit | command |",
        "| --- | ---: | ---: | --- |",
    ]
    for row in document["rows"]:
        limit = "" if row["limit"] is None else f"<= {cell(rounded(row['limit']))}"
        missed = row["limit"] is not None and row["value"] > row["limit"]
        value = f"{cell(row['value'])} {row['unit']}"
        lines.append(f"| {row['name']} | {'**' + value + '**' if missed else value} | {limit} | `{row['command']}` |")
    return "\n".join(lines)


def replace_table(path, text):
    with open(path, encoding="utf-8") as file:
        before = file.read()
    if before.count(BEGIN) != 1 or before.count(END) != 1 or before.index(BEGIN) > before.index(END):
        fail(70, f"{path} does not have the lines {BEGIN} and {END}, once each")
    head, rest = before.split(BEGIN)
    tail = rest.split(END)[1]
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{head}{BEGIN}\n{text}\n{END}{tail}")


def put(rows, new):
    """Rows of the same name are replaced where they stand, the others come last."""
    by_name = {row["name"]: row for row in new}
    kept = [by_name.pop(row["name"], row) for row in rows]
    return kept + list(by_name.values())


def add(arguments):
    try:
        new = [row for path in arguments.add for row in read_rows(path)]
        with open(arguments.output, encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(70, str(error))
    document["rows"] = put(document["rows"], new)
    return finish(arguments, document)


def main(argv):
    arguments = parse_arguments(argv)
    if arguments.add:
        return add(arguments)
    if not arguments.no_build:
        if subprocess.run(["cmake", "--build", arguments.bin, "--target", "vuda-load"], check=False).returncode != 0:
            fail(69, f"{arguments.bin} does not build; cmake --preset release first")
    program = os.path.join(arguments.bin, "bin", "vuda-load")
    if not os.access(program, os.X_OK):
        fail(69, f"{program} is not there; build it, or name the build tree with --bin")
    # A mistake in these should not cost three minutes.
    merged = []
    for path in arguments.merge:
        try:
            merged += read_rows(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            fail(70, f"{path}: {error}")
    before = os.getloadavg()[0]
    rows = []
    for run in QUICK if arguments.quick else RUNS:
        rows += measure(program, run, arguments.realtime)
    document = {
        "experiment": os.path.basename(arguments.output).removesuffix(".json"),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "machine": machine(),
        "load": [round(before, 2), round(os.getloadavg()[0], 2)],
        "commit": commit(),
        "command": "scripts/robustness.py --bin build/release" + (" --realtime" if arguments.realtime else "") + "".join(f" --merge {os.path.basename(p)}" for p in arguments.merge),
        "rows": put(rows, merged),
    }
    return finish(arguments, document)


def finish(arguments, document):
    with open(arguments.output, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=2)
        file.write("\n")
    if arguments.table:
        replace_table(arguments.table, table(document))
    missed = [row["name"] for row in document["rows"] if row["limit"] is not None and row["value"] > row["limit"]]
    print(f"{len(document['rows'])} figures in {arguments.output}; missed limits: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
