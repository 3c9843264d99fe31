#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""32 mixed requests at once, streamed and not, each byte-identical to the same request alone.

    test_concurrent.py                         the demo model: every numeric path, kernel level and gemm
    test_concurrent.py --model DIR [--quick]   another model directory
    test_concurrent.py --gemm blas             OpenBLAS alone, with the kernels that OPENBLAS_CORETYPE names

For each (path, level, gemm) one set of answers is made one by one, with one thread and the default
chunk; every other setting of threads and chunk, with all requests in flight together, must give the
same bytes.
"""
import argparse
import concurrent.futures
import json
import random
import subprocess
import sys

from hearth_server import BIN, DEMO, Hearth, chunks

WORDS = "the little dog found a red ball in the garden and Tom said hello to his friend Anna".split()


def make_requests(n, seed=7):
    rng = random.Random(seed)
    out = []
    for i in range(n):
        length = rng.choice([1, 3, 17, 31, 32, 33, 64, 90, 150])
        out.append({
            "prompt": " ".join(rng.choice(WORDS) for _ in range(length)),
            "max_tokens": rng.choice([1, 5, 20, 40]), "seed": 1000 + i, "ignore_eos": i % 3 == 0,
            "temperature": rng.choice([0, 0, 0.7, 1.3]), "top_p": rng.choice([1, 0.9]),
            "top_k": rng.choice([0, 20]), "logprobs": rng.choice([None, 0, 3]),
            "frequency_penalty": rng.choice([0, 0.5]), "stream": i % 2 == 0,
            "return_token_ids": True})
    return out


def answer(h, body):
    """What must not change: text, ids, log-probabilities, the end."""
    if not body["stream"]:
        status, _, a = h.post("/v1/completions", body)
        assert status == 200, a
        c = a["choices"][0]
        return c["text"], c["token_ids"], json.dumps(c["logprobs"]), c["finish_reason"]
    text, ids, logprobs, reason = "", [], [], None
    for e in chunks(h.stream("/v1/completions", body)):
        c = e["choices"][0]
        text += c["text"]
        ids += c.get("token_ids", [])
        logprobs.append(c["logprobs"])
        reason = c["finish_reason"] or reason
    merged = {k: [x for l in logprobs if l for x in l[k]] for k in
              ("tokens", "token_logprobs", "top_logprobs", "text_offset")}
    has_any = any(logprobs)
    return text, ids, json.dumps(merged if has_any else None), reason


def server_args(model, numerics, level, gemm, threads, chunk):
    return ["--model", model, "--numerics", numerics, "--kernels", level, "--gemm", gemm, "--threads",
            str(threads), "--chunk", str(chunk), "--parallel", "32", "--ctx-size", "512",
            "--max-queue", "64"]


def runnable_levels():
    """The kernel levels of this build that this machine can run, lowest first."""
    text = subprocess.run([BIN, "--version"], capture_output=True, text=True, check=True).stdout
    names = next(l.split(":", 1)[1].split() for l in text.splitlines() if l.startswith("kernel levels:"))
    runs = [n for n in names if subprocess.run(
        [BIN, "generate", "--kernels", n, "--prompt", "a", "-n", "1"], capture_output=True,
        check=False).returncode == 0]
    assert runs, text
    return runs


def check_triple(model, triple, settings, requests):
    with Hearth(*server_args(model, *triple, 1, 128)) as h:
        alone = [answer(h, r) for r in requests]
    failures = 0
    for threads, chunk in settings:
        with Hearth(*server_args(model, *triple, threads, chunk)) as h:
            with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
                together = list(pool.map(lambda r: answer(h, r), requests))
        wrong = [i for i, (a, b) in enumerate(zip(alone, together)) if a != b]
        failures += bool(wrong)
        print(f"{'/'.join(triple)}, {threads} threads, chunk {chunk}: "
              f"{len(requests) - len(wrong)} of {len(requests)} identical", flush=True)
        for i in wrong[:2]:
            print("  alone   ", alone[i][:2], "\n  together", together[i][:2])
    return failures


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default=DEMO)
    p.add_argument("--requests", type=int, default=32)
    p.add_argument("--quick", action="store_true", help="one level, two settings")
    p.add_argument("--gemm", choices=["native", "blas"], help="this alone")
    a = p.parse_args()
    levels = runnable_levels()
    if a.quick:
        levels = levels[-1:]
    triples = [(n, l, "native") for l in levels for n in ("exact", "bf16", "int8", "int4")]
    triples = [t for t in triples + [("exact", levels[-1], "blas")] if a.gemm in (None, t[2])]
    settings = [(2, 16)] if a.quick else [(1, 16), (2, 16), (2, 128)]
    requests = make_requests(a.requests)
    failures = sum(check_triple(a.model, t, settings, requests) for t in triples)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
