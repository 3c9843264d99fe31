#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes deploy/grafana/hearth.json, a Grafana dashboard, from the table of docs/metrics.md.

    dashboard.py METRICS.md OUT.json

A panel names families; what is asked of Prometheus follows from a family's type (a counter's rate, a gauge's value, a
histogram's quantiles), and its text from the family's own. A name that the table lacks, or one of another type, is an
error. Families that no panel names come into the last row, one panel each. `ninja docs` runs this, the tests `docs` and
`promtool` check what it wrote.
"""
import json
import re
import sys

QUANTILES = (("0.5", "median"), ("0.95", "95th percentile"), ("0.99", "99th percentile"))
SELECTOR = 'job=~"$job",instance=~"$instance"'
WINDOW = "[$__rate_interval]"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT, STAT_WIDTH, STAT_HEIGHT = 8, 8, 4, 4  # of 24 columns


class Table:
    """The families of metrics.md: {name: (type, labels, meaning)}; `shown` are those some panel has asked for."""

    def __init__(self, text):
        rows = re.findall(r"^\| `(hearth_\w+|process_\w+)` \| (\w+) \| (.*?) \| (.*?) \|", text, re.M)
        self.families = {name: (kind, re.findall(r"`(\w+)`", labels), help) for name, kind, labels, help in rows}
        self.shown = []

    def take(self, name, kind, by=None):
        if name not in self.families:
            sys.exit(f"dashboard: no metric {name}")
        real, labels, _ = self.families[name]
        if real != kind:
            sys.exit(f"dashboard: {name} is a {real}, not a {kind}")
        if by not in (None, "instance", *labels):
            sys.exit(f"dashboard: {name} has no label {by}")
        self.shown.append(name)
        return name

    def help(self, name):
        return self.families[name][2]


# ---- queries: each makes (expression, legend) pairs from the table --------------------------------------------

def matched(name, match=""):
    return name + "{" + ",".join(filter(None, (SELECTOR, match))) + "}"


def grouped(inner, by):
    return f"sum by ({by}) ({inner})" if by else f"sum({inner})"


def rate(name, legend=None, by=None, match=""):
    """A counter: events per second."""
    def queries(table):
        table.take(name, "counter", by)
        return [(grouped(f"rate({matched(name, match)}{WINDOW})", by), legend or "{{%s}}" % by)]
    return queries


def level(name, legend=None, by=None):
    """A gauge: the sum over the replicas, or one line each."""
    def queries(table):
        table.take(name, "gauge", by)
        return [(grouped(matched(name), by), legend or "{{%s}}" % by)]
    return queries


def age(name, by):
    """A gauge that holds a date: the seconds since then."""
    def queries(table):
        table.take(name, "gauge", by)
        return [(f"time() - max by ({by}) ({matched(name)})", "{{%s}}" % by)]
    return queries


def quantiles(name, which=QUANTILES):
    def queries(table):
        table.take(name, "histogram")
        inner = grouped(f"rate({matched(name + '_bucket')}{WINDOW})", "le")
        return [(f"histogram_quantile({q}, {inner})", legend) for q, legend in which]
    return queries


def mean(name, legend):
    """A histogram's mean value."""
    def queries(table):
        table.take(name, "histogram")
        total, count = (grouped(f"rate({matched(name + end)}{WINDOW})", None) for end in ("_sum", "_count"))
        return [(f"{total} / {count}", legend)]
    return queries


def share(part, whole, legend):
    """The quotient of what two other queries ask."""
    def queries(table):
        (a, _), = part(table)
        (b, _), = whole(table)
        return [(f"{a} / {b}", legend)]
    return queries


# ---- panels -------------------------------------------------------------------------------------------------------

def panel(title, unit, *made, kind="timeseries", text=None, most=None):
    return {"title": title, "unit": unit, "made": made, "kind": kind, "text": text, "most": most}


def stat(title, unit, made, **more):
    return panel(title, unit, made, kind="stat", **more)


PROMPTS, CACHED = "hearth_prompt_tokens_total", "hearth_cached_prompt_tokens_total"
REQUESTS = "hearth_http_requests_total"
ROWS = {
    "Now": [
        stat("Replicas ready", "none", level("hearth_ready", "ready")),
        stat("Requests", "reqps", rate(REQUESTS, "requests")),
        stat("Generated tokens", "short", rate("hearth_generated_tokens_total", "tokens per second")),
        stat("Time to first token, p95", "s", quantiles("hearth_time_to_first_token_seconds", QUANTILES[1:2])),
        stat("Waiting sequences", "none", level("hearth_sequences_waiting", "waiting")),
        stat("Prompt tokens from the cache", "percentunit", share(rate(CACHED), rate(PROMPTS), "share"), most=1),
    ],
    "Throughput": [
        panel("Tokens per second", "short", rate("hearth_generated_tokens_total", "generated"),
              rate("hearth_computed_prompt_tokens_total", "prompt, computed"), rate(CACHED, "prompt, from the cache")),
        panel("Requests per second by endpoint", "reqps", rate("hearth_endpoint_requests_total", by="endpoint")),
        panel("Requests per second by how they ended", "reqps", rate("hearth_requests_finished_total", by="reason")),
    ],
    "Latency": [
        panel("Time to first token", "s", quantiles("hearth_time_to_first_token_seconds")),
        panel("Inter-token latency", "s", quantiles("hearth_inter_token_latency_seconds")),
        panel("Duration of requests", "s", quantiles("hearth_request_duration_seconds")),
    ],
    "Queue": [
        panel("Sequences", "none", level("hearth_sequences_running", "running"),
              level("hearth_sequences_waiting", "waiting")),
        panel("Time in the queue", "s", quantiles("hearth_request_queue_seconds")),
        panel("Prompt tokens in the queue", "none", level("hearth_waiting_prompt_tokens", by="instance")),
    ],
    "Cache and memory": [
        panel("Share of prompt tokens from the prefix cache", "percentunit",
              share(rate(CACHED, by="instance"), rate(PROMPTS, by="instance"), "{{instance}}"), most=1),
        panel("Share of KV pages", "percentunit",
              share(level("hearth_kv_pages_used"), level("hearth_kv_pages"), "held by running sequences"),
              share(level("hearth_kv_pages_cached"), level("hearth_kv_pages"), "held by the prefix cache"), most=1),
        panel("Resident memory", "bytes", level("process_resident_memory_bytes", by="instance")),
    ],
    "Errors, refusals, drops": [
        panel("Errors per second", "reqps", rate(REQUESTS, by="code", match='code=~"5..|4..",code!="429",code!="503"'),
              text="Requests by HTTP status, without refusals."),
        panel("Refusals per second", "reqps", rate(REQUESTS, by="code", match='code=~"429|503"'),
              rate("hearth_requests_returned_refused_total", "refused again"),
              rate("hearth_http_connections_refused_total", "connections")),
        panel("Drops per second", "cps", rate("hearth_http_clients_gone_total", "clients that left or were cut"),
              rate("hearth_http_slow_readers_cut_total", "slow readers"),
              rate("hearth_http_timeouts_total", "{{part}} too late", by="part"),
              rate("hearth_log_lines_dropped_total", "log lines")),
    ],
    "Engine": [
        panel("Share of time that the engine computes", "percentunit",
              rate("hearth_engine_busy_seconds_total", by="instance"), most=1),
        panel("Tokens per step", "short", mean("hearth_engine_step_tokens", "mean")),
        panel("Share of draft tokens that were right", "percentunit",
              share(rate("hearth_accepted_draft_tokens_total"), rate("hearth_draft_tokens_total"), "accepted"), most=1),
    ],
}
OTHERS = "Everything else"


def plain_panel(table, name):
    """A panel for a family that no other panel names."""
    kind, labels, _ = table.families[name]
    unit = "s" if name.endswith("_seconds") else "bytes" if name.endswith("_bytes") else "short"
    title = re.sub(r"^hearth_", "", name)
    if kind == "histogram":
        return panel(title, unit, quantiles(name))
    if name.endswith("_start_time_seconds"):
        return panel(f"since {title}", "s", age(name, "instance"))
    if kind == "counter":
        return panel(title + " per second", "cps", rate(name, by=labels[0] if labels else "instance"))
    return panel(title, unit, level(name, by=labels[0] if labels else "instance"))


def targets(table, made):
    queries = [q for make in made for q in make(table)]
    return [{"refId": chr(ord("A") + i), "expr": expr, "legendFormat": legend, "datasource": SOURCE, "editorMode": "code"}
            for i, (expr, legend) in enumerate(queries)]


def drawn(table, p, number, x, y):
    """A panel as Grafana stores it."""
    before = len(table.shown)
    asked = targets(table, p["made"])
    named = list(dict.fromkeys(table.shown[before:]))
    small = p["kind"] == "stat"
    defaults = {"unit": p["unit"], "min": 0, "decimals": None if p["unit"] != "none" else 0}
    if p["most"]:
        defaults["max"] = p["most"]
    if not small:
        defaults["custom"] = {"lineWidth": 1, "fillOpacity": 8, "showPoints": "never"}
    options = {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
               "tooltip": {"mode": "multi", "sort": "none"}}
    if small:
        options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "graphMode": "area",
                   "colorMode": "none", "textMode": "auto", "justifyMode": "auto", "orientation": "auto"}
    return {"id": number, "type": p["kind"], "title": p["title"], "datasource": SOURCE, "targets": asked,
            "description": p["text"] or "\n\n".join(table.help(n) for n in named),
            "gridPos": {"x": x, "y": y, "w": STAT_WIDTH if small else WIDTH, "h": STAT_HEIGHT if small else HEIGHT},
            "fieldConfig": {"defaults": {k: v for k, v in defaults.items() if v is not None}, "overrides": []},
            "options": options}


def lay_out(table):
    """All panels under their rows, left to right; the last row is folded."""
    panels, y, number = [], 0, 0
    for title, row in (*ROWS.items(), (OTHERS, None)):
        if row is None:
            row = [plain_panel(table, name) for name in table.families if name not in table.shown]
        number, x, y = number + 1, 0, y + 1
        head = {"id": number, "type": "row", "title": title, "collapsed": title == OTHERS, "panels": [],
                "gridPos": {"x": 0, "y": y - 1, "w": 24, "h": 1}}
        panels.append(head)
        for p in row:
            number += 1
            one = drawn(table, p, number, x, y)
            (head["panels"] if title == OTHERS else panels).append(one)
            x += one["gridPos"]["w"]
            if x >= 24:
                x, y = 0, y + one["gridPos"]["h"]
        y += HEIGHT if x else 0
    return panels


def variable(name, label, query):
    return {"name": name, "label": label, "type": "query", "datasource": SOURCE, "query": {"query": query, "refId": name},
            "refresh": 2, "sort": 1, "multi": True, "includeAll": True, "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]}}


def dashboard(table):
    source = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "uid": "hearth", "title": "Hearth", "tags": ["hearth", "llm"], "schemaVersion": 39, "version": 1,
        "editable": True, "graphTooltip": 1, "refresh": "30s", "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source, variable("job", "Job", "label_values(hearth_ready, job)"),
                                variable("instance", "Replica", 'label_values(hearth_ready{job=~"$job"}, instance)')]},
        "annotations": {"list": []}, "links": [], "panels": lay_out(table),
    }


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: dashboard.py METRICS.md OUT.json")
    with open(sys.argv[1], encoding="utf-8") as f:
        table = Table(f.read())
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        json.dump(dashboard(table), f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
