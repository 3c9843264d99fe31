#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What compiling costs over the corpus of compile_corpus.py. A compilation counts steps, of 50 ns each at most 75, and
may take 2,000,000; so every loop that a client can drive has to count what it costs.

    test_compile_steps.py            harmless inputs compile within their steps, all within the limit; and as a rough
                                     check of CPU time, which is not the same on every computer, ten times the goal
    test_compile_steps.py --times    also, on a quiet machine: a line per input with milliseconds of CPU time and
                                     nanoseconds per step; fails if one takes more than 150 ms. With HEARTH_REFERENCE
                                     real schemas too, of which only the slowest are printed
"""
import json
import lzma
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "e2e"))
import compile_corpus  # noqa: E402
from accept_filter import Accept  # noqa: E402
from hearth_server import DEMO  # noqa: E402

TIMES = "--times" in sys.argv
MAX_STEPS = 2_000_000
MAX_MS = 150 if TIMES else 1500
# The step that goes over the limit may be a large one: an array of some MiB.
MAX_OVER = 500_000


def real_schemas():
    folder = os.environ.get("HEARTH_REFERENCE")
    if not TIMES or not folder:
        return
    with lzma.open(os.path.join(folder, "goldens", "schema", "maskbench.jsonl.xz"), "rt", encoding="utf-8") as f:
        for row in map(json.loads, f):
            yield row["id"], {"schema": row["schema"]}


def main():
    problems = 0
    cases = [(name, steps, "harmless", request) for name, steps, request in compile_corpus.harmless()]
    cases += [(name, MAX_STEPS + MAX_OVER, "hostile", request) for name, request in compile_corpus.hostile()]
    cases += [(name, MAX_STEPS + MAX_OVER, "real", request) for name, request in real_schemas()]
    slowest = 0
    with Accept(DEMO) as accept:
        for name, bound, kind, request in cases:
            answer = accept.raw(compile_corpus.line(request))
            steps, ms = answer["steps"], answer["compile_ms"]
            message = answer["error"]["message"] if "error" in answer else "compiled"
            slow = ms > MAX_MS and not os.environ.get("HEARTH_SLOW")
            wrong = steps > bound or slow or (kind == "harmless" and "error" in answer)
            problems += wrong
            slowest = max(slowest, ms)
            if wrong or (TIMES and (kind != "real" or ms > 20)):
                print(f"{'FAILED: ' if wrong else ''}{kind}: {name}: {ms:.1f} ms, {steps} steps of {bound}, "
                      f"{ms * 1e6 / max(steps, 1):.0f} ns each: {message[:80]}", flush=True)
    print(f"{len(cases)} inputs, {problems} problems; the slowest took {slowest:.1f} ms of CPU time")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
