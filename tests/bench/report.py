#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes RESULTS.md and its plots from the files in results/, and nothing else: no figure is typed in.

    report.py [--results tests/bench/results] [--out tests/bench/RESULTS.md]

Files by name: compare_llama*.json, load*.json, structured*.json, start*.json, spinner*.json of the tools of those names,
gemm*.jsonl of bench_gemm, bench*.jsonl of `hearth bench --json`. Standard library only.
"""
import argparse
import glob
import json
import os
import statistics
import sys

from plot import read_lines, write_plot

HERE = os.path.dirname(os.path.abspath(__file__))

HEAD = """# Measured speed

Made by `tests/bench/report.py` from the files in `tests/bench/results/`; how they are made:
`tests/bench/run_all.sh`. Figures are medians with the least and most in brackets; a ratio is the median of
the ratios of alternating rounds. What was tried for speed, and what it brought, is in `AB_LOG.md`.
"""


# Found with perf on the package named in compare_llama.py.
PEER_NOTE = """The package is compiled by gcc 11.4, which keeps the sums of the peer's bf16 product on the stack (a store
for every multiply); built from source by a newer compiler llama.cpp reads bf16 prompts faster than here. Its
8- and 4-bit products were not looked into.
"""


def find(a, pattern):
    return sorted(glob.glob(os.path.join(a.results, pattern)))


def load(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(str(c) for c in row) + " |" for row in rows] + [""]


def spread(values, digits=0):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def origin(d):
    m = d.get("machine") or {}
    return [f"{m.get('cpu', '?')}, {m.get('cores', '?')} cores, {m.get('system', '?')}; commit "
            f"`{d.get('commit', '?')}`; `{d.get('command', '?')}`", ""]


def compare_section(a):
    out = []
    for path in find(a, "compare_llama*.json"):
        d = load(path)
        rows = [(r["format"], r["threads"], r["case"], spread(r["llama_tok_s"]), spread(r["hearth_tok_s"]),
                 f"**{r['ratio']:.2f}** ({r['ratio_min']:.2f}-{r['ratio_max']:.2f})", read_share(r)) for r in d["rows"]]
        out += [f"## Beside llama.cpp, {d.get('shape', 'smollm2-135m')}", "", f"The peer is `{d['peer']}`:", "", "```", *d["peer_log"], "```", "", PEER_NOTE,
                *table(("weights", "threads", "case", "llama.cpp tok/s", "Hearth tok/s", "ratio",
                        "weights read, of memory's GB/s"), rows),
                *origin(d)]
    return out


def read_share(row):
    """How fast decode read its weights beside how fast memory is read, of the same processes."""
    if not any(row.get("weights_gb_s", [])):
        return ""
    shares = [r / m for r, m in zip(row["weights_gb_s"], row["memory_gb_s"])]
    return (f"{statistics.median(row['weights_gb_s']):.1f} of {statistics.median(row['memory_gb_s']):.1f}: "
            f"{statistics.median(shares):.0%} ({min(shares):.0%}-{max(shares):.0%})")


def load_section(a):
    paths, rows, origins = find(a, "load*.json"), [], []
    for path in paths:
        d = load(path)
        groups = {}
        for r in d["rows"]:
            level = f"{r['clients']} clients" if "clients" in r else f"{r['rate']:g} requests/s"
            if "output_tok_s" in r:
                groups.setdefault((r["server"], level), []).append(r)
        for (server, level), g in groups.items():
            middle = lambda key, p, g=g: f"{statistics.median(r[key][p] or 0 for r in g):.1f}"
            rows.append((server, level, spread([r["output_tok_s"] for r in g]), middle("ttft_ms", "p50"),
                         middle("ttft_ms", "p99"), *(middle("itl_ms", p) for p in ("p50", "p95", "p99", "max"))))
        origins += origin(d)
    if not rows:
        return []
    out = ["## Over HTTP", ""]
    if write_plot("clients", os.path.join(a.results, "clients.svg"), paths):
        out += ["![Tokens a second by clients](results/clients.svg)", ""]
    head = ("server", "load", "tok/s", "TTFT p50 ms", "p99", "gap p50 ms", "p95", "p99", "max")
    return out + table(head, rows) + origins


def structured_section(a):
    rows, origins = [], []
    for path in find(a, "structured*.json"):
        d = load(path)
        for r in d.get("speed_ratios", []):
            n = r["clients"]
            free, bound = ([x for x in d["speed"] if (x["server"], x["clients"]) == (kind, n)] for kind in ("free", "schema"))
            rows.append((f"tok/s, {n} clients, a schema", spread([x["output_tok_s"] for x in free]),
                         spread([x["output_tok_s"] for x in bound]), f"**{r['ratio']:.2f}** ({r['min']:.2f}-{r['max']:.2f})"))
            pairs = [x["cpu_ms_token"] / y["cpu_ms_token"] for x, y in zip(free, bound)]
            rows.append((f"tokens per CPU second of the server, {n} clients", spread([1e3 / x["cpu_ms_token"] for x in free]),
                         spread([1e3 / x["cpu_ms_token"] for x in bound]), f"**{statistics.median(pairs):.2f}** "
                         f"({min(pairs):.2f}-{max(pairs):.2f})"))
        if r := d.get("gap_ratio"):
            p99 = {kind: [x["itl_ms"]["p99"] for x in d["gaps"] if x["server"] == kind] for kind in ("known", "new")}
            rows.append((f"p99 gap of others, ms, {d['tools']} tools compiled", spread(p99["known"], 1),
                         spread(p99["new"], 1), f"**{r['ratio']:.2f}** ({r['min']:.2f}-{r['max']:.2f})"))
        origins += [d["date"] + ": " + line if line else line for line in origin(d)]
    note = "The machine was busy, so wall times vary; CPU time varies less."
    return ["## Structured output", "", note, "", *table(("", "without", "with", "ratio"), rows), *origins] if rows else []


def bench_section(a):
    paths = find(a, "bench*.jsonl")
    cases = [r for path in paths for r in read_lines(path) if r.get("test") in ("prefill", "decode")]
    if not cases:
        return []
    out = ["## The engine alone", ""]
    if write_plot("context", os.path.join(a.results, "context.svg"), paths):
        out += ["![Tokens a second by context](results/context.svg)", ""]
    rows = [(r["numerics"], r["threads"], r["kernels"], r["test"], r["tokens"],
             r["batch"] if r["test"] == "decode" else "", r["context"] if r["test"] == "decode" else "",
             f"{r['tok_s']:.0f} ({r['min']:.0f}-{r['max']:.0f})") for r in cases]
    head = ("numerics", "threads", "kernels", "test", "tokens", "batch", "context", "tok/s")
    return out + table(head, rows) + ["`hearth bench --json`, SmolLM2-135M's shape, random weights.", ""]


def start_section(a):
    rows, origins = [], []
    for path in find(a, "start*.json"):
        d = load(path)
        for r in d["rows"]:
            name = os.path.basename(path)[len("start"):-len(".json")].strip("-_") or "serve"
            idle = "" if r["idle_cpu"] is None else f"{r['idle_cpu']:.2%}"
            rows.append((name, f"{r['first_token_s']:.3f} ({r['min']:.3f}-{r['max']:.3f})",
                         f"{r['first_answer_s']:.3f}", f"{r['memory_mb']['VmRSS']:.0f}", idle))
        origins += origin(d)
    head = ("", "exec to first token, s", "to first answer, s", "resident, MB", "idle, of a core")
    return ["## Start, memory, idle", "", *table(head, rows), *origins] if rows else []


def spinner_section(a):
    rows, origins = [], []
    for path in find(a, "spinner*.json"):
        d = load(path)
        rows += [(r["case"], spread(r["quiet_tok_s"]), spread(r["busy_tok_s"]), f"**{r['share']:.2f}**")
                 for r in d["rows"]]
        origins += origin(d)
    head = ("case", "quiet tok/s", "beside an endless loop on one core", "share")
    return ["## A busy neighbour", "", *table(head, rows), *origins] if rows else []


def gemm_section(a):
    rows = [r for path in find(a, "gemm*.jsonl") for r in read_lines(path)]
    if not rows:
        return []
    lines = []
    for r in rows:
        ratio = r["native_gflops"] / r["blas_gflops"]
        lines.append((r["level"], r["weights"], f"{r['n_in']} x {r['n_out']}", r["rows"],
                      f"{r['native_gflops']:.0f}", f"{r['blas_gflops']:.0f}", f"{ratio:.2f}"))
    head = ("kernels", "weights", "K x N", "rows", "own GFLOP/s", "BLAS GFLOP/s", "own / BLAS")
    return ["## Own kernels and BLAS", "",
            "`bench_gemm`, one thread, f32 activations, packing included; `--gemm auto` rests on this: it takes",
            "BLAS where only the plain C kernels run.", "", *table(head, lines)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--results", default=os.path.join(HERE, "results"))
    p.add_argument("--out", default=os.path.join(HERE, "RESULTS.md"))
    a = p.parse_args()
    sections = (compare_section, load_section, structured_section, bench_section, start_section, spinner_section, gemm_section)
    text = "\n".join([HEAD, *(line for section in sections for line in section(a))]).rstrip() + "\n"
    with open(a.out, "w", encoding="utf-8") as f:
        f.write(text)
    print(f"{a.out}: {len(text.splitlines())} lines")


if __name__ == "__main__":
    sys.exit(main())
