#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tiny models of tests/golden/models against the reference's logits, on every exact triple: path
`exact` under each kernel level this machine runs, and under BLAS.

    test_logits.py PATH TOLERANCE [OPTION ...]    another numeric path, to its own tolerance
"""
import json
import os
import subprocess
import sys

from logits_check import BIN, Tally, check_model, path_options, read_floats

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")
EXACT = 5e-4


def recorded_rows(directory, golden):
    """case name -> its rows; the cases lie one after the other in logits.f32."""
    vocab, at, rows = golden["vocab_size"], 0, {}
    for case in golden["cases"]:
        n = len(case["logits_rows"]) * vocab
        rows[case["name"]] = read_floats(os.path.join(directory, "logits.f32"), at, n)
        at += n
    return rows


def run(tally, options, tolerance):
    for name in sorted(os.listdir(MODELS)):
        directory = os.path.join(MODELS, name)
        path = os.path.join(directory, "golden.json")
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as f:
            golden = json.load(f)
        rows = recorded_rows(directory, golden)
        worst, problems = check_model(directory, golden, lambda c: rows[c["name"]],
                                      lambda c: tolerance, options)
        tally.add(" ".join([name, *options]), worst, problems)


def kernel_levels():
    """The levels this machine runs, by asking for each."""
    text = subprocess.run([BIN, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    names = next(l for l in text.splitlines() if l.startswith("kernel levels:")).split()[2:]
    model = os.path.join(MODELS, "mistral-window-bf16")
    for name in names:
        p = subprocess.run([BIN, "score", "--model", model, "--kernels", name], input="", text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if p.returncode == 0:
            yield name


def main():
    tally = Tally()
    options, tolerance = path_options(sys.argv[1:])
    if tolerance:
        run(tally, options, tolerance)
        return tally.end()
    levels = list(kernel_levels())
    assert "c" in levels, f"kernel levels {levels}"
    for level in levels:
        run(tally, ["--numerics", "exact", "--kernels", level, "--chunk", "16"], EXACT)
    run(tally, ["--numerics", "exact", "--gemm", "blas"], EXACT)
    return tally.end()


if __name__ == "__main__":
    sys.exit(main())
