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


UBUNTU = "http://archive.ubuntu.com/ubuntu"
UBUNTU_KEYS = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"


def make_root(directory, suite, packages, mirror, arch=None):
    """Installs a suite's base system and packages ("a,b" or "") into a new directory; mirror may be None. noble is
    Ubuntu 24.04. arch needs qemu-user-static registered with the kernel if this machine is of another."""
    options = ["--variant=minbase", *([f"--include={packages}"] if packages else []), *([f"--arch={arch}"] if arch else [])]
    more = [mirror] if mirror else []
    if suite == "noble":
        options += ["--components=main,universe", f"--keyring={UBUNTU_KEYS}" if os.path.exists(UBUNTU_KEYS) else "--no-check-gpg"]
        more = [UBUNTU, "/usr/share/debootstrap/scripts/gutsy"]  # Debian 12's debootstrap does not know the name
    p = subprocess.run(["debootstrap", *options, suite, directory, *more], capture_output=True, text=True, check=False, timeout=1800)
    assert p.returncode == 0, (suite, p.stdout[-2000:], p.stderr[-2000:])


def use_network(root):
    """Lets programs in the root find hosts by name."""
    shutil.copy("/etc/resolv.conf", os.path.join(root, "etc", "resolv.conf"))
