"""The command lines of the measured programs, on hardware and on the simulated GPU, behind one face."""

from .errors import CorunError


class HardwareWorkload:
    """vuda-bench-render, vuda-bench-compute and vuda-bench-both."""

    simulated = False
    comparable_images = True

    def __init__(self, stack, options):
        self._stack = stack
        self._options = options
        self.frame_iterations = options.frame_iterations
        self.kernel_iterations = options.kernel_iterations
        self.render_program = ("vuda-bench-render",)
        self.render_extra = []  # words for every renderer's command line

    def _render_options(self, prefix="", fps=None):
        o = self._options
        words = {
            "width": o.width,
            "height": o.height,
            "load": o.render_load,
            "draws": o.draws,
            "fps": o.fps if fps is None else fps,
            "frames-in-flight": o.frames_in_flight,
            "iterations": self.frame_iterations,
        }
        return _words(words, prefix)

    def _compute_options(self, prefix="", load=None, smem=None):
        o = self._options
        words = {"load": load or o.compute_load, "smem": o.smem if smem is None else smem, "iterations": self.kernel_iterations}
        if o.blocks:
            words["blocks"] = o.blocks
        return _words(words, prefix)

    def _common(self, seconds, gate):
        words = ["--json", "--seconds", f"{seconds:g}"]
        if self._options.device:
            words += ["--device", self._options.device]
        return words + gate

    def render(self, seconds, gate=(), fps=None):
        """`fps` paces it otherwise than the options say."""
        return [
            self._stack.program(self.render_program[0]),
            *self.render_program[1:],
            *self._render_options(fps=fps),
            *self._common(seconds, list(gate)),
            *self.render_extra,
        ]

    def compute(self, seconds, gate=(), extra=(), load=None, smem=None):
        """`load`, `smem`: others than the options say."""
        return [
            self._stack.program("vuda-bench-compute"),
            *self._compute_options(load=load, smem=smem),
            *self._common(seconds, list(gate)),
            *extra,
        ]

    def steps(self, fps):
        """Extra words for compute(): steps that VUDA is told of, each with its trace; `fps` 0: one after the other."""
        return ["--report-trace", "--mark-steps", "--fps", f"{fps:g}"]

    def both(self, only, seconds, gate=()):
        words = [
            self._stack.program("vuda-bench-both"),
            *self._render_options("render-"),
            *self._compute_options("compute-"),
            *self._common(seconds, list(gate)),
        ]
        return words + (["--only", only] if only else [])

    def calibrations(self):
        """[(label, command, what to do with its JSON)]: chooses the loads once, so that every run does the same work."""
        o = self._options

        def take_frame(answer):
            self.frame_iterations = answer["iterations"]

        def take_kernel(answer):
            self.kernel_iterations = answer["iterations"]

        steps = []
        if self.frame_iterations is None:
            self.frame_iterations = 500
            steps.append(("calibrate-render", self.render(0.5) + ["--target-frame-ms", f"{o.frame_ms:g}"], take_frame))
        if self.kernel_iterations is None:
            self.kernel_iterations = 1 if o.compute_load == "memory" else 20000
            calibrate = [] if o.compute_load == "tiny" else ["--kernel-us", f"{o.kernel_us:g}"]
            steps.append(("calibrate-compute", self.compute(0.5) + calibrate, take_kernel))
        return steps

    def native(self):
        """Words before a program that runs without VUDA."""
        return []


class SimulatedWorkload:
    """vuda-sim-renderer and vuda-sim-compute: the drivers' stand-ins on the simulated GPU."""

    simulated = True
    # Their checksums cover how many frames there were, so those of two runs differ.
    comparable_images = False

    def __init__(self, stack, options):
        self._stack = stack
        self._options = options
        self.render_extra = []  # words for every renderer's command line

    def render(self, seconds, gate=(), fps=None):
        o = self._options
        words = {"frame-ms": float(o.frame_ms), "draws": o.draws, "fps": fps or o.fps or "free", "seconds": float(seconds)}
        # As the measured renderer, which copies each image to the host.
        words["gap-ms"] = 0.33
        return [self._stack.program("vuda-sim-renderer"), *_words(words, ""), *gate, *self.render_extra]

    def steps(self, fps):
        """As HardwareWorkload's; the stand-in tells VUDA of its kernels anyway."""
        return ["--report-trace", "--fps", f"{fps:g}"]

    def compute(self, seconds, gate=(), extra=()):
        o = self._options
        words = {"kernel-ms": o.kernel_us / 1000, "smem": 1024 + o.smem, "seconds": float(seconds)}
        # As the measured kernel: blocks that fill an SM by eight and are bound by its throughput.
        words.update({"blocks-per-sm": 8, "sm-bound": 1000, "waves": 1})
        if o.blocks:
            words["blocks"] = o.blocks
        return [self._stack.program("vuda-sim-compute"), *_words(words, ""), *gate, *extra]

    def both(self, only, seconds, gate=()):
        raise CorunError("the simulated GPU has no one-process case")

    def calibrations(self):
        return []

    def native(self):
        # Without --register and --attach the shim stays out of the way; this only brings the simulated GPU in.
        return self._stack.run()


def _words(options, prefix):
    words = []
    for name, value in options.items():
        words += [f"--{prefix}{name}", f"{value:g}" if isinstance(value, float) else str(value)]
    return words
