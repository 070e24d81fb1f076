"""Result files: docs/results/NAME.json, the format that docs/results/README.md describes."""

import json
import os


def row(case, config, metrics, xids=0, note=""):
    return {"case": case, "config": config, "metrics": metrics, "xids": xids, "note": note}


class ResultFile:
    def __init__(self, path, experiment, facts):
        """`facts`: gpu, driver, cuda, commit, command, date, runs."""
        self._path = path
        self._document = {
            "experiment": experiment,
            "date": facts["date"],
            "gpu": facts["gpu"],
            "driver": facts["driver"],
            "cuda": facts["cuda"],
            "commit": facts["commit"],
            "command": facts["command"],
            "runs": facts["runs"],
            "rows": [],
        }

    @property
    def rows(self):
        return self._document["rows"]

    def keep_other_cases(self, measured):
        """Takes over an existing file's rows but those of cases for which `measured(case)`; they must come from the same set-up."""
        try:
            with open(self._path, encoding="utf-8") as file:
                old = json.load(file)
        except FileNotFoundError:
            return
        same = all(old.get(key) == self._document[key] for key in ("experiment", "gpu", "driver", "cuda", "commit", "runs"))
        if same:
            self.rows[:0] = [entry for entry in old["rows"] if not measured(entry["case"])]

    def add(self, entries):
        self.rows.extend(entries)

    def write(self):
        """All or nothing: a half-written file is never seen."""
        if self._path is None or not self.rows:
            return
        temporary = self._path + ".new"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(self._document, file, indent=2)
            file.write("\n")
        os.replace(temporary, self._path)
