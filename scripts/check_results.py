#!/usr/bin/env python3
"""Checks result files (docs/results/*.json) against the format that docs/results/README.md describes.

  scripts/check_results.py [FILE or DIRECTORY]...     default: docs/results

Prints one line for each fault and returns 1 if there are any. A file of a measurement that was cut short is no fault when it says so and how many runs
it holds; a line tells of it. Needs Python's standard library only.
"""

import datetime
import json
import math
import os
import re
import statistics
import sys

# Beside these a file may have STATE_KEYS (those of before do not) and MORE_KEYS.
KEYS = ("experiment", "date", "gpu", "driver", "cuda", "commit", "command", "runs", "rows")
ROW_KEYS = ("case", "config", "metrics", "xids", "note")
# An incomplete file says how many runs it holds, and which cases were not measured to their end.
STATE_KEYS = ("complete", "runs_done", "unfinished", "stopped")
MORE_KEYS = {"real_programs": ("options", "measured")}
RUN_KEYS = ("config", "run", "date", "driver")
RUN_MORE_KEYS = ("programs", "renderer", "failed", "xids")
SUMMARY_KEYS = ("median", "min", "max")
CONFIGS = ("alone-renderer", "alone-compute", "time-slicing", "shared", "partitioned", "sliced", "mixed", "resting", "tuned")
# Of tuner_sim, which is simulated: the best fixed quota, the tuner, additive increase, no tuner.
MIRROR_CONFIGS = ("shared", "mirrored", "export-import", "driver")
TUNER_SIM_CONFIGS = ("partitioned", "tuned", "additive-increase", "shared")
TUNER_SIM_SEEDS = 200

RENDERER_METRICS = ("renderer_fps", "frame_p99_ms")
COMPUTE_METRICS = ("compute_rate", "compute_p50_ms", "compute_p99_ms")
# Of tuner, beside those: what was promised and kept. convergence_s is missing when the targets were never met.
TUNED_METRICS = ("frame_miss", "hold_s", "decisions", "reversals", "compute_tpcs")
CORUN_CASES = ("two-process", "one-process", "two-process-user")
CORUN_CONFIGS = ("alone-renderer", "alone-compute", "time-slicing", "shared")

ROBUSTNESS_KEYS = ("experiment", "date", "machine", "load", "commit", "command", "rows")
ROBUSTNESS_ROW_KEYS = ("name", "value", "unit", "limit", "command")
# What has to be reached has to be there.
ROBUSTNESS_MUST = (
    "ready-max", "idle-cpu", "idle-rss", "rss-1000", "register-p50-100", "register-p99-100", "attach-p50-100", "attach-p99-100",
    "release-p99-killed", "release-p99-stopped", "release-p99-zombie", "silent-released-max", "stall-register-p99", "stall-attach-p99",
    "heap-growth", "heap-left-growth", "soak-operations", "soak-rss-growth", "soak-fd-growth", "soak-left-behind",
)

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*\Z")
_METRIC = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*\Z")
_COMMIT = re.compile(r"[0-9a-f]{7,40}(-dirty)?\Z")


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_date(value):
    try:
        return bool(datetime.date.fromisoformat(value))
    except (TypeError, ValueError):
        return False


def _check_keys(where, value, keys, others=()):
    """Faults of an object that must have exactly these keys, and may have others."""
    if not isinstance(value, dict):
        return [f"{where}: is not an object"]
    faults = [f"{where}: '{key}' is missing" for key in keys if key not in value]
    return faults + [f"{where}: '{key}' is not a known key" for key in value if key not in keys and key not in others]


def check_metric(where, name, value):
    faults = [] if _METRIC.match(name) else [f"{where}: '{name}' is not a metric's name (lower case, words joined by _)"]
    where = f"{where}, {name}"
    shape = _check_keys(where, value, SUMMARY_KEYS)
    if shape:
        return faults + shape
    for key in SUMMARY_KEYS:
        if not _is_number(value[key]):
            faults.append(f"{where}: {key} is not a finite number")
    if not faults and not value["min"] <= value["median"] <= value["max"]:
        faults.append(f"{where}: median {value['median']} is not within {value['min']} to {value['max']}")
    return faults


def required_metrics(experiment, config):
    """Of a row without Xids. Other experiments than these choose their metrics themselves, but have some."""
    if experiment == "tuner_sim":
        metrics = ("renderer_fps", "compute_rate")
        if config == "partitioned":
            return metrics + ("quota_tpcs",)
        return metrics + ("throughput_vs_oracle",) + (("reversals_per_min",) if config != "shared" else ())
    if experiment == "tuner" and config == "tuned":
        return RENDERER_METRICS + COMPUTE_METRICS + TUNED_METRICS
    if experiment not in ("corun", "tuner"):
        return ()
    return {"alone-renderer": RENDERER_METRICS, "alone-compute": COMPUTE_METRICS}.get(config, RENDERER_METRICS + COMPUTE_METRICS)


def check_row(where, experiment, row):
    faults = _check_keys(where, row, ROW_KEYS, ("runs",))
    if faults:
        return faults
    if not isinstance(row["case"], str) or not _NAME.match(row["case"]):
        faults.append(f"{where}: case {row['case']!r} is not a name (lower case, digits, -)")
    elif experiment == "corun" and row["case"] not in CORUN_CASES:
        faults.append(f"{where}: corun has no case '{row['case']}'")
    configs = {"tuner_sim": TUNER_SIM_CONFIGS, "mirror": MIRROR_CONFIGS}.get(experiment, CONFIGS)
    if row["config"] not in configs:
        faults.append(f"{where}: config {row['config']!r} is none of {', '.join(configs)}")
    if not _is_count(row["xids"]):
        faults.append(f"{where}: xids is not a count")
    if not _is_count(row.get("runs", 0)):
        faults.append(f"{where}: runs is not a count")
    if not isinstance(row["note"], str):
        faults.append(f"{where}: note is not text")
    if not isinstance(row["metrics"], dict):
        return faults + [f"{where}: metrics is not an object"]
    for name, value in row["metrics"].items():
        faults += check_metric(where, name, value)
    if row["xids"] == 0:
        faults += [
            f"{where}: metric '{name}' is missing"
            for name in required_metrics(experiment, row["config"])
            if name not in row["metrics"]
        ]
        if not row["metrics"]:
            faults.append(f"{where}: has no metrics, and no Xid that would explain it")
    if row["config"] == "alone-renderer":
        faults += [f"{where}: a renderer alone has no '{name}'" for name in COMPUTE_METRICS if name in row["metrics"]]
    if row["config"] == "alone-compute":
        faults += [f"{where}: compute alone has no '{name}'" for name in RENDERER_METRICS if name in row["metrics"]]
    return faults


def check_robustness(document, name):
    """robustness.json: one figure a row, each with its limit and the command that makes it."""
    faults = _check_keys(name, document, ROBUSTNESS_KEYS)
    if faults:
        return faults
    for key in ("machine", "command"):
        if not isinstance(document[key], str) or not document[key].strip():
            faults.append(f"{name}: {key} is not a text with something in it")
    faults += check_origin(document, name)
    load = document["load"]
    if not isinstance(load, list) or len(load) != 2 or not all(_is_number(value) and value >= 0 for value in load):
        faults.append(f"{name}: load is not two load averages, before and after")
    if not isinstance(document["rows"], list) or not document["rows"]:
        return faults + [f"{name}: rows is not a list with something in it"]
    seen = set()
    for number, row in enumerate(document["rows"], 1):
        where = f"{name}, row {number}"
        shape = _check_keys(where, row, ROBUSTNESS_ROW_KEYS)
        if shape:
            faults += shape
            continue
        for key in ("name", "unit", "command"):
            if not isinstance(row[key], str) or not row[key].strip():
                faults.append(f"{where}: {key} is not a text with something in it")
        if not _is_number(row["value"]):
            faults.append(f"{where}: value is not a finite number")
        elif row["limit"] is not None and not _is_number(row["limit"]):
            faults.append(f"{where}: limit is neither a number nor null")
        elif row["limit"] is not None and row["value"] > row["limit"]:
            faults.append(f"{where}: {row['name']} is {row['value']} {row['unit']}, above its limit of {row['limit']}")
        if row["name"] in seen:
            faults.append(f"{where}: {row['name']} is there twice")
        seen.add(row["name"])
    faults += [f"{name}: the figure '{figure}' is missing" for figure in ROBUSTNESS_MUST if figure not in seen]
    return faults


def check_origin(document, name):
    """Keys that every file has: which experiment, when, of what."""
    faults = []
    if document["experiment"] != name:
        faults.append(f"{name}: experiment {document['experiment']!r} is not the file's name")
    if not _is_date(document["date"]):
        faults.append(f"{name}: date {document['date']!r} is not YYYY-MM-DD")
    if not isinstance(document["commit"], str) or not _COMMIT.match(document["commit"]):
        faults.append(f"{name}: commit {document['commit']!r} is not a commit's hash")
    return faults


def runs_in(rows, runs):
    """Of `runs` repetitions, how many each row has at least; a row without metrics tells of what ended a run."""
    counts = [row["runs"] for row in rows if row["metrics"]]
    return min(runs, *counts) if counts else 0


def check_state(document, name):
    """Whether an incomplete file says so, and how much it holds; its rows have been checked."""
    complete = document.get("complete", True)
    if not isinstance(complete, bool):
        return [f"{name}: complete is neither true nor false"]
    if complete:
        return [f"{name}: a complete file has no '{key}'" for key in STATE_KEYS[1:] if key in document]
    faults = [f"{name}: it is incomplete, and '{key}' is missing" for key in ("runs_done", "unfinished") if key not in document]
    faults += [f"{name}, row {number}: the file is incomplete, and 'runs' is missing" for number, row in enumerate(document["rows"], 1) if "runs" not in row]
    if faults:
        return faults
    held = runs_in(document["rows"], document["runs"])
    if not _is_count(document["runs_done"]) or document["runs_done"] != held:
        faults.append(f"{name}: runs_done is {document['runs_done']!r}, its rows have {held}")
    elif held == 0 and not any(row["xids"] for row in document["rows"]):
        faults.append(f"{name}: it holds no run")
    if not isinstance(document.get("stopped", ""), str):
        faults.append(f"{name}: stopped is not text")
    cases = [row["case"] for row in document["rows"]]
    if not isinstance(document["unfinished"], list) or not all(case in cases for case in document["unfinished"]):
        faults.append(f"{name}: unfinished is not a list of cases that have rows")
    return faults


def _check_run(where, run, driver):
    faults = _check_keys(where, run, RUN_KEYS, RUN_MORE_KEYS)
    if faults:
        return faults
    faults += [] if _is_date(run["date"]) else [f"{where}: date {run['date']!r} is not YYYY-MM-DD"]
    if run["driver"] != driver:
        faults.append(f"{where}: driver {run['driver']!r} is not the file's")
    programs = run.get("programs", {})
    if ("programs" in run) == ("failed" in run) or not isinstance(programs, dict) or not all(isinstance(figures, dict) for figures in programs.values()):
        faults.append(f"{where}: has neither the programs' figures nor why it failed, or both")
    return faults


def check_measured(document, name):
    """Every run of real_programs: when and where it was, and that the rows are made of them."""
    if not isinstance(document["measured"], list) or not isinstance(document.get("options"), dict):
        return [f"{name}: measured is not a list, or options is not an object"]
    faults = [fault for number, run in enumerate(document["measured"], 1) for fault in _check_run(f"{name}, measured {number}", run, document["driver"])]
    if faults:
        return faults
    keys = [(run["config"], run["run"]) for run in document["measured"]]
    faults += [f"{name}: {config}, run {number} is there twice" for config, number in dict.fromkeys(keys) if keys.count((config, number)) > 1]
    for number, row in enumerate(document["rows"], 1):
        if "compute_rate" not in row["metrics"]:
            continue
        config = {"alone-compute": "alone"}.get(row["config"], row["config"])
        figures = [run["programs"].get(row["case"], {}) for run in document["measured"] if run["config"] == config and "programs" in run]
        rates = [one["rate"] for one in figures if "rate" in one]
        if not all(map(_is_number, rates)) or len(rates) != row.get("runs") or not math.isclose(statistics.median(rates), row["metrics"]["compute_rate"]["median"], rel_tol=1e-6, abs_tol=1e-5):
            faults.append(f"{name}, row {number}: its compute_rate is not that of the runs in measured")
    return faults


def check_document(document, name):
    """All faults of one parsed result file; `name` is the file's name without .json."""
    if name == "robustness":
        return check_robustness(document, name)
    more = MORE_KEYS.get(name, ())
    faults = _check_keys(name, document, KEYS, STATE_KEYS + more)
    if faults:
        return faults
    for key in ("experiment", "gpu", "driver", "cuda", "command"):
        if not isinstance(document[key], str) or not document[key].strip():
            faults.append(f"{name}: {key} is not a text with something in it")
    faults += check_origin(document, name)
    if not _is_count(document["runs"]) or document["runs"] == 0:
        faults.append(f"{name}: runs is not a positive count")
    if not isinstance(document["rows"], list) or not document["rows"]:
        return faults + [f"{name}: rows is not a list with something in it"]
    seen = set()
    for number, row in enumerate(document["rows"], 1):
        where = f"{name}, row {number}"
        faults += check_row(where, document["experiment"], row)
        key = (row.get("case"), row.get("config")) if isinstance(row, dict) else None
        if key in seen:
            faults.append(f"{where}: {key[0]}, {key[1]} is there twice")
        seen.add(key)
    if not faults:
        faults += check_state(document, name)
    if "measured" in document and not faults:
        faults += check_measured(document, name)
    if document["experiment"] == "tuner_sim" and not faults:
        faults += check_tuner_sim(document, name)
    if document["experiment"] == "corun" and not faults:
        for case in dict.fromkeys(row["case"] for row in document["rows"]):
            stopped = any(row["xids"] for row in document["rows"] if row["case"] == case)
            missing = [config for config in CORUN_CONFIGS if (case, config) not in seen]
            if missing and not stopped and case not in document.get("unfinished", ()):
                faults.append(f"{name}: case {case} lacks {', '.join(missing)}")
    return faults


def check_tuner_sim(document, name):
    """What tuner_sim needs beyond the common format: enough seeds, all four controllers, and who was compared with whom."""
    faults = []
    if document["gpu"] != "simulated":
        faults.append(f"{name}: gpu {document['gpu']!r} is not 'simulated'")
    if document["runs"] < TUNER_SIM_SEEDS:
        faults.append(f"{name}: {document['runs']} seeds, at least {TUNER_SIM_SEEDS} are asked for")
    rows = {(row["case"], row["config"]): row["metrics"] for row in document["rows"]}
    for case in dict.fromkeys(case for case, _ in rows):
        missing = [config for config in TUNER_SIM_CONFIGS if (case, config) not in rows]
        if missing:
            faults.append(f"{name}: case {case} lacks {', '.join(missing)}")
            continue
        has_targets = "attainment" in rows[(case, "partitioned")]
        for config in TUNER_SIM_CONFIGS[1:]:
            if has_targets != ("attainment_vs_oracle" in rows[(case, config)]):
                faults.append(f"{name}: case {case}, {config}: attainment_vs_oracle does not go with the oracle's attainment")
        for config in TUNER_SIM_CONFIGS:
            share = rows[(case, config)].get("attainment")
            if share is not None and not 0 <= share["min"] <= share["max"] <= 1:
                faults.append(f"{name}: case {case}, {config}: attainment is not a fraction")
        seconds, frames = (rows[(case, "tuned")].get(key) for key in ("convergence_s", "convergence_frames"))
        if (seconds is None) != (frames is None):
            faults.append(f"{name}: case {case}: convergence_s and convergence_frames go together")
    return faults


def check_file(path):
    name = os.path.basename(path).removesuffix(".json")

    def refuse(text):
        raise ValueError(f"{text} is not a number in JSON")

    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file, parse_constant=refuse)
    except (OSError, ValueError) as error:
        return [f"{name}: {error}"]
    return check_document(document, name)


def incomplete(path):
    """What there is to say of a file without faults: [] when it is complete."""
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    if document.get("complete", True):
        return []
    cases = f"; not to their end: {', '.join(document['unfinished'])}" if document["unfinished"] else ""
    return [f"{document['experiment']}: incomplete; each row is of {document['runs_done']} of {document['runs']} runs at least{cases}; {document.get('stopped', 'nothing says why')}"]


def find_files(arguments):
    for argument in arguments:
        if os.path.isdir(argument):
            yield from sorted(os.path.join(argument, name) for name in os.listdir(argument) if name.endswith(".json"))
        else:
            yield argument


def main(argv):
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "results")
    files = list(find_files(argv or [default]))
    faults = []
    for path in files:
        found = check_file(path)
        faults += found
        for line in found or incomplete(path):
            print(line)
    print(f"{len(files)} result files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
