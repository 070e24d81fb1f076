"""Tests of bench/features.py with make-believe programs (stub_prefix.py), and of what it makes of runs."""

import contextlib
import io
import json
import os
import subprocess
import sys
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "scripts")]
import check_results  # noqa: E402
import features as program  # noqa: E402
from stub_rig import StubRig  # noqa: E402
from corunlib import feature_verdicts, features, surroundings  # noqa: E402

LIST = [
    {"case": "launch", "risk": "plain", "split": False},
    {"case": "printf", "risk": "unusual", "split": False},
    {"case": "cluster", "risk": "unusual", "split": True},
    {"case": "managed-faulting", "risk": "stalls", "split": False},
    {"case": "bad-address", "risk": "harmful", "split": False},
]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Features(StubRig):
    def features(self, *arguments, wishes=None, **environment):
        """(exit status, stdout, [line of stderr])"""
        argv = ["--bin", self.prefix, "--output", self.output, "--commit", COMMIT, "--runs", "1", *arguments]
        environment = {"STUB_LIST": json.dumps(LIST)} | environment
        environment |= {"STUB_FEATURES": json.dumps(wishes or {}), "STUB_XID": self.xids}
        environment["STUB_RENDERER"] = os.path.join(self.directory, "renderer.pid")
        status, out, err = self.run_program(program.main, argv, environment, mock.patch.multiple(features, _CASE_SECONDS=2, _XID_SECONDS=0.1))
        return status, out, [line for line in err.splitlines() if ", run " in line or "STOPPED" in line]

    def rows(self):
        path = os.path.join(self.output, "features.json")
        self.assertEqual(check_results.check_file(path), [])
        with open(path, encoding="utf-8") as file:
            return {(row["case"], row["config"]): row for row in json.load(file)["rows"]}

    def test_each_case_alone_shared_and_split(self):
        status, out, lines = self.features()
        self.assertEqual(status, 0, lines)
        order = [tuple(line.split(", run ")[0].split("] ")[-1].split(", ")) for line in lines]
        self.assertEqual(
            order,
            [(case, "alone") for case in ("launch", "printf", "cluster")]
            + [(case, "shared") for case in ("launch", "printf", "cluster")]
            + [("cluster", "split"), ("managed-faulting", "alone"), ("managed-faulting", "shared")],
        )
        rows = self.rows()
        shared = rows["launch", "shared"]
        self.assertEqual((shared["note"], shared["metrics"]["attaches"]["median"], shared["metrics"]["passed"]["median"]), ("shares", 1.0, 1.0))
        self.assertAlmostEqual(shared["metrics"]["renderer_fps"]["median"], 100, delta=5)
        self.assertNotIn("renderer_fps", rows["launch", "alone-compute"]["metrics"])
        self.assertIn(("cluster", "partitioned"), rows)
        self.assertIn(("renderer", "alone-renderer"), rows)
        self.assertIn("| kernel launches | yes |  | 2.00 | 2.00 |", out)
        self.assertNotIn("bad-address", out)
        with contextlib.redirect_stdout(io.StringIO()) as again:
            self.assertEqual(program.main(["--table", os.path.join(self.output, "features.json")]), 0)
        self.assertIn(again.getvalue(), out)

    def test_what_a_case_finds_out_is_filed_and_told_and_may_differ(self):
        def figures(blocks, room):
            return {"figures": {"blocks_at_most_8192": blocks, "shared_memory_per_sm": room, "blocks": 7}}

        def measure(*arguments):
            return self.features(*arguments, wishes=wishes, STUB_LIST=json.dumps([*LIST, {"case": "shared-memory-blocks", "risk": "unusual", "split": False}]))

        wishes = {"shared-memory-blocks, alone": figures(25, 233472), "shared-memory-blocks, shared": figures(5, 49152), "launch, shared": figures(5, 49152)}
        status, out, lines = measure("--cases", "launch,shared-memory-blocks", "--configs", "alone,shared")
        self.assertEqual(status, 0, lines)
        rows = self.rows()
        self.assertEqual(rows["shared-memory-blocks", "shared"]["note"], "shares")
        for config, blocks, room in (("alone-compute", 25, 233472), ("shared", 5, 49152)):
            metrics = rows["shared-memory-blocks", config]["metrics"]
            self.assertEqual((metrics["blocks_at_most_8192"]["median"], metrics["shared_memory_per_sm"]["median"]), (blocks, room))
            self.assertNotIn("blocks", metrics)
        self.assertNotIn("shared_memory_per_sm", rows["launch", "shared"]["metrics"])
        self.assertIn("| yes | 48 KiB of shared memory for all blocks of a multiprocessor (alone 228 KiB) |", out)
        self.assertIn("shared_memory_per_sm 49152", [line for line in lines if "blocks, shared" in line][0])
        status, out, _ = measure("--cases", "shared-memory-blocks", "--configs", "shared")
        self.assertIn("| yes | 48 KiB of shared memory for all blocks of a multiprocessor |", out)
        wishes["shared-memory-blocks, shared"] |= {"outcome": "wrong", "error": "3 words"}
        status, out, _ = measure("--cases", "shared-memory-blocks", "--configs", "alone,shared")
        self.assertIn("| **wrong results** | 3 words |", out)
        self.assertNotIn("shared_memory_per_sm", self.rows()["shared-memory-blocks", "shared"]["metrics"])

    def test_the_clock_is_told_of_both(self):
        wishes = {"clock, alone": {"figures": {"clock_mhz_plain": 1980.2, "clock_mhz_tensor": 1797.0}}, "clock, shared": {"figures": {"clock_mhz_plain": 1979.9, "clock_mhz_tensor": 1796.4}}}
        status, out, lines = self.features("--cases", "clock", "--configs", "alone,shared", wishes=wishes, STUB_LIST=json.dumps([{"case": "clock", "risk": "plain", "split": False}]))
        self.assertEqual(status, 0, lines)
        self.assertIn("| yes | 1796 MHz with tensor cores at work, 1980 without (alone 1797 MHz with tensor cores at work, 1980 without) |", out)
        self.assertEqual(self.rows()["clock", "shared"]["metrics"]["clock_mhz_tensor"]["median"], 1796.4)

    def test_what_runs_natively_says_why(self):
        status, out, _ = self.features("--cases", "launch", STUB_NATIVE="the GPU is in MIG mode")
        self.assertEqual(status, 0)
        self.assertEqual(self.rows()["launch", "shared"]["note"], "native: the GPU is in MIG mode")
        self.assertIn("| no: runs as without VUDA | the GPU is in MIG mode |", out)

    def test_what_is_to_be_kept_out_has_to_be(self):
        status, out, _ = self.features("--cases", "core-dumps", STUB_NATIVE="CUDA is to write GPU core dumps: no")
        self.assertEqual(status, 0, out)
        self.assertEqual(self.rows()["core-dumps", "shared"]["note"], "native: CUDA is to write GPU core dumps: no")
        for environment in ({}, {"STUB_NATIVE": "the GPU is in MIG mode"}):
            status, out, _ = self.features("--cases", "core-dumps", **environment)
            self.assertEqual(status, 1)
            self.assertIn("it ought to be kept out, with a reason that names core dumps", out)

    def test_what_is_put_around_a_case_is_there_when_it_runs(self):
        with surroundings.around("core-dumps") as words:
            said = subprocess.run([*words, "printenv", "CUDA_ENABLE_COREDUMP_ON_EXCEPTION"], capture_output=True, text=True, check=True)
        self.assertEqual(said.stdout, "1\n")
        control = os.path.join(self.directory, "nvidia-cuda-mps-control")
        with open(control, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\n[ "$1" = -d ] && touch "$CUDA_MPS_PIPE_DIRECTORY/control" || {{ read word; echo "$word" >{self.directory}/said; }}\n')
        os.chmod(control, 0o755)
        with mock.patch.dict(os.environ, PATH=f"{self.directory}:{os.environ['PATH']}"):
            self.assertEqual(surroundings.missing("mps"), "")
            with surroundings.around("mps") as words:
                subprocess.run([*words, "sh", "-c", 'test -e "$CUDA_MPS_PIPE_DIRECTORY/control"'], check=True)
        with open(os.path.join(self.directory, "said"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "quit\n")

    def test_a_tool_that_is_not_there_is_no_problem(self):
        with mock.patch.object(surroundings.shutil, "which", return_value=None):
            status, out, _ = self.features("--cases", "cuda-gdb")
        self.assertEqual(status, 0)
        self.assertIn("| a program under `cuda-gdb` | not offered | cuda-gdb is not installed |", out)

    def test_other_results_and_errors_are_problems_and_the_rest_is_run(self):
        wishes = {
            "launch, shared": {"checksum": "bad"},
            "printf, shared": {"outcome": "failed", "error": "unspecified launch failure"},
            "cluster, alone": {"outcome": "skipped", "error": "needs compute capability 9.0"},
        }
        status, out, _ = self.features("--cases", "launch,printf,cluster", wishes=wishes)
        self.assertEqual(status, 1)
        self.assertIn("problem: launch, shared: differs", out)
        self.assertIn("problem: printf, shared: fails: unspecified launch failure", out)
        self.assertNotIn("problem: cluster", out)
        self.assertIn("| not offered | needs compute capability 9.0 |", out)

    def test_a_program_that_hangs_is_killed_and_the_rest_is_run(self):
        status, out, lines = self.features("--cases", "launch,printf", wishes={"launch, shared": "hang"})
        self.assertEqual(status, 1)
        self.assertIn("problem: launch, shared: fails: compute: 'done' did not happen", out)
        self.assertEqual(self.rows()["printf", "shared"]["note"], "shares")

    def test_a_program_that_dies_without_a_word(self):
        status, out, _ = self.features("--cases", "launch,printf", wishes={"launch, shared": "silent"})
        self.assertEqual(status, 1)
        self.assertIn("problem: launch, shared: fails: ended with 134", out)
        self.assertEqual(self.rows()["printf", "shared"]["note"], "shares")

    def test_the_first_xid_stops_everything_and_names_the_case(self):
        status, out, lines = self.features(wishes={"printf, shared": "xid"})
        self.assertEqual(status, 3)
        self.assertIn("printf, shared: STOPPED: Xid 31", lines[-1])
        rows = self.rows()
        self.assertEqual(rows["printf", "shared"]["xids"], 1)
        self.assertIn("fails: ended the run: Xid 31", rows["printf", "shared"]["note"])
        self.assertNotIn(("cluster", "shared"), rows)
        self.assertNotIn(("managed-faulting", "alone-compute"), rows)

    def test_a_renderer_that_ends_stops_everything_and_names_the_case(self):
        status, out, lines = self.features(wishes={"printf, shared": "renderer"})
        self.assertEqual(status, 1)
        self.assertIn("the renderer ended during 'printf'", lines[-1])
        self.assertNotIn(("cluster", "shared"), self.rows())

    def test_wrong_pixels_stop_everything(self):
        status, out, _ = self.features("--cases", "launch", STUB_WRONG_PIXELS="1")
        self.assertEqual(status, 1)
        self.assertIn("fail", self.rows()["launch", "shared"]["note"])

    def test_what_ends_its_context_runs_only_when_it_is_named(self):
        self.assertEqual(features.phases(LIST, {"launch", "bad-address"}, ("alone", "shared", "split"))[-1], (["bad-address"], ["shared"]))
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
            program.parse_arguments(["--cases", "no-such-case"])


def run(outcome="passed", attaches=1, reason="", said="", error="", checksum="1", **more):
    return {"outcome": outcome, "attaches": attaches, "reason": reason, "said": said, "error": error, "checksum": checksum, **more}


class Verdict(unittest.TestCase):
    def test_each(self):
        alone = [run(attaches=0)]
        for shared, kind, words in (
            ([run(), run(attaches=3)], "shares", ""),
            ([run(attaches=0, reason="no")], "native", "no"),
            ([run(attaches=0, said="not sharing: no")], "native", "not sharing: no"),
            ([run(attaches=0)], "native", ""),
            ([run(), run(attaches=0)], "partly", "shared in 1 of 2 runs; no reason given"),
            ([run(reason="the TSG is full")], "partly", "shares, and then: the TSG is full"),
            ([run(checksum="2")], "differs", "results differ: 1, 2"),
            ([run("wrong", error="3 words")], "differs", "3 words"),
            ([run(), run("lost", error="719")], "fails", "719"),
            ([run("skipped", error="no clusters")], "absent", "no clusters"),
        ):
            self.assertEqual(feature_verdicts.verdict(alone, shared), (kind, words))
        self.assertEqual(feature_verdicts.verdict([run("failed", error="x")], [run()]), ("broken", "fails alone as well: x"))
        self.assertEqual(feature_verdicts.verdict([], [run()]), ("shares", ""))

    def test_native_without_a_reason_is_a_problem(self):
        measurement = features.Measurement(None, LIST, lambda text: None)
        measurement.runs = {("launch", "shared"): [run(attaches=0, refused=0)]}
        self.assertEqual(measurement.all_problems(), ["launch, shared: native: no reason given"])


if __name__ == "__main__":
    unittest.main()
