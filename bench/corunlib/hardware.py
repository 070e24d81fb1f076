"""What the programs that measure on an NVIDIA GPU have in common: options, set-up, and how they end."""

import os
import shutil
import sys
import tempfile

import corun

from . import ending, results
from .errors import CorunError, RunFailed, XidSeen
from .matrix import Runner
from .stack import Stack
from .workload import HardwareWorkload, SimulatedWorkload
from .xid import FileXidLog, KernelXidLog, NoXidLog


def add_arguments(parser, output, seconds, seconds_help="of measuring in each run", runs=5):
    """`output`: what goes to --output's folder."""
    parser.add_argument("--bin", default=corun.default_prefix(), metavar="DIR", help="build or packed tree: has bin/ and lib/")
    parser.add_argument("--runs", type=int, default=runs, help="repetitions of each configuration")
    parser.add_argument("--seconds", type=float, default=seconds, help=seconds_help)
    parser.add_argument("--output", metavar="DIR", help=f"where {output}; without it only lines are printed")
    parser.add_argument("--commit", help="what is measured; default: git's HEAD, or DIR/COMMIT")
    parser.add_argument("--ignore-xids", action="store_true", help="go on without the kernel log")
    parser.add_argument("--log", metavar="FILE", help="append what vudad and every program wrote")
    parser.add_argument("--device", help="GPU UUID")
    parser.add_argument("--frame-ms", type=float, default=10)


def list_of(parser, names, known, what):
    names = names.split(",")
    for name in names:
        if name not in known:
            parser.error(f"unknown {what} '{name}'")
    return names


def complete(options, **others):
    """What HardwareWorkload wants to know beyond those options; `others` instead."""
    workload = {"sim": False, "smem": 0, "fps": 0.0, "draws": 1, "width": 1920, "height": 1080, "frames_in_flight": 2}
    workload |= {"frame_iterations": None, "kernel_iterations": None, "render_load": "fragment", "compute_load": "fma", "blocks": 0}
    for name, value in {**workload, **others}.items():
        setattr(options, name, value)


def _open_xid_log(options, stack):
    if options.ignore_xids:
        return NoXidLog()
    return FileXidLog(stack.log) if _simulated(options) else KernelXidLog()


def _simulated(options):
    return getattr(options, "sim", False)


def result_file(options, experiment, facts, more=None):
    """One that --output asks for; `more`: further keys."""
    return results.ResultFile(os.path.join(options.output, experiment + ".json") if options.output else None, experiment, facts, more)


def run(program, options, argv, body, vudad=None):
    """The whole of a measuring program: `body(stack, runner, facts)` returns (lines to print, problems, why it stopped or None). Exit status.
    `vudad(work)`: further words for vudad's command line; what they name goes to the folder `work`."""
    if not _simulated(options) and not os.path.exists("/dev/nvidiactl"):
        more = " (--sim: on a simulated one)" if hasattr(options, "sim") else ""
        print(f"{program}: this machine has no NVIDIA GPU; nothing is measured{more}", file=sys.stderr)
        return 77
    return ending.orderly(program, lambda: _run(program, options, argv, body, vudad))


def _run(program, options, argv, body, vudad):
    simulated = _simulated(options)
    work = tempfile.mkdtemp(prefix=f"vuda-{program}-")
    say = corun.say
    try:
        os.chmod(work, 0o755)
        prefix = os.path.abspath(options.bin)
        if options.output:
            os.makedirs(options.output, exist_ok=True)
        more = {name: value for name, value in (("simulated", simulated), ("options", vudad and vudad(work))) if value}
        with Stack(prefix, work, **more) as stack:
            xids = _open_xid_log(options, stack)
            workload = (SimulatedWorkload if simulated else HardwareWorkload)(stack, options)
            runner = Runner(stack, workload, xids, options.seconds, work, options.log)
            facts = corun.learn_facts(options, prefix, runner, argv)
            facts["command"] = facts["command"].replace("bench/corun.py", f"bench/{program}.py", 1)
            lines, problems, stopped = body(stack, runner, facts)
            if stopped:
                results.stop_all(stopped)
            else:
                results.finish_all()
            if options.log:
                stack.append_log(options.log)
            xids.close()
        for text in lines:
            print(text)
        for problem in problems:
            print("problem: " + problem)
        return 3 if stopped and xids.seen else 1 if problems else 0
    except (CorunError, RunFailed) as error:
        results.stop_all(str(error))
        say(f"{program}: {error}")
        return 69
    except XidSeen as error:
        results.stop_all(str(error))
        say(f"{program}: stopped at {error}")
        return 3
    finally:
        shutil.rmtree(work, ignore_errors=True)
