"""What around a program keeps it out of a renderer's TSG: a debugger, GPU core dumps, MPS. Each is put around one plain case of
vuda-bench-features."""

import contextlib
import os
import shutil
import tempfile

from . import commands

_CASE = "launch"
# And what vudad's reason has to name.
NAMES = {"cuda-gdb": "cuda-gdb", "core-dumps": "core dumps", "mps": "MPS"}
_SECONDS = 20

# As vuda-bench-features lists its own.
LISTED = tuple({"case": name, "risk": "plain", "split": False} for name in NAMES)


def case_of(name):
    """The case of vuda-bench-features that runs there."""
    return _CASE if name in NAMES else name


def missing(name):
    """Why it cannot be tried here; empty: it can."""
    program = {"cuda-gdb": "cuda-gdb", "mps": "nvidia-cuda-mps-control"}.get(name)
    return f"{program} is not installed" if program and not shutil.which(program) else ""


@contextlib.contextmanager
def around(name):
    """What goes before a program's own words while it lasts."""
    if name == "cuda-gdb":
        # Its own answer comes between the debugger's lines.
        yield ["cuda-gdb", "--batch", "-nx", "-ex", "run", "--args"]
    elif name == "core-dumps":
        yield ["env", "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1"]
    elif name == "mps":
        with tempfile.TemporaryDirectory(prefix="vuda-mps-") as directory, _mps(directory) as words:
            yield words
    else:
        yield []


@contextlib.contextmanager
def _mps(directory):
    """A control daemon of our own; it starts its server with the first client. Nothing of the GPU is set."""
    names = {"CUDA_MPS_PIPE_DIRECTORY": directory, "CUDA_MPS_LOG_DIRECTORY": directory}
    environment = {**os.environ, **names}
    commands.run(["nvidia-cuda-mps-control", "-d"], env=environment, check=True, timeout=_SECONDS, capture_output=True)
    try:
        yield ["env", *(f"{name}={value}" for name, value in names.items())]
    finally:
        commands.run(["nvidia-cuda-mps-control"], env=environment, input="quit\n", text=True, check=False, timeout=_SECONDS, capture_output=True)
