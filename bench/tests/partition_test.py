"""What bench/partition.py and bench/chart.py decide, without a GPU."""

import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, BENCH)

import chart  # noqa: E402
import partition as partition_program  # noqa: E402
from corunlib import partition, partition_cost, results, split  # noqa: E402


def topology(gpcs, graphics=None):
    """TPC numbers go round the GPCs; two SMs a TPC."""
    tpcs = []
    for turn in range(max(gpcs)):
        for gpc, count in enumerate(gpcs):
            if turn < count:
                number = len(tpcs)
                tpcs.append({"gpc": gpc, "graphics": graphics is None or number in graphics, "sms": [2 * number, 2 * number + 1]})
    return {"tpc": tpcs}


def value(median):
    return {"median": median, "min": median, "max": median}


class Split(unittest.TestCase):
    def test_one_tpc_of_each_gpc_at_a_time(self):
        card = topology([3, 3])
        self.assertEqual(split.compute_tpcs(card, 2), [0, 1])
        self.assertEqual(split.compute_tpcs(card, 4), [0, 1, 2, 3])
        # Graphics keeps one of each GPC.
        self.assertEqual(split.compute_tpcs(card, 6), [0, 1, 2, 3])

    def test_where_only_some_do_graphics_compute_keeps_off_those(self):
        card = topology([2, 2, 1], {0})
        self.assertEqual(split.compute_tpcs(card, 3), [1, 2, 3])
        self.assertEqual(split.compute_tpcs(card, 99), [1, 2, 3, 4])
        self.assertEqual(split.compute_tpcs(card, 99, "intra-sm"), [0, 1, 2, 3, 4])

    def test_multiprocessors(self):
        card = topology([2, 2])
        self.assertEqual(split.sms_of(card, [0, 3]), [0, 1, 6, 7])
        self.assertEqual(split.wrong_sms([0, 1], [0, 1]), 0)
        self.assertEqual(split.wrong_sms([0, 2], [0, 1]), 2)


class Verdicts(unittest.TestCase):
    @staticmethod
    def rows(compute=960.0, fps=99.9, p99=0.75, last=640.0):
        full = [
            ("alone-renderer", {"renderer_fps": value(100.0), "frame_p99_ms": value(10.1)}),
            ("alone-compute", {"compute_rate": value(1000.0), "compute_p50_ms": value(0.7), "compute_p99_ms": value(0.72)}),
            ("partitioned", {"renderer_fps": value(fps), "compute_rate": value(compute), "compute_p99_ms": value(p99)}),
        ]
        rows = [{"case": "full-quota", "config": config, "metrics": metrics} for config, metrics in full]
        rows.append({"case": "sweep-vertex-q8", "config": "alone-renderer", "metrics": {"renderer_fps": value(100.0)}})
        for tpcs, rate in ((8, 80.0), (16, 160.0), (64, last)):
            metrics = {"compute_tpcs": value(tpcs), "compute_rate": value(rate), "renderer_fps": value(fps)}
            rows.append({"case": f"sweep-vertex-q{tpcs}", "config": "partitioned", "metrics": metrics})
        rows.append({"case": "reconfigure", "config": "partitioned", "metrics": {"frame_max_ms": value(10.5), "frame_p50_ms": value(10.0)}})
        return rows

    def test_all_reached(self):
        lines = partition.verdicts(self.rows())
        self.assertEqual(len(lines), 6)
        self.assertTrue(all(line.startswith("ok") for line in lines), lines)

    def test_each_can_be_missed(self):
        self.assertIn("MISSED full-quota: compute's rate", "\n".join(partition.verdicts(self.rows(compute=940.0))))
        self.assertIn("MISSED full-quota: compute's p99", "\n".join(partition.verdicts(self.rows(p99=0.8))))
        self.assertIn("MISSED sweep-vertex: compute's rate", "\n".join(partition.verdicts(self.rows(last=700.0))))
        self.assertIn("MISSED sweep-vertex: renderer's", "\n".join(partition.verdicts(self.rows(fps=98.0))))

    def test_costs(self):
        rows = [
            {"case": "launch", "config": "partitioned", "metrics": {"mask_ns": value(150.0)}},
            {"case": "quota-change", "config": "partitioned", "metrics": {"quota_change_ms": value(1.5)}},
        ]
        rows.append(
            {
                "case": "own-quota-change",
                "config": "partitioned",
                "metrics": {"quota_call_p50_us": value(80.0), "quota_applied_p50_us": value(400.0)},
            }
        )
        lines = partition_cost.verdicts(rows)
        self.assertTrue(lines[0].startswith("MISSED launch"))
        self.assertTrue(lines[1].startswith("ok"))
        self.assertTrue(lines[2].startswith("MISSED own-quota-change"))
        self.assertTrue(lines[3].startswith("ok"))

    def test_a_program_starts_when_its_split_is_in_force(self):
        said = []

        def note(text, value=None):
            return lambda *arguments: (said.append(text), value)[1]

        class Compute:
            def __init__(self, label, command, directory, identity):
                said.append("start " + " ".join(command[2:]))
                self.gate = command[command.index("--start-file") + 1]

            wait_ready = staticmethod(note("ready"))
            kill = staticmethod(note("kill"))

            def result(self, seconds, guard):
                said.append("opened" if os.path.exists(self.gate) else "shut")
                return {"watched_p50_ns": 30, "watched_p99_ns": 40, "launch_p50_ns": 10, "launch_p99_ns": 20}

        with tempfile.TemporaryDirectory() as folder:
            renderer = types.SimpleNamespace(kill=note("kill renderer"))
            stack = types.SimpleNamespace(run=lambda *words: ["run"])
            workload = types.SimpleNamespace(compute=lambda seconds, gate, extra, load: ["compute", load, *extra, *gate])
            runner = types.SimpleNamespace(
                run_directory=lambda identity: folder,
                start_renderer=note("renderer", renderer),
                stack=stack,
                workload=workload,
                guard=lambda: None,
                discard=note("discard"),
            )
            splitter = types.SimpleNamespace(
                wait_backend=note("backend"), set_mode=note("mode"), set_quota=note("quota"), wait_applied=note("applied")
            )
            with unittest.mock.patch.object(partition_cost, "Program", Compute):
                found = partition_cost._launches(runner, types.SimpleNamespace(splitter=splitter), 7)
        self.assertEqual(found["mask_ns"], 20)
        self.assertIn("tiny --launch-cost 7 --ready-file", said[1])
        order = ["ready", "backend", "mode", "quota", "applied", "opened", "kill", "kill renderer", "discard"]
        self.assertEqual([said[0], *said[2:]], ["renderer", *order])

    def test_a_load_does_not_depend_on_the_one_before(self):
        options = types.SimpleNamespace(render_load="fragment", blocks=0, kernel_us=720.0)
        workload = types.SimpleNamespace(frame_iterations=None, kernel_iterations=None)
        runner = types.SimpleNamespace(workload=workload, calibrate=lambda identity: asked.append(options.kernel_us), checksum=1)
        asked = []
        load = partition_program.Load(runner, options)
        load.use("vertex", 8, times=4)
        load.use("fragment", 8, times=4)
        load.use("fragment", 8)
        self.assertEqual(asked, [2880.0, 2880.0, 720.0])

    def test_merging_replaces_what_was_measured_again(self):
        document = {"experiment": "partition", "gpu": "g", "driver": "d", "cuda": "c", "commit": "1", "command": "x", "date": "2026-01-01", "runs": 5}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "partition.json")
            cases = ("full-quota", "sweep-vertex-q8", "sweep-vertex-q16", "sweep-fragment-q8", "reconfigure")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**document, "rows": [{"case": case} for case in cases]}, file)
            result = results.ResultFile(path, "partition", document)
            result.keep_other_cases(lambda case: partition_program.case_asked_for("partition", case) in ("sweep-vertex", "reconfigure"))
            self.assertEqual([row["case"] for row in result.rows], ["full-quota", "sweep-fragment-q8"])
        self.assertEqual(partition_program.case_asked_for("partition_cost", "quota-change"), "cost")
        self.assertEqual(partition_program.case_asked_for("partition_cost", "churn"), "churn")

    def test_the_chart_finds_its_points(self):
        points, alone = chart.sweep_points({"rows": self.rows()}, "vertex")
        self.assertEqual([point[0] for point in points], [8, 16, 64])
        self.assertEqual(alone, 100.0)
        self.assertIn("| 16 | 160.0 | 10.000 | 99.9 | 99.9 % |", chart.sweep_table({"rows": self.rows()}))


class Program(unittest.TestCase):
    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "this machine has a GPU")
    def test_without_a_gpu_it_says_so(self):
        done = subprocess.run([os.path.join(BENCH, "partition.py")], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 77)
        self.assertIn("no NVIDIA GPU", done.stderr)

    def test_unknown_cases_are_refused(self):
        done = subprocess.run([os.path.join(BENCH, "partition.py"), "--cases", "x"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main()
