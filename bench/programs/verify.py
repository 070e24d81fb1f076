"""Runs programs round and round and compares every result with the program's first one. What a result is, `ops` knows: see TorchOps in
torch_suite.py."""

import time

# Sums of results against those of another process: libraries may choose kernels that add in another order.
_TOLERANCE = 1e-3
_WARM_UP = 3


class Verified:
    """One program, prepared, with its first result.

    `reference`: what an earlier process found ({"exact", "bits", "sum"}); None: this process finds it."""

    def __init__(self, ops, prepare, reference):
        self._ops = ops
        self._function = prepare()
        for _ in range(_WARM_UP):
            first = self._function()
        ops.wait()
        self._first = ops.keep(first)
        self._last = self._first
        self._reference = reference
        self.checks = 0
        self.wrong = 0
        self.exact = True
        self.text = ""
        self.bits, self.sum = ops.digest(self._first)
        self.as_alone = bool(reference) and self.bits == reference["bits"]
        # Another kernel than alone may add in any order.
        self._must_be_exact = self.as_alone and reference["exact"]
        if reference and not self.as_alone:
            self._against_reference()

    def _against_reference(self):
        if abs(self.sum - self._reference["sum"]) > _TOLERANCE * max(abs(self.sum), abs(self._reference["sum"])):
            self._fail(f"the first result is not that of the program alone: sums {self.sum:.9g} and {self._reference['sum']:.9g}")

    def _fail(self, text):
        self.wrong += 1
        self.text = self.text or text

    def step(self):
        """Once more."""
        self._last = self._function()
        self._ops.wait()
        self.checks += 1
        if self._ops.same(self._last, self._first):
            return
        self.exact = False
        # Alone it always gave these bits, so it has to here.
        if self._must_be_exact:
            self._fail(f"result {self.checks} has other bits than the first: {self._ops.difference(self._last, self._first)}")
        elif not self._ops.close(self._last, self._first):
            self._fail(f"result {self.checks} is not the first one: {self._ops.difference(self._last, self._first)}")

    def end(self):
        """The comparisons ran on the GPU, too; the last result is compared on the host."""
        bits, _ = self._ops.digest(self._last)
        self.checks += 1
        if bits != self.bits and (self._must_be_exact or self.exact):
            self._fail("the host sees other bits in the last result than in the first")

    def report(self):
        answer = {"checks": self.checks, "wrong": self.wrong, "exact": self.exact, "bits": self.bits, "sum": self.sum, "text": self.text}
        if self._reference:
            answer["as_alone"] = self.as_alone
        return answer


def _first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def prepare_all(ops, known, names, reference):
    """({name: Verified}, {name: what went wrong})"""
    prepared, errors = {}, {}
    for name in names:
        try:
            ops.seed()
            found = reference.get(name) if reference is not None else None
            prepared[name] = Verified(ops, known[name], found if found and "bits" in found else None)
        except Exception as error:  # whatever it is, the others are verified
            errors[name] = _first_line(error)
    return prepared, errors


def go_round(prepared, errors, seconds, stopped=lambda: False, clock=time.monotonic):
    """Seconds that it took. A program that fails is left out from then on; each of the others has a turn in every round, of which there are two at least."""
    begin = clock()
    rounds = 0
    while prepared and (rounds < 2 or clock() - begin < seconds) and not stopped():
        rounds += 1
        for name in list(prepared):
            try:
                prepared[name].step()
            except Exception as error:
                errors[name] = _first_line(error)
                del prepared[name]
    return clock() - begin


def results(prepared, errors):
    """{name: its figures, or {"error"}}"""
    answers = {}
    for name, one in prepared.items():
        try:
            one.end()
            answers[name] = one.report()
        except Exception as error:
            errors[name] = _first_line(error)
    answers.update({name: {"error": text} for name, text in errors.items()})
    return answers
