#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run by hand: models with recurrent layers under conversations, cancels and swaps.

    tests/e2e/hybrid_run.py [--model DIR] [--template FILE] [--other DIR] [CASE...]

A random model as tests/bench/make_model.py makes it (--shape qwen3.5-small or lfm2-small, with a tokenizer that has
<|im_start|>) and the chat template of its family. Figures are printed; a case fails if one is outside its bound.

test_turns: an agent's conversation of 10 turns with tools: tokens computed per request next to those that are new.
test_edits: the last turn edited, and other conversations with the same instructions and tools.
test_crowd: eight such conversations at once with pages for four, against a server without a cache.
test_cancels: 1,000 clients that leave at random moments. test_swaps: this model and --other take turns under load.
"""
import json
import os
import random
import statistics
import sys
import threading
import time

from hearth_server import Hearth, leave, run_cases, start_request
from test_swap import wait_idle

MODEL = TEMPLATE = OTHER = None
N_TURNS = 10
NOUNS = "parser cache page index lock queue thread table socket buffer column report ticket branch".split()
VERBS = "reads writes drops checks keeps counts locks sends sorts merges prints rounds".split()


def text(draw, n):
    return " ".join(f"The {draw.choice(NOUNS)} {draw.choice(VERBS)} the {draw.choice(NOUNS)}." for _ in range(n))


TOOLS = [{"type": "function", "function": {
    "name": name, "description": text(random.Random(name), 8), "parameters": {
        "type": "object", "properties": {"path": {"type": "string", "description": "Which file."},
                                         "lines": {"type": "integer"}}, "required": ["path"]}}}
         for name in ("read_file", "write_file", "run_tests", "search")]


def requests(seed, n_turns=N_TURNS):
    """The messages of each request of an agent: a question, then after each call its result; the answers are given."""
    draw = random.Random(seed)
    messages = [{"role": "system", "content": text(random.Random(7), 60)}]
    for turn in range(n_turns):
        messages = messages + [{"role": "user", "content": text(draw, draw.randrange(3, 20))}]
        yield messages
        for _ in range(draw.randrange(3)):
            call = {"id": f"call{draw.randrange(10**8):09}", "type": "function", "function": {
                "name": draw.choice(TOOLS)["function"]["name"], "arguments": json.dumps({"path": text(draw, 1), "lines": turn})}}
            messages = messages + [{"role": "assistant", "content": text(draw, 1), "tool_calls": [call]},
                                   {"role": "tool", "tool_call_id": call["id"], "content": text(draw, draw.randrange(4, 60))}]
            yield messages
        messages = messages + [{"role": "assistant", "content": text(draw, draw.randrange(2, 12))}]


def body_of(messages, **more):
    return {"messages": messages, "tools": TOOLS, "max_tokens": 8, "temperature": 0, "ignore_eos": True, **more}


def ask(h, messages, **more):
    """(prompt tokens, computed, answer)"""
    status, _, answer = h.post("/v1/chat/completions", body_of(messages, **more), timeout=600)
    assert status == 200, answer
    usage = answer["usage"]
    n, cached = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
    return n, n - cached, answer["choices"][0]["message"]


def ids_of(h, messages):
    prompt = h.post("/apply-template", {"messages": messages, "tools": TOOLS})[2]["prompt"]
    return h.post("/tokenize", {"content": prompt, "parse_special": True})[2]["tokens"]


def serve(*args):
    return Hearth("--model", MODEL, "--chat-template-file", TEMPLATE, "--log-format", "text", *args)


def n_common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def report(rows):
    """rows: (new, computed)"""
    beyond = [computed - new for new, computed in rows]
    print(f"  {len(rows)} requests: computed beyond what is new: median {statistics.median(beyond)}, most {max(beyond)}; "
          f"new {sum(r[0] for r in rows)}, computed {sum(r[1] for r in rows)}", flush=True)
    return beyond


def test_turns():
    rows = []
    with serve("--ctx-size", "16384") as h:
        for seed in range(4):
            before = []
            for i, messages in enumerate(requests(seed)):
                ids = ids_of(h, messages)
                n, computed, _ = ask(h, messages)
                assert abs(n - len(ids)) <= 1, (n, len(ids))
                if i > 0:
                    rows.append((n - n_common(ids, before), computed))
                before = ids
        print(f"  a prompt of {n} tokens at the end; {h.metrics()['hearth_state_snapshots']:.0f} snapshots of "
              f"{h.metrics()['hearth_state_snapshots_limit']:.0f}")
    beyond = report(rows)
    assert max(beyond) <= 1024 and statistics.median(beyond) <= 64


def test_edits():
    rows, draw = [], random.Random(5)
    with serve("--ctx-size", "16384") as h, serve("--ctx-size", "16384", "--no-prefix-cache") as plain:
        for seed in range(4):
            before = None
            for messages in requests(seed, 5):
                ids = ids_of(h, messages)
                _, computed, _ = ask(h, messages)
                if before is None and seed > 0:  # the instructions are those of the conversation before
                    rows.append((len(ids) - n_common(ids, first), computed))
                before = first = ids if before is None else before
                first = before
                if messages[-1]["role"] == "user" and len(messages) > 2:
                    edited = messages[:-1] + [{"role": "user", "content": text(draw, 12)}]
                    ids_edited = ids_of(h, edited)
                    n, computed, answer = ask(h, edited)
                    assert answer == ask(plain, edited)[2]
                    rows.append((n - n_common(ids_edited, ids), computed))
    beyond = report(rows)
    assert max(beyond) <= 1024 and statistics.median(beyond) <= 64


def converse(h, seed, out, kept):
    for messages in requests(seed):
        n, computed, answer = ask(h, messages)
        out.append((n, computed))
        kept.append(answer)


def test_crowd():
    longest = max(len(json.dumps(list(requests(seed))[-1])) for seed in range(8))
    with serve("--ctx-size", "16384", "--parallel", "8", "--no-prefix-cache") as h:
        plain, answers = [[] for _ in range(8)], [[] for _ in range(8)]
        for seed in range(8):
            converse(h, seed, plain[seed], answers[seed])
        most = max(n for rows in plain for n, _ in rows)
        page = h.get("/props")[2]["memory"]["kv_bytes"] // h.slots()["pages"]["total"]
    pages = 4 * (most // 32 + 2)
    with serve("--ctx-size", str(most + 64), "--parallel", "8", "--kv-memory", str(pages * page)) as h:
        rows, got = [[] for _ in range(8)], [[] for _ in range(8)]
        threads = [threading.Thread(target=converse, args=(h, s, rows[s], got[s])) for s in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        found = h.metrics()
    differ = sum(a != b for one, other in zip(answers, got) for a, b in zip(one, other))
    worse = sum(c > p for with_, without in zip(rows, plain) for (_, c), (_, p) in zip(with_, without))
    print(f"  prompts of up to {most} tokens ({longest} bytes), {pages} pages: computed {sum(c for r in rows for _, c in r)}, "
          f"without a cache {sum(c for r in plain for _, c in r)}; requests that computed more {worse}, other answers {differ}; "
          f"{found['hearth_state_snapshots_evicted_total']:.0f} snapshots evicted of {found['hearth_state_snapshots_limit']:.0f}")
    assert sum(map(len, got)) == sum(map(len, answers)) and worse == 0 and differ == 0


def test_cancels():
    draw = random.Random(3)
    prompts = [list(requests(seed, 3))[-1] for seed in range(4)]
    with serve("--ctx-size", "8192", "--kv-memory", "64M") as h:
        want = [ask(h, p)[2] for p in prompts]
        seconds = time.monotonic()
        ask(h, prompts[0], cache_prompt=False)
        seconds = time.monotonic() - seconds
        memory = None
        for i in range(1000):
            s = start_request(h, "/v1/chat/completions", body_of(prompts[i % 4], cache_prompt=i % 3 > 0, max_tokens=200,
                                                                 stream=i % 2 > 0))
            time.sleep(draw.random() * 1.5 * seconds)
            leave(s, reset=i % 5 > 0)
            if i % 250 == 100:
                assert [ask(h, p)[2] for p in prompts] == want, i
                memory = memory or h.memory_kib()
        h.wait_until(lambda: h.slots()["running"] == 0 and h.slots()["pages"]["used"] == 0, 10, "all pages are given back")
        assert [ask(h, p)[2] for p in prompts] == want
        cancelled = {k: v for k, v in h.metrics().items() if "cancel" in k}
        print(f"  1000 clients left; {cancelled}; RSS {memory} -> {h.memory_kib()} KiB")
        assert h.memory_kib() - memory < 2048


def test_swaps():
    assert OTHER, "--other DIR"
    stop, faults, texts = threading.Event(), [], {}

    def stream():
        while not stop.is_set():
            status, _, answer = h.post("/v1/completions", {"prompt": text(random.Random(1), 30), "max_tokens": 40,
                                                           "temperature": 0, "ignore_eos": True}, timeout=600)
            if status != 200:
                faults.append((status, answer))
            elif texts.setdefault(answer["system_fingerprint"], answer["choices"][0]["text"]) != answer["choices"][0]["text"]:
                faults.append("another text")

    with Hearth("--model", MODEL, "--log-format", "text", "--ctx-size", "4096", "--kv-memory", "32M", "--swap", "on") as h:
        threads = [threading.Thread(target=stream) for _ in range(4)]
        memory = []
        for t in threads:
            t.start()
        for i in range(40):
            status, _, answer = h.post("/models/load", {"model": OTHER if i % 2 == 0 else MODEL}, timeout=600)
            assert status == 200, answer
            wait_idle(h)
            if i % 2:
                memory.append(h.memory_kib())
        stop.set()
        for t in threads:
            t.join()
        print(f"  40 swaps: {len(texts)} fingerprints, {len(faults)} faults, RSS {memory[1]} -> {memory[-1]} KiB, "
              f"most {max(memory)}")
        assert not faults and len(texts) == 2 and memory[-1] <= 1.05 * memory[1], (faults[:3], list(texts), memory)


if __name__ == "__main__":
    args = sys.argv[1:]
    for name in ("model", "template", "other"):
        if "--" + name in args:
            at = args.index("--" + name)
            globals()[name.upper()] = os.path.abspath(args[at + 1])
            del args[at:at + 2]
    sys.argv[1:] = args
    run_cases(globals())
