#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Schemas at random, judged by jsonschema and llguidance: small cases of structured_run.py and differential_schema.py.

Runs itself with the interpreter of $HEARTH_VENV, where tests/run.sh installed them; skipped without.
"""
import argparse
import os
import sys

from accept_filter import Accept
from hearth_server import DEMO, ROOT, Hearth, enter_clients_venv, run_cases

enter_clients_venv()
sys.path.insert(0, os.path.join(ROOT, "tests", "golden"))
try:
    import differential_schema
    import structured_run
except ImportError as e:
    print(e)
    sys.exit(77)


def test_finished_answers_are_valid():
    """Three seeds of 80 random schemas at temperature 1; most answers end, and those that do not could go on."""
    a = argparse.Namespace(max_tokens=100, bias=2, seeds=3, clients=8)
    schemas = [differential_schema.Maker(seed).schema() for seed in range(100)]
    with Hearth("--parallel", "8") as server, Accept(DEMO) as accept:
        schemas, _ = structured_run.compiled(accept, schemas, 80)
        found = structured_run.run(server, accept, DEMO, schemas, a)
    count = found.count
    assert not found.wrong, found.wrong
    assert count["answers"] == 240 and count["finished"] > 200 and count["cut"] > 0, count
    assert count["valid"] > 0.9 * count["finished"], count


def test_verdicts_agree():
    report = differential_schema.run(DEMO, 300, 100000)
    assert report.wrong == 0, report.count
    assert min(report.count[k] for k in ("accepted", "refused", "llguidance agrees")) > 500, report.count


if __name__ == "__main__":
    run_cases(globals())
