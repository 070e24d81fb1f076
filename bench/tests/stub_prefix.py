"""A make-believe installation for testing bench/corun.py: programs that answer at once, and a vudactl that marks what it starts.

What goes wrong is asked for by STUB_* environment variables (see STUB below)."""

import os
import stat
import sys

STUB = r'''
import json, os, signal, socket, sys, time

name = os.path.basename(sys.argv[0])
arguments = sys.argv[1:]
shared = os.environ.get("STUB_SHARED")


def option(flag, default=None):
    return arguments[arguments.index(flag) + 1] if flag in arguments else default


def touch(path):
    open(path, "w").close()


def vudad():
    if os.environ.get("STUB_NO_VUDAD"):
        sys.exit("no GPU, no luck")
    state = os.path.join(os.path.dirname(option("--socket")), "state")
    os.mkdir(state)
    os.chmod(state, 0o777)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.sendto(b"READY=1\nSTATUS=stub", os.environ["NOTIFY_SOCKET"])
    signal.sigwait([signal.SIGTERM])


def alive(pid):
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


def attach(state, to):
    attached = os.path.join(state, "attached")
    with open(attached, "w") as file:
        file.write(to)
    with open(attached + ".pid", "w") as file:
        file.write(str(os.getpid()))
    if not os.environ.get("STUB_NATIVE"):
        with open(os.path.join(state, "attaches"), "a") as file:
            file.write(".")


def vudactl():
    state = os.path.join(os.path.dirname(arguments[1]), "state")
    words = arguments[2:]
    registered, attached, split, target = (os.path.join(state, kind) for kind in ("registered", "attached", "split", "target"))
    if words[0] == "mode":
        with open(split, "w") as file:
            file.write(words[2])
        os.chmod(split, 0o666)
        return
    if words[0] == "slo":
        if "--frame-ms" in words:
            with open(target, "w") as file:
                file.write(words[words.index("--frame-ms") + 1])
        return
    if words[0] == "quota":
        if os.environ.get("STUB_NO_QUOTA"):
            sys.exit("vudactl: no such split")
        print(f"{words[1]}: compute may use {words[2]}, in force after 0.50 ms")
        return
    if words[0] == "status":
        answer = {"daemon": {"driver": {"note": "simulated GPU 'stub'"}}, "tsgs": [], "sessions": []}
        mode = open(split).read() if os.path.exists(split) else "intra-sm"
        partition = {"mode": mode, "applied_tpcs": 2 if mode == "inter-sm" else 3, "generation": 1, "topology": {"tpcs": 3}}
        if os.path.exists(target):
            partition["frame_us"] = round(1000 * float(open(target).read()))
        if os.path.exists(registered):
            answer["tsgs"].append({"name": open(registered).read(), "partition": partition})
        if os.path.exists(attached) and alive(int(open(attached + ".pid").read())):
            session = {"name": open(attached).read(), "attach_us": 12345, "channels_moved": 8,
                       "backend": "qmd-mask", "applied_generation": 1, "peer": {"pid": int(open(attached + ".pid").read()), "program": "vuda-bench-features"}, "state": "sharing"}
            session["control_buffers"] = 84
            session["launches_native"] = 0 if os.environ.get("STUB_NO_NATIVE") else 3
            if os.environ.get("STUB_NATIVE"):
                session.update(backend="none", state="unshared", reason={"text": os.environ["STUB_NATIVE"]})
            answer["sessions"].append(session)
        print(json.dumps(answer))
        return
    attaches = os.path.join(state, "attaches")
    if words[0] == "metrics":
        count = os.path.getsize(attaches) if os.path.exists(attaches) else 0
        print(f'# HELP x y\nvuda_attaches_total{{result="sharing"}} {count}\nvuda_attach_seconds_total {count * 0.012}')
        return
    env = dict(os.environ, LD_PRELOAD=os.environ.get("STUB_PRELOAD", ""))
    if "--register" in words:
        with open(registered, "w") as file:
            file.write(words[words.index("--register") + 1])
    if "--attach" in words:
        env["STUB_STATE"] = state
        # A suite attaches when it makes its context.
        if not any(word.endswith("stub-python") for word in words):
            attach(state, words[words.index("--attach") + 1])
    if any(flag in words for flag in ("--register", "--attach", "--share")):
        env["STUB_SHARED"] = "1"
    if "--attach" in words and os.environ.get("STUB_REFUSE"):
        sys.exit("vudactl: the daemon refused")
    command = words[words.index("--") + 1:]
    os.execvpe(command[0], command, env)


def measured(start=option("--start-file")):
    """What every load does: get ready, wait for the start, run, answer."""
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    if option("--ready-file"):
        touch(option("--ready-file"))
    while start and not os.path.exists(start) and not stop:
        time.sleep(0.005)
    if os.environ.get("STUB_HANG") == name and shared:
        time.sleep(600)
    if os.environ.get("STUB_XID") and shared and name == "vuda-bench-compute":
        with open(os.environ["STUB_XID"], "a") as file:
            file.write("6,1,2,-;NVRM: Xid (PCI:0000:00:04): 31, pid=1, name=stub\n")
        time.sleep(600)
    if os.environ.get("STUB_SIGNAL") and shared and name in ("vuda-bench-compute", "stub-python"):
        os.kill(int(os.environ["STUB_SIGNAL"]), signal.SIGTERM)
        time.sleep(600)
    seconds = float(option("--seconds", "0"))
    end = time.monotonic() + (min(seconds, float(os.environ.get("STUB_SECONDS", "0.02"))) if seconds else 600)
    while time.monotonic() < end and not stop and "--cycles" not in arguments:
        time.sleep(0.002)


def renderer():
    wrong = 1 if os.environ.get("STUB_WRONG_PIXELS") and shared else 0
    checksum = "5eed" if os.environ.get("STUB_OTHER_IMAGE") and shared else "c0ffee"
    return {
        "gpu": "Stub GPU", "uuid": "GPU-1", "driver": "1.0", "iterations": 77, "fps": 99.0 if shared else 100.0,
        "frame_p50_ms": 10.0, "frame_p99_ms": 10.5, "checksum": checksum, "checked_frames": 50, "checksum_errors": wrong,
        "drawn_frames": 51 if os.environ.get("STUB_UNCHECKED") else 50,
    }, wrong


def suite():
    """torch_suite.py, of the programs that it was told."""
    if arguments[0] == "-c":
        return 1 if os.environ.get("STUB_NO_TORCH") else 0
    while option("--context-file") and not os.path.exists(option("--context-file")):
        time.sleep(0.002)
    if shared:
        attach(os.environ["STUB_STATE"], "corun")
    if "--verify" not in arguments:
        for start in [word for before, word in zip(arguments, arguments[1:]) if before == "--start-file"]:
            measured(start)
            print(json.dumps({"programs": {name: {"rate": 1000.0, "p50_ms": 1.0, "p99_ms": 1.1, "checksum": 10.0} for name in option("--programs").split(",")}}), flush=True)
        return 0
    measured()
    answer = {"checks": 9, "wrong": 0, "exact": True, "bits": "b", "sum": 1.0, "text": ""}
    programs = {name: dict(answer, as_alone=True) for name in option("--programs").split(",")}
    wish = json.loads(os.environ.get("STUB_SUITE", "{}")) if shared else {}
    programs.update({name: {**answer, **figures} if "error" not in figures else figures for name, figures in wish.items()})
    print(json.dumps({"seconds": float(option("--seconds")), "programs": programs}))
    return 1 if any(one.get("wrong") for one in programs.values()) else 0


def features():
    """One case; STUB_FEATURES is JSON: {"CASE, alone" or "CASE, shared": what to answer otherwise, or "hang", "xid", "silent"}."""
    if "--list" in arguments:
        print(os.environ["STUB_LIST"])
        return 0
    case = option("--case")
    wish = json.loads(os.environ.get("STUB_FEATURES", "{}")).get(f"{case}, {'shared' if shared else 'alone'}", {})
    if wish == "silent":
        return 134
    touch(option("--ready-file"))
    while not os.path.exists(option("--start-file")):
        time.sleep(0.002)
    if wish == "xid":
        with open(os.environ["STUB_XID"], "a") as file:
            file.write("6,1,2,-;NVRM: Xid (PCI:0000:00:04): 31, pid=1, name=stub\n")
    if wish == "renderer":  # takes it along
        os.kill(int(open(os.environ["STUB_RENDERER"]).read()), signal.SIGKILL)
    if wish in ("hang", "xid", "renderer"):
        time.sleep(600)
    time.sleep(0.05)
    touch(option("--done-file"))
    while not os.path.exists(option("--end-file")):
        time.sleep(0.002)
    answer = {"outcome": "passed", "checksum": "5eed", "rounds": 3, "first_ms": 4.0, "round_p50_ms": 2.0, **wish}
    print(json.dumps(answer))
    return 0 if answer["outcome"] == "passed" else 70


def compute():
    wrong = 1 if os.environ.get("STUB_WRONG_RESULT") and shared else 0
    # Frames of 10 ms every 16.5 ms, and what comes after each.
    holes = [hole for i in range(30) for hole in ([16.5 * i + 4.0, 10.3], [16.5 * i + 14.5, 0.3])]
    return {
        **({"holes": holes} if "--report-holes" in arguments else {}),
        "uuid": os.environ.get("STUB_CUDA_UUID", "GPU-1"), "cuda": "13.0", "iterations": 88, "rate": 900.0 if shared else 1000.0,
        "latency_p50_ms": 0.7, "latency_p99_ms": 0.8, "context_ms": 120.0 if shared else 100.0,
        "cycles": int(option("--cycles", "0")), "launches": 100, "result_errors": wrong,
        "seconds": 0.0 if os.environ.get("STUB_NO_TIME") and shared else float(option("--seconds", "0")),
    }, wrong


if name in ("vudad", "vudactl"):
    globals()[name]()
elif name == "vuda-bench-both":
    measured()
    sides = {"render": renderer(), "compute": compute()}
    only = option("--only")
    keys = {"render": "renderer", "compute": "compute"}
    print(json.dumps({keys[s]: answer for s, (answer, _) in sides.items() if only in (None, s)}))
elif name == "vuda-bench-features":
    sys.exit(features())
elif name == "stub-python":
    sys.exit(suite())
else:
    if os.environ.get("STUB_RENDERER") and name in ("vuda-bench-render", "vuda-bench-mirror"):
        with open(os.environ["STUB_RENDERER"], "w") as file:
            file.write(str(os.getpid()))
    if os.environ.get("STUB_SAY_COMMAND"):
        print("stub:", name, *arguments, file=sys.stderr)
    begun = time.monotonic()
    measured()
    if os.environ.get("STUB_LOST") and shared and "compute" in name:
        print(json.dumps({"device_lost": True, "error": "the GPU was lost"}))
        sys.exit(75)
    answer, status = compute() if "compute" in name else renderer()
    if "--report-trace" in arguments:  # a frame every 10 ms
        answer["trace"] = [[1000 * begun + 10 * i, 12.0] for i in range(int(100 * (time.monotonic() - begun)))]
    print(json.dumps(answer))
    sys.exit(status)
'''


# Every user must reach the interpreter, which one under a home directory does not allow.
INTERPRETER = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable


def make(directory):
    """Fills directory/bin."""
    programs = os.path.join(directory, "bin")
    os.makedirs(programs)
    for name in (
        "vudad",
        "vudactl",
        "vuda-bench-render",
        "vuda-bench-compute",
        "vuda-bench-both",
        "vuda-bench-features",
        "vuda-bench-mirror",
        "stub-python",
        "vuda-sim-renderer",
        "vuda-sim-compute",
    ):
        path = os.path.join(programs, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(f"#!{INTERPRETER}\n{STUB}")
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return directory
