#!/usr/bin/env python3
"""Measures what it costs that a renderer's control buffers follow into CUDA's address space, on an NVIDIA GPU.

  bench/mirror.py --bin build/release --output docs/results      writes mirror.json

One-time: attaching with what a Vulkan device maps. Then 1 to 8,192 buffers that the renderer maps while CUDA shares, each call returning when
CUDA has it too: what that takes beyond the same calls with nobody there. Beside it: CUDA export and Vulkan import of as many buffers (of CUDA's
granularity, 2 MiB). And the buffers of a Vulkan program's own (vkAllocateMemory, vkBindBufferMemory), which by rule are not mirrored: what as many of them
take while CUDA shares, against alone, in turns in one renderer (case vulkan-buffers-N). No GPU work uses any of these buffers. The simulated GPU has
no Vulkan driver to do this with: mirror_e2e_test runs there.

Exit status: 0, 1 when something went wrong on the way, 3 at an Xid, 69 not built, 77 no GPU; as bench/corun.py when a signal ended it.
"""

import argparse
import os
import sys
import tempfile

import corun
from corunlib import hardware
from corunlib.errors import RunFailed
from corunlib.identity import Identity
from corunlib.program import Program
from corunlib.results import row
from corunlib.stats import summaries
from corunlib.table import format_table

NAME = "mirror"
PARTS = ("control", "vulkan")
COUNTS = [2**power for power in range(14)]
# Figure 6 of the grafting paper: once, and 8,192 buffers.
AIM_ONCE_MS, AIM_ALL_MS = 6, 20
_SECONDS = 60
_USER_SECONDS = 120
_A_DAY = 86400


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    hardware.add_arguments(parser, "mirror.json goes", 0.5, "not used")
    parser.add_argument("--counts", default=",".join(str(count) for count in COUNTS), help="how many buffers")
    parser.add_argument("--bytes", type=int, default=4096, help="of each control buffer")
    parser.add_argument("--user-bytes", type=int, default=2 << 20, help="of each of a Vulkan program's own buffers")
    parser.add_argument("--parts", default=",".join(PARTS), help="comma-separated: control (buffers that follow), vulkan (buffers that do not)")
    parser.add_argument("--kernel-us", type=float, default=200)
    options = parser.parse_args(argv)
    options.parts = hardware.list_of(parser, options.parts, PARTS, "part")
    try:
        options.counts = [int(count) for count in options.counts.split(",")]
    except ValueError:
        parser.error(f"--counts {options.counts} is not a list of numbers")
    if not all(0 < count <= 8192 for count in options.counts):
        parser.error("--counts: 1 to 8192")
    hardware.complete(options)
    return options


def attached(stack):
    """attach_us and control_buffers of the process that shares; None: none does (yet)."""
    for session in stack.status().get("sessions", ()):
        if session.get("channels_moved"):
            return {"attach_ms": session["attach_us"] / 1000, "control_buffers": session["control_buffers"]}
    return None


def run_once(runner, options):
    """{"renderer": its JSON, "attach": what attached() says}"""
    stack = runner.stack
    device = ["--device", options.device] if options.device else []
    words = ["--counts", ",".join(str(count) for count in options.counts), "--bytes", str(options.bytes), *device]
    directory = tempfile.mkdtemp(prefix="run-", dir=runner.work)
    ready, start, compute_ready = (os.path.join(directory, name) for name in ("ready", "start", "compute.ready"))
    mapping = [stack.program("vuda-bench-mirror"), "renderer", *words, "--ready-file", ready, "--start-file", start]
    running = []
    try:
        renderer = Program("renderer", [*stack.run("--register", NAME, "--require"), *mapping], directory, Identity())
        running.append(renderer)
        renderer.wait_ready(ready, _SECONDS, runner.guard)
        renderer.wait_for(lambda: stack.registered(NAME), 10, "it was registered", runner.guard)
        kernels = runner.workload.compute(_SECONDS, ["--ready-file", compute_ready])
        compute = Program("compute", [*stack.run("--attach", NAME, "--require"), *kernels], directory, Identity())
        running.append(compute)
        compute.wait_ready(compute_ready, _SECONDS, runner.guard)
        compute.wait_for(lambda: attached(stack), 10, "it shared", runner.guard)
        attach = attached(stack)
        open(start, "wb").close()
        answer = renderer.result(_SECONDS, runner.guard)
        late = stack.metric("vuda_mirrors_late_total")
        compute.interrupt()
        compute.result(_SECONDS, runner.guard)
        return {"renderer": answer, "attach": {**attach, "late": late}}
    finally:
        for program in reversed(running):
            program.kill()
        runner.discard(directory, "mirror")


class UserPhases:
    """The turns of vuda-bench-mirror user-buffers."""

    def __init__(self, renderer, folder, guard):
        self._renderer, self._folder, self._guard = renderer, folder, guard
        self._turn = 0

    def measure(self):
        self._turn += 1
        open(os.path.join(self._folder, f"go-{self._turn}"), "wb").close()
        done = os.path.join(self._folder, f"done-{self._turn}")
        self._renderer.wait_for(lambda: os.path.exists(done), _USER_SECONDS, f"phase {self._turn} was over", self._guard)

    def end(self):
        open(os.path.join(self._folder, "end"), "wb").close()


def run_user_buffers(runner, options, say):
    """What the renderer says of its phases: alone and shared in turns, options.runs of each."""
    stack = runner.stack
    directory = tempfile.mkdtemp(prefix="run-", dir=runner.work)
    ready = os.path.join(directory, "ready")
    words = ["--counts", ",".join(str(count) for count in options.counts), "--bytes", str(options.user_bytes), "--phases", directory, "--ready-file", ready]
    words += ["--device", options.device] if options.device else []
    renderer = Program("renderer", [*stack.run("--register", NAME, "--require"), stack.program("vuda-bench-mirror"), "user-buffers", *words], directory, Identity())
    running = [renderer]
    try:
        renderer.wait_ready(ready, _SECONDS, runner.guard)
        renderer.wait_for(lambda: stack.registered(NAME), 10, "it was registered", runner.guard)
        phases = UserPhases(renderer, directory, runner.guard)
        for number in range(1, options.runs + 1):
            phases.measure()
            compute_ready = os.path.join(directory, f"compute-{number}")
            kernels = runner.workload.compute(_A_DAY, ["--ready-file", compute_ready])
            compute = Program("compute", [*stack.run("--attach", NAME, "--require"), *kernels], directory, Identity())
            running.append(compute)
            compute.wait_ready(compute_ready, _SECONDS, runner.guard)
            compute.wait_for(lambda: attached(stack), 10, "it shared", runner.guard)
            phases.measure()
            compute.interrupt()
            compute.result(_SECONDS, runner.guard)
            renderer.wait_for(lambda: not attached(stack), 10, "the program had left", runner.guard)
            say(f"a program's own buffers, run {number} of {options.runs}")
        phases.end()
        return renderer.result(_SECONDS, runner.guard)
    finally:
        for program in reversed(running):
            program.kill()
        runner.discard(directory, "mirror, user buffers")


def user_rows(answer, options):
    """(rows, problems)"""
    alone, shared = answer["phases"][0::2], answer["phases"][1::2]
    rows, problems = [], []
    for count in options.counts:
        pairs = [(by_count(one)[count], by_count(other)[count]) for one, other in zip(alone, shared)]
        short = next((entry for pair in pairs for entry in pair if entry["made"] < count), None)
        if short:
            problems.append(f"{count} buffers: only {short['made']}: {short.get('failed')}")
            continue
        figures = []
        for one, other in pairs:
            sums = [sum(entry[part] for part in ("create_ms", "allocate_ms", "bind_ms")) for entry in (one, other)]
            # Below 0: it was faster in company, by chance.
            figures.append({"alone_ms": sums[0], "shared_ms": sums[1], "cost_ms": sums[1] - sums[0], "free_alone_ms": one["free_ms"], "free_shared_ms": other["free_ms"]})
        rows.append(row(f"vulkan-buffers-{count}", "shared", summaries(figures), 0, f"{answer['bytes']} bytes each: create, allocate, bind; {len(figures)} times alone and shared, in turns", len(figures)))
    return rows, problems


def by_count(entries):
    return {entry["count"]: entry for entry in entries}


def rows_of(runs, imports, options):
    """Rows of all runs: `runs` of run_once(), `imports` of vuda-bench-mirror export-import."""
    rows = [row("attach", "shared", summaries([run["attach"] for run in runs]), 0, "the shim's own part of making a CUDA context that shares", len(runs))]
    for count in options.counts:
        live = []
        for run in runs:
            alone = by_count(run["renderer"]["alone"])[count]
            mirrored = by_count(run["renderer"]["mirrored"])[count]
            live.append(
                {
                    "map_alone_ms": alone["map_ms"],
                    "map_ms": mirrored["map_ms"],
                    "cost_ms": max(0.0, mirrored["map_ms"] - alone["map_ms"]),
                    "map_max_ms": mirrored["map_max_ms"],
                    "allocate_ms": mirrored["memory_ms"] + mirrored["address_ms"],
                }
            )
        rows.append(row(f"buffers-{count}", "mirrored", summaries(live), 0, f"{options.bytes} bytes each, mapped one by one", len(live)))
        if imports:
            beside = [by_count(answer["times"])[count] for answer in imports]
            parts = ("create_ms", "export_ms", "import_ms", "bind_ms")
            values = [{**{part: entry[part] for part in parts}, "cost_ms": sum(entry[part] for part in parts)} for entry in beside]
            rows.append(row(f"buffers-{count}", "export-import", summaries(values), 0, f"{imports[0]['bytes']} bytes each", len(values)))
    for entry in runs[0]["renderer"].get("exports", ()):
        values = [by_count(run["renderer"]["exports"])[entry["count"]] for run in runs]
        metrics = summaries([{key: value[key] for key in value if key.endswith("_ms")} for value in values])
        rows.append(row(f"exports-{entry['count']}", "driver", metrics, 0, "one descriptor each, and one for all; below 0: refused", len(values)))
    return rows


def table_of(rows):
    cost = {(entry["case"], entry["config"]): entry["metrics"]["cost_ms"]["median"] for entry in rows if "cost_ms" in entry["metrics"]}
    lines = []
    for count in dict.fromkeys(case.rsplit("-", 1)[1] for case, _ in cost):
        columns = ((f"buffers-{count}", "mirrored"), (f"buffers-{count}", "export-import"), (f"vulkan-buffers-{count}", "shared"))
        lines.append([count] + [f"{cost[column]:.2f}" if column in cost else "" for column in columns])
    return format_table(["buffers", "mirrored, ms", "CUDA export + Vulkan import, ms", "a program's own, ms more than alone"], lines)


def verdicts(rows):
    def judge(what, value, aim):
        return f"{'ok    ' if value <= aim else 'MISSED'} {what}: {value:.2f} ms (aim: {aim} ms)"

    lines = []
    for entry in rows:
        if entry["case"] == "attach":
            lines.append(judge("attaching, once", entry["metrics"]["attach_ms"]["median"], AIM_ONCE_MS))
        if (entry["case"], entry["config"]) == ("buffers-8192", "mirrored"):
            lines.append(judge("8,192 buffers", entry["metrics"]["cost_ms"]["median"], AIM_ALL_MS))
        if entry["case"] == "vulkan-buffers-8192":
            lines.append(judge("8,192 buffers of a program's own, more than alone", entry["metrics"]["cost_ms"]["median"], AIM_ALL_MS))
    return lines


def main(argv):
    options = parse_arguments(argv)

    def body(stack, runner, facts):
        program = stack.program("vuda-bench-mirror")
        if not os.path.exists(program):
            raise RunFailed(f"{program} is missing; build it with: ninja vuda-bench-mirror")
        device = ["--device", options.device] if options.device else []
        exporter = [program, "export-import", "--counts", ",".join(str(count) for count in options.counts), "--bytes", str(options.bytes), *device]
        runs, imports, problems = [], [], []
        file = hardware.result_file(options, "mirror", facts)
        for number in range(1, options.runs + 1 if "control" in options.parts else 1):
            runs.append(run_once(runner, options))
            if runs[-1]["attach"]["late"]:
                problems.append(f"run {number}: a program was late to mirror a buffer; the renderer went on without it")
            try:
                imports.append(runner.simple("export-import", exporter, Identity(), _SECONDS))
            except RunFailed as error:
                problems.append(f"run {number}: {error}")
            corun.say(f"run {number} of {options.runs}")
            file.progress(rows_of(runs, imports, options))
        if runs:
            file.add(rows_of(runs, imports, options))
        if "vulkan" in options.parts:
            rows, short = user_rows(run_user_buffers(runner, options, corun.say), options)
            file.add(rows)
            problems += short
        return [table_of(file.rows), *verdicts(file.rows)], problems, None

    return hardware.run("mirror", options, argv, body)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
