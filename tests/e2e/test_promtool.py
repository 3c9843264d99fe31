#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`promtool check metrics` over /metrics, before and after requests of every kind. The only complaints allowed are
of vLLM's own names: their colon, and a histogram that ends in _total; without those there is none. `promtool test
rules` over the alerts of deploy/, and over every query of the dashboard with what a server served. Skipped if there is
no promtool."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

from hearth_server import ROOT, SKIPPED, Hearth, chunks, run_cases, with_named_key

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
    with with_named_key("--vllm-metrics", "off") as h:
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


def test_every_alert_is_tested_both_ways():
    with open(os.path.join(ROOT, "deploy", "prometheus", "alerts.yml"), encoding="utf-8") as f:
        alerts = re.findall(r"- alert: (\w+)", f.read())
    with open(os.path.join(HERE, "alerts_test.yml"), encoding="utf-8") as f:
        rows = re.findall(r"- alertname: (\w+)\n.*\n\s+exp_alerts:( \[\])?", f.read())
    assert len(alerts) > 8, alerts
    for alert in alerts:
        assert {quiet == "" for name, quiet in rows if name == alert} == {True, False}, f"{alert}: {rows}"


# ---- the dashboard --------------------------------------------------------------------------------------------

def dashboard_queries():
    """(title of the panel, expression) with Grafana's variables replaced."""
    with open(os.path.join(ROOT, "deploy", "grafana", "hearth.json"), encoding="utf-8") as f:
        panels = json.load(f)["panels"]
    panels = [inner for p in panels for inner in (p, *p.get("panels", []))]
    values = {"$__rate_interval": "5m", "$job": ".*", "$instance": ".*"}
    for p in panels:
        for target in p.get("targets", []):
            expr = target["expr"]
            for name, value in values.items():
                expr = expr.replace(name, value)
            assert "$" not in expr, expr
            yield p["title"], expr


def rules_test(before, after, queries):
    """A file for `promtool test rules`: the two scrapes a minute apart, and queries that are said to give nothing."""
    series = []
    for name in sorted(before):
        labels = re.sub(r"^[^{]*\{?|\}$", "", name)
        named = name.split("{")[0] + "{" + ",".join(filter(None, (labels, 'job="hearth"', 'instance="a"'))) + "}"
        series.append({"series": named, "values": f"{before[name]!r} {after[name]!r}"})
    return {"evaluation_interval": "1m", "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [
        {"expr": expr, "eval_time": "1m", "exp_samples": []} for expr in queries]}]}


def what_promtool_got(directory, before, after, queries):
    """{query: values}. A query that gives something fails its test, and promtool prints what it got."""
    path = os.path.join(directory, "dashboard.yml")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(rules_test(before, after, queries), f)  # JSON is YAML
    p = subprocess.run([PROMTOOL, "test", "rules", path], text=True, capture_output=True, check=False, timeout=60)
    wrong = re.findall(r"^.*\berr: .*$", p.stdout + p.stderr, re.M)
    assert not wrong, wrong
    found = re.findall(r'expr: "(.*?)", time: 1m,?\s+exp:.*?\n\s+got:\s*(.*?)\n(?=\s*expr: |\s*$)', p.stdout + p.stderr, re.S)
    assert p.returncode and found, p.stdout + p.stderr
    return {json.loads(f'"{expr}"'): [float(v) for v in re.findall(r"\{[^}]*\} (\S+?),?(?=\s|$)", got)] for expr, got in found}


def test_dashboard_queries_give_values():
    """Every query gives values over what a server served, and a number where what it asks about has happened."""
    with with_named_key() as h, tempfile.TemporaryDirectory() as d:
        use(h)
        before = h.settled_metrics()
        use(h)
        after = h.settled_metrics()
        queries = dict((expr, title) for title, expr in dashboard_queries())
        got = what_promtool_got(d, before, after, queries)
    assert len(queries) > 60, len(queries)
    moved = {name.split("{")[0] for name in after if after[name] != before[name]}
    n_numbers = 0
    for expr, title in queries.items():
        values = got.get(expr)
        assert values, f"{title}: nothing for {expr}"
        if any(v != v for v in values):  # 0 / 0: nothing of it has happened
            asked = re.findall(r"\b(hearth_\w+)\{", expr)
            assert not set(asked) <= moved, f"{title}: not a number: {expr}"
            continue
        n_numbers += 1
        since = "time()" in expr  # promtool's clock begins at 0
        assert since or min(values) >= 0 and ("Share" not in title or max(values) <= 1), f"{title}: {values} for {expr}"
    assert n_numbers > 50, n_numbers


def test_shipped_configuration():
    config = os.path.join(ROOT, "deploy", "prometheus", "prometheus.yml")
    p = subprocess.run([PROMTOOL, "check", "config", config], text=True, capture_output=True, check=False, timeout=60)
    assert p.returncode == 0, p.stdout + p.stderr


if __name__ == "__main__":
    if not PROMTOOL:
        print("no promtool: tests/run.sh takes it out of Debian's package prometheus, without the service")
        sys.exit(SKIPPED)
    run_cases(globals())
