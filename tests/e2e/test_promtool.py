#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`promtool check metrics` over /metrics, before and after requests of every kind. The only complaints allowed are
of vLLM's own names: their colon, and a histogram that ends in _total; without those there is none. `promtool test
rules` over the alerts of deploy/. Skipped if there is no promtool."""
import os
import re
import shutil
import subprocess
import sys

from hearth_server import ROOT, SKIPPED, Hearth, chunks, run_cases

HERE = os.path.dirname(os.path.abspath(__file__))
PROMTOOL = shutil.which("promtool")
VLLM_NAMES = re.compile(r"vllm:\w+ metric names should not contain ':'$|"
                        r"vllm:iteration_tokens_total non-counter metrics should not have \"_total\" suffix$")


def complaints(h):
    text = h.request("GET", "/metrics")[2]
    p = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, check=False, timeout=60)
    lines = (p.stdout + p.stderr).decode().splitlines()
    assert p.returncode == 0 or lines, p.returncode
    return lines


def use(h):
    body = {"prompt": "Once", "max_tokens": 4}
    assert h.post("/v1/completions", body)[0] == 200
    chunks(h.stream("/v1/completions", dict(body, stream=True)))
    assert h.post("/v1/embeddings", {"input": "Tom"})[0] == 200
    assert h.post("/v1/completions", {"prompt": 5})[0] == 400
    assert h.get("/nothing")[0] == 404


def test_own_names_are_clean():
    with Hearth("--vllm-metrics", "off") as h:
        assert not complaints(h), complaints(h)
        use(h)
        assert not complaints(h), complaints(h)


def test_aliases_have_only_their_names():
    with Hearth() as h:
        use(h)
        found = complaints(h)
        assert found, "promtool says nothing about the aliases: has it looked?"
        others = [l for l in found if not VLLM_NAMES.match(l)]
        assert not others, others


def test_alerts_fire_and_do_not_fire():
    p = subprocess.run([PROMTOOL, "test", "rules", os.path.join(HERE, "alerts_test.yml")], text=True,
                       capture_output=True, check=False, timeout=60)
    assert p.returncode == 0, p.stdout + p.stderr


def test_shipped_configuration():
    config = os.path.join(ROOT, "deploy", "prometheus", "prometheus.yml")
    p = subprocess.run([PROMTOOL, "check", "config", config], text=True, capture_output=True, check=False, timeout=60)
    assert p.returncode == 0, p.stdout + p.stderr


if __name__ == "__main__":
    if not PROMTOOL:
        print("no promtool: tests/run.sh takes it out of Debian's package prometheus, without the service")
        sys.exit(SKIPPED)
    run_cases(globals())
