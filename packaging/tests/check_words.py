#!/usr/bin/env python3
"""Compares what vudactl --help offers with what its completions and its manual page know; and the same for other programs' manual pages.

    check_words.py PROGRAM bash|zsh|fish|man FILE

Each command and each long option that --help names, command by command, must be in FILE in the place that belongs to that command, and FILE must
offer no other. Exit status 1 names the differences.
"""
import os
import re
import subprocess
import sys


def help_of(vudactl, *words):
    done = subprocess.run([vudactl, *words, "--help"], capture_output=True, text=True, check=True)
    return done.stdout


def offered(vudactl):
    """{"": global options, command: options}"""
    text = help_of(vudactl)
    part = text[text.index("Subcommands:"):].split("\n\n")[0]
    commands = re.findall(r"^  ([a-z][a-z0-9]*) ", part, re.M)
    result = {"": options_of(text)}
    for command in commands:
        words = options_of(help_of(vudactl, command))
        if command == "driver":
            words |= options_of(help_of(vudactl, "driver", "list"))
        result[command] = words
    return result


def options_of(text):
    part = text[text.index("Options:"):].split("\n\n")[0]
    return set(re.findall(r"(?:^  |,)(?:-\w,)?(--[a-z-]+)", part, re.M))


def words(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


def known_bash(text):
    commands = re.search(r'local commands="([^"]*)"', text).group(1).split()
    result = {"": words(re.search(r'compgen -W "\$commands ([^"]*)"', text).group(1))}
    body = text[text.index("case $command in"):]
    # Labels of the outer case stand eight blanks deep.
    arms = dict()
    for labels, arm in re.findall(r"^ {8}([a-z| ]+|\*)\)(.*?)(?=^ {8}(?:[a-z| ]+|\*)\)|\Z)", body, re.M | re.S):
        for label in labels.split("|"):
            arms[label.strip()] = words(" ".join(re.findall(r'compgen -W "([^"]*)"', arm)))
    for command in commands:
        result[command] = arms.get(command, arms["*"]) | {"--help"}
    return result


def known_zsh(text):
    commands = re.findall(r"""^ {8}['"]([a-z]+):""", text, re.M)
    result = {"": set(re.findall(r"'(?:\([^)]*\))?(--[a-z-]+)", text[text.index("_arguments -C"):text.index("case $state")]))}
    arms = dict()
    for labels, arm in re.findall(r"^ {16}([a-z| ]+|\*)\)(.*?)(?=^ {16}(?:[a-z| ]+|\*)\)|^ {12}esac)", text, re.M | re.S):
        for label in labels.split("|"):
            arms[label.strip()] = set(re.findall(r"'\*?(--[a-z-]+)", arm))  # '*': may be given again
    for command in commands:
        result[command] = arms.get(command, arms["*"])
    return result


def known_fish(text):
    commands = re.search(r"set -l commands (.*)", text).group(1).split()
    result = {command: {"--help"} for command in commands}
    result[""] = {"--help"}
    for condition, option in re.findall(r"""^complete -c vudactl -n ['"]([^'"]*)['"].* -l ([a-z-]+)""", text, re.M):
        if condition.startswith("not "):
            result[""].add("--" + option)
        else:
            for command in condition.split()[1:]:
                result[command].add("--" + option)
    return result


def known_man(text):
    """The Markdown source: commands are paragraphs that begin with **name**; options are \\-- there."""
    text = text.replace("\\-", "-")
    description, body = re.search(r"^# DESCRIPTION\n(.*?)^# (.*?)^# EXIT STATUS", text, re.M | re.S).groups()
    # Of the text only what begins a paragraph is the program's own.
    result = {"": set(re.findall(r"\*\*(--[a-z-]+)\*\*", "\n".join(re.findall(r"^\*\*--.*", description, re.M))))}
    for name, part in re.findall(r"^\*\*([a-z][a-z0-9]*)(?: list)?\*\*(.*?)(?=^\*\*[a-z]|^# |\Z)", body, re.M | re.S):
        result[name] = set(re.findall(r"\*\*(--[a-z-]+)\*\*", part)) | {"--help"}
    return result


def main():
    vudactl, kind, file = sys.argv[1:]
    with open(file, encoding="utf-8") as source:
        text = source.read()
    have = {"bash": known_bash, "zsh": known_zsh, "fish": known_fish, "man": known_man}[kind](text)
    want = offered(vudactl)
    faults = []
    for command in sorted(set(want) | set(have)):
        shown = command or os.path.basename(vudactl)
        if command not in have:
            faults.append(f"command {command} is missing")
        elif command not in want:
            faults.append(f"there is no command {command}")
        else:
            faults += [f"{shown}: {word} is missing" for word in sorted(want[command] - have[command])]
            faults += [f"{shown} has no {word}" for word in sorted(have[command] - want[command])]
    for fault in faults:
        print(f"{file}: {fault}")
    if len(want) < 4:
        print(f"only {len(want)} commands were found in the help of {vudactl}: does its format differ?")
        return 1
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
