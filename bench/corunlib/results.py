"""Result files: docs/results/NAME.json, the format that docs/results/README.md describes."""

import contextlib
import json
import os
import shutil

from .signals import uninterrupted

# Those of this call of a program (ending.orderly).
opened = []


def row(case, config, metrics, xids=0, note="", runs=1):
    """`runs`: how many repetitions the metrics are of."""
    return {"case": case, "config": config, "metrics": metrics, "runs": runs, "xids": xids, "note": note}


def runs_done(rows, runs):
    """Of `runs` repetitions, how many each row has at least; a row without metrics tells of something that ended a run."""
    counts = [entry["runs"] for entry in rows if entry["metrics"]]
    return min(runs, *counts) if counts else 0


def text_of(document):
    """JSON, indented; of single runs one a line."""
    text = json.dumps({key: value for key, value in document.items() if key != "measured"}, indent=2)
    if "measured" in document:
        lines = ",\n".join("    " + json.dumps(run) for run in document["measured"])
        text = f'{text[:-2]},\n  "measured": [\n{lines}\n  ]\n}}'
    return text + "\n"


def write_whole(path, text):
    """All or nothing: a half-written file is never seen, whatever ends this program or the machine."""
    temporary = path + ".new"
    with uninterrupted():
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


def finish_all():
    """Everything that this call of a program was asked for has been measured."""
    for file in opened:
        file.finish()


def stop_all(why):
    """Not everything has been: the files say why, beside what they hold."""
    for file in opened:
        file.stop(why)


class ResultFile:
    """Written again after each run, and incomplete until finish(): what ends the program costs the run under way, and no more."""

    def __init__(self, path, experiment, facts, more=None):
        """`facts`: gpu, driver, cuda, commit, command, date, runs. `more`: further keys of the file."""
        self.path = path
        self.complete = False
        self._more = more or {}
        self._facts = {"experiment": experiment, **{key: facts[key] for key in ("date", "gpu", "driver", "cuda", "commit", "command", "runs")}}
        self._whole = []  # rows of what was measured to its end
        self._progress = []  # of what is being measured
        self._unfinished = []  # cases that an earlier call left so
        self._stopped = None  # why it stays incomplete
        opened.append(self)

    def keep_other_cases(self, measured):
        """Takes over an existing file's rows but those of cases for which `measured(case)`; they must come from the same set-up."""
        try:
            with open(self.path, encoding="utf-8") as file:
                old = json.load(file)
        except FileNotFoundError:
            return
        same = all(old.get(key) == self._facts[key] for key in ("experiment", "gpu", "driver", "cuda", "commit", "runs"))
        if same:
            # Files of before did not say of how many runs a row is.
            self._whole[:0] = [{"runs": old["runs"], **entry} for entry in old["rows"] if not measured(entry["case"])]
            self._unfinished = [case for case in old.get("unfinished", ()) if not measured(case)]

    @property
    def rows(self):
        return [*self._whole, *self._progress]

    def add(self, entries, stopped=None):
        """The rows of a case, or of everything; `stopped`: it was not measured to its end."""
        self._progress = []
        if stopped:
            self._progress = entries
        else:
            self._whole.extend(entries)
        self.write()

    def progress(self, entries):
        """Writes the rows so far of what is being measured, in place of those of the last call."""
        self._progress = entries
        self.write()

    def finish(self):
        """All that was asked for has been measured."""
        self.complete = not self._unfinished and not self._progress
        self.write()

    def stop(self, why):
        if not self.complete and self._stopped is None:
            self._stopped = why
            self.write()

    def _document(self):
        rows = self.rows
        state = {"complete": self.complete}
        if not self.complete:
            state["runs_done"] = runs_done(rows, self._facts["runs"])
            state["unfinished"] = list(dict.fromkeys([*self._unfinished, *(entry["case"] for entry in self._progress)]))
            state |= {"stopped": self._stopped[:2000]} if self._stopped else {}
        return {**self._facts, **state, **self._more, "rows": rows}

    def write(self):
        if self.path is None or not self.rows:
            return
        if not self.complete:
            self._keep_earlier()
        write_whole(self.path, text_of(self._document()))
        if self.complete:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path + ".before")

    def _keep_earlier(self):
        """A complete file stays, beside the incomplete one that takes its name, until that is complete too."""
        try:
            with open(self.path, encoding="utf-8") as file:
                if json.load(file).get("complete", True):
                    shutil.copyfile(self.path, self.path + ".before")
        except (FileNotFoundError, ValueError):
            pass

    def held(self):
        """One line for people: what an incomplete file holds."""
        name = os.path.basename(self.path)
        rows = self.rows
        if not rows:
            return f"no run was complete; {name} was not written"
        counts = [entry["runs"] for entry in rows]
        each = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
        return f"{name} is incomplete: {len(rows)} rows, of {each} of {self._facts['runs']} runs"
