"""Unit tests of scripts/check_results.py."""

import contextlib
import copy
import io
import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import check_results  # noqa: E402


def summary(median, low=None, high=None):
    return {"median": median, "min": median if low is None else low, "max": median if high is None else high}


RENDERER = {"renderer_fps": summary(98.0, 97.5, 98.4), "frame_p99_ms": summary(10.4)}
COMPUTE = {"compute_rate": summary(1200), "compute_p50_ms": summary(0.7), "compute_p99_ms": summary(0.8)}


def good():
    def row(config, metrics):
        return {"case": "two-process", "config": config, "metrics": copy.deepcopy(metrics), "xids": 0, "note": ""}

    return {
        "experiment": "corun",
        "date": "2026-01-31",
        "gpu": "NVIDIA H200",
        "driver": "580.159.04",
        "cuda": "13.0",
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "command": "bench/corun.py --bin build/release",
        "runs": 5,
        "rows": [
            row("alone-renderer", RENDERER),
            row("alone-compute", COMPUTE),
            row("time-slicing", {**RENDERER, **COMPUTE}),
            row("shared", {**RENDERER, **COMPUTE}),
        ],
    }


def good_tuner_sim():
    share = summary(0.999, 0.99, 1.0)
    base = {"renderer_fps": summary(60.0), "compute_rate": summary(40.0), "attainment": share}
    against = {**base, "attainment_vs_oracle": share, "throughput_vs_oracle": share}
    tuned = {**against, "reversals_per_min": summary(0.0), "convergence_s": summary(0.2), "convergence_frames": summary(7)}
    configs = {
        "partitioned": {**base, "quota_tpcs": summary(22)},
        "tuned": tuned,
        "additive-increase": {**against, "reversals_per_min": summary(60.0)},
        "shared": against,
    }
    return {
        **good(),
        "experiment": "tuner_sim",
        "gpu": "simulated",
        "runs": 200,
        "rows": [
            {"case": "steady", "config": config, "metrics": copy.deepcopy(metrics), "xids": 0, "note": ""}
            for config, metrics in configs.items()
        ],
    }


class CheckTunerSim(unittest.TestCase):
    def assert_fault(self, change, words):
        document = good_tuner_sim()
        change(document)
        faults = check_results.check_document(document, "tuner_sim")
        self.assertTrue(any(words in fault for fault in faults), f"'{words}' not in {faults}")

    def test_good(self):
        self.assertEqual(check_results.check_document(good_tuner_sim(), "tuner_sim"), [])

    def test_faults(self):
        self.assert_fault(lambda d: d.update(runs=20), "20 seeds")
        self.assert_fault(lambda d: d.update(gpu="NVIDIA H200"), "is not 'simulated'")
        self.assert_fault(lambda d: d["rows"].pop(2), "lacks additive-increase")
        self.assert_fault(lambda d: d["rows"][1].update(config="time-slicing"), "is none of")
        self.assert_fault(lambda d: d["rows"][1]["metrics"].pop("reversals_per_min"), "'reversals_per_min' is missing")
        self.assert_fault(lambda d: d["rows"][1]["metrics"].pop("attainment_vs_oracle"), "does not go with")
        self.assert_fault(lambda d: d["rows"][1]["metrics"].pop("convergence_s"), "go together")
        self.assert_fault(lambda d: d["rows"][3]["metrics"].update(attainment=summary(1.2)), "is not a fraction")

    def test_additive_increase_is_of_tuner_sim_only(self):
        document = good()
        document["rows"][3]["config"] = "additive-increase"
        self.assertTrue(check_results.check_document(document, "corun"))


class CheckDocument(unittest.TestCase):
    def faults(self, change=None, name="corun"):
        document = good()
        if change:
            change(document)
        return check_results.check_document(document, name)

    def assert_fault(self, change, words):
        faults = self.faults(change)
        self.assertTrue(any(words in fault for fault in faults), f"'{words}' not in {faults}")

    def test_good_document_has_no_faults(self):
        self.assertEqual(self.faults(), [])

    def test_document_keys(self):
        for key in check_results.KEYS:
            self.assert_fault(lambda d, key=key: d.pop(key), f"'{key}' is missing")
        self.assert_fault(lambda d: d.update(extra=1), "'extra' is not a known key")

    def test_document_values(self):
        for key, value, words in (
            ("gpu", "", "gpu is not a text"),
            ("driver", 580, "driver is not a text"),
            ("date", "31.1.2026", "is not YYYY-MM-DD"),
            ("date", None, "is not YYYY-MM-DD"),
            ("commit", "main", "is not a commit's hash"),
            ("runs", 0, "runs is not a positive count"),
            ("runs", True, "runs is not a positive count"),
            ("rows", [], "rows is not a list"),
            ("experiment", "other", "is not the file's name"),
        ):
            self.assert_fault(lambda d, k=key, v=value: d.update({k: v}), words)

    def test_row_keys_and_values(self):
        for key in check_results.ROW_KEYS:
            self.assert_fault(lambda d, key=key: d["rows"][3].pop(key), f"row 4: '{key}' is missing")
        for key, value, words in (
            ("config", "fast", "is none of alone-renderer"),
            ("case", "three-process", "corun has no case"),
            ("case", "Two Process", "is not a name"),
            ("xids", -1, "xids is not a count"),
            ("xids", 0.0, "xids is not a count"),
            ("note", None, "note is not text"),
            ("metrics", [], "metrics is not an object"),
        ):
            self.assert_fault(lambda d, k=key, v=value: d["rows"][3].update({k: v}), words)
        self.assert_fault(lambda d: d["rows"].append("row"), "row 5: is not an object")

    def test_metrics(self):
        def metric(**changes):
            return lambda d: d["rows"][3]["metrics"]["renderer_fps"].update(changes)

        self.assert_fault(metric(median=97.0), "median 97.0 is not within 97.5 to 98.4")
        self.assert_fault(metric(median=98.5), "is not within")
        self.assert_fault(metric(max="98"), "max is not a finite number")
        self.assert_fault(metric(max=float("nan")), "max is not a finite number")
        self.assert_fault(metric(mean=98.0), "'mean' is not a known key")
        self.assert_fault(lambda d: d["rows"][3]["metrics"].update(FPS=summary(1)), "'FPS' is not a metric's name")

    def test_required_metrics(self):
        self.assert_fault(lambda d: d["rows"][3]["metrics"].pop("compute_p99_ms"), "row 4: metric 'compute_p99_ms' is missing")
        self.assert_fault(lambda d: d["rows"][0]["metrics"].pop("renderer_fps"), "row 1: metric 'renderer_fps' is missing")
        self.assert_fault(lambda d: d["rows"][0]["metrics"].update(COMPUTE), "a renderer alone has no 'compute_rate'")
        self.assert_fault(lambda d: d["rows"][1]["metrics"].update(RENDERER), "compute alone has no 'renderer_fps'")

    def test_all_configurations_are_there_once(self):
        self.assert_fault(lambda d: d["rows"].pop(2), "case two-process lacks time-slicing")
        self.assert_fault(lambda d: d["rows"].append(copy.deepcopy(d["rows"][3])), "two-process, shared is there twice")

    def test_an_xid_excuses_what_is_missing(self):
        def stopped(document):
            document["rows"][3].update(xids=1, metrics={}, note="stopped at Xid 31")

        self.assertEqual(self.faults(stopped), [])

    def test_other_experiments_choose_their_metrics(self):
        def costs(document):
            document.update(experiment="costs")
            document["rows"] = [
                {"case": "attach-cost", "config": "shared", "metrics": {"context_ms": summary(200)}, "xids": 0, "note": ""}
            ]

        self.assertEqual(self.faults(costs, "costs"), [])

        def empty(document):
            costs(document)
            document["rows"][0]["metrics"] = {}

        self.assertIn("costs, row 1: has no metrics, and no Xid that would explain it", self.faults(empty, "costs"))


def cut_short():
    """An incomplete document: a case that came to its end, and one that did not."""
    document = good()
    for row in document["rows"]:
        row["runs"] = 5
    rest = [{**copy.deepcopy(row), "case": "one-process", "runs": runs} for row, runs in zip(document["rows"], (3, 2))]
    return {**document, "complete": False, "runs_done": 2, "unfinished": ["one-process"], "stopped": "ended by SIGTERM", "rows": document["rows"] + rest}


class CheckIncomplete(unittest.TestCase):
    """A measurement that was cut short is no fault when its file says so, and how much it holds."""

    def faults(self, change=None):
        document = cut_short()
        if change:
            change(document)
        return check_results.check_document(document, "corun")

    def test_good(self):
        self.assertEqual(self.faults(), [])

    def test_it_must_say_so(self):
        # The one case lacks configurations: as a complete file that is a fault.
        def say_nothing(document):
            for key in check_results.STATE_KEYS:
                document.pop(key, None)

        self.assertEqual(self.faults(say_nothing), ["corun: case one-process lacks time-slicing, shared"])

    def test_it_must_say_how_many_runs_it_holds(self):
        for change, words in (
            (lambda d: d.pop("runs_done"), "'runs_done' is missing"),
            (lambda d: d.pop("unfinished"), "'unfinished' is missing"),
            (lambda d: d["rows"][5].pop("runs"), "row 6: the file is incomplete, and 'runs' is missing"),
            (lambda d: d["rows"][0].update(runs=-1), "row 1: runs is not a count"),
            (lambda d: d["rows"][0].update(runs="5"), "row 1: runs is not a count"),
            (lambda d: d.update(runs_done=3), "runs_done is 3, its rows have 2"),
            (lambda d: d.update(runs_done=True), "runs_done is True"),
            (lambda d: d["rows"][5].update(runs=1), "runs_done is 2, its rows have 1"),
            (lambda d: (d["rows"][5].update(runs=0), d.update(runs_done=0)), "it holds no run"),
            (lambda d: d.update(unfinished="one-process"), "unfinished is not a list"),
            (lambda d: d.update(unfinished=["two-process-user"]), "unfinished is not a list of cases that have rows"),
            (lambda d: d.update(unfinished=[]), "case one-process lacks time-slicing, shared"),
            (lambda d: d.update(stopped=31), "stopped is not text"),
            (lambda d: d.update(complete="no"), "complete is neither true nor false"),
            (lambda d: d.update(complete=True), "a complete file has no 'runs_done'"),
        ):
            faults = self.faults(change)
            self.assertTrue(any(words in fault for fault in faults), (words, faults))

    def test_a_complete_file_may_say_so(self):
        document = {**good(), "complete": True}
        document["rows"][0]["runs"] = 4  # one of five failed
        self.assertEqual(check_results.check_document(document, "corun"), [])

    def test_an_xid_in_the_first_run(self):
        row = {"case": "two-process", "config": "shared", "metrics": {}, "runs": 0, "xids": 1, "note": "stopped at Xid 31"}
        document = {**good(), "complete": False, "runs_done": 0, "unfinished": ["two-process"], "rows": [row]}
        self.assertEqual(check_results.check_document(document, "corun"), [])

    def test_it_is_told(self):
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, "corun.json"), "w", encoding="utf-8") as file:
                json.dump(cut_short(), file)
            with contextlib.redirect_stdout(io.StringIO()) as out:
                self.assertEqual(check_results.main([directory]), 0)
        self.assertEqual(out.getvalue(), "corun: incomplete; each row is of 2 of 5 runs at least; not to their end: one-process; ended by SIGTERM\n1 result files, 0 faults\n")


class CheckMeasured(unittest.TestCase):
    """Every run of real_programs."""

    @staticmethod
    def document():
        rates = (100.0, 200.0, 400.0)
        measured = [{"config": "alone", "run": n, "date": "2026-01-31", "driver": "580.159.04", "programs": {"sort": {"rate": rate}, "scan": {"error": "701"}}} for n, rate in enumerate(rates, 1)]
        measured.append({"config": "alone", "run": 4, "date": "2026-02-01", "driver": "580.159.04", "failed": "no"})
        row = {"case": "sort", "config": "alone-compute", "metrics": {"compute_rate": summary(200.0, 100.0, 400.0)}, "runs": 3, "xids": 0, "note": ""}
        return {**good(), "experiment": "real_programs", "complete": True, "options": {"seconds": 0.5}, "measured": measured, "rows": [row]}

    def test_good(self):
        self.assertEqual(check_results.check_document(self.document(), "real_programs"), [])

    def test_faults(self):
        for change, words in (
            (lambda d: d["measured"][1].pop("date"), "measured 2: 'date' is missing"),
            (lambda d: d["measured"][1].update(date="today"), "measured 2: date 'today' is not YYYY-MM-DD"),
            (lambda d: d["measured"][1].update(driver="1"), "measured 2: driver '1' is not the file's"),
            (lambda d: d["measured"][1].update(speed=1), "'speed' is not a known key"),
            (lambda d: d["measured"][1].update(failed="no"), "measured 2: has neither"),
            (lambda d: d["measured"][1].update(programs=[]), "measured 2: has neither"),
            (lambda d: d["measured"][1].update(run=1), "alone, run 1 is there twice"),
            (lambda d: d["measured"][1]["programs"]["sort"].update(rate=201.0), "its compute_rate is not that of the runs"),
            (lambda d: d["measured"].pop(0), "its compute_rate is not that of the runs"),
            (lambda d: d["rows"][0].update(runs=4), "its compute_rate is not that of the runs"),
            (lambda d: d.update(measured={}), "measured is not a list"),
            (lambda d: d.pop("options"), "options is not an object"),
        ):
            document = self.document()
            change(document)
            faults = check_results.check_document(document, "real_programs")
            self.assertTrue(any(words in fault for fault in faults), (words, faults))

    def test_only_of_real_programs(self):
        self.assertIn("corun: 'measured' is not a known key", check_results.check_document({**good(), "measured": []}, "corun"))


class CheckFiles(unittest.TestCase):
    def test_directory_and_files(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "corun.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(good(), file)
            self.assertEqual(check_results.main([directory]), 0)
            with open(os.path.join(directory, "broken.json"), "w", encoding="utf-8") as file:
                file.write('{"runs": NaN')
            self.assertEqual(check_results.main([path]), 0)
            self.assertEqual(check_results.main([directory]), 1)
            self.assertEqual(check_results.main([os.path.join(directory, "none.json")]), 1)

    def test_nan_is_refused(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "corun.json")
            document = good()
            document["rows"][3]["metrics"]["renderer_fps"]["max"] = float("nan")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(document, file)
            self.assertIn("NaN", check_results.check_file(path)[0])


class Robustness(unittest.TestCase):
    """robustness.json has a shape of its own."""

    @staticmethod
    def document():
        rows = [{"name": name, "value": 0.5, "unit": "ms", "limit": 5, "command": "vuda-load"} for name in check_results.ROBUSTNESS_MUST]
        return {"experiment": "robustness", "date": "2026-01-31", "machine": "2 x some", "load": [0.1, 1.5], "commit": "0123456789ab",
                "command": "scripts/robustness.py", "rows": rows}

    def faults(self, change):
        document = self.document()
        change(document)
        return check_results.check_document(document, "robustness")

    def test_good(self):
        self.assertEqual(self.faults(lambda document: None), [])
        self.assertEqual(self.faults(lambda document: document["rows"][0].update(limit=None, value=9)), [])

    def test_a_missed_limit_is_a_fault(self):
        faults = self.faults(lambda document: document["rows"][2].update(value=5.1))
        self.assertEqual(faults, ["robustness, row 3: idle-rss is 5.1 ms, above its limit of 5"])

    def test_each_fault_is_found(self):
        for change, fault in (
            (lambda d: d["rows"].pop(), "the figure 'soak-left-behind' is missing"),
            (lambda d: d["rows"].append(dict(d["rows"][0])), "ready-max is there twice"),
            (lambda d: d["rows"][0].update(value="5"), "value is not a finite number"),
            (lambda d: d["rows"][0].update(limit="<= 5"), "limit is neither a number nor null"),
            (lambda d: d["rows"][0].update(command=" "), "command is not a text"),
            (lambda d: d["rows"][0].pop("unit"), "'unit' is missing"),
            (lambda d: d.update(load=[1]), "load is not two"),
            (lambda d: d.update(runs=3), "'runs' is not a known key"),
            (lambda d: d.update(date="today"), "is not YYYY-MM-DD"),
        ):
            faults = self.faults(change)
            self.assertTrue(any(fault in found for found in faults), (fault, faults))


class Tuner(unittest.TestCase):
    """Figures of the tuner on hardware."""

    @staticmethod
    def document():
        tuned = {name: summary(1.0) for name in check_results.TUNED_METRICS}
        row = {"case": "dual-slo", "config": "tuned", "metrics": {**RENDERER, **COMPUTE, **tuned}, "xids": 0, "note": ""}
        return {**good(), "experiment": "tuner", "rows": [row]}

    def test_good(self):
        self.assertEqual(check_results.check_document(self.document(), "tuner"), [])

    def test_what_was_kept_must_be_there(self):
        for name in ("frame_miss", "hold_s", "renderer_fps", "compute_p99_ms"):
            document = self.document()
            del document["rows"][0]["metrics"][name]
            faults = check_results.check_document(document, "tuner")
            self.assertTrue(any(f"'{name}' is missing" in fault for fault in faults), faults)


if __name__ == "__main__":
    unittest.main()
