#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The three reference story models through /v1/completions on path `exact`: every greedy path equal to the
reference's, under native kernels and under BLAS. Needs HEARTH_REFERENCE."""
import json
import sys

from hearth_server import Hearth, reference, run_cases


def check(name, gemm):
    directory = reference("models", name)
    with open(f"{directory}/golden_greedy.json", encoding="utf-8") as f:
        cases = json.load(f)
    with Hearth("--model", directory, "--numerics", "exact", "--gemm", gemm) as h:
        for case in cases:
            n = len(case["output_ids"])
            status, _, a = h.post("/v1/completions", {
                "prompt": case["prompt_ids"], "max_tokens": n, "temperature": 0, "ignore_eos": True,
                "return_token_ids": True})
            assert status == 200, a
            got = a["choices"][0]["token_ids"]
            assert got == case["output_ids"], f"{name} {gemm} {case['prompt']!r}: {got[:20]}..."
    print(f"{name} {gemm}: {len(cases)} prompts, {n} tokens each, identical")


def test_f32():
    check("stories260k", "native")


def test_f16():
    check("stories260k-f16", "native")


def test_bf16():
    check("stories260k-bf16", "native")


def test_blas():
    check("stories260k", "blas")
    check("stories260k-f16", "blas")
    check("stories260k-bf16", "blas")


if __name__ == "__main__":
    reference()
    run_cases(globals())
    sys.exit(0)
