#!/usr/bin/env python3
"""Measures a renderer and a compute program on one GPU: each alone, in time slices, and shared through VUDA.

  bench/corun.py                                           the co-run matrix, 5 runs of 5 s of each configuration
  bench/corun.py --cases attach-cost,exec-cost,cycles      what sharing costs
  bench/corun.py --sim --runs 1                            the matrix on the simulated GPU (says nothing about speed)

Starts a vudad of its own on sockets in a temporary directory, and stops everything at the first Xid. Prints tables, and with
--output DIR writes DIR/corun.json and DIR/costs.json (docs/results/README.md describes them).

Result files are written after every run; one that says "complete": false holds what was measured before something ended the program
(docs/results/README.md).

Exit status: 0 all runs valid, 1 some were not, 3 stopped by an Xid, 64 usage, 69 something is missing; 128 and the signal's number (143, 130,
129) when SIGTERM, SIGINT or SIGHUP ended it: its programs are ended, and a line says what the result files hold.
"""

import argparse
import datetime
import os
import shlex
import shutil
import sys
import tempfile

from corunlib import commands, costs, ending, matrix, results, table
from corunlib.errors import CorunError, RunFailed, XidSeen
from corunlib.identity import Identity, ordinary_user, reachable_copy
from corunlib.results import ResultFile
from corunlib.stack import Stack
from corunlib.workload import HardwareWorkload, SimulatedWorkload
from corunlib.xid import FileXidLog, KernelXidLog, NoXidLog

MATRIX_CASES = ("two-process", "one-process", "two-process-user")
COST_CASES = ("attach-cost", "exec-cost", "cycles")
SIM_CASES = ("two-process", "two-process-user", "exec-cost")


def default_prefix():
    """The pack that this file is part of (pack.sh), else the release build."""
    top = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return top if os.path.exists(os.path.join(top, "bin", "vudactl")) else os.path.join(top, "build", "release")


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=default_prefix(), metavar="DIR", help="build or packed tree: has bin/ and lib/")
    parser.add_argument("--cases", default=None, help=f"comma-separated: {','.join(MATRIX_CASES + COST_CASES)}; default: the first three")
    parser.add_argument("--runs", type=int, default=5, help="repetitions of each configuration")
    parser.add_argument("--seconds", type=float, default=5, help="of measuring in each run")
    parser.add_argument("--output", metavar="DIR", help="where result files go; without it only tables are printed")
    parser.add_argument("--merge", action="store_true", help="keep an existing result file's other cases, if from the same set-up")
    parser.add_argument("--sim", action="store_true", help="on the simulated GPU")
    parser.add_argument("--commit", help="what is measured; default: git's HEAD, or DIR/COMMIT")
    parser.add_argument("--ignore-xids", action="store_true", help="go on without the kernel log; results say so")
    parser.add_argument("--log", metavar="FILE", help="append what vudad and every program wrote (VUDA_LOG=debug says more)")
    load = parser.add_argument_group("load")
    load.add_argument("--device", help="GPU UUID")
    load.add_argument("--width", type=int, default=1920)
    load.add_argument("--height", type=int, default=1080)
    load.add_argument("--render-load", choices=("fragment", "vertex"), default="fragment")
    load.add_argument("--draws", type=int, default=1)
    load.add_argument("--fps", type=float, default=0.0, help="0: free-running")
    load.add_argument("--frames-in-flight", type=int, default=2)
    load.add_argument("--frame-ms", type=float, default=10, help="GPU time of a frame, chosen once at the start")
    load.add_argument("--frame-iterations", type=int, help="instead of --frame-ms")
    load.add_argument("--compute-load", choices=("fma", "memory", "tiny"), default="fma")
    load.add_argument("--kernel-us", type=float, default=720, help="time of a launch, chosen once at the start")
    load.add_argument("--kernel-iterations", type=int, help="instead of --kernel-us")
    load.add_argument("--blocks", type=int, default=0, help="of a kernel; 0: as many as fill every multiprocessor")
    load.add_argument("--smem", type=int, default=0)
    parser.add_argument("--experiment", default="corun", help="name of the matrix's result file; a variant of the load needs its own")
    cost = parser.add_argument_group("costs")
    cost.add_argument("--attach-runs", type=int, default=10, help="contexts of each kind for attach-cost")
    cost.add_argument("--cycle-count", type=int, default=50)
    cost.add_argument("--cycles-in-process", action="store_true", help="one process makes all contexts")
    options = parser.parse_args(argv)
    known = ("two-process",) if options.sim else MATRIX_CASES
    options.cases = options.cases.split(",") if options.cases else list(known)
    for case in options.cases:
        if case not in MATRIX_CASES + COST_CASES:
            parser.error(f"unknown case '{case}'")
        if options.sim and case not in SIM_CASES:
            parser.error(f"the simulated GPU has no case '{case}', only {', '.join(SIM_CASES)}")
    if options.runs < 1 or options.attach_runs < 1 or options.seconds <= 0:
        parser.error("--runs, --attach-runs and --seconds must be positive")
    return options


def find_commit(options, prefix):
    if options.commit:
        return options.commit
    marker = os.path.join(prefix, "COMMIT")
    if os.path.exists(marker):
        with open(marker, encoding="ascii") as file:
            return file.read().strip()
    here = os.path.dirname(os.path.abspath(__file__))
    done = commands.run(["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def kernel_driver():
    try:
        with open("/sys/module/nvidia/version", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def say(text):
    print(text, file=sys.stderr, flush=True)


def today():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")


def learn_facts(options, prefix, runner, argv):
    """Chooses the loads, and finds out what we run on."""
    answers = runner.calibrate(Identity())
    render = answers.get("calibrate-render") or runner.simple("render", runner.workload.native() + runner.workload.render(0.2), Identity())
    compute = answers.get("calibrate-compute") or runner.simple(
        "compute", runner.workload.native() + runner.workload.compute(0.2), Identity()
    )
    facts = {
        "gpu": render.get("gpu", ""),
        "driver": kernel_driver() or render.get("driver", ""),
        "cuda": compute.get("cuda", ""),
        "date": today(),
        "commit": find_commit(options, prefix),
        "command": shlex.join(["bench/corun.py", *argv]),
        "runs": options.runs,
    }
    if options.sim:
        # vudad's note names the GPU that is played, e.g. "simulated GPU 'h200'".
        note = runner.stack.status()["daemon"]["driver"]["note"]
        facts.update(gpu=note or "simulated GPU", driver="simulated", cuda="simulated")
    elif render.get("uuid") and compute.get("uuid") and render["uuid"] != compute["uuid"]:
        raise CorunError(f"Vulkan and CUDA use two GPUs, {render['uuid']} and {compute['uuid']}: choose one with --device UUID")
    if options.sim:
        say(f"{facts['gpu']}, commit {facts['commit'][:12]}")
    else:
        say(f"{facts['gpu']}, driver {facts['driver']}, CUDA {facts['cuda']}, commit {facts['commit'][:12]}")
        say(
            f"load: {render['iterations']} iterations a frame ({render.get('gpu_p50_ms', render['frame_p50_ms']):.2f} ms), "
            f"{compute['iterations']} a kernel ({compute['latency_p50_ms']:.3f} ms)"
        )
    return facts


class Session:
    """One call of this program: what it has measured and what went wrong."""

    def __init__(self, options, facts):
        def file(name, experiment, cases):
            path = os.path.join(options.output, name) if options.output else None
            result = ResultFile(path, experiment, facts)
            if path and options.merge:
                result.keep_other_cases(lambda case: case in cases)
            return result

        self.corun = file(f"{options.experiment}.json", options.experiment, options.cases)
        self.costs = file("costs.json", "costs", options.cases)
        self.problems = []
        self.verdicts = []
        self.xid = False

def run_costs(case, options, runner, session):
    if case == "attach-cost":
        rows, verdicts = costs.attach_cost(runner, Identity(), options.attach_runs, say, session.costs.progress)
    elif case == "exec-cost":
        rows, verdicts = costs.exec_cost(runner, say)
    else:
        rows, verdicts = costs.cycles(runner, Identity(), options.cycle_count, options.cycles_in_process, say)
    xid = any(entry["xids"] for entry in rows)
    session.costs.add(rows, xid)
    session.verdicts += verdicts
    session.xid = session.xid or xid


def noted(options, rows):
    if options.ignore_xids:
        for entry in rows:
            entry["note"] = "; ".join(filter(None, [entry["note"], "Xids not watched"]))
    return rows


def run_cases(options, runner, work, session):
    """Why not all of them came to their end, or None."""
    for case in options.cases:
        if case in COST_CASES:
            try:
                run_costs(case, options, runner, session)
            except RunFailed as error:
                session.problems.append(f"{case}: {error}")
                say(f"{case}: FAILED: {error}")
            except XidSeen as error:
                session.problems.append(f"{case}: stopped at {error}")
                session.xid = True
            stopped = "; ".join(filter(None, [f"{case}: an Xid", *session.problems])) if session.xid else None
        else:
            identity = ordinary_user(work) if case == "two-process-user" else Identity()
            if case == "two-process-user":
                say("two-process-user: as user %d" % (identity.uid if identity.uid is not None else os.getuid()))
            rows, problems, stopped = matrix.run_case(runner, case, identity, options.runs, say, lambda rows: session.corun.progress(noted(options, rows)))
            session.corun.add(noted(options, rows), stopped)
            session.problems += problems
            session.xid = session.xid or any(entry["xids"] for entry in rows)
            if not options.sim:
                session.verdicts += table.target_lines(case, rows)
        if stopped:
            say("stopped: later cases are not run")
            return stopped
    return None


def report(options, session):
    if options.sim:
        print("Simulated GPU: these figures show how VUDA works, and say nothing about the speed of any hardware.\n")
    for case in dict.fromkeys(entry["case"] for entry in session.corun.rows):
        print(table.corun_table(case, session.corun.rows) + "\n")
    if session.costs.rows:
        print(table.cost_table(session.costs.rows) + "\n")
    for line in session.verdicts:
        print(line)
    for problem in session.problems:
        print("problem: " + problem)
    sys.stdout.flush()


def open_xid_log(options, stack):
    if options.sim:
        return FileXidLog(stack.log)
    return NoXidLog() if options.ignore_xids else KernelXidLog()


def main(argv):
    options = parse_arguments(argv)
    return ending.orderly("corun", lambda: measure(options, argv))


def measure(options, argv):
    work = tempfile.mkdtemp(prefix="vuda-corun-")
    try:
        os.chmod(work, 0o755)
        prefix = os.path.abspath(options.bin)
        if options.log:
            options.log = os.path.abspath(options.log)
        if not os.path.isdir(os.path.join(prefix, "bin")):
            raise CorunError(f"{options.bin} has no bin/: build first, or name another tree with --bin")
        if options.output:
            os.makedirs(options.output, exist_ok=True)
        if "two-process-user" in options.cases:
            user = ordinary_user(work)
            if not user.can_run(os.path.join(prefix, "bin", "vudactl")):
                prefix_commit = find_commit(options, prefix)
                prefix = reachable_copy(prefix, work)
                options.commit = prefix_commit
        with Stack(prefix, work, options.sim) as stack:
            workload = (SimulatedWorkload if options.sim else HardwareWorkload)(stack, options)
            xids = open_xid_log(options, stack)
            try:
                runner = matrix.Runner(stack, workload, xids, options.seconds, work, options.log)
                session = Session(options, learn_facts(options, prefix, runner, argv))
                stopped = run_cases(options, runner, work, session)
                if stopped:
                    results.stop_all(stopped)
                else:
                    results.finish_all()
            finally:
                xids.close()
                if options.log:
                    stack.append_log(options.log)
        report(options, session)
        return 3 if session.xid else 1 if session.problems else 0
    except (CorunError, RunFailed) as error:
        results.stop_all(str(error))
        say(f"corun: {error}")
        return 69
    except XidSeen as error:
        results.stop_all(str(error))
        say(f"corun: stopped at {error}")
        return 3
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
