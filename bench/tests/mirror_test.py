"""What bench/mirror.py asks of the programs and makes of their answers, without a GPU."""

import contextlib
import io
import json
import os
import sys
import tempfile
import types
import unittest
import unittest.mock

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, BENCH)

import mirror  # noqa: E402
from corunlib import hardware  # noqa: E402

FACTS = {"gpu": "G", "driver": "D", "cuda": "C", "date": "2026-01-31", "commit": "0", "command": "bench/mirror.py", "runs": 2}


def times(count, map_ms):
    return {"count": count, "memory_ms": 1.0, "address_ms": 0.5, "map_ms": map_ms, "map_max_ms": map_ms / 2, "free_ms": 3.0}


def run(cost, attach_ms=5.0):
    return {
        "renderer": {
            "alone": [times(1, 0.25), times(8192, 100.0)],
            "mirrored": [times(1, 0.25 + cost), times(8192, 100.0 + 8192 * cost)],
            "exports": [{"count": 64, "single_ms": 9.0, "single_import_ms": 4.0, "plural_ms": 1.0, "plural_import_ms": -1, "plural_status": 86}],
        },
        "attach": {"attach_ms": attach_ms, "control_buffers": 84, "late": 0.0},
    }


IMPORTS = {"bytes": 2097152, "times": [{"count": n, "create_ms": 1.0 * n, "export_ms": 0.25, "import_ms": 0.25, "bind_ms": 0.5} for n in (1, 8192)]}


class Mirror(unittest.TestCase):
    def setUp(self):
        self.options = types.SimpleNamespace(counts=[1, 8192], bytes=4096)

    def test_rows(self):
        rows = mirror.rows_of([run(0.5), run(0.75)], [IMPORTS], self.options)
        found = {(entry["case"], entry["config"]): entry["metrics"] for entry in rows}
        self.assertEqual(found["attach", "shared"]["control_buffers"]["median"], 84)
        self.assertEqual(found["buffers-1", "mirrored"]["cost_ms"], {"median": 0.625, "min": 0.5, "max": 0.75})
        self.assertEqual(found["buffers-1", "export-import"]["cost_ms"]["median"], 2.0)
        self.assertEqual(found["exports-64", "driver"]["plural_import_ms"]["median"], -1)
        self.assertNotIn("plural_status", found["exports-64", "driver"])

    def test_a_map_that_was_faster_with_company_costs_nothing(self):
        rows = mirror.rows_of([run(-0.125)], [], self.options)
        self.assertEqual(rows[1]["metrics"]["cost_ms"]["median"], 0.0)
        self.assertNotIn("export-import", [entry["config"] for entry in rows])

    def test_table_and_verdicts(self):
        rows = mirror.rows_of([run(0.5)], [IMPORTS], self.options)
        table = mirror.table_of(rows).splitlines()
        self.assertEqual([word.strip() for word in table[3].strip("|").split("|")], ["8192", "4096.00", "8193.00", ""])
        verdicts = mirror.verdicts(rows)
        self.assertTrue(verdicts[0].startswith("ok     attaching"), verdicts)
        self.assertTrue(verdicts[1].startswith("MISSED 8,192"), verdicts)

    def test_a_programs_own_buffers(self):
        def phase(ms):
            return [{"count": n, "made": n, "create_ms": 0.5, "allocate_ms": ms, "bind_ms": 0.25, "free_ms": 1.0} for n in (1, 8192)]

        answer = {"bytes": 2097152, "phases": [phase(2.0), phase(3.0), phase(2.0), phase(1.5)]}
        rows, problems = mirror.user_rows(answer, self.options)
        self.assertEqual(problems, [])
        self.assertEqual(rows[1]["case"], "vulkan-buffers-8192")
        self.assertEqual(rows[1]["metrics"]["alone_ms"]["median"], 2.75)
        self.assertEqual(rows[1]["metrics"]["cost_ms"], {"median": 0.25, "min": -0.5, "max": 1.0})
        self.assertEqual(mirror.table_of(rows).splitlines()[3].split("|")[-2].strip(), "0.25")
        self.assertTrue(mirror.verdicts(rows)[0].startswith("ok     8,192 buffers of a program's own"))
        answer["phases"][1][1].update(made=4096, failed="out of memory")
        rows, problems = mirror.user_rows(answer, self.options)
        self.assertEqual([entry["case"] for entry in rows], ["vulkan-buffers-1"])
        self.assertEqual(problems, ["8192 buffers: only 4096: out of memory"])

    def test_phases(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        waits = []
        renderer = types.SimpleNamespace(wait_for=lambda condition, *more: waits.append(condition()))
        phases = mirror.UserPhases(renderer, folder, None)
        phases.measure()
        open(os.path.join(folder, "done-2"), "wb").close()
        phases.measure()
        phases.end()
        self.assertEqual(waits, [False, True])
        self.assertEqual(sorted(os.listdir(folder)), ["done-2", "end", "go-1", "go-2"])

    def test_arguments(self):
        options = mirror.parse_arguments([])
        self.assertEqual((options.counts[0], options.counts[-1]), (1, 8192))
        self.assertEqual(options.parts, ["control", "vulkan"])
        for wrong in ("x", "0", "8193"):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
                mirror.parse_arguments(["--counts", wrong])

    def test_who_shares(self):
        # vudactl run starts the program as a child: its pid is not known.
        sessions = [{"channels_moved": 0}]
        stack = types.SimpleNamespace(status=lambda: {"sessions": sessions})
        self.assertIsNone(mirror.attached(stack))
        sessions.append({"channels_moved": 8, "attach_us": 1500, "control_buffers": 3})
        self.assertEqual(mirror.attached(stack), {"attach_ms": 1.5, "control_buffers": 3})

    def test_without_a_gpu(self):
        with unittest.mock.patch("corunlib.hardware.os.path.exists", lambda path: False), contextlib.redirect_stderr(io.StringIO()) as err:
            self.assertEqual(mirror.main([]), 77)
        self.assertIn("no NVIDIA GPU", err.getvalue())

    def test_the_whole(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        open(os.path.join(folder, "vuda-bench-mirror"), "wb").close()
        stack = types.SimpleNamespace(program=lambda name: os.path.join(folder, name))
        answers = []
        runner = types.SimpleNamespace(simple=lambda label, command, *more: answers.append(command) or IMPORTS)

        def run_body(program, options, argv, body):
            lines, problems, stopped = body(stack, runner, dict(FACTS))
            self.assertIsNone(stopped)
            print("\n".join(lines + problems))
            return 1 if problems else 0

        user = {"bytes": 4096, "phases": [[{"count": n, "made": n, "create_ms": 1, "allocate_ms": 1, "bind_ms": 1, "free_ms": 1} for n in (1, 8192)]] * 4}
        runs = iter([run(0.5), {**run(0.5), "attach": {"attach_ms": 7.0, "control_buffers": 84, "late": 1.0}}])
        with unittest.mock.patch.object(hardware, "run", run_body), unittest.mock.patch.object(
            mirror, "run_once", lambda *words: next(runs)
        ), unittest.mock.patch.object(mirror, "run_user_buffers", lambda *words: user), contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
            status = mirror.main(["--runs", "2", "--counts", "1,8192", "--output", folder])
        self.assertEqual(status, 1)
        self.assertIn("late to mirror", out.getvalue())
        self.assertEqual(answers[0][1:4], ["export-import", "--counts", "1,8192"])
        with open(os.path.join(folder, "mirror.json"), encoding="utf-8") as file:
            cases = [entry["case"] for entry in json.load(file)["rows"]]
        self.assertEqual((cases[0], cases[-1]), ("attach", "vulkan-buffers-8192"))


if __name__ == "__main__":
    unittest.main()
