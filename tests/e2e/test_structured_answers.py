#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Schemas at random, judged by jsonschema and llguidance: small cases of structured_run.py, whole_json_run.py,
tools_run.py and differential_schema.py.

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
    import tools_run
    import whole_json_run
except ImportError as e:
    print(e)
    sys.exit(77)


def test_finished_answers_are_valid():
    """Three seeds of 80 random schemas at temperature 1: all are whole; without closing most end, and the others could go on."""
    a = argparse.Namespace(max_tokens=100, bias=2, seeds=3, clients=8)
    maker = [differential_schema.Maker(seed).schema() for seed in range(100)]
    for close in ("on", "off"):
        with Hearth("--parallel", "8", "--close-answers", close) as server, Accept(DEMO) as accept:
            schemas, _ = structured_run.compiled(accept, maker, 80)
            found = structured_run.run(server, accept, DEMO, schemas, a)
        count = found.count
        assert not found.wrong, found.wrong
        assert count["answers"] == 240 and count["finished"] > 200 and (count["cut"] == 0) == (close == "on"), count
        assert count["valid"] > 0.9 * count["finished"], count


def test_json_is_whole():
    """A few of each part of whole_json_run.py."""
    for part, n in (("jump", 8), ("texts", 300), ("answers", 60), ("same", 2), ("calls", 30)):
        found = whole_json_run.run(part, argparse.Namespace(n=n, seed=1, clients=8), DEMO)
        assert not found.wrong and found.count["right"] >= n / 2, (part, found.count)


def tools_options(**others):
    return argparse.Namespace(seed=1, clients=8, max_tokens=400, bias=9, **others)


def test_required_calls_are_valid():
    """Every finished answer is calls whose arguments fit, streamed or not, in three dialects; most finish."""
    report = tools_run.Report()
    tools_run.run_calls(tools_options(cases=24, templates=("qwen3", "qwen3-coder", "mistral-nemo")), report)
    count = report.count
    assert not report.wrong, report.wrong
    assert count["answers"] == 72 and count["finished"] >= 0.6 * 72 and count["valid"] > 30, count


def test_random_texts_with_tools():
    """No answer is refused or empty; each is what the filter reads, in every dialect and mode."""
    report = tools_run.Report()
    tools_run.run_texts(tools_options(cases=200, templates=("qwen3", "llama-3.1", "mistral-small-3.2")), report)
    assert not report.wrong, report.wrong
    assert report.count["answers"] >= 190 and report.count["calls"] > 30, report.count


def test_verdicts_agree():
    report = differential_schema.run(DEMO, 300, 100000)
    assert report.wrong == 0, report.count
    assert min(report.count[k] for k in ("accepted", "refused", "llguidance agrees")) > 500, report.count


if __name__ == "__main__":
    run_cases(globals())
