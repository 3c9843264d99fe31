#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a busy neighbour costs: prefill and decode while another process spins on one core, against quiet.

    spinner.py --model DIR [--numerics bf16] [--threads 2] [--rounds 5] [--json FILE]

Quiet and disturbed runs of `hearth bench` alternate. Exit status 1 where the median of the rounds' ratios is
below --min-prefill (0.55) or --min-decode (0.45). Standard library only; linux.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys

from compare_llama import ROOT, cases, commit, machine, name_of


def measure(a):
    p = subprocess.run([a.hearth, "bench", "--json", "--model", a.model, "--threads", str(a.threads),
                        "--numerics", a.numerics, "--prefill", str(a.prefill), "--decode", str(a.decode),
                        "--reps", "3"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if p.returncode != 0:
        sys.exit(f"hearth failed: {p.stderr[-1000:]}")
    return cases(p.stdout)


def disturbed(a):
    """The same with an endless loop on the first usable core, in a session of its own."""
    core = min(os.sched_getaffinity(0))
    spin = subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{core}}})\n"
                             "while True: pass"], start_new_session=True)
    try:
        return measure(a)
    finally:
        spin.kill()
        spin.wait()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--hearth", default=os.environ.get("HEARTH_BIN", os.path.join(ROOT, "build", "hearth")))
    p.add_argument("--numerics", default="bf16")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--prefill", type=int, default=512)
    p.add_argument("--decode", type=int, default=128)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--min-prefill", type=float, default=0.55)
    p.add_argument("--min-decode", type=float, default=0.45)
    p.add_argument("--json")
    a = p.parse_args()
    rounds = [(measure(a), disturbed(a)) for _ in range(a.rounds)]
    rows, failed = [], False
    for case in rounds[0][0]:
        ratios = [busy[case] / quiet[case] for quiet, busy in rounds]
        share, least = statistics.median(ratios), a.min_prefill if case[0] == "prefill" else a.min_decode
        failed |= share < least
        rows.append({"case": name_of(case), "quiet_tok_s": [q[case] for q, _ in rounds],
                     "busy_tok_s": [b[case] for _, b in rounds], "share": round(share, 3), "least": least})
        print(f"{name_of(case)}: quiet {statistics.median(q[case] for q, _ in rounds):.1f}, beside a spinner "
              f"{statistics.median(b[case] for _, b in rounds):.1f} tok/s: {share:.2f} "
              f"({min(ratios):.2f} to {max(ratios):.2f}), at least {least}")
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"kind": "spinner", "machine": machine(), "commit": commit(),
                       "command": shlex.join(sys.argv), "rows": rows}, f, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
