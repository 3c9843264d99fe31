#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run by hand: JSON that ends before its tokens do, with its white space in one style.

    whole_json_run.py [cut jump states texts answers same calls] [--model DIR] [--n N] [--seed 1] [--clients 8]

cut: 500 schemas of $HEARTH_REFERENCE/goldens/schema/maskbench.jsonl.xz of which nothing is relaxed, each asked twice with
    max_tokens from 1 to 300: every answer that has room for the shortest one is valid by jsonschema.
jump: the same of 100 schemas where one id opens much: optional objects with many required keys, arrays with many items.
states: 100,000 beginnings of texts of those schemas: the shortest end of each is accepted.
texts: 10,000 texts as programs print JSON are reachable, by tokens and by bytes.
answers: 10,000 answers, printed again in their style, are the same texts.
same: the questions of json_answers.py with closing and without: the same tokens and log-probabilities until closing begins.
calls: with max_tokens from 1 to 100 in three dialects, 500 of a named function, which are calls with valid arguments from
    the shortest on, and 500 each of "auto" and "required", which are the same as with --close-answers off.

--n: so many in place of those. DIR: by default random weights, 64 wide, with the tokenizer of
$HEARTH_REFERENCE/models/smollm2-135m-instruct. Needs jsonschema with its format checks (PyPI: jsonschema[format-nongpl]).
test_structured_answers.py has a small case.
"""
import argparse
import collections
import concurrent.futures
import json
import lzma
import os
import random
import re
import sys
import tempfile

import structured_run
import test_accept
from accept_filter import Accept
from hearth_server import ROOT, Hearth, reference
from test_tools import PATHS, ask_of, parts_of

sys.path.insert(0, os.path.join(ROOT, "tests", "bench"))
import json_answers  # noqa: E402

STYLED = {"whitespace": "style", "disable_additional_properties": True}


class Found:
    """Counts, and what was wrong."""

    def __init__(self):
        self.count = collections.Counter()
        self.wrong = []

    def check(self, right, *why):
        self.count["right" if right else "wrong"] += 1
        if not right:
            self.wrong.append(why)
            print("WRONG:", *(str(w)[:600] for w in why), flush=True)


def all_of(clients, work, cases):
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        yield from pool.map(lambda case: work(*case), cases)


# ---- answers that are closed ---------------------------------------------------------------------

def exact_schemas(accept):
    """Real schemas of which nothing is relaxed."""
    for schema in structured_run.real_schemas(1000):
        if accept.ask(schema=schema, texts=[], **STYLED).get("relaxed") == []:
            yield schema


def small_schema(rng):
    return rng.choice([
        {"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"type": "null"}, {"type": "string", "minLength": rng.randrange(30)},
        {"type": "string", "format": rng.choice(["date", "uuid", "date-time", "email", "ipv4"])}, {"enum": ["alpha", "beta", "gamma"]},
        {"type": "number", "minimum": 100, "maximum": 900}, {"type": "string", "pattern": "^[a-z]{3,8}$"}])


def large_schema(rng, depth):
    kind, n = rng.randrange(5 if depth else 4), rng.choice([10, 20, 30])
    if kind == 0:
        keys = [f"k{i}" for i in range(n)]
        return {"type": "object", "properties": {key: small_schema(rng) for key in keys}, "required": keys}
    if kind == 1:
        return {"type": "array", "items": small_schema(rng), "minItems": n}
    if kind == 2:
        return {"type": "array", "items": {"type": "integer"}, "minItems": n, "uniqueItems": True}
    if kind == 3:
        return {"type": "object", "additionalProperties": small_schema(rng), "minProperties": n}
    return {"type": "object", "properties": {"x": large_schema(rng, 0), "y": small_schema(rng)}, "required": ["x", "y"]}


def jumping_schema(rng):
    """Optional large values beside small ones."""
    keys = "abcdef"[:rng.randrange(2, 7)]
    schema = {"type": "object", "properties": {k: large_schema(rng, 1) if i % 2 else small_schema(rng) for i, k in enumerate(keys)},
              "required": ["a"] if rng.randrange(2) else []}
    return rng.choice([schema, {"type": "array", "items": schema}, {"anyOf": [schema, {"type": "null"}, large_schema(rng, 1)]},
                       {"type": "object", "properties": {"o": schema, "list": {"type": "array", "items": {
                           "anyOf": [small_schema(rng), large_schema(rng, 1)]}}}}])


def run_closed(server, accept, model, schemas, most, a):
    """most(rng, least): max_tokens, where the shortest answer has `least`."""
    found, rng, bias = Found(), random.Random(a.seed), structured_run.bias_of(model, 3)
    cases = []
    for schema in schemas:
        least = accept.ask(schema=schema, texts=[""], shortest=True, **STYLED)["shortest"][0][2]
        cases += [(schema, least, most(rng, least), biased) for biased in (False, True)]

    def work(schema, least, max_tokens, biased):
        body = {"prompt": "In JSON:", "max_tokens": max_tokens, "temperature": 1, "seed": a.seed, "json_schema": schema}
        answer = server.post("/v1/completions", dict(body, logit_bias=bias if biased else None), timeout=600)
        return schema, least, max_tokens, answer

    for schema, least, max_tokens, (status, _, answer) in all_of(a.clients, work, cases):
        if status != 200:
            found.check(False, status, answer)
            continue
        choice, closed = answer["choices"][0], answer["usage"].get("completion_tokens_details", {})
        found.count.update({"closed": bool(closed), "ended": choice["finish_reason"] == "stop", "invented": closed.get("closing_values", 0) > 0})
        if max_tokens < least:
            found.count["no room"] += 1
            continue
        try:
            verdict = structured_run.judge(schema, json.loads(choice["text"]))
        except ValueError as e:
            verdict = "invalid", e
        found.check(verdict[0] == "valid", verdict, schema, least, max_tokens, choice)
    return found


def cut(a, server, accept, model):
    """Every answer that has room for the shortest one is valid."""
    schemas = [schema for schema, _ in zip(exact_schemas(accept), range(a.n or 500))]
    return run_closed(server, accept, model, schemas, lambda rng, least: rng.randrange(1, 301), a)


def jump(a, server, accept, model):
    rng = random.Random(a.seed)
    schemas = [jumping_schema(rng) for _ in range(a.n or 100)]
    return run_closed(server, accept, model, schemas, lambda rng, least: rng.randrange(least, least + 300), a)


def states(a, server, accept, model):
    """The shortest end of each beginning is accepted, and not longer than was estimated."""
    found, rng = Found(), random.Random(a.seed)
    with lzma.open(reference("goldens", "schema", "maskbench.jsonl.xz"), "rt", encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    while found.count.total() < (a.n or 100000):
        row, space = rng.choice(rows), rng.choice(["any", "style"])
        texts = [t["text"] for t in row["tests"] if t["valid"]]
        begun = [text[:rng.randrange(len(text) + 1)] for text in texts for _ in range(15)] or [""]
        answer = accept.ask(schema=row["schema"], texts=begun, shortest=True, whitespace=space)
        ends = [(b, e) for b, e in zip(begun, answer.get("shortest", [])) if e]  # null: not the beginning of any
        whole = [b + e[0] for b, e in ends if isinstance(e, list)]
        accepted = accept.ask(schema=row["schema"], texts=whole, whitespace=space)["accepted"] if ends else []
        right = [len(e[0].encode()) <= 4 * e[1] + 16 for _, e in ends if isinstance(e, list)]
        for text, *ok in zip(whole, accepted, right):
            found.check(all(ok), row["id"], ok, text)
        for b, _ in ends[len(whole):]:
            found.check(False, row["id"], "no end is found", b)
    return found


# ---- white space ---------------------------------------------------------------------------------

def texts(a, server, accept, model):
    """Texts of json.dumps, and in every other style, are reachable."""
    found, rng, wanted = Found(), random.Random(a.seed), []
    for i in range(a.n or 10000):
        value = test_accept.some_value(rng, rng.randrange(3))
        dumps = {"indent": rng.choice([1, 2, 3, 4, 8, "\t"])} if i % 3 else {"separators": rng.choice([(",", ":"), (", ", ": ")])}
        wanted.append(json.dumps(value, ensure_ascii=rng.random() < 0.5, **dumps) if i % 2 else
                      test_accept.printed(value, rng.choice(test_accept.INLINE + test_accept.BROKEN)))
    for first in range(0, len(wanted), 500):
        part = wanted[first:first + 500]
        answer = accept.ask(schema=True, texts=part, whitespace="style")
        for text, accepted, by_bytes in zip(part, answer["accepted"], answer["by_bytes"]):
            found.check(accepted and by_bytes, text)
    return found


def printed_again(text):
    """With the white space that its style, as it first shows, gives every place; and the style."""
    style, around, out = {}, [], []
    tokens = re.findall(r'("(?:[^"\\]|\\.)*"|[^\s,:\[\]{}"]+|[,:\[\]{}])(\s*)', text)
    for (token, space), (following, _) in zip(tokens, tokens[1:] + [("", "")]):
        space_now = ""
        if token in "{[":
            around.append((token, "\n" in space and all(broken for _, broken in around)))
        if token in "}]":
            around.pop()
        kind, broken = around[-1] if around else ("", False)
        ends = bool(following) and following in "}]"
        if token == ":":
            space_now = style.setdefault(":", space)
        elif token in "{[" and ends:
            space_now = ""
        elif broken and (token in "{[," or ends):
            space_now = "\n" + style.setdefault("indent", space[1:]) * (len(around) - ends)
        elif token == ",":
            space_now = style.setdefault(",", space)
        elif token in "{[" or ends:
            space_now = style.setdefault(kind, space)
        out.append(token + space_now)
    return "".join(out), style


def nested(refer):
    """Any JSON, of short texts and small numbers."""
    inner = {"$ref": refer}
    return {"anyOf": [{"type": "object", "properties": {"a": inner, "bc": inner, "d": {"type": "array", "items": inner}}},
                      {"type": "array", "items": inner}, {"type": "string", "maxLength": 6}, {"type": "integer", "minimum": -99, "maximum": 999},
                      {"type": "boolean"}, {"type": "null"}]}


def answers(a, server, accept, model):
    """Answers printed again are the same texts."""
    found, any_json = Found(), nested("#/$defs/n")
    point = {"type": "object", "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 9}, "y": {
        "type": "object", "properties": {"z": {"type": "string", "maxLength": 3}}, "required": ["z"]}}, "required": ["x", "y"]}
    numbers = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "minItems": 2}
    schemas = [any_json, {"type": "array", "minItems": 2, "items": any_json},
               {"type": "object", "properties": {"a": any_json, "b": any_json, "c": numbers}, "required": ["a", "b", "c"]},
               {"type": "array", "items": point, "minItems": 2, "maxItems": 4}]
    with open(os.path.join(model, "tokenizer.json"), encoding="utf-8") as f:
        ids = {t.translate({0x120: " ", 0x10a: "\n", 0x109: "\t"}): i for t, i in json.load(f)["model"]["vocab"].items()}
    pieces = [p for p in structured_run.CLOSERS + ["{", "[", "{\n", "[\n", "\n", " ", "  ", "\t", '{"', "[{", ",", ": ", '": '] if p in ids]

    def work(i):
        rng = random.Random(a.seed * 1000003 + i)
        bias = {str(ids[p]): rng.choice([3, 5, 8]) for p in rng.sample(pieces, 9)}
        body = {"prompt": "In JSON:", "max_tokens": rng.randrange(20, 90), "temperature": rng.choice([0.7, 1, 1.5]), "seed": i,
                "json_schema": dict(schemas[i % 4], **{"$defs": {"n": any_json}}), "logit_bias": bias}
        return server.post("/v1/completions", body, timeout=600)

    styles = set()
    for status, _, answer in all_of(a.clients, work, [(i,) for i in range(a.n or 10000)]):
        if status == 200 and answer["choices"][0]["finish_reason"] != "stop" and "completion_tokens_details" not in answer["usage"]:
            found.count["no room"] += 1
            continue
        text = answer["choices"][0]["text"] if status == 200 else ""
        again, style = printed_again(text)
        found.check(status == 200 and again == text and style.pop("indent", " ") in [*(" " * n for n in range(1, 9)), "\t"] and
                    set(style.values()) <= {"", " "}, status, answer, again)
        found.count["in several lines"] += "\n" in again
        styles.add(str(style))
    found.count["styles"] = len(styles)
    return found


# ---- with closing and without --------------------------------------------------------------------

def same(a, server, accept, model):
    """Until closing begins an answer is the one without it, bit for bit."""
    found = Found()
    cases = [(name, most, heat) for name in list(json_answers.QUESTIONS)[:a.n] for most in (32, 128, 400) for heat in (0, 0.8)]

    def work(*case):
        return case, [server.post("/v1/completions", {
            "prompt": json_answers.QUESTIONS[case[0]][0], "max_tokens": case[1], "temperature": case[2], "seed": a.seed, "logprobs": 2,
            "structured_outputs": {"json": json_answers.QUESTIONS[case[0]][1], "close": close}}, timeout=600)[2] for close in (True, False)]

    for case, (on, off) in all_of(a.clients, work, cases):
        n_closing = on["usage"].get("completion_tokens_details", {}).get("closing_tokens", 0)
        n = on["usage"]["completion_tokens"] - n_closing
        logs = [{k: v[:n] for k, v in x["choices"][0]["logprobs"].items()} for x in (on, off)]
        found.count["closed" if n_closing else "ended"] += 1
        found.check(logs[0] == logs[1] and (n_closing or on["choices"] == off["choices"]), case, on, off)
    return found


TOOLS = {"w": {"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}, "more": {"type": "object", "properties": {
        "a": {"type": "string"}, "b": {"type": "boolean"}}, "required": ["a", "b"], "additionalProperties": False}},
    "required": ["city", "days"], "additionalProperties": False}, "v": {"type": "object", "properties": {"x": {"type": "number"}}}}


def is_call(parts):
    try:
        return [p[1] for p in parts] == ["w"] and structured_run.judge(TOOLS["w"], json.loads(parts[0][2]))[0] == "valid"
    except (ValueError, IndexError):
        return False


def calls(a, _, accept, model):
    """Named functions are called from the shortest call on; other calls are those without closing."""
    found, formats = Found(), ("hermes", "llama3", "mistral", "qwen-xml", "list")
    step = max(1, 100 * len(PATHS) * len(formats) // (a.n or 500))
    limits = range(100, 0, -step)[::-1]

    def ask(server, dialect, choice, max_tokens):
        body = ask_of(dialect, TOOLS, choice, max_tokens, temperature=1, seed=max_tokens)
        answer = server.post(PATHS[dialect], body, timeout=600)[2]
        parts, reason = parts_of(dialect, answer)
        counts = {k: v for k, v in answer["usage"].items() if k.endswith("tokens")}
        return [p[:3] for p in parts], reason, counts

    for name in formats:
        options = ["--model", model, "--tool-format", name, "--parallel", str(a.clients)]
        with Hearth(*options) as on, Hearth(*options, "--close-answers", "off") as off:
            named = [(on, dialect, "[w]", m) for dialect in PATHS for m in limits]
            others = [(s, dialect, choice, m) for dialect in PATHS for m in limits for choice in ("auto", "required") for s in (on, off)]
            shortest = {}
            for (_, dialect, _, m), (parts, reason, counts) in zip(named, all_of(a.clients, ask, named)):
                found.count.update({"named": 1, "no room": dialect not in shortest and not is_call(parts)})
                if dialect in shortest or is_call(parts):
                    shortest.setdefault(dialect, m)
                    found.check(is_call(parts), name, dialect, m, parts, reason)
            found.check(len(shortest) == len(PATHS), name, "no call has room", shortest)
            got = list(all_of(a.clients, ask, others))
            for case, x, y in zip(others[::2], got[::2], got[1::2]):
                found.count.update({case[2]: 1, "calls of others": any(p[0] == "call" for p in x[0])})
                found.check(x == y, name, *case[1:], x, y)
    return found


PARTS = {f.__name__: f for f in (cut, jump, states, texts, answers, same, calls)}


def run(part, a, model):
    with Hearth("--model", model, "--parallel", str(a.clients)) as server, Accept(model) as accept:
        return PARTS[part](a, server, accept, model)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("parts", nargs="*", default=list(PARTS))
    p.add_argument("--model")
    p.add_argument("--n", type=int)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--clients", type=int, default=8)
    a = p.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        model = a.model or structured_run.random_model(os.path.join(scratch, "model"), "smollm2-135m-instruct")
        for part in a.parts:
            found = run(part, a, model)
            wrong += len(found.wrong)
            print(f"{part}: {dict(found.count)}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
