#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run by hand: tool calls of models with random weights, in three dialects, streamed and not.

    tools_run.py calls [--cases 360] [--templates qwen3,llama-3.1,...] [--seed 1]
    tools_run.py texts [--cases 10000] [--templates ...] [--seed 1]

calls: tool_choice "required" and a named function, 10 and 100 tools. Every finished answer consists of calls whose
arguments python-jsonschema accepts, and its stream adds up to the same. logit_bias favours what closes values, so that
most answers finish.
texts: tool_choice "auto" and texts made of pieces of calls. No answer is a 5xx or empty; the text of its tokens is what
`hearth-filter parse` reads in the same way, and each dialect and each stream gives the same parts.

Needs $HEARTH_REFERENCE and jsonschema (PyPI: jsonschema[format-nongpl]). test_structured_answers.py has a small case.
"""
import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading

import structured_run
import test_tools
from hearth_server import FILTER, ROOT, Hearth, reference
from scripted_model import ALPHABET
from test_tools import PATHS, ask_of, parts_of, same, streamed

sys.path.insert(0, os.path.join(ROOT, "tests", "golden"))
import differential_schema  # noqa: E402

N_SPECIAL, END_TOKENS = 17, (b"<|endoftext|>", b"<|im_end|>")
FINISHED = ("tool_calls", "completed", "tool_use", "stop", "end_turn")
CALL, THINK = ["<tool_call>", "</tool_call>"], ["<think>", "</think>"]
MISTRAL = ["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"]
# the markers of each; those of Mistral and Llama are tokens wherever they are known
TEMPLATES = {"qwen2.5": CALL, "qwen3": CALL + THINK, "smollm2-instruct": CALL, "qwen3-coder": CALL,
             "llama-3.1": ["<|python_tag|>"], "mistral-nemo": MISTRAL, "mistral-small-3.2": MISTRAL}
CLOSERS = ["\n</parameter>\n", "</function>", "\n</tool_call>", "}\n</tool_call>", '"}}', "]</tool_call>", '"}}]']
PIECES = ["<tool_call>", "</tool_call>", "<think>", "</think>", "<function=ping>\n", "<function=get_weather>\n",
          "</function>\n", "<parameter=city>\n", "Oslo\n</parameter>\n", '{"name": "ping", "arguments": ',
          '{"name": "get_weather", "parameters": {"city": "', '{"name": "', '"arguments": {}', '"id": "123456789"',
          "ping", "get_weather", "[{", "}]", "\u00e9\U0001f600"]


# ---- the model -------------------------------------------------------------------------------------

def write_model(directory, pieces, markers):
    """Random weights with SmolLM2's tokenizer, whose last tokens become the pieces and of whose special tokens some
    become the markers. Returns its ids by text."""
    structured_run.random_model(directory)
    config = read_json(directory, "config.json")
    write_json(directory, "config.json", dict(config, max_position_embeddings=65536))
    tokenizer = read_json(directory, "tokenizer.json")
    model = tokenizer["model"]
    added = ["".join(ALPHABET[b] for b in piece.encode()) for piece in pieces]
    added = [piece for piece in added if piece not in model["vocab"]]
    ids = {text: i for text, i in model["vocab"].items() if i < len(model["vocab"]) - len(added)}
    model["merges"] = model["merges"][:-len(added)]
    for piece in added:
        ids[piece] = len(ids)
    for token, marker in zip(tokenizer["added_tokens"][3:], markers):
        ids[marker] = ids.pop(token["content"])
        token["content"], token["special"] = marker, marker not in CALL + THINK
    model["vocab"] = ids
    write_json(directory, "tokenizer.json", tokenizer)
    write_json(directory, "special_tokens_map.json", {})
    write_json(directory, "tokenizer_config.json", {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"})
    spelled = {chr_: byte for byte, chr_ in ALPHABET.items()}
    special = {t["content"] for t in tokenizer["added_tokens"]}
    return {name.encode() if name in special else bytes(spelled[c] for c in name): i for name, i in ids.items()}


def read_json(directory, name):
    with open(os.path.join(directory, name), encoding="utf-8") as f:
        return json.load(f)


def write_json(directory, name, value):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as f:
        json.dump(value, f)


def bias_to(ids, texts, strength):
    return {str(ids[t.encode()]): strength for t in texts if t.encode() in ids}


# ---- asking ----------------------------------------------------------------------------------------

def post(server, dialect, body):
    """(parts, how it ended, relaxed pointers, answer)"""
    status, head, answer = server.post(PATHS[dialect], body, timeout=600)
    assert status == 200, f"status {status}: {str(answer)[:300]}"
    parts, reason = parts_of(dialect, answer)
    return parts, reason, head.get("x-schema-relaxed", "").split(", "), answer


class Report:
    """Counts, and what was wrong."""

    def __init__(self):
        self.count = collections.Counter()
        self.wrong = []

    def run(self, clients, check, cases):
        def guarded(case):
            try:
                return check(*case)
            except AssertionError as e:
                self.wrong.append(str(e))
                print(f"WRONG: {[c for c in case if isinstance(c, (str, int))]}: {str(e)[:3000]}", flush=True)
                return {}
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            for found in pool.map(guarded, cases):
                self.count.update(found)


# ---- required and named functions ------------------------------------------------------------------

def tool_schema(seed):
    maker = differential_schema.Maker(seed)
    names = [f"p{i}" for i in range(maker.r.randrange(6))]
    schema = {"type": "object", "properties": {name: maker.schema(1) for name in names},
              "required": [name for name in names if maker.some(0.5)]}
    if maker.some(0.7):
        schema["additionalProperties"] = False
    return schema


def random_tools(accept, n, seed):
    """n tools with schemas that compile, and one without a schema."""
    schemas = (tool_schema(f"{seed} {i}") for i in itertools.count())
    good = (s for s in schemas if "error" not in accept.ask(schema=s, texts=[]))
    tools = {f"tool_{i}": next(good) for i in range(n - 1)}
    return dict(tools, ping=None)


def check_arguments(tools, part, relaxed):
    index, schema = list(tools).index(part[1]), tools[part[1]]
    value = json.loads(part[2])
    assert isinstance(value, dict), part
    verdict, why = structured_run.judge(schema, value) if schema else ("valid", None)
    if verdict == "invalid" and any(pointer.startswith(f"/tools/{index}/") for pointer in relaxed):
        verdict = "relaxed"
    assert verdict != "invalid", f"{why}: {part[2]}: {json.dumps(schema)}"
    return verdict


def check_required(server, tools, dialect, choice, seed, bias, max_tokens):
    body = ask_of(dialect, tools, choice, max_tokens, temperature=1, seed=seed, logit_bias=bias)
    parts, reason, relaxed, _ = post(server, dialect, body)
    finished = reason in FINISHED
    found = {"answers": 1, "finished": int(finished)}
    names = [choice.strip("[]")] if choice[0] == "[" else list(tools)
    if finished:
        calls = parts[1:] if parts and parts[0][0] == "reasoning" else parts  # a template may let the model think first
        assert calls and all(p[0] == "call" and p[1] in names for p in calls), parts
        assert len(calls) == 1 or choice == "required", parts
        found.update(collections.Counter(check_arguments(tools, p, relaxed) for p in calls), calls=len(calls))
    if finished or dialect != "messages":  # else the input holds whole members, the stream a beginning
        got = streamed(dialect, body)
        assert same(got, (parts, reason)), (got, parts)
    return found


def required_cases(server, accept, a, bias):
    for size in (10, 100):
        tools = random_tools(accept, size, f"{a.seed} {size}")
        for i in range(a.cases // 12):
            name = list(tools)[i % size]
            for dialect in PATHS:
                for choice in ("required", f"[{name}]"):
                    yield server, tools, dialect, choice, a.seed + i, bias, a.max_tokens


def run_calls(a, report):
    with tempfile.TemporaryDirectory() as model:
        ids = write_model(model, CLOSERS, MISTRAL)
        bias = bias_to(ids, structured_run.CLOSERS + CLOSERS + ["[TOOL_CALLS]", "\n", "0", "1"], a.bias)
        bias.update((str(ids[name]), a.bias + 3) for name in END_TOKENS)
        for name in a.templates:
            before = collections.Counter(report.count)
            with serve(model, a, name) as server, structured_run.Accept(model) as accept:
                report.run(a.clients, check_required, required_cases(server, accept, a, bias))
            show(name, report.count - before)


# ---- any text --------------------------------------------------------------------------------------

WEATHER = {"get_weather": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
           "ping": {"type": "object", "properties": {}}}


class Filter:
    """A running `hearth-filter parse`."""

    def __init__(self, model):
        self.process = subprocess.Popen([FILTER, "parse", "--model", model], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lock = threading.Lock()

    def ask(self, request):
        with self.lock:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0


def check_text(server, read, reading, names, seed, bias):
    fields = dict(temperature=1, seed=seed, logit_bias=bias)
    body = ask_of("chat", WEATHER, None, 20 + seed % 60, return_token_ids=True, **fields)
    parts, reason, _, answer = post(server, "chat", body)
    text = b"".join(names[i] for i in answer["choices"][0]["token_ids"])
    calls = [p for p in parts if p[0] == "call"]
    found = {"answers": 1, "calls": len(calls), "reasoning": int(any(p[0] == "reasoning" for p in parts))}
    try:
        found.update(compare_with_filter(read, reading, text.decode(), parts))
    except UnicodeDecodeError:
        found["not UTF-8"] = 1
    dialect = list(PATHS)[seed % 3]
    other = ask_of(dialect, WEATHER, None, 20 + seed % 60, **fields)
    if seed % 2 and (dialect != "messages" or reason != "length"):
        got, _ = streamed(dialect, other)
    else:
        got, _, _, _ = post(server, dialect, other)
    found["answers"] += 1
    compare_parts(got, parts, dialect)
    return found


def compare_with_filter(read, reading, text, parts):
    line = dict(reading, text=text, tools=test_tools.tools_of("chat", WEATHER), guided=True)
    want = read(line)
    assert "error" not in want, (want, text)
    got = {kind: "".join(p[1] for p in parts if p[0] == kind) for kind in ("content", "reasoning")}
    got["tool_calls"] = [(p[1], p[2]) for p in parts if p[0] == "call"]
    want = {k: want[k] for k in ("content", "reasoning")} | {
        "tool_calls": [(c["name"], c["arguments"]) for c in want["tool_calls"]]}
    assert got == want, (text, got, want)
    shown = got["content"].strip() or got["reasoning"] or got["tool_calls"]
    return {"empty": int(not shown)} if text.strip() else {"no text": 1}


def compare_parts(got, want, dialect):
    """Content in one string, as chat has it; arguments of Messages as they parse."""
    def flat(parts):
        texts = {k: "".join(p[1] for p in parts if p[0] == k) for k in ("content", "reasoning")}
        return texts, [(p[1], p[2]) for p in parts if p[0] == "call"]
    a, b = flat(got), flat(want)
    if dialect == "messages":  # cut arguments are whole members there
        a, b = (a[0], [c[0] for c in a[1]]), (b[0], [c[0] for c in b[1]])
    assert a == b, (dialect, got, want)


def run_texts(a, report):
    kinds = [(name, marked) for name in a.templates for marked in (False, True)
             if marked or TEMPLATES[name][0] in PIECES]
    for kind, (name, marked) in enumerate(kinds):
        with tempfile.TemporaryDirectory() as model:
            markers = TEMPLATES[name]
            tokens = markers if marked or markers[0] not in PIECES else []
            ids = write_model(model, [p for p in PIECES if p not in tokens], tokens)
            names = {i: text if i >= N_SPECIAL or text.decode() in markers else b"" for text, i in ids.items()}
            bias = bias_to(ids, PIECES + tokens + ["\n", " ", '"', '"}', "}", "{", "]", "[", ",", ";"], a.bias)
            bias.update((str(ids[name]), a.bias - 2) for name in END_TOKENS)
            bias.update(bias_to(ids, set(THINK) & set(markers), a.bias + 2))  # reasoning can only begin an answer
            before, reader = collections.Counter(report.count), Filter(model)
            cases = range(a.seed + kind, a.seed + a.cases // 2, len(kinds))
            with open(template(name), encoding="utf-8") as f:
                reading = {"template": f.read()}
            with serve(model, a, name) as server:
                report.run(a.clients, check_text, ((server, reader.ask, reading, names, i, bias) for i in cases))
            reader.close()
            show(name + (", markers are tokens" if marked else ""), report.count - before)


# ---- running ---------------------------------------------------------------------------------------

def template(name):
    return reference("goldens", "tools", "templates", name + ".jinja")


def serve(model, a, name):
    server = Hearth("--model", model, "--parallel", str(a.clients), "--chat-template-file", template(name))
    test_tools.SERVER = server
    return server


def show(name, count):
    shares = f", {100 * count['finished'] / count['answers']:.0f} % finished" if "finished" in count else ""
    print(f"{name}: {dict(count)}{shares}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("mode", choices=("calls", "texts"))
    p.add_argument("--cases", type=int)
    p.add_argument("--templates", type=lambda text: text.split(","), default=TEMPLATES)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--clients", type=int, default=16)
    p.add_argument("--max-tokens", type=int, default=400)
    p.add_argument("--bias", type=float, default=9)
    a = p.parse_args()
    a.cases = a.cases or {"calls": 360, "texts": 10000}[a.mode]
    report = Report()
    {"calls": run_calls, "texts": run_texts}[a.mode](a, report)
    show("all", report.count)
    print(f"{len(report.wrong)} wrong")
    sys.exit(1 if report.wrong else 0)


if __name__ == "__main__":
    main()
