#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Drafts by a second model change no byte: the same requests with every --speculate, in every setting. By hand.

    selfdraft_run.py [--requests 170] [--cancels 1000] [--model DIR] [--seed 1]
    selfdraft_run.py --draft-models [--requests 50] [--swaps 20] ...

For each numeric path, type of KV cache, number of threads (and, taking turns, level of kernels) four servers answer
the same random requests: off, lookup, auto and always; one at a time, four and sixteen at once. Compared are ids,
texts, log-probabilities of the best five, reasons and counts. Then streams are cut at random places. Exit status 1 if
an answer differs, if the twin wrote nothing, or if something is still held at the end.

With --draft-models the servers are off, and always with each of draft_models.py, and auto with the good one; after the cuts the model is swapped under load, with a draft model and without.
"""
import argparse
import hashlib
import http.client
import itertools
import json
import random
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from draft_models import SIBLING, every_kind
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


def counts(a, h):
    """Ids that the twin wrote, or the draft model, and the right ones."""
    h.wait_until(lambda: h.slots()["running"] == 0, what="an idle engine")
    m, source = h.metrics(), "model" if a.draft_models else "self"
    return [int(m[f'hearth_{n}_total{{source="{source}"}}']) for n in ("draft_tokens", "accepted_draft_tokens")]


def open_server(a, mode, options, threads):
    return Hearth("--model", a.model, "--speculate", mode, "--threads", threads, "--parallel", "16", "--max-queue", "64",
                  *options)


def await_drafts(h):
    """All that were asked for; a draft model may turn out useless only later."""
    props = h.get("/props")[2]
    if props["draft_model"]:
        h.wait_until(lambda: h.get("/props")[2]["draft_model"]["state"] != "loading", what="the draft model")
    if props["memory"]["twin_bytes"]:
        h.wait_until(lambda: "self" in h.get("/props")[2]["drafts"], what="the twin")


def kinds_of_servers(a):
    """{name: (mode, options)}; the first one's answers are right."""
    if not a.draft_models:
        return {mode: (mode, ()) for mode in MODES}
    return {"off": ("off", ()), **{kind: ("always", ("--draft-model", d)) for kind, d in a.drafts.items()},
            "auto": ("auto", ("--draft-model", SIBLING))}


def check_setting(a, r, options, threads):
    """Returns (answers, those that differ, {server: (ids drafted, right ones)})."""
    requests = make_requests(r, a.requests)
    want, n, differ, wrote = None, 0, 0, {}
    for name, (mode, more) in kinds_of_servers(a).items():
        with open_server(a, mode, (*options, *more), threads) as h:
            if mode == "always":
                await_drafts(h)
            for streams in (1, 4, 16):
                with ThreadPoolExecutor(streams) as pool:
                    got = list(pool.map(lambda request: digest(h, request), requests))
                want = want or got
                n += len(got)
                for request, x, y in zip(requests, want, got):
                    if x != y or len(y) != 64:
                        differ += 1
                        print(f"  {name}, {streams} at once: {y} is not {x}: {json.dumps(request)[:300]}")
            wrote[name] = counts(a, h)
    return n, differ, wrote


def cut_streams(a, r):
    """Closes streams after random numbers of bytes; answers in between are right, and nothing is held at the end."""
    faults = 0
    options = ("--draft-model", SIBLING, "--numerics", "int8") if a.draft_models else ()
    with open_server(a, "off", options, "2") as off, open_server(a, "always", options, "2") as on:
        await_drafts(on)
        requests = make_requests(r, a.cancels)
        for i, (path, body) in enumerate(requests):
            c = http.client.HTTPConnection(on.host, on.port, timeout=30)
            c.request("POST", path, json.dumps(dict(body, stream=True, max_tokens=200)), {"Content-Type": "application/json"})
            if r.random() < 0.8:
                c.getresponse().read(r.randint(1, 3000))
            c.close()
            if i % 25 == 0:
                faults += digest(off, requests[i]) != digest(on, requests[i])
        tried, right = counts(a, on)
        faults += on.metrics()["hearth_kv_pages_used"] != 0
    print(f"{a.cancels} streams cut, {faults} faults; {tried} ids drafted, {right} right", flush=True)
    return faults + (tried == 0)


def swap(a, r):
    """Swaps under load: to the model with each kind of draft and without one, in turns."""
    requests = make_requests(r, 16)
    faults = tried = 0
    with open_server(a, "off", (), "2") as off:
        want = [digest(off, request) for request in requests]
    with open_server(a, "always", ("--swap", "on"), "2") as h, ThreadPoolExecutor(4) as pool:
        for i in range(a.swaps):
            drafts = (None, a.drafts[list(a.drafts)[i // 2 % len(a.drafts)]])
            during = pool.map(lambda request: digest(h, request), requests)
            body = {"model": a.model, "wait": "drained", **({"draft_model": drafts[1]} if i % 2 else {})}
            faults += h.post("/models/load", body)[0] != 200
            faults += list(during) != want
            await_drafts(h)
            faults += [digest(h, request) for request in requests] != want
            tried = counts(a, h)[0]
    print(f"{a.swaps} swaps under load, {faults} faults; {tried} ids drafted", flush=True)
    return faults + (a.swaps > 0 and tried == 0)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--requests", type=int, default=170)
    p.add_argument("--cancels", type=int, default=1000)
    p.add_argument("--swaps", type=int, default=20)
    p.add_argument("--model", default=DEMO)
    p.add_argument("--draft-models", action="store_true")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        a.drafts = every_kind(folder) if a.draft_models else {}
        return check(a, random.Random(a.seed))


def check(a, r):
    levels = [l for l in ("c", "avx2", "avx2vnni", "avx512", "avx512vnni", "avx512bf16", "avx512amx", "neon", "neondot")
              if run("generate", "--model", a.model, "--kernels", l, "-n", "1", "--prompt", "a")[0] == 0]
    n = differ = tried = 0
    paths = [("exact", "auto"), ("bf16", "auto"), ("bf16", "int8"), ("int8", "auto"), ("int8", "int8")]
    if a.draft_models:
        paths.append(("int4", "auto"))
    level = itertools.cycle(["auto", *levels])
    for numerics, kv in paths:
        for threads in ("1", "2"):
            kernels = next(level)
            options = ("--numerics", numerics, "--kv-dtype", kv, "--kernels", kernels)
            got = check_setting(a, r, options, threads)
            rates = ", ".join(f"{k} {x} {y / max(x, 1):.3f}" for k, (x, y) in got[2].items() if x)
            print(f"{numerics}, KV {kv}, {threads} threads, kernels {kernels}: {got[0]} answers, {got[1]} differ; "
                  f"ids drafted, share right: {rates}", flush=True)
            n, differ, tried = n + got[0], differ + got[1], tried + sum(x for x, _ in got[2].values())
    print(f"{n} answers, {differ} differ; {tried} ids drafted", flush=True)
    faults = cut_streams(a, r) if a.cancels else 0
    if a.draft_models:
        faults += swap(a, r)
    return 1 if differ or faults or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
