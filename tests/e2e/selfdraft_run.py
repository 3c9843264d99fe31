#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Drafts by a twin change no byte: the same requests with every --speculate, in every setting. By hand.

    selfdraft_run.py [--requests 170] [--cancels 1000] [--model DIR] [--seed 1]

For each numeric path, type of KV cache, number of threads (and, taking turns, level of kernels) four servers answer
the same random requests: off, lookup, auto and always; one at a time, four and sixteen at once. Compared are ids,
texts, log-probabilities of the best five, reasons and counts. Then streams are cut at random places. Exit status 1 if
an answer differs, if the twin wrote nothing, or if something is still held at the end.
"""
import argparse
import hashlib
import http.client
import itertools
import json
import random
import sys
from concurrent.futures import ThreadPoolExecutor

from hearth_server import DEMO, Hearth, run

MODES = ("off", "lookup", "auto", "always")
WORDS = "Once upon a time there was little cat dog red ball happy sad girl boy the and park tree big to go".split()
SCHEMA = {"type": "object", "properties": {"name": {"enum": ["Anna", "Otto"]}, "age": {"type": "integer"},
                                           "text": {"type": "string", "maxLength": 30}},
          "required": ["name", "age", "text"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {
    "type": "object", "properties": {"where": {"type": "string", "maxLength": 9}}, "required": ["where"],
    "additionalProperties": False}}}
KINDS = {
    "plain": {},
    "top": {"top_k": 40, "top_p": 0.95, "min_p": 0.02},
    "typical": {"typical_p": 0.8},
    "penalties": {"repetition_penalty": 1.2, "frequency_penalty": 0.4, "presence_penalty": 0.3},
    "bias": {"logit_bias": {"300": 4, "301": -100}, "min_tokens": 5, "ignore_eos": False},
    "choices": {"n": 4},
    "grammar": {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}},
                "ignore_eos": False},
    "tools": {"tools": [TOOL], "tool_choice": "required", "ignore_eos": False},
    "free tools": {"tools": [TOOL], "ignore_eos": False},
}


def make_requests(r, n):
    requests = []
    for i in range(n):
        kind = list(KINDS)[i % len(KINDS)]
        text = " ".join(r.choice(WORDS) for _ in range(r.randint(1, 40)))
        body = {"max_tokens": r.randint(6, 60), "temperature": r.choice((0, 0.7, 1)), "seed": r.randint(0, 1 << 40),
                "ignore_eos": True, **KINDS[kind]}
        if "response_format" in body or "tools" in body or r.random() < 0.3:
            body["messages"] = [{"role": "user", "content": text}]
            requests.append(("/v1/chat/completions", dict(body, logprobs=True, top_logprobs=5)))
        else:
            requests.append(("/v1/completions", dict(body, prompt=text, logprobs=5)))
    return requests


def digest(h, request):
    """A hash of all that must not differ."""
    status, _, a = h.post(*request)
    if status != 200:
        return f"{status} {a}"
    for choice in a["choices"]:
        for call in choice.get("message", {}).get("tool_calls", []):
            call.pop("id")
    return hashlib.sha256(json.dumps([a["choices"], a["usage"]["completion_tokens"]]).encode()).hexdigest()


def self_counts(h):
    h.wait_until(lambda: h.slots()["running"] == 0, what="an idle engine")
    m = h.metrics()
    return [int(m[f'hearth_{n}_total{{source="self"}}']) for n in ("draft_tokens", "accepted_draft_tokens")]


def open_server(a, mode, options, threads):
    return Hearth("--model", a.model, "--speculate", mode, "--threads", threads, "--parallel", "16", "--max-queue", "64",
                  *options)


def check_setting(a, r, options, threads):
    """Returns (answers, those that differ, ids that the twin wrote, right ones)."""
    requests = make_requests(r, a.requests)
    want, n, differ = None, 0, 0
    tried = right = 0
    for mode in MODES:
        with open_server(a, mode, options, threads) as h:
            if mode == "always":
                h.wait_until(lambda: h.get("/props")[2]["drafts"] == "self", what="the twin")
            for streams in (1, 4, 16):
                with ThreadPoolExecutor(streams) as pool:
                    got = list(pool.map(lambda request: digest(h, request), requests))
                want = want or got
                n += len(got)
                for request, x, y in zip(requests, want, got):
                    if x != y or len(y) != 64:
                        differ += 1
                        print(f"  {mode}, {streams} at once: {y} is not {x}: {json.dumps(request)[:300]}")
            if mode == "always":
                tried, right = self_counts(h)
    return n, differ, tried, right


def cut_streams(a, r):
    """Closes streams after random numbers of bytes; answers in between are right, and nothing is held at the end."""
    faults = 0
    with open_server(a, "off", (), "2") as off, open_server(a, "always", (), "2") as on:
        on.wait_until(lambda: on.get("/props")[2]["drafts"] == "self", what="the twin")
        requests = make_requests(r, a.cancels)
        for i, (path, body) in enumerate(requests):
            c = http.client.HTTPConnection(on.host, on.port, timeout=30)
            c.request("POST", path, json.dumps(dict(body, stream=True, max_tokens=200)), {"Content-Type": "application/json"})
            if r.random() < 0.8:
                c.getresponse().read(r.randint(1, 3000))
            c.close()
            if i % 25 == 0:
                faults += digest(off, requests[i]) != digest(on, requests[i])
        on.wait_until(lambda: on.slots()["running"] == 0, what="an idle engine")
        faults += on.metrics()["hearth_kv_pages_used"] != 0
    return faults


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--requests", type=int, default=170)
    p.add_argument("--cancels", type=int, default=1000)
    p.add_argument("--model", default=DEMO)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    r = random.Random(a.seed)
    levels = [l for l in ("c", "avx2", "avx2vnni", "avx512", "avx512vnni", "avx512bf16", "avx512amx", "neon", "neondot")
              if run("generate", "--model", a.model, "--kernels", l, "-n", "1", "--prompt", "a")[0] == 0]
    n = differ = tried = right = 0
    paths = (("exact", "auto"), ("bf16", "auto"), ("bf16", "int8"), ("int8", "auto"), ("int8", "int8"))
    level = itertools.cycle(["auto", *levels])
    for numerics, kv in paths:
        for threads in ("1", "2"):
            kernels = next(level)
            options = ("--numerics", numerics, "--kv-dtype", kv, "--kernels", kernels)
            got = check_setting(a, r, options, threads)
            print(f"{numerics}, KV {kv}, {threads} threads, kernels {kernels}: {got[0]} answers, {got[1]} differ; "
                  f"self: {got[2]} ids, {got[3] / max(got[2], 1):.3f} right", flush=True)
            n, differ, tried, right = (x + y for x, y in zip((n, differ, tried, right), got))
    faults = cut_streams(a, r) if a.cancels else 0
    print(f"{n} answers, {differ} differ; self: {tried} ids, {right / max(tried, 1):.3f} right; "
          f"{a.cancels} streams cut, {faults} faults")
    return 1 if differ or faults or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
