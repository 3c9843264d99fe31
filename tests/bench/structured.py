#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What structured output costs over HTTP, by hand, on a machine with nothing else to do.

    structured.py [--model DIR] [--parts speed,gaps,drafts,masks] [--clients 1,4,16] [--rounds 5] [--json FILE]
                  [-- OPTIONS OF hearth serve]

speed: tokens per second of the same requests with a schema and without, in alternating rounds.
gaps: between the tokens of streams without a schema, while another client sends 128 tools as one schema, some times
per second: a new schema every time, and, in the alternating round, one that is compiled already.
masks: between the tokens of one stream without a grammar, while another client has --choices choices under a grammar
whose masks take milliseconds, and, in the alternating round, the same choices without a grammar.
drafts: tokens per second with a schema, with drafts and without, in alternating rounds. Random weights write a key's
text in any of its tokens, trained ones mostly in the usual ones, so the latter have more of their drafts right.
DIR: a model with the ids of its tokenizer; default: build/structured-model, random weights in SmolLM2-135M's shape
with the tokenizer of $HEARTH_REFERENCE/models/smollm2-135m. Standard library only.
"""
import argparse
import copy
import http.client
import json
import os
import random
import shlex
import socket
import statistics
import subprocess
import sys
import threading
import time

import load
from compare_llama import ROOT, commit, listed, machine

sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
from hearth_server import Hearth, reference  # noqa: E402

ENDLESS = {"type": "array", "minItems": 100000, "items": {"type": "object", "additionalProperties": False, "properties": {
    "name": {"type": "string", "maxLength": 40}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "kind": {"enum": ["person", "place", "thing"]}, "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
    "when": {"type": "string", "format": "date-time"}}, "required": ["name", "age", "kind", "tags", "when"]}}


# The same with short values, as most have in practice; random weights do not end a string before they must.
SHORT = copy.deepcopy(ENDLESS)
SHORT["items"]["properties"].update(name={"type": "string", "maxLength": 10}, tags={
    "type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3})


# ---- schemas like those of tools -----------------------------------------------------------------

def parameter(r, depth=1):
    choices = [
        {"type": "string", "description": "x" * r.randrange(20, 120)},
        {"type": "integer", "minimum": 0, "maximum": r.randrange(10, 10000)},
        {"type": "string", "enum": [f"value_{r.randrange(1000)}" for _ in range(r.randrange(2, 12))]},
        {"type": "boolean"},
        {"type": "string", "format": "date-time"},
    ]
    if depth:
        choices.append({"type": "array", "items": parameter(r, 0), "maxItems": 20})
        choices.append({"type": "object", "additionalProperties": False,
                        "properties": {f"field_{i}": parameter(r, 0) for i in range(4)}})
    return r.choice(choices)


def tools(n, seed):
    """One schema that admits a call of any of n tools."""
    r, calls = random.Random(seed), []
    for i in range(n):
        own = {f"parameter_{j}": parameter(r) for j in range(r.randrange(3, 9))}
        arguments = {"type": "object", "properties": own, "required": list(own)[:2], "additionalProperties": False}
        calls.append({"type": "object", "properties": {"name": {"const": f"tool_{seed}_{i}"}, "arguments": arguments},
                      "required": ["name", "arguments"], "additionalProperties": False})
    return {"anyOf": calls}


# ---- tokens per second ---------------------------------------------------------------------------

SPEED = {"free": {}, "schema": {"json_schema": ENDLESS}}
DRAFTS = {"off": {"json_schema": SHORT, "speculate": False}, "on": {"json_schema": SHORT}}


def cpu_seconds(h):
    with open(f"/proc/{h.process.pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def speed(h, a, kinds):
    """Two kinds of requests, by the fields that differ. Besides tokens per second: CPU time of the server per token,
    which a busy neighbour changes little if the server has one thread."""
    rows = []
    for i in range(a.rounds):
        for level in a.clients:
            for kind, extra in kinds.items():
                b = copy.copy(a)
                b.extra = json.dumps({"cache_prompt": False, "temperature": 1, "seed": i, **extra})
                target = load.Target(h.url, b)
                target.label = kind
                before = cpu_seconds(h)
                rows.append(load.run_level(target, b, level, a.seed + i))
                rows[-1]["cpu_ms_token"] = round(1e3 * (cpu_seconds(h) - before) / rows[-1]["output_tokens"], 3)
                load.show(rows[-1])
    for level in a.clients:
        first, second = ([r["cpu_ms_token"] for r in rows if (r["server"], r["clients"]) == (kind, level)] for kind in kinds)
        pairs = [x / y for x, y in zip(first, second)]
        print(f"clients {level}: CPU per token {' / '.join(kinds)} {statistics.median(pairs):.3f} "
              f"({min(pairs):.3f} to {max(pairs):.3f})")
    return rows, load.ratios(rows, list(kinds), a.clients, "clients")


def drafts(h, a):
    names = ["hearth_draft_tokens_total", "hearth_accepted_draft_tokens_total"]
    before = h.metrics()
    rows, found = speed(h, a, DRAFTS)
    after = h.metrics()
    tried, right = (sum(after[k] - before[k] for k in after if k.startswith(n + "{")) for n in names)
    tokens = sum(r["output_tokens"] for r in rows if r["server"] == "on")
    print(f"{tried:g} draft tokens for {tokens} tokens, {right / max(tried, 1):.0%} of them right")
    return rows, found


# ---- gaps ----------------------------------------------------------------------------------------

class Sender(threading.Thread):
    """Sends a schema every 1 / rate seconds until told to stop."""

    def __init__(self, h, a, schemas):
        super().__init__(daemon=True)
        self.h, self.a, self.schemas = h, a, schemas
        self.done, self.n, self.bad = threading.Event(), 0, None
        self.start()

    def run(self):
        due = time.perf_counter()
        for body in self.schemas:
            status, _, answer = self.h.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            if status != 200:
                self.bad = f"{status}: {answer[:300]}"
            self.n += 1
            due += 1 / self.a.schema_rate
            if self.done.wait(max(0, due - time.perf_counter())):
                return
        self.bad = "more schemas are needed"

    def stop(self):
        self.done.set()
        self.join()
        if self.bad:
            sys.exit(f"a request with a schema: {self.bad}")


def schema_body(schema):
    return json.dumps({"prompt": "A", "max_tokens": 1, "json_schema": schema})


def gaps_of_round(h, a, seed, schemas):
    b = copy.copy(a)
    b.prompt, b.gen, b.requests, b.extra = 8, a.stream_tokens, 1, json.dumps({"cache_prompt": False, "temperature": 1})
    before = h.metrics()
    sender = Sender(h, a, schemas)
    row = load.run_level(load.Target(h.url, b), b, a.streams, seed)
    sender.stop()
    after = h.metrics()
    if row["errors"]:
        sys.exit(f"a stream failed: {row}")
    row["schemas"] = sender.n
    row["compiled"] = after["hearth_grammar_cache_misses_total"] - before["hearth_grammar_cache_misses_total"]
    return row


def gaps(h, a):
    rows, n = [], a.most_schemas
    known = schema_body(tools(a.tools, 1))
    h.request("POST", "/v1/completions", known, {"Content-Type": "application/json"})
    for i in range(a.rounds):
        new = [schema_body(tools(a.tools, 2 + i * n + k)) for k in range(n)]  # made before the clock runs
        for kind, bodies in (("known", [known] * n), ("new", new)):
            r = {**gaps_of_round(h, a, a.seed + i, bodies), "server": kind}
            rows.append(r)
            print(f"{kind} schemas: gap p50 {r['itl_ms']['p50']} p99 {r['itl_ms']['p99']} max {r['itl_ms']['max']} ms; "
                  f"{r['schemas']} requests with a schema, {r['compiled']:g} compiled", flush=True)
    pairs = [new["itl_ms"]["p99"] / known["itl_ms"]["p99"] for known, new in zip(rows[::2], rows[1::2])]
    print(f"p99 gap, new / known schemas: {statistics.median(pairs):.3f} ({min(pairs):.3f} to {max(pairs):.3f})")
    return rows, {"ratio": round(statistics.median(pairs), 3), "min": round(min(pairs), 3), "max": round(max(pairs), 3)}


# ---- slow masks ----------------------------------------------------------------------------------

AMBIGUOUS = 'root ::= (a | b | c | d)* "\\n\\n\\n"\n' + "".join(
    f"{x} ::= [^()]{{1,{30 + 3 * i}}} ({' | '.join(y for y in 'abcd' if y != x)})?\n" for i, x in enumerate("abcd"))


class Choices(threading.Thread):
    """Sends the same request again whenever its answer is there, until it hangs up."""

    def __init__(self, h, body):
        super().__init__(daemon=True)
        self.connection, self.body, self.bad, self.left = h.connect(600), body, None, False
        self.connection.connect()
        self.start()

    def run(self):
        try:
            while not self.bad:
                self.connection.request("POST", "/v1/completions", self.body, {"Content-Type": "application/json"})
                r = self.connection.getresponse()
                answer = r.read()
                self.bad = None if r.status == 200 else f"{r.status}: {answer[:300]}"
        except (OSError, http.client.HTTPException) as e:
            self.bad = None if self.left else str(e)

    def stop(self):
        self.left = True
        self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.join()
        if self.bad:
            sys.exit(f"the request with choices: {self.bad}")


def masks(h, a):
    rows = []
    for i in range(a.rounds):
        for kind, extra in (("free", {}), ("grammar", {"grammar": AMBIGUOUS})):
            b = copy.copy(a)
            b.prompt, b.gen, b.requests = 8, a.stream_tokens, 1
            b.extra = json.dumps({"cache_prompt": False, "temperature": 1, "speculate": False})
            before = h.metrics()
            sender = Choices(h, json.dumps({"prompt": "A", "max_tokens": 200, "n": a.choices, "seed": i, "ignore_eos": True,
                                            "speculate": False, **extra}))
            row = load.run_level(load.Target(h.url, b), b, 1, a.seed + i)
            after = h.metrics()
            sender.stop()
            if row["errors"]:
                sys.exit(f"the stream failed: {row}")
            row["server"] = kind
            names = ("hearth_generated_tokens_total", "hearth_grammar_late_masks_total")
            row["others"], row["late"] = (after.get(n, 0) - before.get(n, 0) for n in names)
            rows.append(row)
            gap = row["itl_ms"]
            print(f"{kind}: gap p50 {gap['p50']} p95 {gap['p95']} p99 {gap['p99']} max {gap['max']} ms; "
                  f"{row['others'] - row['output_tokens']:g} tokens of the choices, {row['late']:g} rows late", flush=True)
    pairs = [slow["itl_ms"]["p95"] / free["itl_ms"]["p95"] for free, slow in zip(rows[::2], rows[1::2])]
    print(f"p95 gap, grammar / free: {statistics.median(pairs):.3f} ({min(pairs):.3f} to {max(pairs):.3f})")
    return rows, {"ratio": round(statistics.median(pairs), 3), "min": round(min(pairs), 3), "max": round(max(pairs), 3)}


def model_of(a):
    if a.model:
        return a.model
    directory = os.path.join(ROOT, "build", "structured-model")
    if not os.path.exists(os.path.join(directory, "config.json")):
        subprocess.run([sys.executable, os.path.join(ROOT, "tests", "bench", "make_model.py"), directory, "--tokenizer",
                        reference("models", "smollm2-135m")], check=True)
    return directory


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model")
    p.add_argument("--parts", default="speed,gaps")
    p.add_argument("--clients", type=listed(int), default=[1, 4, 16])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--total", type=int, default=32, help="requests of each level")
    p.add_argument("--prompt", type=int, default=32, help="prompt tokens")
    p.add_argument("--gen", type=int, default=128, help="tokens to generate")
    p.add_argument("--tools", type=int, default=128, help="tools of a schema")
    p.add_argument("--schema-rate", type=float, default=4, help="schemas per second")
    p.add_argument("--most-schemas", type=int, default=100, help="made for each round")
    p.add_argument("--streams", type=int, default=4, help="streams without a schema whose gaps are measured")
    p.add_argument("--stream-tokens", type=int, default=600)
    p.add_argument("--choices", type=int, default=16, help="choices with slow masks")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--json")
    p.add_argument("options", nargs="*", help="options of hearth serve")
    a = p.parse_args()
    a.rate, a.requests, a.shared, a.timeout = None, 0, 0, 300
    found = {"kind": "structured", "machine": machine(), "commit": commit(), "command": shlex.join(sys.argv),
             "date": time.strftime("%Y-%m-%d"), "tools": a.tools}
    model = model_of(a)
    with open(os.path.join(model, "config.json"), encoding="utf-8") as f:
        a.last_id = min(load.LAST_ID, json.load(f)["vocab_size"])
    a.model = "default"
    with Hearth("--model", model, "--parallel", "32", *a.options) as h:
        if "speed" in a.parts:
            found["speed"], found["speed_ratios"] = speed(h, a, SPEED)
        if "gaps" in a.parts:
            found["gaps"], found["gap_ratio"] = gaps(h, a)
        if "masks" in a.parts:
            found["masks"], found["mask_ratio"] = masks(h, a)
        if "drafts" in a.parts:
            found["drafts"], found["draft_ratios"] = drafts(h, a)
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump(found, f, indent=1)


if __name__ == "__main__":
    main()
