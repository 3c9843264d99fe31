#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Drafts and predictions: answers are the same bytes with and without them, whatever a request asks for."""
import json
import threading

from hearth_server import Hearth, chunks, run_cases

STORY = ("Once upon a time there was a little cat. The cat was happy and had a red ball. One day the cat lost the red "
         "ball. The cat was sad. Then the cat found the red ball. The cat was happy.")
CHAT = {"messages": [{"role": "user", "content": "Tell me a story about this: " + STORY}]}
SCHEMA = {"type": "object", "properties": {"names": {"type": "array", "items": {"enum": ["Anna", "Anton", "Otto"]},
                                                     "minItems": 6, "maxItems": 6},
                                           "text": {"type": "string", "maxLength": 40}},
          "required": ["names", "text"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"],
    "additionalProperties": False}}} for name in ("get_weather", "get_time")]

# what a request may ask for besides
ASKS = {
    "greedy": {"temperature": 0},
    "hot": {"temperature": 1.5, "seed": 1},
    "truncated": {"temperature": 0.9, "top_k": 40, "top_p": 0.9, "min_p": 0.02, "typical_p": 0.95, "seed": 2},
    "penalties": {"temperature": 0.7, "seed": 3, "repetition_penalty": 1.2, "frequency_penalty": 0.5, "presence_penalty": 0.4},
    "bias": {"temperature": 0.7, "seed": 4, "logit_bias": {"300": 5, "400": -100}, "min_tokens": 20},
    "choices": {"temperature": 0.8, "seed": 5, "n": 3},
    "stop": {"temperature": 0.6, "seed": 6, "stop": ["cat was", "ball"], "ignore_eos": False},
    "ends": {"temperature": 0.6, "seed": 7, "ignore_eos": False},
    "private": {"temperature": 0.8, "seed": 8, "cache_prompt": False},
}
LOGPROBS = {"/v1/completions": {"logprobs": 4}, "/v1/chat/completions": {"logprobs": True, "top_logprobs": 4}}
OFF = ON = AUTO = None


def body_of(path, fields):
    start = {"prompt": STORY + " " + STORY[:30]} if path == "/v1/completions" else CHAT
    return {**start, "max_tokens": 70, "ignore_eos": True, **fields}


def answer(h, path, body, same_usage=True):
    """What must not differ: all but names and times, and what the cache gave."""
    status, _, a = h.post(path, body)
    assert status == 200, a
    for name in ("id", "created"):
        a.pop(name)
    a["usage"].pop("prompt_tokens_details")
    if not same_usage:
        a["usage"].pop("completion_tokens_details", None)
    for choice in a["choices"]:
        for call in choice.get("message", {}).get("tool_calls", []):
            call.pop("id")
    return a


def text_of(a):
    choice = a["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"] or ""


def check(path, fields):
    """One request without drafts, with them, and with predictions that are right, altered, and wrong; some at once."""
    body = body_of(path, fields)
    want = answer(OFF, path, body)
    text = text_of(want)
    predictions = [text, text.replace("a", "e"), text[:25] + text[60:], "This is something else."]
    bodies = [dict(body, prediction={"type": "content", "content": p}) for p in predictions if p]
    counted = [answer(OFF, path, b) for b in bodies]
    for i, c in enumerate(counted):
        details = c["usage"].pop("completion_tokens_details")
        assert c == want, f"{fields} without drafts, prediction {i}: {c} is not {want}"
        c["usage"]["completion_tokens_details"] = details
    got = {}

    def run(key, h, b):
        got[key] = answer(h, path, b)

    for h in (ON, AUTO):
        threads = [threading.Thread(target=run, args=((h, i), h, b)) for i, b in enumerate([body, *bodies])]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for i, c in enumerate([want, *counted]):
            assert got[(h, i)] == c, f"{path} {fields}, request {i}: {got[(h, i)]} is not {c}"
    assert answer(ON, path, dict(bodies[0], speculate=False)) == counted[0]


def test_completions():
    for fields in ASKS.values():
        check("/v1/completions", fields)


def test_chat_with_logprobs():
    for name in ("greedy", "penalties", "choices", "stop"):
        check("/v1/chat/completions", dict(ASKS[name], **LOGPROBS["/v1/chat/completions"]))
    check("/v1/completions", dict(ASKS["hot"], **LOGPROBS["/v1/completions"]))


def test_structured_output():
    form = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": SCHEMA}}
    for name in ("greedy", "hot", "penalties", "choices"):
        check("/v1/chat/completions", dict(ASKS[name], response_format=form, ignore_eos=False, max_tokens=150))
    check("/v1/completions", dict(ASKS["hot"], ignore_eos=False, guided_regex="(cat|ball|red) (cat|ball|red){2,9}[.]"))


def test_certain_text():
    """
    Where a grammar leaves one text only, its ids are a draft. Which of two drafts is tried depends on times that were
    measured, and 4-bit weights have no twin.
    """
    text = "She found a big green frog under the old bridge"
    body = dict(body_of("/v1/completions", ASKS["greedy"]), prompt="One", ignore_eos=False, guided_choice=[text])
    assert text_of(answer(OFF, "/v1/completions", body)) == text == text_of(answer(ON, "/v1/completions", body))
    with Hearth("--speculate", "always", "--numerics", "int4") as h:
        assert text_of(answer(h, "/v1/completions", body)) == text
        names = ("hearth_draft_tokens_total", "hearth_accepted_draft_tokens_total")
        tried, accepted = (drafted(h.settled_metrics(), n, "forced") for n in names)
    assert 10 < accepted <= tried, (tried, accepted)


def test_tools():
    for choice in ("required", "auto"):
        check("/v1/chat/completions", dict(ASKS["hot"], tools=TOOLS, tool_choice=choice, ignore_eos=False, max_tokens=120))


def test_stream():
    """The events add up to the whole answer, and the last has the counts."""
    body = body_of("/v1/chat/completions", ASKS["hot"])
    text = text_of(answer(OFF, "/v1/chat/completions", body))
    body["prediction"] = {"type": "content", "content": text[:100] + "Z" + text[101:]}
    want = answer(OFF, "/v1/chat/completions", body)
    for h in (OFF, ON):
        events = chunks(h.stream("/v1/chat/completions", dict(body, stream=True, stream_options={"include_usage": True})))
        parts = [e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"]]
        assert "".join(parts) == text
        assert events[-1]["usage"]["completion_tokens_details"] == want["usage"]["completion_tokens_details"]


def drafted(metrics, name, source=None):
    """A count of drafts: of one source, or of all."""
    return sum(metrics[f'{name}{{source="{s}"}}'] for s in ("text", "prediction", "forced", "self") if source in (None, s))


def test_counts():
    """A right prediction is accepted token by token; drafts take fewer steps, and metrics count them."""
    body = body_of("/v1/completions", ASKS["hot"])
    text = text_of(answer(OFF, "/v1/completions", body))
    names = ["hearth_drafts_total", "hearth_draft_tokens_total", "hearth_accepted_draft_tokens_total"]
    before = ON.settled_metrics()
    usage = answer(ON, "/v1/completions", dict(body, prediction={"type": "content", "content": text}))["usage"]
    after = ON.settled_metrics()
    drafts, tried, accepted = (drafted(after, n) - drafted(before, n) for n in names)
    steps = after["hearth_engine_steps_total"] - before["hearth_engine_steps_total"]
    details = usage["completion_tokens_details"]
    assert details["accepted_prediction_tokens"] > 50 and details["rejected_prediction_tokens"] < 6, details
    assert usage["completion_tokens"] == 70 and steps < 25 and 40 < accepted <= tried <= 7 * drafts, (steps, accepted, tried)
    assert [drafted(OFF.metrics(), n) for n in names] == [0, 0, 0]
    assert after["hearth_draft_length_tokens_sum"] == drafted(after, names[1])
    assert after["hearth_draft_length_tokens_count"] == drafted(after, names[0])
    page = ON.get("/metrics")[2]
    page = page if isinstance(page, str) else page.decode()
    for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"):
        assert f"vllm:spec_decode_{name}_total{{" in page, name


def test_twin():
    """A 4-bit twin of the demo writes most of what repeats nothing, and is nearly always right."""
    assert [h.get("/props")[2]["drafts"] for h in (OFF, ON, AUTO)] == ["off", "self", "lookup"], "AUTO: it is too small"
    assert ON.get("/props")[2]["memory"]["twin_bytes"] > 0 == AUTO.get("/props")[2]["memory"]["twin_bytes"]
    before = ON.settled_metrics()
    for seed in range(4):
        body = {"prompt": "Once", "max_tokens": 150, "temperature": 1, "seed": seed, "ignore_eos": True}
        assert answer(OFF, "/v1/completions", body) == answer(ON, "/v1/completions", body)
    after = ON.settled_metrics()
    names = ("hearth_draft_tokens_total", "hearth_accepted_draft_tokens_total")
    tried, accepted = (drafted(after, n, "self") - drafted(before, n, "self") for n in names)
    assert tried > 300 and accepted > 0.9 * tried, (tried, accepted)


def test_refusals():
    for prediction, param in (("x", "prediction.type"), ({"type": "text", "content": "x"}, "prediction.type"),
                              ({"type": "content"}, "prediction.content"),
                              ({"type": "content", "content": 5}, "prediction.content"),
                              ({"type": "content", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]},
                               "prediction.content[1]"),
                              ({"type": "content", "content": ["x"]}, "prediction.content[0]")):
        status, _, a = ON.post("/v1/chat/completions", dict(CHAT, max_tokens=1, prediction=prediction))
        assert status == 400 and a["error"]["param"] == param, (prediction, a)
    for content in ("", [], [{"type": "text", "text": ""}]):
        a = answer(ON, "/v1/chat/completions", dict(CHAT, max_tokens=2, prediction={"type": "content", "content": content}))
        assert "completion_tokens_details" not in a["usage"], a
    status, _, a = ON.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "speculate": "no"})
    assert status == 400 and a["error"]["param"] == "speculate", json.dumps(a)
    long = {"type": "content", "content": STORY * 300}  # longer than the context
    assert answer(ON, "/v1/completions", dict(body_of("/v1/completions", ASKS["greedy"]), prediction=long), False) == \
        answer(OFF, "/v1/completions", body_of("/v1/completions", ASKS["greedy"]))


if __name__ == "__main__":
    with Hearth("--speculate", "off", "--parallel", "1", "--threads", "1", "--chunk", "16") as OFF, \
            Hearth("--speculate", "always", "--parallel", "3", "--threads", "2") as ON, \
            Hearth("--threads", "1", "--parallel", "8", "--chunk", "40") as AUTO:
        ON.wait_until(lambda: ON.get("/props")[2]["drafts"] == "self", what="the twin")
        run_cases(globals())
