#!/usr/bin/env python3
"""Does vudad.toml's manual page name every table, key and default of the shipped file, and no other? check_keys.py VUDAD.TOML PAGE.MD

Exit status 1 names the differences.
"""
import re
import sys


def shipped(text):
    found, table = {}, ""
    for line in text.splitlines():
        if match := re.match(r"\[(\w+)\]$", line):
            table = match.group(1)
        elif match := re.match(r"(\w+) = (.*)$", line):
            found[f"{table}.{match.group(1)}"] = match.group(2)
    return found


def described(text):
    text = text.replace("\\[", "[").replace("\\]", "]")
    found, table = {}, ""
    for line in text.splitlines():
        if match := re.match(r"# \[(\w+)\]$", line):
            table = match.group(1)
        elif line.startswith("# "):
            table = ""
        elif table and line.startswith("**"):
            for key, value in re.findall(r"\*\*(\w+)\*\* = \*([^*]*)\*", line):
                found[f"{table}.{key}"] = value
    return found


def main():
    have, want = (function(open(path, encoding="utf-8").read()) for function, path in zip((shipped, described), sys.argv[1:3]))
    faults = [f"{key} = {have.get(key, 'nothing')} in the file, {want.get(key, 'nothing')} in the page"
              for key in sorted(set(have) | set(want)) if have.get(key) != want.get(key)]
    for fault in faults:
        print(fault)
    if not have:
        print("no key was found in", sys.argv[1])
    return 1 if faults or not have else 0


if __name__ == "__main__":
    sys.exit(main())
