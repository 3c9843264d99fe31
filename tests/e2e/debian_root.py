# SPDX-License-Identifier: MIT
"""Bare Debian roots for the long tests that are run by hand, and how long their steps take."""
import os
import shutil
import subprocess
import time


class Clock:
    """Prints each step with the time since the one before."""

    def __init__(self):
        self.begin = time.monotonic()

    def step(self, text):
        now = time.monotonic()
        print(f"{now - self.begin:8.2f} s  {text}", flush=True)
        self.begin = now


def make_root(directory, suite, packages, mirror):
    """Installs a suite's base system and packages ("a,b" or "") into a new directory; mirror may be None."""
    p = subprocess.run(["debootstrap", "--variant=minbase", *([f"--include={packages}"] if packages else []), suite,
                        directory, *([mirror] if mirror else [])], capture_output=True, text=True, check=False, timeout=600)
    assert p.returncode == 0, (suite, p.stdout[-2000:], p.stderr[-2000:])


def use_network(root):
    """Lets programs in the root find hosts by name."""
    shutil.copy("/etc/resolv.conf", os.path.join(root, "etc", "resolv.conf"))
