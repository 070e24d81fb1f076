#!/usr/bin/env python3
"""clang-tidy over everything that is not a test, as the clang build tree (preset asan) compiles it.

  scripts/lint.py build/asan            bug-finding checks, target by target
  scripts/lint.py build/asan --alone    every source compiles alone
  scripts/lint.py build/asan --deep     clang's path-sensitive analyzer as well, source by source: about half an hour on two cores

The tree compiles a target's sources as one unit, which makes the checks of .clang-tidy some six times cheaper than file by file. Two things
need the files themselves: a source that leans on its neighbours' includes, which plain compilation of each finds, and the analyzer, which
looks at a unit's main file only.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Checks that do not fit a unit: it includes .cc files, that is the point of it.
UNIT_CHECKS = "-clang-analyzer-*,-bugprone-suspicious-include"
INCLUDE = re.compile(r'^#include "(.*)"$', re.MULTILINE)


def is_test(path):
    return re.search(r"(_test|_fuzzer)\.cc$|/(testing|fake|test|tests)(_|/)|/fuzz_corpus_main\.cc$", str(path.relative_to(ROOT))) is not None


def members(unit):
    """The sources that a translation unit stands for: itself, or what a generated unit includes."""
    if unit.match("Unity/unity_*_cxx.cxx"):
        return [pathlib.Path(name) for name in INCLUDE.findall(unit.read_text())]
    return [unit]


def without_output(command):
    """The compiler's arguments up to its output, without a launcher before it."""
    words = shlex.split(command)
    if pathlib.Path(words[0]).name == "ccache":
        words = words[1:]
    return words[: words.index("-o")]


def run(command, directory):
    start = time.monotonic()
    done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--deep", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tidy", default="clang-tidy-14")
    args = parser.parse_args()
    build = args.build.resolve()

    work, alone = [], []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        unit = pathlib.Path(entry["file"])
        sources = [s for s in members(unit) if s.suffix == ".cc" and s.is_relative_to(ROOT) and not s.is_relative_to(build)]
        sources = [s for s in sources if not is_test(s)]
        if not sources:
            continue
        compiler = without_output(entry["command"])
        for source in sources:
            alone.append({"directory": entry["directory"], "file": str(source), "arguments": [*compiler, "-c", str(source)]})
        if not args.deep and not args.alone:
            tidy = [args.tidy, "-p", build, "--quiet", f"--config-file={ROOT}/.clang-tidy", f"--checks={UNIT_CHECKS}", unit]
            work.append((str(unit.relative_to(build)) if unit.is_relative_to(build) else str(unit.relative_to(ROOT)), tidy, entry["directory"]))
    if not alone:
        sys.exit(f"{build} has nothing to check: is it configured?")

    # A source of two targets is looked at once.
    alone = list({entry["file"]: entry for entry in alone}.values())
    if args.deep:
        files = build / "lint"
        files.mkdir(exist_ok=True)
        (files / "compile_commands.json").write_text(json.dumps(alone, indent=1))
    for entry in alone if args.deep or args.alone else ():
        if args.deep:
            command = [args.tidy, "-p", build / "lint", "--quiet", entry["file"]]
        else:
            command = [*entry["arguments"], "-fsyntax-only"]
        work.append((str(pathlib.Path(entry["file"]).relative_to(ROOT)), command, entry["directory"]))

    failed = 0
    shown = set()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        futures = {pool.submit(run, command, directory): name for name, command, directory in work}
        for future in concurrent.futures.as_completed(futures):
            code, output, seconds = future.result()
            if code == 0:
                continue
            failed += 1
            # One finding in a header is reported by every unit that includes it.
            fresh = [line for line in output.splitlines() if ": error:" not in line or line not in shown]
            shown.update(fresh)
            print(f"{futures[future]} ({seconds:.0f} s):", *fresh, sep="\n", flush=True)
    print(f"lint: {len(alone)} sources, {len(work)} runs, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
