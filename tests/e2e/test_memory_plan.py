#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The plan of memory holds what a server takes, and not much more; a cgroup's limit holds before --memory."""
import os

from cgroup import Group
from full_load import FullLoad, planned_bytes
from hearth_server import Hearth, run_cases


def test_the_plan_is_what_is_used():
    options = ["--memory", "128M", "--answer-memory", "6M"]
    with Hearth(*options) as h:
        plan = planned_bytes(h)
        assert plan <= 128 << 20, plan
        with FullLoad(h) as load:
            load.run()
            peak = h.memory_kib("VmHWM") << 10
    print(f"  planned {plan / 2**20:.1f} MiB, peak {peak / 2**20:.1f}")
    assert os.environ.get("HEARTH_SLOW") or 0.8 <= peak / plan <= 1.0, (peak, plan)


def test_a_cgroup_holds_before_the_option():
    if not Group.can_be_made():
        print("  (no cgroup can be made here: this needs root)")
        return
    with Group(128) as group, Hearth("--memory", "1G", command=group.command) as h:
        assert h.get("/props")[2]["memory"]["limit_bytes"] == 128 << 20
        line = h.wait_log("the smaller holds")
        assert "1024 MiB" in line and "128 MiB" in line and '"warning"' in line, line


if __name__ == "__main__":
    run_cases(globals())
