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


def test_offsets_of_an_echo():
    """The tokenizer puts a BOS token and a blank in front, which are not part of the client's text."""
    with Hearth("--model", reference("models", "stories260k")) as h:
        for prompt in ("Once upon", " Once", "\u00e9 x", "\nA"):
            _, _, a = h.post("/v1/completions", {"prompt": prompt, "echo": True, "logprobs": 0, "max_tokens": 3})
            choice = a["choices"][0]
            tokens, starts = choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"]
            pieces = [choice["text"][i:j] for i, j in zip(starts, starts[1:] + [len(choice["text"])])]
            assert tokens[0] == "<s>" and pieces[0] == "" and pieces[1] == tokens[1][1:], choice
            assert all(piece == token for piece, token in zip(pieces[2:], tokens[2:])
                       if not token.startswith("bytes:")), choice


def test_empty_inputs_of_embeddings():
    with Hearth("--model", reference("models", "stories260k")) as h:
        for value in ("", ["a", ""], [[]]):
            status, _, a = h.post("/v1/embeddings", {"input": value})
            assert status == 400 and a["error"]["message"] == "'input' must not be empty.", a


if __name__ == "__main__":
    reference()
    run_cases(globals())
    sys.exit(0)
