"""Running programs as an ordinary user when we are root."""

import os
import shutil

from . import commands

NOBODY = 65534


class Identity:
    """Whom a program runs as. `uid` None: as ourselves."""

    def __init__(self, uid=None, home=None):
        self.uid = uid
        self.home = home

    def popen_arguments(self):
        if self.uid is None:
            return {}
        return {"user": self.uid, "group": self.uid, "extra_groups": []}

    def environment(self, base):
        env = dict(base)
        if self.home:
            env["HOME"] = self.home
            env.pop("XDG_CACHE_HOME", None)
            env.pop("XDG_RUNTIME_DIR", None)
        return env

    def can_run(self, path):
        command = ["/bin/sh", "-c", '[ -x "$1" ] && [ -r "$1" ]', "sh", path]
        return commands.run(command, check=False, cwd="/", **self.popen_arguments()).returncode == 0


def ordinary_user(work):
    """An ordinary user with a home directory under `work`, or ourselves when we are one."""
    if os.geteuid() != 0:
        return Identity()
    home = os.path.join(work, "home")
    os.makedirs(home, exist_ok=True)
    os.chown(home, NOBODY, NOBODY)
    return Identity(NOBODY, home)


def reachable_copy(prefix, work):
    """Copies bin/ and lib/ of `prefix` to where every user can reach them."""
    target = os.path.join(work, "programs")
    for folder in ("bin", "lib", "deps"):
        source = os.path.join(prefix, folder)
        if os.path.isdir(source):
            shutil.copytree(source, os.path.join(target, folder), symlinks=True)
    commands.run(["chmod", "-R", "a+rX", target], check=True)
    return target
