"""A test of a program that measures on an NVIDIA GPU, with make-believe programs (stub_prefix.py) and a file for the kernel log."""

import contextlib
import io
import os
import tempfile
import unittest
from unittest import mock

import stub_prefix
from corunlib import xid


class StubRig(unittest.TestCase):
    def setUp(self):
        self.directory = self.enterContext(tempfile.TemporaryDirectory())
        self.prefix = stub_prefix.make(os.path.join(self.directory, "prefix"))
        self.output = os.path.join(self.directory, "out")
        self.xids = os.path.join(self.directory, "xids")
        self.work = os.path.join(self.directory, "work")
        os.mkdir(self.work)

    def run_program(self, main, argv, environment, *patches):
        """(exit status, stdout, stderr) of `main(argv)`, as on a machine with a GPU."""
        exists = os.path.exists
        out, err = io.StringIO(), io.StringIO()
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(os.environ, environment))
            stack.enter_context(mock.patch.object(tempfile, "tempdir", self.work))
            stack.enter_context(mock.patch("corunlib.hardware.os.path.exists", lambda path: path == "/dev/nvidiactl" or exists(path)))
            stack.enter_context(mock.patch("corunlib.hardware.KernelXidLog", lambda: xid.FileXidLog(self.xids)))
            for patch in patches:
                stack.enter_context(patch)
            stack.enter_context(contextlib.redirect_stdout(out))
            stack.enter_context(contextlib.redirect_stderr(err))
            status = main(argv)
        self.assertEqual(os.listdir(self.work), [], "temporary files are left behind")
        return status, out.getvalue(), err.getvalue()
