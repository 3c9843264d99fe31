#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""truncation: "auto" at length: a conversation that grows far past the context in three dialects, every published template with
random histories, and the time that a cut adds. By hand; needs the reference data for the templates.

    tests/e2e/truncation_run.py [grow|templates|time]...
"""
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time

from hearth_server import DEMO, Hearth, reference


CTX = 2048
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages", "ollama": "/api/chat"}
WORDS = "the cat sat on a mat and looked at two birds that sang in an old tree near the river".split()


def words(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


def body_of(dialect, messages, n, **fields):
    """The same conversation in each dialect; the first message instructs."""
    if dialect == "messages":
        return {"system": messages[0]["content"], "messages": messages[1:], "max_tokens": n, "temperature": 0, **fields}
    if dialect == "ollama":
        return {"messages": messages, "stream": False, "options": {"temperature": 0, "num_predict": n}}  # truncates without a word
    name = "input" if dialect == "responses" else "messages"
    limit = "max_output_tokens" if dialect == "responses" else "max_tokens"
    return {name: messages, limit: n, "temperature": 0, **fields}


def read_answer(dialect, answer):
    """(text, prompt tokens, cached ones, dropped items)"""
    if dialect == "ollama":  # grow asks the metrics for the cached ones
        return answer["message"]["content"], answer["prompt_eval_count"], 0, answer.get("dropped_input_items", 0)
    usage = answer["usage"]
    dropped = usage.get("dropped_input_items", 0)
    if dialect == "chat":
        return answer["choices"][0]["message"]["content"], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], dropped
    if dialect == "responses":
        return (answer["output"][-1]["content"][0]["text"], usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"], dropped)
    cached = usage["cache_read_input_tokens"]
    prompt = usage["input_tokens"] + cached + usage["cache_creation_input_tokens"]
    return answer["content"][0]["text"], prompt, cached, dropped


def grow(dialect, h, turns=120, seed=1):
    """Prints what the cache gave after the first cut, how full the context was, and how often the cut moved."""
    rng, messages, cuts, seen, computed = random.Random(seed), [{"role": "system", "content": "You tell short stories."}], [], [], 0
    for _ in range(turns):
        messages.append({"role": "user", "content": words(rng, rng.randrange(20, 90))})
        before = h.metrics()["hearth_cached_prompt_tokens_total"]
        status, head, answer = h.post(PATHS[dialect], body_of(dialect, messages, 60, truncation="auto"))
        assert status == 200, answer
        text, prompt, cached, dropped = read_answer(dialect, answer)
        if dialect == "ollama":
            cached = h.metrics()["hearth_cached_prompt_tokens_total"] - before
        assert dropped == int(head.get("x-dropped-input-items", 0)) and prompt <= CTX
        messages.append({"role": "assistant", "content": text})
        computed += prompt - cached
        if dropped:
            seen.append((prompt, cached))
            cuts.append(dropped)
    total = h.post(PATHS["chat"] + "/input_tokens", {"messages": messages})[2]["input_tokens"]
    moves = len(set(cuts))
    share = sum(c for _, c in seen) / sum(p for p, _ in seen)
    mean = statistics.mean(p for p, _ in seen)
    print(f"{dialect}: {total} tokens in {turns} turns; after the first cut: cached share {share:.3f}, mean prompt {mean:.0f} of {CTX} "
          f"({mean / CTX:.2f}), {moves} cuts, one in {(total - CTX) / moves:.0f} tokens (a quarter: {CTX // 4})", flush=True)
    assert share >= 0.75 and mean >= 0.8 * CTX and moves <= (total - CTX) / (CTX / 4) + 1


def grow_all():
    for dialect in PATHS:
        with Hearth("--model", DEMO, "--ctx-size", str(CTX)) as h:
            grow(dialect, h)
    with tempfile.TemporaryDirectory() as folder, Hearth("--model", DEMO, "--ctx-size", str(CTX), "--kv-disk", folder) as h:
        grow("chat", h)


# ---- templates --------------------------------------------------------------------------------------------------

def history(rng, tools):
    """A random conversation: instructions in front and on the way, reasoning, parallel calls, results in another order."""
    messages, n_calls = [{"role": "system", "content": words(rng, 6)}] if rng.random() < 0.6 else [], 0
    for _ in range(rng.randrange(3, 12)):
        if messages and rng.random() < 0.15:
            messages.append({"role": "system", "content": words(rng, 5)})
        messages.append({"role": "user", "content": words(rng, rng.randrange(3, 60))})
        for _ in range(rng.randrange(0, 4) if tools else 0):
            calls = [{"id": f"call{n_calls + k:05}", "type": "function", "function": {
                "name": "look", "arguments": json.dumps({"at": words(rng, 2)})}} for k in range(rng.choice((1, 1, 2)))]
            n_calls += len(calls)
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            for call in rng.sample(calls, len(calls)):
                messages.append({"role": "tool", "tool_call_id": call["id"], "name": "look", "content": words(rng, rng.randrange(2, 40))})
        answer = {"role": "assistant", "content": words(rng, rng.randrange(3, 50))}
        if rng.random() < 0.3:
            answer["reasoning_content"] = words(rng, 12)
        messages.append(answer)
    return messages + [{"role": "user", "content": words(rng, 9)}]


def without_oldest(messages, n):
    """The messages but the first n that may go."""
    last = max(i for i, m in enumerate(messages) if m["role"] == "user")
    going = [i for i, m in enumerate(messages) if m["role"] != "system" and i != last][:n]
    return [m for i, m in enumerate(messages) if i not in set(going)]


def check_history(h, messages, tools):
    """None: the whole is refused; else the number of dropped messages (0: it fits, -1: no cut is enough)."""
    body = {"messages": messages, **({"tools": tools} if tools else {})}
    if h.post("/apply-template", body)[0] != 200:
        return None
    status, head, answer = h.post("/tokenize", {**body, "truncation": "auto", "max_tokens": 8})
    assert status == 200, answer
    n = int(head.get("x-dropped-input-items", 0))
    if not n:
        return -1 if answer["count"] > h.ctx else 0
    kept = without_oldest(messages, n)
    assert next(m for m in kept if m["role"] != "system")["role"] == "user", kept
    calls = {c["id"] for m in kept for c in m.get("tool_calls") or ()}
    results = {m["tool_call_id"] for m in kept if m["role"] == "tool"}
    assert calls == results, (calls ^ results)
    assert answer["count"] <= h.ctx - 8
    alone = h.post("/tokenize", {**body, "messages": kept})
    assert alone[0] == 200 and alone[2]["tokens"] == answer["tokens"], (len(alone[2].get("tokens", ())), answer["count"])
    return n


def templates(n_histories=12):
    folder, totals = reference("goldens", "templates"), [0, 0, 0, 0]
    tool = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}}]
    served = with_tools = 0
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".jinja"):
            continue
        with Hearth("--chat-template-file", os.path.join(folder, name), "--ctx-size", "768") as h:
            h.ctx = 768
            rng = random.Random(name)
            known = h.get("/props")[2]["tool_format"]["id"] not in ("unknown", "none")
            counts = [0, 0, 0, 0]  # whole refused, fits, cut, no cut is enough
            for i in range(n_histories):
                tools = tool if known and i % 2 else None
                got = check_history(h, history(rng, tools), tools)
                counts[0 if got is None else 1 if got == 0 else 3 if got < 0 else 2] += 1
            served += counts[0] < n_histories
            with_tools += known
            totals = [a + b for a, b in zip(totals, counts)]
            print(f"{name}: refused {counts[0]}, fit {counts[1]}, cut {counts[2]}, too long {counts[3]}{', tools' if known else ''}", flush=True)
    print(f"{served} templates, {with_tools} with tools: of the histories {totals[0]} refused whole, {totals[1]} fit, {totals[2]} cut, "
          f"{totals[3]} too long")


# ---- time -------------------------------------------------------------------------------------------------------

def times(n=20):
    """32k of context, 4,000 messages: what a cut adds to the counting of the whole."""
    rng = random.Random(3)
    messages = [{"role": "system", "content": "Be brief."}]
    for _ in range(2000):
        messages += [{"role": "user", "content": words(rng, rng.randrange(5, 36))}, {"role": "assistant", "content": words(rng, rng.randrange(5, 36))}]
    messages.append({"role": "user", "content": "And now?"})
    with tempfile.TemporaryDirectory() as folder:
        model = long_demo(folder)
        with Hearth("--model", model, "--ctx-size", "32768", "--parallel", "1") as h:
            took = {}
            for value in ("disabled", "auto"):
                took[value] = []
                for i in range(n):
                    body = {"messages": messages + [{"role": "user", "content": words(random.Random(i), 20 + i)}], "truncation": value, "max_tokens": 8}
                    start = time.monotonic()
                    status, head, answer = h.post("/v1/chat/completions/input_tokens", body)
                    took[value].append(time.monotonic() - start)
                    assert status == 200 and (value == "disabled") == ("x-dropped-input-items" not in head), answer
            added = sorted(a - b for a, b in zip(took["auto"], took["disabled"]))
            print(f"{len(json.dumps(messages))} bytes: counted in {1000 * statistics.median(took['disabled']):.0f} ms, cut in "
                  f"{1000 * statistics.median(took['auto']):.0f} ms; added p50 {1000 * added[n // 2]:.0f} ms, p95 {1000 * added[int(n * 0.95)]:.0f} ms; "
                  f"{answer['input_tokens']} tokens left")


def long_demo(folder):
    """The demo model with a longer context in its configuration."""
    shutil.copytree(DEMO, folder, dirs_exist_ok=True)
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as f:
        config = json.load(f)
    with open(path, "w", encoding="utf-8") as f:
        json.dump({**config, "max_position_embeddings": 32768}, f)
    return folder


if __name__ == "__main__":
    for what in sys.argv[1:] or ["grow", "templates", "time"]:
        {"grow": grow_all, "templates": templates, "time": times}[what]()
