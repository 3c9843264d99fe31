#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The plan of memory against what a server takes in control groups, by hand: `cgroup_run.py [MIB ...] [-- OPTIONS]`.

For each limit (128 and 280 MiB) a memory cgroup is made, which needs root; the server in it gets a load that fills
every budget at once (full_load.py). Exit status 1 if it was killed, or if the peak of resident memory is not 0.8 to
1.0 of the plan.
"""
import sys

from cgroup import Group
from full_load import FullLoad, planned_bytes
from hearth_server import Hearth

def try_limit(mib, options):
    with Group(mib) as group:
        with Hearth(*options, command=group.command) as h:
            plan = planned_bytes(h)
            ready = h.memory_kib() << 10
            with FullLoad(h) as load:
                load.run()
                peak = h.memory_kib("VmHWM") << 10
            body = {"prompt": "Once", "max_tokens": 4}
            h.wait_until(lambda: h.post("/v1/completions", body)[0] == 200, 10, "an answer after the load")
            used, kills = group.peak(), group.kills()
    good = kills == 0 and 0.8 <= peak / plan <= 1.0
    print(f"{mib} MiB: planned {plan / 2**20:.1f} MiB, at the start {ready / 2**20:.1f}, peak {peak / 2**20:.1f} "
          f"({peak / plan:.2f} of the plan), of the cgroup {used / 2**20:.1f}, {kills} kills{'' if good else '  FAILED'}",
          flush=True)
    return good


def main():
    args, _, options = " ".join(sys.argv[1:]).partition("--")
    limits = [int(a) for a in args.split()] or [128, 280]
    results = [try_limit(mib, options.split()) for mib in limits]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
