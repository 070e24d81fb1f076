#!/usr/bin/env python3
"""Measures real, unmodified CUDA programs (PyTorch: bench/programs/torch_suite.py) beside a renderer.

  bench/real_programs.py --output docs/results       every program, 5 runs of each configuration: real_programs.json and a table
  bench/real_programs.py --programs sdpa --runs 1    one look
  bench/real_programs.py --continue docs/results/real_programs.json     go on with a run that was cut short, or add to one: up to 5 runs in all

Configurations, by the process that measures them, since no two processes are equally fast on the CPU:
  alone-native, time-slicing, sliced (frames held to a target of 16.67 ms): native kernels, not attached, one after the other;
  alone: libvuda_fit.so tells the libraries what fits;
  resting, shared: vudactl run --attach --fit-kernels --over-limit reject, compute off the graphics TPCs, beside a renderer that is stopped (SIGSTOP), then
    beside the same one when it draws all it can;
  mixed: vudactl run --attach, native kernels, frames held to that target.
Percentages are of the same run. Results are compared within each run, from run to run, and with those of native kernels alone. A kernel that cannot
share is refused (shared), or runs on a TSG of CUDA's own in turns with the renderer (mixed), or is refused there too; rows say so.

The file is written after each process and holds every run, with its date and driver. --continue needs the same GPU, driver, CUDA, commit, PyTorch and
options, and refuses otherwise; frames have the iterations of the first session.

Exit status: as bench/corun.py; 77 when this machine has no NVIDIA GPU or no PyTorch.
"""

import argparse
import json
import os
import shlex
import sys

import corun
from corunlib import commands, hardware, real
from corunlib.errors import CorunError
from corunlib.split import Splitter


def parse_arguments(argv):
    # No abbreviations: --continue is found again to take it out of the command that the file holds.
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    hardware.add_arguments(parser, "real_programs.json goes", 0.5, "for each program in each run")
    parser.add_argument("--programs", help="comma-separated; default: all")
    parser.add_argument("--configs", default=",".join(real.CONFIGS), help="comma-separated; default: all")
    parser.add_argument("--python", default="python3", help="the one that has PyTorch")
    parser.add_argument("--continue", dest="earlier", metavar="FILE", help="add runs to those of an earlier file, up to --runs in all; to its folder unless there is --output")
    options = parser.parse_args(argv)
    options.configs = hardware.list_of(parser, options.configs, real.CONFIGS, "configuration")
    if options.runs < 1:
        parser.error("--runs must be positive")
    hardware.complete(options, kernel_us=720)
    if options.earlier and not options.output:
        options.output = os.path.dirname(os.path.abspath(options.earlier))
    return options


def without_continue(argv):
    """The words that make the whole file in one session."""
    before = ["", *argv[:-1]]
    return [word for word, last in zip(argv, before) if last != "--continue" and word != "--continue" and not word.startswith("--continue=")]


def read_earlier(path):
    """A file that can be continued."""
    try:
        with open(path, encoding="utf-8") as file:
            earlier = json.load(file)
    except (OSError, ValueError) as error:
        raise CorunError(f"--continue {path}: {error}") from error
    if not isinstance(earlier, dict) or earlier.get("experiment") != "real_programs":
        raise CorunError(f"--continue {path}: it is no result file of real_programs")
    if "measured" not in earlier or "options" not in earlier:
        raise CorunError(f"--continue {path}: it does not hold the values of single runs, so none can be added")
    return earlier


def differences(earlier, facts, chosen):
    """Why runs of now do not belong with those of an earlier file: ["driver: 1 there, 2 here", ...]."""
    pairs = [(key, earlier.get(key), facts[key]) for key in ("gpu", "driver", "cuda", "commit")]
    pairs += [(key, earlier["options"].get(key), value) for key, value in chosen.items()]
    return [f"{key}: {there} there, {here} here" for key, there, here in pairs if there != here]


def measured_so_far(earlier, options, facts, chosen):
    if not earlier:
        return real.Measured()
    found = differences(earlier, facts, chosen)
    if found:
        raise CorunError(f"--continue {options.earlier}: it was measured otherwise: {'; '.join(found)}")
    measured = real.Measured(earlier["measured"])
    have = [measured.count(config) for config in options.configs]
    if min(have) >= options.runs:
        raise CorunError(f"--continue {options.earlier}: it holds {min(have)} runs; --runs says how many there shall be in all")
    return measured


def patience(work):
    """vudad's words: a renderer that is stopped for the while of a measurement is not taken for one that hangs."""
    path = os.path.join(work, "vudad.toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write("[liveness]\nheartbeat_ms = 600000\nrelease_ms = 0\n")
    return ["--config", path]


def main(argv):
    options = parse_arguments(argv)
    torch = ""
    if os.path.exists("/dev/nvidiactl"):
        found = commands.run([options.python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=False)
        if found.returncode != 0:
            print(f"real_programs: {options.python} has no PyTorch; nothing is measured", file=sys.stderr)
            return 77
        torch = found.stdout.strip()
    try:
        earlier = read_earlier(options.earlier) if options.earlier else None
    except CorunError as error:
        corun.say(f"real_programs: {error}")
        return 69
    if earlier:
        # The same frames, not ones that take as long today.
        options.frame_iterations = earlier["options"].get("frame_iterations")

    def body(stack, runner, facts):
        command = [options.python, os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "torch_suite.py")]
        command += ["--seconds", f"{options.seconds:g}", *(["--programs", options.programs] if options.programs else [])]
        fit_library = os.path.join(os.path.abspath(options.bin), "lib", "libvuda_fit.so")
        suite = real.SuiteRunner(runner, Splitter(stack), command, fit_library)
        chosen = {"seconds": options.seconds, "programs": options.programs, "configs": options.configs, "frame_ms": options.frame_ms}
        chosen |= {"frame_iterations": runner.workload.frame_iterations, "torch": torch}
        measured = measured_so_far(earlier, options, facts, chosen)
        facts["command"] = shlex.join(["bench/real_programs.py", *without_continue(argv)])
        file = hardware.result_file(options, "real_programs", facts, {"options": chosen, "measured": measured.runs})

        def origin():
            return {"date": corun.today(), "driver": facts["driver"]}

        stopped = real.measure(suite, options.configs, options.runs, corun.say, measured, origin, lambda: file.progress(measured.rows()))
        file.add(measured.rows(), stopped)
        return real.table(file.rows), measured.problems(), stopped

    return hardware.run("real_programs", options, argv, body, patience)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
