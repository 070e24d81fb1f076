"""Unit tests of scripts/check_results.py."""

import copy
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
