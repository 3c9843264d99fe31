# SPDX-License-Identifier: MIT
"""Memory cgroups for tests, which need root."""
import os
import time

from hearth_server import BIN

V1, V2 = "/sys/fs/cgroup/memory", "/sys/fs/cgroup"


class Group:
    """A memory cgroup, of version 1 or 2, for the time of the block."""

    def __init__(self, mib):
        self.v1 = os.path.isdir(V1)
        self.dir = os.path.join(V1 if self.v1 else V2, f"hearth_test_{os.getpid()}")
        self.mib = mib

    def __enter__(self):
        os.mkdir(self.dir)
        self.put("memory.limit_in_bytes" if self.v1 else "memory.max", self.mib << 20)
        self.command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', self.dir, BIN, "serve", "--port", "0"]
        return self

    def __exit__(self, *_):
        for _ in range(100):
            try:
                os.rmdir(self.dir)
                return
            except OSError:
                time.sleep(0.05)

    @staticmethod
    def can_be_made():
        try:
            with Group(64):
                return True
        except OSError:
            return False

    def put(self, name, value):
        with open(os.path.join(self.dir, name), "w", encoding="ascii") as f:
            f.write(str(value))

    def get(self, name):
        with open(os.path.join(self.dir, name), encoding="ascii") as f:
            return f.read()

    def peak(self):
        return int(self.get("memory.max_usage_in_bytes" if self.v1 else "memory.peak"))

    def kills(self):
        rows = self.get("memory.oom_control" if self.v1 else "memory.events").split("\n")
        return sum(int(row.split()[1]) for row in rows if row.startswith("oom_kill "))
