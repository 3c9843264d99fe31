#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tool calls and reasoning in three dialects: models that write a given text, and the demo model under a guide."""
import concurrent.futures
import contextlib
import itertools
import json
import os
import re
import tempfile
import time

from hearth_server import Hearth, chunks, run_cases, start_request, leave
from scripted_model import ScriptedModel, cut
from tiny_models import demo_without

SLOW = bool(os.environ.get("HEARTH_SLOW"))

SERVER = None
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}

# How Qwen3 writes tools, calls and reasoning, in few words.
HERMES = """{%- if tools %}<|im_start|>system
{% for t in tools %}{{ t | tojson }}
{% endfor %}For each call write <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% endif %}{% for m in messages %}{% if m.role == 'tool' %}<|im_start|>user
<tool_response>
{{ m.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ m.role }}
{% if m.content %}{{ m.content }}{% endif %}{% for c in m.tool_calls %}
{% if not loop.first or m.content %}{{ '\n' }}{% endif %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}"""

CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"],
        "additionalProperties": False}
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99},
                                            "b": {"type": "integer", "minimum": 0, "maximum": 99}},
           "required": ["a", "b"], "additionalProperties": False}
TOOLS = {"get_weather": CITY, "add": NUMBERS, "ping": None}
TEXT = ('<think>\nThe user wants weather.\n</think>\n\nLet me look.\n<tool_call>\n{"name": "get_weather", "arguments": '
        '{"city": "Oslo"}}\n</tool_call>\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "R\u00f8me"}}\n</tool_call>')


# ---- one question in each dialect, one shape of the answer ---------------------------------------------

def tools_of(dialect, tools):
    out = []
    for name, schema in tools.items():
        if dialect == "messages":
            out.append({"name": name, "input_schema": schema or {"type": "object"}})
        else:
            function = {"name": name, **({"parameters": schema} if schema else {})}
            out.append({"type": "function", "function": function} if dialect == "chat" else
                       {"type": "function", **function})
    return out


def choice_of(dialect, choice):
    """choice: a word of chat completions, or the name of a tool in brackets."""
    named = choice.strip("[]") if choice.startswith("[") else None
    if dialect == "chat":
        return {"type": "function", "function": {"name": named}} if named else choice
    if dialect == "responses":
        return {"type": "function", "name": named} if named else choice
    return {"type": "tool", "name": named} if named else {"type": {"required": "any"}.get(choice, choice)}


def ask_of(dialect, tools=None, choice=None, max_tokens=300, parallel=True, **fields):
    body = {"max_output_tokens" if dialect == "responses" else "max_tokens": max_tokens}
    if dialect == "responses":
        body["input"] = "Weather in Oslo and Rome?"
    else:
        body["messages"] = [{"role": "user", "content": "Weather in Oslo and Rome?"}]
    if tools:
        body["tools"] = tools_of(dialect, tools)
    if choice:
        body["tool_choice"] = choice_of(dialect, choice)
    if not parallel and dialect == "messages":
        body["tool_choice"] = dict(body.get("tool_choice", {"type": "auto"}), disable_parallel_tool_use=True)
    elif not parallel:
        body["parallel_tool_calls"] = False
    return dict(body, **fields)


def parts_of(dialect, answer):
    """[("reasoning" | "content", text) | ("call", name, arguments, id)] of an answer, and how it ended."""
    if dialect == "chat":
        choice = answer["choices"][0]
        message = choice["message"]
        parts = [("reasoning", message["reasoning_content"])] if "reasoning_content" in message else []
        parts += [("content", message["content"])] if message["content"] else []
        parts += [("call", c["function"]["name"], c["function"]["arguments"], c["id"])
                  for c in message.get("tool_calls", [])]
        return parts, choice["finish_reason"]
    parts = []
    if dialect == "responses":
        for item in answer["output"]:
            if item["type"] == "function_call":
                parts.append(("call", item["name"], item["arguments"], item["call_id"]))
            else:
                kind = "reasoning" if item["type"] == "reasoning" else "content"
                parts += [(kind, item["content"][0]["text"])] if item["content"][0]["text"] else []
        reason = (answer["incomplete_details"] or {}).get("reason")
        return parts, {"max_output_tokens": "length"}.get(reason, answer["status"])
    for block in answer["content"]:
        if block["type"] == "tool_use":
            parts.append(("call", block["name"], json.dumps(block["input"]), block["id"]))
        else:
            kind = "reasoning" if block["type"] == "thinking" else "content"
            text = block["thinking" if kind == "reasoning" else "text"]
            parts += [(kind, text)] if text else []
    return parts, answer["stop_reason"]


def whole(dialect, body):
    status, _, answer = SERVER.post(PATHS[dialect], body)
    assert status == 200, f"{status}: {answer}"
    return parts_of(dialect, answer)


def refused(dialect, body, param, code="invalid_value"):
    status, _, answer = SERVER.post(PATHS[dialect], body)
    assert status == 400, f"{status}: {str(answer)[:300]}"
    error = answer["error"]
    assert error["type"] == "invalid_request_error" and error["message"], error
    if dialect == "messages":
        assert param in error["message"], error
    else:
        assert error["param"] == param and error["code"] == code, error
    return error["message"]


# ---- streams -------------------------------------------------------------------------------------------

def chat_stream(events):
    """The message that the chunks of one choice make; checks that each holds one thing."""
    parts, reason = [], None
    for e in events:
        for choice in e["choices"]:
            delta = choice["delta"]
            reason = choice["finish_reason"] or reason
            assert not (choice["finish_reason"] and delta), choice
            kinds = [k for k in ("content", "reasoning_content", "tool_calls") if delta.get(k)]
            assert len(kinds) <= 1, delta
            if not kinds:
                continue
            if kinds[0] != "tool_calls":
                kind = "content" if kinds[0] == "content" else "reasoning"
                if not parts or parts[-1][0] != kind:
                    parts.append([kind, ""])
                parts[-1][1] += delta[kinds[0]]
                continue
            call, = delta["tool_calls"]
            calls = [p for p in parts if p[0] == "call"]
            if call["index"] == len(calls):
                assert call["type"] == "function" and call["function"]["arguments"] == "", call
                parts.append(["call", call["function"]["name"], "", call["id"]])
            else:
                assert call["index"] == len(calls) - 1 and parts[-1][0] == "call", (call, parts)
                assert sorted(call) == ["function", "index"] and sorted(call["function"]) == ["arguments"], call
                parts[-1][2] += call["function"]["arguments"]
    content = "".join(p[1] for p in parts if p[0] == "content")  # one string, before the calls
    return [tuple(p) for p in parts if p[0] == "reasoning"] + ([("content", content)] if content else []) + [
        tuple(p) for p in parts if p[0] == "call"], reason


def responses_stream(events):
    """The final response; checks that the events before it say the same."""
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    assert [e["type"] for e in events[:2]] == ["response.created", "response.in_progress"]
    items, item = [], None
    for e in events[2:-1]:
        kind = e["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert item is None and e["output_index"] == len(items), e
            item, text = e["item"], ""
            assert item["status"] == "in_progress" and not item.get("content") and not item.get("arguments"), item
            continue
        assert e["output_index"] == len(items), e
        if kind.endswith(".delta"):
            assert e["item_id"] == item["id"], e
            text += e["delta"]
        elif kind.endswith(("_text.done", "_arguments.done")):
            assert e.get("text", e.get("arguments")) == text and e["item_id"] == item["id"], (e, text)
        elif kind == "output_item.done":
            assert e["item"]["id"] == item["id"], e
            items.append(e["item"])
            item = None
        else:
            assert kind in ("content_part.added", "content_part.done"), kind
    final = events[-1]["response"]
    assert item is None and final["output"] == items, (final["output"], items)
    assert events[-1]["type"] == "response." + final["status"], events[-1]["type"]
    return final


def messages_stream(events):
    """The message that the events make, as the SDKs put it together."""
    message = events[0]["message"]
    assert events[0]["type"] == "message_start" and message["content"] == [] and events[-1] == {"type": "message_stop"}
    blocks, is_open, given = message["content"], False, {}
    for e in events[1:-2]:
        if e["type"] == "content_block_start":
            assert not is_open and e["index"] == len(blocks), e
            blocks.append(e["content_block"])
            is_open, given = True, {"json": ""}
        elif e["type"] == "content_block_stop":
            assert is_open and e["index"] == len(blocks) - 1, e
            if blocks[-1]["type"] == "tool_use" and given["json"]:
                blocks[-1]["input"] = json.loads(given["json"])
            is_open = False
        else:
            delta = e["delta"]
            assert is_open and e["index"] == len(blocks) - 1, e
            if delta["type"] == "input_json_delta":
                given["json"] += delta["partial_json"]
            elif delta["type"] != "signature_delta":
                name = {"text_delta": "text", "thinking_delta": "thinking"}[delta["type"]]
                blocks[-1][name] += delta[name]
    assert events[-2]["type"] == "message_delta", events[-2]
    message.update(events[-2]["delta"])
    message["usage"].update(events[-2]["usage"])
    return message


def streamed(dialect, body):
    return read_stream(dialect, SERVER.stream(PATHS[dialect], dict(body, stream=True)))


def read_stream(dialect, raw):
    raw = list(raw)
    if dialect == "chat":
        return chat_stream(chunks(raw))
    events = [json.loads(data) for _, data in raw]
    return parts_of(dialect, responses_stream(events) if dialect == "responses" else messages_stream(events))


def same(a, b, ids=False):
    """Answers but for the ids of calls, which are of the request. Content is one string in chat."""
    def plain(parts):
        return [p if p[0] != "call" or ids else p[:3] for p in parts]
    return plain(a[0]) == plain(b[0]) and a[1] == b[1]


def compare_modes(dialect, body):
    """Streamed = not streamed, whatever the events hold; returns the answer."""
    answer = whole(dialect, body)
    for options in ({}, {"stream_options": {"chunk_tokens": 1}}, {"stream_options": {"chunk_tokens": 3}}):
        if dialect == "messages" and options:
            continue
        got = streamed(dialect, dict(body, **options))
        assert same(got, answer), (dialect, options, got, answer)
    return answer


# ---- published forms ------------------------------------------------------------------------------------

# A template of tests/golden/tools/templates, the tokens of its vocabulary, what the model writes, and the name of its format.
FORMS = [
    ("channels", ["<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>"],
     "<|channel>thought\nThe user asks.\n<channel|><|tool_call>call:get_weather{city:<|\"|>Oslo<|\"|>}<tool_call|>"
     "<|tool_response>not the model's to write", "gemma4"),
    ("channels", ["<|channel>", "<channel|>", "<tool_call|>", "<|tool_response>"],  # the opening marker is missing
     "<|channel>thought\nThe user asks.\n<channel|>call:get_weather{city:<|\"|>Oslo<|\"|>}<tool_call|><|tool_response>not"
     " the model's to write", "gemma4"),
    ("escapes", ["<start_function_call>", "<end_function_call>", "<start_function_response>"],
     "<start_function_call>call:get_weather{city:<escape>Oslo<escape>}<end_function_call><start_function_response>not"
     " the model's to write", "functiongemma"),
    ("tool-list", ["<think>", "</think>", "<|tool_call_start|>", "<|tool_call_end|>"],
     '<think>\nThe user asks.\n</think>\n\n<|tool_call_start|>[get_weather(city="Oslo")]<|tool_call_end|>', "pythonic"),
]


def form_template(name):
    with open(os.path.join(os.path.dirname(__file__), "..", "golden", "tools", "templates", name + ".jinja"), encoding="utf-8") as f:
        return f.read()


def ask_ollama(body):
    status, _, answer = SERVER.post("/api/chat", dict(body, stream=False, think=True, options={"temperature": 0}))
    assert status == 200, answer
    message = answer["message"]
    calls = [("call", c["function"]["name"], json.dumps(c["function"]["arguments"])) for c in message.get("tool_calls", [])]
    return [("reasoning", message["thinking"])] * ("thinking" in message) + calls


def test_published_forms():
    """Calls and reasoning of Gemma 4, FunctionGemma and LFM2.5, as their markers are tokens, in every dialect."""
    for seed, (name, markers, text, form) in enumerate(FORMS):
        wanted = [("call", "get_weather", '{"city": "Oslo"}')]
        if "asks" in text:
            wanted.insert(0, ("reasoning", "The user asks."))
        with scripted(text, seed, markers, template=form_template(name)):
            assert SERVER.get("/props")[2]["tool_format"]["id"] == form
            on = {"chat": {"reasoning_effort": "low"}, "responses": {"reasoning": {"effort": "low"}},
                  "messages": {"thinking": {"type": "enabled", "budget_tokens": 1024}}}
            for dialect in PATHS:
                effort = on[dialect] if "asks" in text else {}
                answer, reason = compare_modes(dialect, ask_of(dialect, TOOLS, temperature=0, max_tokens=2000, **effort))
                assert [p[:3] for p in answer] == wanted, (dialect, answer)
                assert reason in ("tool_calls", "completed", "tool_use"), reason
            if "asks" in text:
                assert ask_ollama(ask_of("chat", TOOLS)) == wanted
            if name == "channels":
                prompts = [SERVER.post("/apply-template", ask_of("chat", reasoning_effort=word))[2]["prompt"]
                           for word in ("low", "none")]
                assert prompts[0].startswith("<|turn>system\n<|think|>\n") and prompts[0].endswith("<|turn>model\n"), prompts
                assert "<|think|>" not in prompts[1] and prompts[1].endswith("<|channel>thought\n<channel|>"), prompts


def test_texts_around_strings_are_tokens():
    """A guide writes Gemma's calls with the tokens around strings, and the reader knows them by their ids."""
    markers = ["<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>']
    with scripted('<|tool_call>call:get_weather{city:<|"|>Oslo', 1, markers, template=form_template("channels")):
        for dialect in PATHS:
            body = ask_of(dialect, TOOLS, "[get_weather]", temperature=0)
            answer, _ = compare_modes(dialect, body)
            (kind, name, arguments, _), = answer
            assert (kind, name) == ("call", "get_weather") and json.loads(arguments)["city"].startswith("Oslo"), answer
        ids = SERVER.post(PATHS["chat"], ask_of("chat", TOOLS, "[get_weather]", temperature=0, return_token_ids=True))[2]
        quote, = SERVER.post("/tokenize", {"content": '<|"|>', "parse_special": True, "add_special": False})[2]["tokens"]
        assert ids["choices"][0]["token_ids"].count(quote) == 2, ids


# ---- examples of the reference -------------------------------------------------------------------------

FREE = {"created", "created_at", "system_fingerprint", "prompt_tokens", "completion_tokens", "total_tokens",
        "input_tokens", "output_tokens", "reasoning_tokens", "cached_tokens", "cache_read_input_tokens",
        "sequence_number", "model", "completed_at", "cache_write_tokens", "cache_creation_input_tokens"}


def shape(value, key=None):
    """A value with placeholders for what is free: times, counts, ids but for their beginning."""
    if isinstance(value, dict):
        return {k: shape(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [shape(v) for v in value]
    if key in FREE:
        return type(value).__name__
    if key in ("id", "item_id", "call_id"):
        return re.match(r"[a-z]*", value)[0]
    return value


def joined(events):
    """Events with neighbouring deltas of one kind made one."""
    out = []
    for e in events:
        e = shape(json.loads(json.dumps(e)))
        if out and merge(out[-1], e):
            continue
        out.append(e)
    return out


def merge(last, e):
    if "choices" in e:
        if not e["choices"] or not last.get("choices"):
            return False
        a, b = last["choices"][0]["delta"], e["choices"][0]["delta"]
        if set(a) != set(b) or not b or "role" in a:
            return False
        if "tool_calls" in a:
            a, b = a["tool_calls"][0], b["tool_calls"][0]
            if a.get("id") or b.get("id") or a["index"] != b["index"]:
                return False
            a, b = a["function"], b["function"]
        for key in b:
            a[key] += b[key]
        return True
    if last.get("type") != e.get("type") or not e["type"].endswith(("delta",)) or e["type"] == "message_delta":
        return False
    if isinstance(e["delta"], str):
        last["delta"] += e["delta"]
        return True
    keys = [k for k in e["delta"] if k != "type"]
    if set(last["delta"]) != set(e["delta"]) or last["index"] != e["index"] or keys == ["signature"]:
        return False
    for key in keys:
        last["delta"][key] += e["delta"][key]
    return True


def check_example(case):
    path, request = PATHS[case["dialect"]], dict(case["request"], temperature=0)
    if "stream" in case:
        got = [data if data == "[DONE]" else json.loads(data) for _, data in SERVER.stream(path, request)]
        done = [e for e in got if e == "[DONE]"] == [e for e in case["stream"] if e == "[DONE]"]
        a = joined([e for e in got if e != "[DONE]"])
        b = joined([e for e in case["stream"] if e != "[DONE]"])
        a, b = json.dumps(a, sort_keys=True), json.dumps(b, sort_keys=True)
        assert done and a == b.replace('"temperature": 1.0', '"temperature": 0.0'), f"{case['name']}:\n{a}\n{b}"
        return
    status, _, answer = SERVER.post(path, request)
    assert status == case["status"], f"{case['name']}: {status} {answer}"
    if "answer" not in case:
        return
    want = shape(case["answer"])
    got = shape(answer)
    if status != 200 and want["error"]["message"] is None:
        want["error"]["message"] = got["error"]["message"]
    if "temperature" in want:
        want["temperature"] = 0.0
    assert got == want, f"{case['name']}:\n{got}\n{want}"


def test_examples():
    """Every line of the reference's examples2.jsonl, with the text cut into tokens in several ways, but for an image in a
    result: it is answered now (test_foreign_parts)."""
    import os
    base = os.environ.get("HEARTH_REFERENCE")
    if not base:
        print("  (no HEARTH_REFERENCE)")
        return
    folder = os.path.join(base, "goldens", "tools")
    with open(os.path.join(folder, "examples2.jsonl"), encoding="utf-8") as f:
        cases = [c for c in map(json.loads, f) if c["name"] != "image-in-result"]
    with open(os.path.join(folder, "templates", "qwen3.jinja"), encoding="utf-8") as f:
        template = f.read()
    texts = sorted({c["model_text"] for c in cases if "model_text" in c})
    for text in texts:
        for seed in range(3):
            check_with(text, seed, template, [c for c in cases if c.get("model_text", text) == text])


def check_with(text, seed, template, cases):
    with scripted(text, seed, args=("--accept-any-model", "on"), template=template):
        for case in cases:
            check_example(case)


# ---- a model that writes TEXT ------------------------------------------------------------------------------

def scripted(text=TEXT, seed=0, markers=(), args=(), template=HERMES):
    """(model, server) of a model that writes the text."""
    return Script(ScriptedModel(cut(text, seed, markers), template, markers), args)


class Script:
    def __init__(self, model, args):
        self.model, self.args = model, args

    def __enter__(self):
        global SERVER
        self.outer = SERVER
        self.model.__enter__()
        SERVER = self.server = Hearth("--model", self.model.dir, *self.args)
        return self.server.__enter__()

    def __exit__(self, *error):
        global SERVER
        try:
            self.server.__exit__(*error)
        finally:
            SERVER = self.outer
            self.model.__exit__(*error)


WEATHER = [("call", "get_weather", '{"city": "Oslo"}'), ("call", "get_weather", '{"city": "R\u00f8me"}')]


def test_every_cut_and_mode():
    """The same answer for every way of cutting the text into tokens, streamed or not, in each dialect."""
    for seed in range(6):
        with scripted(seed=seed):
            for dialect in PATHS:
                parts, reason = compare_modes(dialect, ask_of(dialect, {"get_weather": None}, temperature=0))
                calls = [p[:2] + (json.loads(p[2]),) for p in parts[2:]]
                assert parts[0] == ("reasoning", "The user wants weather.") and parts[1] == ("content", "Let me look.")
                assert calls == [p[:2] + (json.loads(p[2]),) for p in WEATHER], parts
                assert reason == {"chat": "tool_calls", "responses": "completed", "messages": "tool_use"}[dialect]
                assert len({p[3] for p in parts[2:]}) == 2, parts


def test_ids():
    with scripted():
        seen = set()
        for dialect, pattern in (("chat", "call_"), ("responses", "call_"), ("messages", "toolu_")):
            for _ in range(3):
                parts, _ = whole(dialect, ask_of(dialect, TOOLS, temperature=0))
                for p in parts[2:]:
                    assert re.fullmatch(pattern + "[0-9A-Za-z]{24}", p[3]) and p[3] not in seen, p
                    seen.add(p[3])
        status, _, answer = SERVER.post(PATHS["responses"], ask_of("responses", TOOLS, temperature=0))
        for item in answer["output"]:
            if item["type"] == "function_call":
                assert item["id"] == "fc_" + item["call_id"].removeprefix("call_"), item


def test_stop_strings_are_looked_for_in_content_alone():
    with scripted():
        for stop in ("Oslo", "wants", "</tool_call>", "get_weather", "tool"):
            for dialect in ("chat", "messages"):
                field = "stop" if dialect == "chat" else "stop_sequences"
                answer = compare_modes(dialect, ask_of(dialect, TOOLS, temperature=0, **{field: [stop]}))
                assert len(answer[0]) == 4 and answer[1] in ("tool_calls", "tool_use"), (stop, answer)
        answer = compare_modes("chat", ask_of("chat", TOOLS, temperature=0, stop=["me lo"]))
        assert answer == ([("reasoning", "The user wants weather."), ("content", "Let ")], "stop"), answer
        answer = compare_modes("messages", ask_of("messages", TOOLS, temperature=0, stop_sequences=["Let"]))
        assert answer == ([("reasoning", "The user wants weather.")], "stop_sequence"), answer
        # a beginning of a stop string does not reach over a call
        answer = compare_modes("chat", ask_of("chat", TOOLS, temperature=0, stop=["look.\n<tool"]))
        assert len(answer[0]) == 4, answer


def test_where_it_may_be_cut():
    """max_tokens at every place: nothing is lost or doubled, a call that is not whole ends by length."""
    with scripted(seed=3):
        full, _ = whole("chat", ask_of("chat", TOOLS, temperature=0))
        n = SERVER.post(PATHS["chat"], ask_of("chat", TOOLS, temperature=0))[2]["usage"]["completion_tokens"]
        for limit in range(1, n):
            for dialect in PATHS:
                body = ask_of(dialect, TOOLS, temperature=0, max_tokens=limit)
                parts, reason = whole(dialect, body)
                assert reason in ("length", "max_tokens"), (limit, reason)
                for i, (part, whole_part) in enumerate(zip(parts, full)):
                    if i + 1 == len(parts) and part[0] == "content" and whole_part[0] != "content":
                        assert part[1].strip() in TEXT, part  # of a marker that was cut
                        continue
                    assert part[0] == whole_part[0] and part[1][:1] == whole_part[1][:1], (part, whole_part)
                    if dialect != "messages" and part[0] == "call":
                        assert whole_part[2].startswith(part[2]), (part, whole_part)
                if dialect != "messages":
                    assert same(streamed(dialect, body), (parts, reason)), (limit, dialect, parts)
                elif limit % 5 == 0:
                    events = [json.loads(d) for _, d in SERVER.stream(PATHS[dialect], dict(body, stream=True))]
                    assert events[-2]["delta"]["stop_reason"] == "max_tokens", events[-2]


def test_choices():
    """n > 1: every choice has calls and ids of its own, and in a stream each index its own order."""
    with scripted():
        body = ask_of("chat", TOOLS, temperature=0, n=3)
        answer = SERVER.post(PATHS["chat"], body)[2]
        one = [parts_of("chat", {"choices": [c]}) for c in answer["choices"]]
        assert all(same(a, one[0]) for a in one), one
        ids = [p[3] for parts, _ in one for p in parts[2:]]
        assert len(set(ids)) == 6, ids
        events = chunks(SERVER.stream(PATHS["chat"], dict(body, stream=True)))
        for index in range(3):
            mine = [{"choices": [c for c in e["choices"] if c["index"] == index]} for e in events]
            assert same(chat_stream(mine), one[0]), index


def test_logprobs_and_token_ids():
    """Log-probabilities are listed for tokens of the content, ids for all."""
    for seed in range(4):
        with scripted(seed=seed):
            body = ask_of("chat", TOOLS, temperature=0, logprobs=True, top_logprobs=1, return_token_ids=True)
            choice = SERVER.post(PATHS["chat"], body)[2]["choices"][0]
            spelled = b"".join(bytes(t["bytes"]) for t in choice["logprobs"]["content"])
            assert b"Let me look." in spelled and b"Oslo" not in spelled and b"user" not in spelled, spelled
            text = SERVER.post("/detokenize", {"tokens": choice["token_ids"]})[2]["content"]
            assert TEXT in text, text
            for options in ({}, {"chunk_tokens": 1}):
                events = chunks(SERVER.stream(PATHS["chat"], dict(body, stream=True, stream_options=options)))
                got = [c for e in events for c in e["choices"]]
                assert sum((c.get("token_ids", []) for c in got), []) == choice["token_ids"], (seed, options)
                logged = sum((c["logprobs"]["content"] for c in got if c["logprobs"]), [])
                assert logged == choice["logprobs"]["content"], (seed, options)
            # in Responses each message has those of its text
            body = ask_of("responses", TOOLS, temperature=0, include=["message.output_text.logprobs"])
            for _ in range(20):  # however the text comes out of the engine
                logged = {}
                for _, data in SERVER.stream(PATHS["responses"], dict(body, stream=True)):
                    e = json.loads(data)
                    if e["type"] == "response.output_text.delta":
                        logged.setdefault(e["item_id"], []).extend(e["logprobs"])
                messages = [i for i in e["response"]["output"] if i["type"] == "message"]
                assert messages and logged == {i["id"]: i["content"][0]["logprobs"] for i in messages}, (logged, messages)
            assert sum(logged.values(), []) == [dict(t, top_logprobs=[]) for t in choice["logprobs"]["content"]]


def test_parallel_tool_calls():
    with scripted():
        for dialect in PATHS:
            parts, _ = compare_modes(dialect, ask_of(dialect, TOOLS, temperature=0, parallel=False))
            assert [p[0] for p in parts].count("call") == 1, parts


def test_choice_none():
    """No calls are read, the tools are not in the prompt, and the marker never comes where it is one token."""
    with scripted():
        parts, reason = compare_modes("chat", ask_of("chat", TOOLS, "none", temperature=0))
        assert [p[0] for p in parts] == ["reasoning", "content"] and "<tool_call>" in parts[1][1], parts
        assert reason == "stop"
        plain = SERVER.post("/apply-template", ask_of("chat"))[2]["prompt"]
        assert SERVER.post("/apply-template", ask_of("chat", TOOLS, "none"))[2]["prompt"] == plain
        assert SERVER.post("/apply-template", ask_of("chat", TOOLS))[2]["prompt"] != plain
    one = TEXT[:TEXT.index("\n<tool_call>\n{", TEXT.index("Oslo"))]
    with scripted(one, markers=("<tool_call>", "</tool_call>")):
        assert len(whole("chat", ask_of("chat", TOOLS, temperature=0))[0]) == 3
        parts, _ = whole("chat", ask_of("chat", TOOLS, "none", temperature=0, max_tokens=60))
        assert all("<tool_call>" not in p[1] for p in parts), parts


def test_marker_tokens():
    """Markers that are tokens of the vocabulary: read by their id, in every dialect and mode."""
    one = TEXT[:TEXT.index("\n<tool_call>\n{", TEXT.index("Oslo"))]
    markers = ("<tool_call>", "</tool_call>", "<think>", "</think>")
    for seed in range(3):
        with scripted(one, seed, markers):
            for dialect in PATHS:
                parts, _ = compare_modes(dialect, ask_of(dialect, TOOLS, temperature=0))
                assert [p[0] for p in parts] == ["reasoning", "content", "call"], parts
            usage = SERVER.post(PATHS["chat"], ask_of("chat", TOOLS, temperature=0))[2]["usage"]
            pieces = cut(one, seed, markers)
            assert usage["completion_tokens_details"]["reasoning_tokens"] == pieces.index(b"</think>") + 1, usage


def test_reasoning_fields():
    with scripted(args=("--reasoning-field", "both")):
        message = SERVER.post(PATHS["chat"], ask_of("chat", TOOLS, temperature=0))[2]["choices"][0]["message"]
        assert message["reasoning"] == message["reasoning_content"] == "The user wants weather.", message
        parts, _ = whole("chat", ask_of("chat", TOOLS, temperature=0, reasoning_format="none"))
        assert parts[0][0] == "content" and parts[0][1].startswith("<think>\nThe user"), parts
        for dialect, fields in (("chat", {"reasoning_effort": "low"}), ("responses", {"reasoning": {"effort": "low"}}),
                                ("messages", {"thinking": {"type": "adaptive"}})):
            status, head, _ = SERVER.post(PATHS[dialect], ask_of(dialect, temperature=0, **fields))
            assert status == 200 and "x-ignored-params" not in head, head
        refused("chat", ask_of("chat", reasoning_effort="most"), "reasoning_effort")
        refused("responses", ask_of("responses", reasoning={"effort": "most"}), "reasoning.effort")
        refused("messages", ask_of("messages", thinking={"type": "always"}), "thinking")
        off = SERVER.post("/apply-template", ask_of("chat", reasoning_effort="none"))[2]["prompt"]
        assert off.endswith("<think>\n\n</think>\n\n"), off
        for fields in ({"enable_thinking": False}, {"think": False}, {"thinking": {"type": "disabled"}}, {"think": "none"}):
            status, head, answer = SERVER.post("/apply-template", ask_of("chat", **fields))
            assert status == 200 and answer["prompt"] == off and "x-ignored-params" not in head, (fields, head, answer)
        message = refused("chat", ask_of("chat", enable_thinking=True, think=False), "think")
        assert message.startswith("'enable_thinking' and 'think' do not agree"), message
        forced = SERVER.post("/apply-template", ask_of("chat", reasoning_effort="none", chat_template_kwargs={
            "enable_thinking": True}))[2]["prompt"]
        assert forced.endswith("assistant\n"), forced
        _, head, _ = SERVER.post(PATHS["messages"], ask_of("messages", max_tokens=5, thinking={
            "type": "enabled", "budget_tokens": 1024}))
        assert "x-ignored-params" not in head, head
    with scripted(args=("--reasoning-field", "reasoning")):
        message = SERVER.post(PATHS["chat"], ask_of("chat", TOOLS, temperature=0))[2]["choices"][0]["message"]
        assert "reasoning" in message and "reasoning_content" not in message, message


LONG_THOUGHT = "<think>\n" + " ".join(f"thought {i:03}" for i in range(200)) + "</think>It rains."
YES = {"response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": ["yes", "no"]}}}}


def test_no_reasoning_behind_a_closed_block():
    """Where the prompt holds a closed block, a guide lets no second one begin, however much the model wants it."""
    off = {"chat": {"reasoning_effort": "none"}, "responses": {"reasoning": {"effort": "none"}},
           "messages": {"thinking": {"type": "disabled"}}}
    for markers in ((), ("<think>", "</think>")):
        with scripted(LONG_THOUGHT, markers=markers):
            for dialect, fields in off.items():
                parts, _ = whole(dialect, ask_of(dialect, {"add": NUMBERS}, "required", temperature=0, **fields))
                assert parts and all(p[0] == "call" for p in parts), parts
            for fields in ({"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}):
                assert whole("chat", ask_of("chat", temperature=0, **YES, **fields)) == ([("content", '"no"')], "stop")
            parts, reason = whole("chat", ask_of("chat", temperature=0, max_tokens=100, **YES))
            assert parts[0][0] == "reasoning" and parts[1:] == [("content", '"no"')] and reason == "stop", (parts, reason)


def test_reasoning_is_closed_in_time():
    """A guide closes a reasoning block at its budget, else at half of max_tokens, so that the answer has room."""
    forced = HERMES.replace("assistant\n{% if en", "assistant\n<think>\n{% if en")
    assert forced != HERMES
    for markers, template in itertools.product(((), ("<think>", "</think>")), (HERMES, forced)):
        script = LONG_THOUGHT if template == HERMES else LONG_THOUGHT[len("<think>\n"):]
        with scripted(script, markers=markers, template=template):
            closing = 2 if markers else 20  # tokens that may be spent on the markers
            def thought(dialect, tokens, **fields):
                body = ask_of(dialect, temperature=0, max_tokens=tokens, **fields)
                answer = SERVER.post(PATHS[dialect], body)[2]
                usage = answer["usage"]
                details = usage.get("completion_tokens_details", usage.get("output_tokens_details", {}))
                return parts_of(dialect, answer), details.get("reasoning_tokens")
            for fields, tokens, most in ((YES, 100, 50), (dict(YES, thinking_token_budget=10), 300, 10),
                                         (dict(YES, thinking_token_budget=0), 300, 0),
                                         ({"tools": {"add": NUMBERS}, "choice": "required"}, 600, 300)):
                (parts, reason), n = thought("chat", tokens, **fields)
                assert reason != "length" and parts[-1][0] in ("content", "call"), (parts, reason)
                assert most <= n <= most + closing, (n, most, parts)
            assert thought("chat", 100, **YES) == thought("chat", 100, speculate=False, **YES)
            (parts, reason), n = thought("chat", 60, **dict(YES, thinking_token_budget=-1))
            assert [p[0] for p in parts] == ["reasoning", "content"] and reason == "length", (parts, reason)
            assert 60 - 5 - closing <= n < 60, n  # no later than the shortest answer needs
            refused("chat", ask_of("chat", thinking_token_budget=-2), "thinking_token_budget")
            refused("chat", ask_of("chat", thinking_token_budget="x"), "thinking_token_budget", "invalid_type")
            refused("messages", ask_of("messages", thinking={"type": "enabled", "budget_tokens": 1.5}), "budget_tokens")
            if not markers and template == HERMES:
                continue  # in free text a block that begins without a token of its own is text to the guide
            # free text: only where a budget is given, with and without tools
            for tools in ({}, {"tools": TOOLS}):
                (parts, _), n = thought("chat", 60, **tools)
                assert [p[0] for p in parts] == ["reasoning"] and n == 60, (parts, n)
                (parts, _), n = thought("chat", 60, thinking_token_budget=10, **tools)
                assert [p[0] for p in parts] == ["reasoning", "content"] and 10 <= n <= 10 + closing, (parts, n)
            (parts, _), _ = thought("messages", 60, thinking={"type": "enabled", "budget_tokens": 10})
            assert [p[0] for p in parts] == ["reasoning", "content"], parts
            (parts, _), n = thought("responses", 60, thinking_token_budget=10)
            assert [p[0] for p in parts] == ["reasoning", "content"] and 10 <= n <= 10 + closing, (parts, n)


def test_second_turn_repeats_the_first():
    """What was generated, sent back, is in the prompt as it was generated, so the cache holds it."""
    one = TEXT[TEXT.index("<tool_call>"):].replace("R\u00f8me", "Rome")
    with scripted(one):
        body = ask_of("chat", TOOLS, temperature=0)
        answer = SERVER.post(PATHS["chat"], body)[2]
        message = answer["choices"][0]["message"]
        first = SERVER.post("/apply-template", body)[2]["prompt"]
        results = [{"role": "tool", "tool_call_id": c["id"], "content": "rain"} for c in message["tool_calls"]]
        second = SERVER.post("/apply-template", dict(body, messages=body["messages"] + [message] + results))[2]["prompt"]
        assert second.startswith(first + one), second
        usage = SERVER.post(PATHS["chat"], dict(body, messages=body["messages"] + [message] + results))[2]["usage"]
        cached, page = usage["prompt_tokens_details"]["cached_tokens"], SERVER.slots()["pages"]["tokens"]
        assert cached + 2 * page > answer["usage"]["prompt_tokens"], (cached, answer["usage"])


def test_disconnect_in_a_call():
    """A client that leaves in a call frees all; its neighbour is not disturbed."""
    long = '<tool_call>\n{"name": "echo", "arguments": {"text": "' + "".join(
        f"{i:04} of many words; " for i in range(150)) + '"}}\n</tool_call>'
    with scripted(long, args=("--parallel", "4")):
        tools = {"echo": {"type": "object", "properties": {"text": {"type": "string"}}}}
        body = ask_of("chat", tools, temperature=0, max_tokens=2000)
        alone = whole("chat", body)
        for dialect, reset in (("chat", False), ("chat", True), ("responses", True), ("messages", False)):
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                beside = pool.submit(whole, "chat", body)
                s = start_request(SERVER, PATHS[dialect], ask_of(dialect, tools, temperature=0, max_tokens=2000, stream=True))
                data = b""
                while b"many" not in data:
                    data += s.recv(4096)
                leave(s, reset)
                assert same(beside.result(), alone)
            SERVER.wait_until(lambda: SERVER.slots()["running"] == SERVER.slots()["pages"]["used"] == 0, 10, "all free")


def until(events, text):
    """The events up to the first that holds the text."""
    out = []
    for e in events:
        out.append(e)
        if text in e[1]:
            return out
    raise AssertionError(f"no {text!r} in {out}")


def test_deadline_in_a_call():
    """A deadline that passes in a call ends the answer by length; the call is there as far as it came."""
    text = "".join(f"{i:04} of many words; " for i in range(500))
    long = f'<tool_call>\n{{"name": "echo", "arguments": {{"n": 7, "text": "{text}"}}}}\n</tool_call>'
    tools = {"echo": {"type": "object", "properties": {"n": {"type": "integer"}, "text": {"type": "string"}}}}
    bodies = {d: ask_of(d, tools, temperature=0, max_tokens=3500) for d in PATHS}
    seconds = 20 if SLOW else 4
    headers = {"x-request-deadline-ms": str(1000 * seconds)}
    with scripted(long, args=("--parallel", "6", "--debug-hooks", "on")), concurrent.futures.ThreadPoolExecutor(3) as pool:
        wholes = {d: pool.submit(SERVER.post, PATHS[d], bodies[d], headers) for d in PATHS}
        SERVER.wait_until(lambda: SERVER.slots()["running"] == 3, 10, "three run")
        streams = {d: SERVER.stream(PATHS[d], dict(bodies[d], stream=True), headers) for d in PATHS}
        begun = {d: until(streams[d], "many") for d in PATHS}
        over = time.monotonic() + seconds
        SERVER.pause_engine()
        SERVER.wait_until(lambda: time.monotonic() > over, 10)
        SERVER.resume_engine()
        for d in PATHS:
            status, _, answer = wholes[d].result()
            assert status == 200, answer
            parts, reason = parts_of(d, answer)
            assert reason == {"messages": "max_tokens"}.get(d, "length"), (d, reason)
            if d == "responses":
                assert [item["status"] for item in answer["output"]] == ["incomplete"], answer["output"]
            events = begun[d] + list(streams[d])
            if d == "messages":  # not streamed it has whole members alone
                assert parts[0][:3] == ("call", "echo", '{"n": 7}'), parts
                events = [json.loads(e) for _, e in events]
                assert events[-2]["delta"]["stop_reason"] == "max_tokens" and events[-3]["type"] == "content_block_stop"
                parts = [("call", "echo", "".join(e.get("delta", {}).get("partial_json", "") for e in events), "")]
            else:
                got = read_stream(d, events)
                assert got[1] == reason, got
                parts += got[0]
            for kind, name, arguments, _ in parts:
                assert (kind, name) == ("call", "echo") and "many" in arguments, (d, parts)
                assert f'{{"n": 7, "text": "{text}'.startswith(arguments), (d, parts)
        SERVER.wait_until(lambda: SERVER.slots()["running"] == SERVER.slots()["pages"]["used"] == 0, 10, "all free")


# ---- the demo model under a guide --------------------------------------------------------------------------

def check_arguments(name, text):
    value = json.loads(text)
    if name == "add":
        assert sorted(value) == ["a", "b"] and all(type(v) is int and 0 <= v <= 99 for v in value.values()), text
    elif name == "get_weather":
        assert list(value) == ["city"] and type(value["city"]) is str and len(value["city"]) <= 12, text
    else:
        assert isinstance(value, dict), text


def check_calls(parts, reason, names, most=64):
    finished = reason in ("tool_calls", "completed", "tool_use")
    if not finished:  # the beginning of a call without its name is content
        parts = [p for p in parts if p[0] == "call"]
    assert 1 <= len(parts) <= most and all(p[0] == "call" and p[1] in names for p in parts), parts
    for p in parts if finished else parts[:-1]:
        check_arguments(p[1], p[2])
    assert finished or reason in ("length", "max_tokens"), reason


def test_required_and_named():
    for dialect in PATHS:
        for seed in range(1 if SLOW else 3):
            for choice, names, most in (("required", TOOLS, 64), ("[add]", ["add"], 1), ("[get_weather]", ["get_weather"], 1)):
                body = ask_of(dialect, TOOLS, choice, temperature=1, seed=seed)
                answer = whole(dialect, body)
                check_calls(*answer, names, most)
                if answer[1] not in ("length", "max_tokens"):
                    assert same(streamed(dialect, body), answer), (dialect, choice, seed)
        answer = compare_modes(dialect, ask_of(dialect, {"add": NUMBERS}, "required", temperature=0, parallel=False))
        check_calls(*answer, ["add"], 1)


def test_allowed_tools():
    for mode in ("required", "auto"):
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools_of("chat", {"add": None})}}
        body = ask_of("chat", TOOLS, temperature=1, seed=5)
        parts, reason = whole("chat", dict(body, tool_choice=allowed))
        if mode == "required":
            check_calls(parts, reason, ["add"])
        assert SERVER.post("/apply-template", dict(body, tool_choice=allowed))[2] == SERVER.post("/apply-template", body)[2]
        flat = {"type": "allowed_tools", "mode": mode, "tools": tools_of("responses", {"add": None})}
        parts, reason = whole("responses", dict(ask_of("responses", TOOLS, temperature=1, seed=5), tool_choice=flat))
        if mode == "required":
            check_calls(parts, reason, ["add"])


def test_response_format_rules_the_content():
    schema = {"type": "json_schema", "json_schema": {"name": "p", "schema": NUMBERS}}
    for seed in range(4):
        parts, reason = whole("chat", ask_of("chat", TOOLS, temperature=1, seed=seed, response_format=schema))
        for p in parts:
            if p[0] == "content" and reason == "stop":
                check_arguments("add", p[1])
    check_calls(*whole("chat", ask_of("chat", TOOLS, "required", temperature=1, response_format=schema)), TOOLS)


def test_many_clients_repeatably():
    """16 at once with different tools: each answer is the one it has alone, and the same the next time."""
    bodies = []
    for i in range(16):
        tools = {f"tool_{i}_{k}": {"type": "object", "properties": {f"p{i}": {"enum": [f"v{i}", f"w{k}"]}},
                                   "required": [f"p{i}"], "additionalProperties": False} for k in range(1 + i % 4)}
        dialect = list(PATHS)[i % 3]
        fields = {} if dialect == "messages" else {"seed": i}
        fields["temperature"] = 0 if dialect == "messages" else 1
        bodies.append((dialect, ask_of(dialect, tools, "required" if i % 4 else None, max_tokens=120, **fields)))
    alone = [whole(d, b) for d, b in bodies]
    for get in (streamed,) if SLOW else (whole, streamed):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for (dialect, _), got, want in zip(bodies, pool.map(lambda x: get(*x), bodies), alone):
                if get is whole or want[1] not in ("max_tokens",):
                    assert same(got, want), (dialect, got, want)


# The prompt opens a reasoning block, and a frequent word closes it.
THINKING = HERMES.replace("<|im_start|>{{ m.role }}\n", "<|im_start|>{{ m.role }}\n"
                          "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}the{% endif %}")
THINKING = THINKING[:THINKING.index("{% if enable_thinking")] + "<think>{% endif %}"


@contextlib.contextmanager
def serving(*args):
    global SERVER
    outer = SERVER
    try:
        with Hearth(*args) as SERVER:
            yield
    finally:
        SERVER = outer


def repeated(dialect, body):
    """What must not change: the parts but for ids of calls, the end, the tokens and their log-probabilities."""
    status, _, answer = SERVER.post(PATHS[dialect], body)
    assert status == 200, answer
    parts, reason = parts_of(dialect, answer)
    choice = answer["choices"][0] if dialect == "chat" else {}
    return [p[:3] for p in parts], reason, choice.get("token_ids"), choice.get("logprobs")


def test_repeatable_under_all_settings():
    """Reasoning and calls have the same bytes alone and in company, whatever chunk, threads, slots and prefix cache."""
    cases = []
    for i in range(12):
        dialect = list(PATHS)[i % 3]
        choice = ("required", "[add]", None, "[get_weather]")[i // 3]
        fields = {"temperature": 0} if dialect == "messages" else {"temperature": 1, "seed": i}
        if dialect == "chat":
            fields.update(return_token_ids=True, logprobs=True, top_logprobs=2)
        cases.append((dialect, ask_of(dialect, TOOLS, choice, max_tokens=90, **fields)))
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
        f.write(THINKING)
        f.flush()
        answers = {}
        for settings, together in (("1 1 0 off", False), ("1 1 0 on", True), ("12 2 0 on", True), ("5 2 24 off", True)):
            args = itertools.chain(*zip(("--parallel", "--threads", "--chunk", "--prefix-cache"), settings.split()))
            with serving("--chat-template-file", f.name, "--max-queue", "12", *args), \
                    concurrent.futures.ThreadPoolExecutor(len(cases) if together else 1) as pool:
                answers[settings, together] = list(pool.map(lambda case: repeated(*case), cases))
    alone = answers["1 1 0 off", False]
    for key, got in answers.items():
        for case, one, want in zip(cases, got, alone):
            assert one == want, (key, case, one, want)
    kinds = [[p[0] for p in parts] for parts, *_ in alone]
    assert sum(k[:2] == ["reasoning", "call"] for k in kinds) > 4, alone


def test_prompts_and_counts():
    """Counting, /apply-template and /tokenize see the tools that generation sees."""
    for dialect, path in (("chat", "/v1/chat/completions/input_tokens"), ("responses", "/v1/responses/input_tokens"),
                          ("messages", "/v1/messages/count_tokens")):
        body = ask_of(dialect, TOOLS, max_tokens=1)
        n = SERVER.post(path, body)[2]["input_tokens"]
        usage = SERVER.post(PATHS[dialect], body)[2]["usage"]
        used = usage.get("prompt_tokens", usage.get("input_tokens", 0) + usage.get("cache_read_input_tokens", 0))
        assert n == used > SERVER.post(path, ask_of(dialect))[2]["input_tokens"], (dialect, n, usage)
    body = ask_of("chat", TOOLS)
    prompt = SERVER.post("/apply-template", body)[2]["prompt"]
    assert '"name": "get_weather"' in prompt, prompt
    assert SERVER.post("/tokenize", body)[2]["count"] == SERVER.post(
        "/v1/chat/completions/input_tokens", body)[2]["input_tokens"]


def test_history_in_each_dialect():
    """The same conversation with calls and results makes the same prompt in each dialect."""
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "Wait.", "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "3"}, {"role": "user", "content": "b"}]
    items = [{"role": "user", "content": "a"}, {"type": "reasoning", "id": "rs_1", "summary": []},
             {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Wait."}]},
             {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"a": 1, "b": 2}'},
             {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "3"}]},
             {"role": "user", "content": "b"}]
    blocks = [{"role": "user", "content": "a"}, {"role": "assistant", "content": [
        {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "Wait."},
        {"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": 1, "b": 2}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "3"},
                                     {"type": "text", "text": "b"}]}]
    counts = {SERVER.post("/v1/chat/completions/input_tokens", dict(ask_of("chat", TOOLS), messages=chat))[2]["input_tokens"],
              SERVER.post("/v1/responses/input_tokens", dict(ask_of("responses", TOOLS), input=items))[2]["input_tokens"],
              SERVER.post("/v1/messages/count_tokens", dict(ask_of("messages", TOOLS), messages=blocks))[2]["input_tokens"]}
    assert len(counts) in (1, 2), counts  # Messages tools have a schema where the others have none
    failed = json.loads(json.dumps(blocks))
    failed[2]["content"][0]["is_error"] = True
    more = SERVER.post("/v1/messages/count_tokens", dict(ask_of("messages", TOOLS), messages=failed))[2]["input_tokens"]
    assert more > SERVER.post("/v1/messages/count_tokens", dict(ask_of("messages", TOOLS), messages=blocks))[2]["input_tokens"]


# ---- errors ------------------------------------------------------------------------------------------------

def test_errors_of_schemas():
    relaxed = {"type": "object", "properties": {"x": {"type": "array", "contains": {"type": "integer"}}}}
    for dialect, path in (("chat", "tools[1].function.parameters"), ("responses", "tools[1].parameters"),
                          ("messages", "tools.1.input_schema")):
        message = refused(dialect, ask_of(dialect, {"add": NUMBERS, "x": {"type": "object", "properties": {
            "a": {"type": "intger"}}}}), path, "invalid_json_schema")
        assert "/properties/a/type" in message, message
        refused(dialect, ask_of(dialect, {"add": NUMBERS, "x": {"type": "string"}}), path, "invalid_json_schema")
        body = ask_of(dialect, {"add": NUMBERS, "x": relaxed}, max_tokens=4)
        status, head, _ = SERVER.post(PATHS[dialect], body)
        assert status == 200 and head["x-schema-relaxed"] == "/tools/1/properties/x/contains", head
        (body["tools"][1]["function"] if dialect == "chat" else body["tools"][1])["strict"] = True
        refused(dialect, body, path, "invalid_json_schema")


UNCOMPILABLE = {
    "look_ahead": {"type": "string", "pattern": "a*(?=bc)d"}, "look_behind": {"pattern": "(?<!a)b$"},
    "back_reference": {"pattern": "(a)\\1"}, "property": {"pattern": "\\p{Nope}"}, "flags": {"pattern": "(?i)a"},
    "complex": {"pattern": "^[ab]*a[ab]{16}$"},
    "remote": {"$ref": "https://x.org/y.json"}, "dynamic": {"$dynamicRef": "#x"},
    "alternatives": {"anyOf": [{"required": [f"k{i}"]} for i in range(17)]}}


def test_keywords_that_cannot_be_compiled_are_left_out():
    for name, schema in UNCOMPILABLE.items():
        keyword = [k for k in schema if k != "type"][0]
        pointer = f"/tools/1/properties/to/{keyword}"
        if name == "alternatives":
            schema, pointer = dict(schema, allOf=[schema]), "/tools/1/properties/to/allOf/0/anyOf"
        one = {"type": "object", "properties": {"to": schema}, "required": ["to"]}
        for dialect, path in (("chat", "tools[1].function.parameters"), ("responses", "tools[1].parameters"),
                              ("messages", "tools.1.input_schema")):
            body = ask_of(dialect, {"add": NUMBERS, "x": one, "ping": None}, max_tokens=4)
            status, head, answer = SERVER.post(PATHS[dialect], body)
            named = head.get("x-schema-relaxed")
            assert status == 200 and named == pointer.replace("$", "%24"), (name, dialect, status, named, answer)
            (body["tools"][1]["function"] if dialect == "chat" else body["tools"][1])["strict"] = True
            message = refused(dialect, body, path, "invalid_json_schema")
            assert message.startswith(pointer.replace("/tools/1", "")) or pointer in message, message
            body["tools"][1] = tools_of(dialect, {"x": {"type": "object", "properties": {"to": {"pattern": "(a"}}}})[0]
            refused(dialect, body, path, "invalid_json_schema")


def test_server_side_tools_are_dropped_and_named():
    body = ask_of("messages", {"add": NUMBERS}, "required", temperature=0)
    body["tools"].insert(0, {"type": "web_search_20250305", "name": "web_search"})
    status, head, answer = SERVER.post(PATHS["messages"], body)
    assert status == 200 and head["x-ignored-params"] == "tools.0=web_search_20250305", head
    check_calls(*parts_of("messages", answer), ["add"])
    body = ask_of("responses", {"add": NUMBERS})
    body["tools"].append({"type": "web_search"})
    assert SERVER.post(PATHS["responses"], body)[1]["x-ignored-params"] == "tools[1]=web_search"
    refused("responses", dict(body, tool_choice={"type": "web_search"}), "tools[1].type", "unsupported_parameter")


def codex_body(*items):
    """A request as Codex CLI 0.169 sends it, in fewer words."""
    message = {"type": "message", "id": "msg_1"}
    tools = [{"type": "function", "name": "run", "description": "Runs a command.", "strict": False, "parameters": {
        "type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"], "additionalProperties": False}},
        {"type": "namespace", "name": "agents", "description": "Other agents.", "tools": [
            {"type": "function", "name": "close", "strict": False, "parameters": {
                "type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}},
            {"type": "function", "name": "spawn", "strict": False, "parameters": {
                "type": "object", "properties": {"task": {"type": "string"}}, "additionalProperties": False}},
            {"type": "custom", "name": "note", "format": {"type": "grammar", "syntax": "lark", "definition": "s: /a/"}}]},
        {"type": "custom", "name": "apply_patch", "description": "x", "format": {"type": "text"}},
        {"type": "tool_search"}, {"type": "web_search", "external_web_access": False}]
    return {"model": "default", "stream": True, "store": False, "tool_choice": "auto", "parallel_tool_calls": True,
            "reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "0-1-2",
            "client_metadata": {"turn_id": "1", "session_id": "0-1-2"}, "tools": tools, "temperature": 0, "input": [
                {**message, "role": "developer", "content": [{"type": "input_text", "text": "You are an agent."}]},
                {**message, "role": "user", "content": [{"type": "input_text", "text": "Spawn one."}]}, *items]}


def test_namespaces_as_codex_sends_them():
    """Functions of a namespace are called by their own names; tools of other types are named as ignored."""
    call = '<tool_call>\n{"name": "agents__spawn", "arguments": {"task": "dig"}}\n</tool_call>'
    with scripted(call, markers=("<tool_call>", "</tool_call>")):
        body = codex_body()
        final = responses_stream([json.loads(data) for _, data in SERVER.stream(PATHS["responses"], body)])
        item, = final["output"]
        assert (item["type"], item["namespace"], item["name"], item["arguments"]) == (
            "function_call", "agents", "spawn", '{"task": "dig"}'), item
        status, head, answer = SERVER.post(PATHS["responses"], dict(body, stream=False))
        assert status == 200 and answer["output"][0]["name"] == "spawn" and answer["output"][0]["namespace"] == "agents"
        names = set(head["x-ignored-params"].split(","))
        assert names >= {"tools[1].tools[2]=custom", "tools[2]=custom", "tools[3]=tool_search", "tools[4]=web_search"}, names
        assert [t["type"] for t in answer["tools"]] == [t["type"] for t in body["tools"]], answer["tools"]
        # the second turn has the call and its result; its prompt begins with the first one and the answer
        again = codex_body(item, {"type": "function_call_output", "call_id": item["call_id"], "output": "done"})
        usage = SERVER.post(PATHS["responses"], dict(again, stream=False))[2]["usage"]
        n, cached = answer["usage"]["input_tokens"], usage["input_tokens_details"]["cached_tokens"]
        assert usage["input_tokens"] > n and cached >= (n + answer["usage"]["output_tokens"] - 1) // 32 * 32, (n, usage)
        chosen = dict(body, stream=False, tool_choice={"type": "function", "namespace": "agents", "name": "close"})
        assert SERVER.post(PATHS["responses"], dict(chosen, max_output_tokens=1))[0] == 200
        refused("responses", dict(chosen, tool_choice={"type": "custom", "name": "apply_patch"}), "tools[2].type",
                "unsupported_parameter")


def test_tools_that_are_no_functions_in_chat():
    body = ask_of("chat", {"add": NUMBERS})
    body["tools"].insert(0, {"type": "custom", "custom": {"name": "x"}})
    status, head, _ = SERVER.post(PATHS["chat"], dict(body, max_tokens=1))
    assert status == 200 and head["x-ignored-params"] == "tools[0]=custom", head


def test_client_tools_of_messages_are_functions():
    tools = [{"type": "bash_20250124", "name": "bash"}, {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}]
    for tool, members in zip(tools, ({"command", "restart"}, {"command", "path", "view_range", "insert_text", "old_str", "new_str",
                                                             "insert_line", "file_text"})):
        body = dict(ask_of("messages", temperature=0, max_tokens=60), tools=tools,
                    tool_choice={"type": "tool", "name": tool["name"]})
        status, head, answer = SERVER.post(PATHS["messages"], body)
        block, = answer["content"]
        assert status == 200 and block["type"] == "tool_use" and block["name"] == tool["name"], answer
        assert set(block["input"]) <= members and "x-ignored-params" not in head, (block, head)


def test_errors_of_messages():
    base = ask_of("chat", TOOLS)
    call = {"id": "a", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    for change, param, code in (
            ({"function": {"arguments": "{}"}}, "messages[0].tool_calls[0].function.name", "missing_required_parameter"),
            ({"function": {"name": "add"}}, "messages[0].tool_calls[0].function.arguments", "missing_required_parameter"),
            ({"function": {"name": "add", "arguments": {}}}, "messages[0].tool_calls[0].function.arguments", "invalid_type")):
        messages = [{"role": "assistant", "content": None, "tool_calls": [dict(call, **change)]}]
        refused("chat", dict(base, messages=messages), param, code)
    image = [{"type": "image", "source": {}}]
    for content, words in (([{"type": "tool_result"}], "messages.0.content.0.tool_use_id"),
                           ([{"type": "tool_result", "tool_use_id": "a", "content": [5]}], "Only text is supported"),
                           ([{"type": "tool_result", "tool_use_id": "a"}, *image], "messages.0.content.1")):
        refused("messages", dict(ask_of("messages"), messages=[{"role": "user", "content": content}]), words)
    for item, param in (({"type": "function_call", "name": "a", "arguments": "{}"}, "input[0].call_id"),
                        ({"type": "function_call", "call_id": "a", "arguments": "{}"}, "input[0].name"),
                        ({"type": "function_call_output", "call_id": "a"}, "input[0].output")):
        refused("responses", {"input": [item]}, param, "missing_required_parameter")
    # results of calls nobody knows, and calls without results, are fine
    lone = [{"role": "user", "content": "a"}, {"role": "tool", "tool_call_id": "x", "content": "y"}]
    assert SERVER.post(PATHS["chat"], dict(base, messages=lone, max_tokens=1))[0] == 200


# Items of Responses as openai's types have them, each with the members that it requires; what becomes of them.
LEFT_OUT = {
    "compaction": {"encrypted_content": "x"}, "compaction_trigger": {}, "tool_search_call": {"arguments": {}, "call_id": "t"},
    "tool_search_output": {"tools": [], "call_id": "t"}, "additional_tools": {"role": "developer", "tools": []},
    "configuration_update": {"reasoning": {"effort": "low"}}, "image_generation_call": {"id": "i", "result": "eA==", "status": "completed"},
    "web_search_call": {"id": "w", "status": "completed", "action": {"type": "search", "query": "q"}},
    "computer_call": {"id": "c", "call_id": "k", "action": {"type": "click"}, "pending_safety_checks": [], "status": "completed"},
    "computer_call_output": {"call_id": "k", "output": {"type": "computer_screenshot", "image_url": "u"}},
    "mcp_list_tools": {"id": "m", "server_label": "s", "tools": []},
    "mcp_approval_request": {"id": "p", "name": "f", "arguments": "{}", "server_label": "s"},
    "mcp_approval_response": {"approval_request_id": "p", "approve": True}, "wizardry": {"text": "abracadabra"}}
ACTION = {"type": "exec", "command": ["ls"], "env": {}}
BOTH = [  # (items of another provider, the name, arguments and result that they are)
    ([{"type": "custom_tool_call", "call_id": "a", "name": "edit", "input": "*** End"},
      {"type": "custom_tool_call_output", "call_id": "a", "output": "ok"}], "edit", '{"input": "*** End"}', "ok"),
    ([{"type": "local_shell_call", "id": "l", "call_id": "a", "action": ACTION, "status": "completed"},
      {"type": "local_shell_call_output", "id": "a", "output": "ok"}], "local_shell", json.dumps(ACTION), "ok"),
    ([{"type": "shell_call", "call_id": "a", "action": {"commands": ["ls"]}},
      {"type": "shell_call_output", "call_id": "a", "output": [{"stdout": "o", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}],
     "shell", '{"commands": ["ls"]}', '[{"stdout": "o", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]'),
    ([{"type": "apply_patch_call", "call_id": "a", "operation": {"type": "delete_file", "path": "f"}, "status": "completed"},
      {"type": "apply_patch_call_output", "call_id": "a", "status": "completed", "output": "ok"}],
     "apply_patch", '{"type": "delete_file", "path": "f"}', "ok"),
    ([{"type": "mcp_call", "id": "a", "server_label": "s", "name": "add", "arguments": "{}", "output": "3"}], "add", "{}", "3"),
    ([{"type": "code_interpreter_call", "id": "a", "container_id": "c", "code": "1+1", "status": "completed",
       "outputs": [{"type": "logs", "logs": "2"}]}], "code_interpreter", '{"code": "1+1"}', "2"),
    ([{"type": "file_search_call", "id": "a", "queries": ["q"], "status": "completed", "results": [{"text": "t"}]}],
     "file_search", '{"queries": ["q"]}', '[{"text": "t"}]'),
    ([{"type": "program", "id": "p", "call_id": "a", "code": "1", "fingerprint": "f"},
      {"type": "program_output", "id": "o", "call_id": "a", "result": "2", "status": "completed"}], "program", '{"code": "1"}', "2")]


def prompt_tokens(dialect, **body):
    """(tokens of the prompt, x-ignored-params)"""
    path = PATHS[dialect] + {"chat": "/input_tokens", "responses": "/input_tokens", "messages": "/count_tokens"}[dialect]
    status, head, answer = SERVER.post(path, body)
    assert status == 200, (body, answer)
    return answer["input_tokens"], head.get("x-ignored-params", "")


def test_histories_of_other_providers():
    """Every item of Responses: left out and named, or the prompt of a call of a function and its result."""
    user, more = {"role": "user", "content": "Hi"}, {"role": "user", "content": "Go on."}
    bare = prompt_tokens("responses", input=[user, more])
    with Hearth("--strict-params") as strict:
        for kind, members in LEFT_OUT.items():
            item = {"type": kind, **members}
            assert prompt_tokens("responses", input=[user, item, more]) == (bare[0], f"input[1]={kind}"), kind
            status, _, answer = strict.post(PATHS["responses"], {"input": [user, item, more], "max_output_tokens": 1})
            assert status == 400 and f"input[1]={kind}" in answer["error"]["message"], answer
    for items, name, arguments, result in BOTH:
        call = {"id": "a", "type": "function", "function": {"name": name, "arguments": arguments}}
        plain = [user, {"role": "assistant", "content": None, "tool_calls": [call]},
                 {"role": "tool", "tool_call_id": "a", "content": result}, more]
        assert prompt_tokens("responses", input=[user, *items, more]) == (prompt_tokens("chat", messages=plain)[0], ""), items
    refused("responses", {"input": [user, {"type": "item_reference", "id": "a"}]}, "input[1]", "unsupported_parameter")


def test_foreign_parts():
    """The words in place of media in results are the model's to read; the user's own media are refused."""
    call = {"id": "a", "type": "custom", "custom": {"name": "look", "input": "x"}}
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "u"}},
             {"type": "file", "file": {"filename": "a.pdf"}}, {"type": "input_audio", "input_audio": {}}]
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "a", "content": parts},
                {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not."}]},
                {"role": "assistant", "content": None, "refusal": "Never."}]
    status, head, answer = SERVER.post("/apply-template", {"messages": messages})
    names = "messages[2].content[1]=image_url,messages[2].content[2]=file,messages[2].content[3]=input_audio"
    assert status == 200 and head["x-ignored-params"] == names, head
    for text in ('{"input": "x"}', "see\n[image left out]\n[file left out: a.pdf]\n[audio left out]", "I will not.", "Never."):
        assert text in answer["prompt"], (text, answer)
    assert SERVER.post(PATHS["chat"], {"messages": messages, "max_tokens": 1})[1]["x-ignored-params"] == names
    assert SERVER.post("/v1/choose", {"messages": messages, "choices": ["a", "b"]})[1]["x-ignored-params"] == names
    for part in (*parts[1:], {"type": "wizard"}):
        refused("chat", {"messages": [{"role": "user", "content": [part]}]}, "messages[0].content[0]", "unsupported_parameter")
    for kind in ("input_image", "input_file", "input_audio", "wizard"):
        refused("responses", {"input": [{"role": "user", "content": [{"type": kind}]}]}, "input[0].content[0]", "unsupported_parameter")


def test_foreign_blocks():
    """Tools that the provider of a Messages history ran: with text a call and a result, else both left out and named."""
    user, more = {"role": "user", "content": "Hi"}, {"role": "user", "content": "Go on."}
    use = {"type": "server_tool_use", "id": "a", "name": "add", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "a", "content": [{"type": "web_search_result", "title": "t", "url": "u",
                                                                                "encrypted_content": "x"}]}
    said = {"type": "text", "text": "So."}
    ran = {"type": "mcp_tool_result", "tool_use_id": "a", "is_error": False, "content": [{"type": "text", "text": "3"}]}
    plain = prompt_tokens("messages", messages=[user, {"role": "assistant", "content": [said]}, more])
    assert prompt_tokens("messages", messages=[user, {"role": "assistant", "content": [use, found, said]}, more]) == (
        plain[0], "messages.1.content.0=server_tool_use,messages.1.content.1=web_search_tool_result")
    own = [{"role": "assistant", "content": [{**use, "type": "tool_use"}]},
           {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "3"}]},
           {"role": "assistant", "content": [said]}]
    assert prompt_tokens("messages", messages=[user, {"role": "assistant", "content": [{**use, "type": "mcp_tool_use"}, ran, said]}, more]) == \
        prompt_tokens("messages", messages=[user, *own, more])
    for kind in ("container_upload", "fallback", "mcp_tool_listing", "compaction", "advisor_tool_result", "tool_search_tool_result",
                 "wizardry"):
        assert prompt_tokens("messages", messages=[user, {"role": "assistant", "content": [{"type": kind}, said]}, more]) == (
            plain[0], f"messages.1.content.0={kind}"), kind
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_reference", "tool_name": "t"},
                                                                     {"type": "image", "source": {}}]}
    assert prompt_tokens("messages", messages=[user, *own[:1], {"role": "user", "content": [result]}])[1] == (
        "messages.2.content.0.content.0=tool_reference,messages.2.content.0.content.1=image")


def test_unknown_format():
    template = HERMES.replace("<tool_call>", "@@call ").replace("</tool_call>", "@@").replace('{"name": "', "fn ").replace(
        '", "arguments": ', " with ").replace("}\n@@", "\n@@")
    with scripted("Just text.", template=template):
        props = SERVER.get("/props")[2]["tool_format"]
        assert props["id"] == "unknown", props
        refused("chat", ask_of("chat", TOOLS), "tools", "unsupported_parameter")
        assert whole("chat", ask_of("chat", temperature=0))[0] == [("content", "Just text.")]


def test_no_chat_template():
    """A model without a template refuses tools as it refuses a chat without them."""
    with demo_without("tokenizer_config.json", "chat_template.jinja") as directory, Hearth("--model", directory) as h:
        for dialect, path in [*PATHS.items(), ("chat", "/apply-template"), ("chat", "/tokenize"),
                              ("chat", "/v1/chat/completions/input_tokens"), ("messages", "/v1/messages/count_tokens")]:
            status, _, plain = h.post(path, ask_of(dialect))
            assert status == 400 and "This model has no chat template" in plain["error"]["message"], (path, plain)
            status, _, answer = h.post(path, ask_of(dialect, TOOLS, "required"))
            assert status == 400 and answer["error"] == plain["error"], (path, answer)


def main():
    global SERVER
    with Hearth("--parallel", "16") as SERVER:
        run_cases(globals())


if __name__ == "__main__":
    main()
