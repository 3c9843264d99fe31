#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What clients of other servers send and read: llama-server's, vLLM's, OpenAI's and Anthropic's habits."""
import datetime
import json
import os
import re
import tempfile

from hearth_server import SMALL_CONTEXT, Hearth, chunks, parse_events, run_cases
from scripted_model import loop_model
from tiny_models import DemoCopy, demo_without

SERVER = None
GREEDY = {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}
CHAT = {"messages": [{"role": "user", "content": "What is 2+2?"}], "max_tokens": 48, "temperature": 0}
FIVE = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}


def ok(path, body, **kw):
    status, _, answer = SERVER.post(path, body, **kw)
    assert status == 200, f"{status}: {answer}"
    return answer


def refused(path, body, code="invalid_value", param=None, status=400):
    got, _, answer = SERVER.post(path, body)
    assert got == status, f"{got}, not {status}: {str(answer)[:300]}"
    error = answer["error"]
    assert error["code"] == code and (param is None or error["param"] == param), error
    return error["message"]


# ---- fields ------------------------------------------------------------------------------------------

def test_n_predict_to_the_end_of_the_context():
    """n_predict: -1 is llama-server's word for as many tokens as fit; the other fields say so when they get -1."""
    ctx = SERVER.get("/props")[2]["n_ctx"]
    for path, body in (("/v1/completions", {"prompt": [5] * (ctx - 40)}), ("/v1/chat/completions", CHAT)):
        body = {k: v for k, v in body.items() if k != "max_tokens"}
        usage = ok(path, dict(body, n_predict=-1, ignore_eos=True))["usage"]
        assert usage["total_tokens"] in (ctx, ctx + 1), (path, usage)
        for field in ("max_tokens", "max_completion_tokens"):
            assert "'n_predict': -1" in refused(path, dict(body, **{field: -1}), param=field)
        assert ok(path, dict(body, n_predict=-1, max_tokens=2, ignore_eos=True))["usage"]["completion_tokens"] == 2
        assert ok(path, dict(body, n_predict=3, ignore_eos=True))["usage"]["completion_tokens"] == 3
        refused(path, dict(body, n_predict=-2), param="n_predict")
    assert "n_predict" in refused("/v1/responses", {"input": "a", "max_output_tokens": -1}, param="max_output_tokens")


def test_continue_final_message_excludes_a_generation_prompt():
    for path in ("/v1/chat/completions", "/tokenize", "/apply-template"):
        body = dict(FIVE, continue_final_message=True, max_tokens=1)
        message = refused(path, dict(body, add_generation_prompt=True), param="continue_final_message")
        assert "add_generation_prompt" in message
        for value in (False, None):
            ok(path, dict(body, add_generation_prompt=value))
        ok(path, dict(body, continue_final_message=False, add_generation_prompt=True))
        ok(path, body)


def test_many_stop_strings():
    text = ok("/v1/completions", GREEDY)["choices"][0]["text"]
    stops = [f"never {i}" for i in range(63)] + [text[8:12]]
    assert ok("/v1/completions", dict(GREEDY, stop=stops))["choices"][0]["text"] == text[:text.index(text[8:12])]
    assert "at most 64" in refused("/v1/completions", dict(GREEDY, stop=stops + ["x"]), param="stop")


def test_names_that_clients_make_up_for_the_only_model():
    """Clients of servers with one model send a placeholder; --strict-model takes real names alone."""
    name = SERVER.get("/v1/models")[2]["data"][0]["id"]
    for model in ("default", "tgi", "dummy"):
        assert ok("/v1/completions", dict(GREEDY, model=model, max_tokens=1))["model"] == name
        assert ok("/v1/embeddings", {"input": "a", "model": model})["model"] == name
        ok("/tokenize", {"content": "a", "model": model})
    refused("/v1/completions", dict(GREEDY, model="dumm"), status=404, code="model_not_found")
    with Hearth("--strict-model", "--alias", "real,tgi") as h:
        for model, status in (("real", 200), ("tgi", 200), (None, 200), ("default", 404), ("dummy", 404)):
            got, _, answer = h.post("/v1/completions", dict(GREEDY, model=model, max_tokens=1))
            assert got == status, (model, got, answer)


def test_refused_content_parts_are_named():
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    odd = {"type": "\u001b[31m" + "x" * 1000}
    for path, field in (("/v1/chat/completions", "messages"), ("/apply-template", "messages"),
                        ("/v1/responses", "input")):
        for part, name in ((image, "'image_url'"), (odd, "xxxx")):
            body = {field: [{"role": "user", "content": [{"type": "text", "text": "a"}, part]}]}
            message = refused(path, body, code="unsupported_parameter", param=f"{field}[0].content[1]")
            assert name in message and len(message) < 250 and "\u001b" not in message, message
    body = {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}], "max_tokens": 1}
    status, _, answer = SERVER.post("/v1/messages", body)
    assert status == 400 and "'image'" in answer["error"]["message"], answer
    message = refused("/v1/responses", {"input": [{"type": "item_reference", "id": "x"}]},
                      code="unsupported_parameter", param="input[0]")
    assert "'item_reference'" in message, message


def test_did_you_mean_only_what_is_near():
    for path, hint in (("/v1/completion", "/v1/completions"), ("/v1/chat/completion", "/v1/chat/completions"),
                       ("/v1/embedding", "/v1/embeddings"), ("/chat/completions/", None), ("/rerank", None),
                       ("/v1/rerank", None), ("/api/generate", None), ("/v1/audio/speech", None),
                       ("/v1/score", None), ("/v1/slot", "/v1/slots"), ("/v2/chat/completions", "/v1/chat/completions"),
                       ("/v1/model", "/v1/models"), ("/helth", "/health"), ("/x", None)):
        status, _, answer = SERVER.request("GET", path)
        message = answer.decode()
        if status == 405:
            continue
        assert status == 404, (path, status)
        assert ("did you mean " + hint + "?" in message) if hint else "did you mean" not in message, message


# ---- streams -----------------------------------------------------------------------------------------

def deltas(events, index=0):
    """Texts of the events that carry text of one choice, empty ones included."""
    texts = []
    for e in events:
        for c in e["choices"]:
            if c["index"] == index and c["finish_reason"] is None and "role" not in c.get("delta", {}):
                texts.append(c["text"] if "text" in c else c["delta"]["content"])
    return texts


def test_one_event_per_token():
    """stream_options.chunk_tokens: 1: as many events as completion tokens, and the same text."""
    word = ok("/v1/completions", GREEDY)["choices"][0]["text"][6:13]  # parts of several tokens
    emoji = "\U0001f600\u4e2d\u6587"
    ids = ok("/tokenize", {"content": emoji})["tokens"]
    split = dict(GREEDY, prompt=emoji * 8, temperature=1.5, seed=3, allowed_token_ids=ids, max_tokens=60)
    for path, body in (("/v1/completions", GREEDY), ("/v1/completions", dict(GREEDY, stop=word)),
                       ("/v1/completions", dict(GREEDY, stop=["zzz", word], include_stop_str_in_output=True)),
                       ("/v1/completions", dict(GREEDY, logprobs=1)), ("/v1/completions", dict(GREEDY, n=2)),
                       ("/v1/completions", dict(split, ignore_eos=True)), ("/v1/chat/completions", CHAT),
                       ("/v1/chat/completions", dict(CHAT, logprobs=True, return_token_ids=True))):
        plain = ok(path, body)
        for most in (1, 3):
            events = chunks(SERVER.stream(path, dict(body, stream=True, stream_options={
                "chunk_tokens": most, "include_usage": True})))
            n_tokens = events[-1]["usage"]["completion_tokens"]
            assert n_tokens == plain["usage"]["completion_tokens"], (path, body)
            got = [deltas(events, c["index"]) for c in plain["choices"]]
            for texts, choice in zip(got, plain["choices"]):
                text = choice["text"] if "text" in choice else choice["message"]["content"]
                assert "".join(texts) == text, (path, body, texts)
            count = sum(len(texts) for texts in got)
            assert count == n_tokens if most == 1 else n_tokens / 3 <= count <= n_tokens, (body, count, n_tokens)
            if "logprobs" in body and "chat" in path:
                lists = [e["choices"][0]["logprobs"]["content"] for e in events if e["choices"]
                         and e["choices"][0]["logprobs"]]
                assert all(len(t) <= most for t in lists), lists
                assert sum(lists, []) == plain["choices"][0]["logprobs"]["content"]
    for value in (0, -1, 1.5, "1"):
        refused("/v1/completions", dict(GREEDY, stream=True, stream_options={"chunk_tokens": value}),
                code="invalid_value" if value in (0, -1) else "invalid_type", param="chunk_tokens")
    events = [json.loads(d) for n, d in SERVER.stream("/v1/responses", {
        "input": "What is 2+2?", "stream": True, "temperature": 0, "stream_options": {"chunk_tokens": 1}})]
    count = sum(e["type"] == "response.output_text.delta" for e in events)
    assert count == events[-1]["response"]["usage"]["output_tokens"], events


def test_one_event_per_token_for_a_slow_reader():
    """Events that a client is late to read wait for it: none is lost, and it is not cut."""
    n = SERVER.get("/props")[2]["n_ctx"] - 12
    body = {"prompt": "a", "max_tokens": n, "ignore_eos": True, "temperature": 0, "stream": True,
            "stream_options": {"chunk_tokens": 1, "include_usage": True}}
    connection = SERVER.connect()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    SERVER.wait_until(lambda: SERVER.slots()["running"] == 0, 60, "the engine is done")
    events = chunks(parse_events(answer))
    connection.close()
    assert len(deltas(events)) == events[-1]["usage"]["completion_tokens"] == n


def test_usage_with_every_chunk():
    """vLLM's continuous_usage_stats: counts so far in every chunk, with include_usage only."""
    for path, body in (("/v1/completions", dict(GREEDY, n=2)), ("/v1/chat/completions", CHAT),
                       ("/v1/completions", dict(GREEDY, echo=True, prompt=["Once", "Once upon a time"]))):
        options = {"include_usage": True, "continuous_usage_stats": True}
        events = chunks(SERVER.stream(path, dict(body, stream=True, stream_options=options)))
        total = events[-1]["usage"]
        last = {}
        for e in events[:-1]:
            index, usage = e["choices"][0]["index"], e["usage"]
            assert usage and usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"], e
            assert usage["completion_tokens"] >= last.get(index, usage)["completion_tokens"], e
            last[index] = usage
        assert sum(u["completion_tokens"] for u in last.values()) == total["completion_tokens"], (last, total)
        plain = chunks(SERVER.stream(path, dict(body, stream=True, stream_options={"include_usage": True})))
        assert all(e["usage"] is None for e in plain[:-1])
        events = chunks(SERVER.stream(path, dict(body, stream=True, stream_options={"continuous_usage_stats": True})))
        assert all("usage" not in e for e in events)


def test_progress_of_every_step():
    """A first report with what the cache gave, then one for each step of the prefill."""
    prompt = [5 + i * 7 % 200 for i in range(400)]
    with Hearth("--chunk", "64") as h:
        for path, body in (("/v1/completions", {"prompt": prompt}), ("/v1/chat/completions", {
                "messages": [{"role": "user", "content": "Tom has a ball. " * 60}]})):
            body = dict(body, max_tokens=3, ignore_eos=True, stream=True, return_progress=True)
            for _ in range(2):
                steps = [e["prompt_progress"] for e in chunks(h.stream(path, body)) if "prompt_progress" in e]
                cached, total = steps[0]["cache"], steps[0]["total"]
                assert steps[0] == {"total": total, "cache": cached, "processed": cached, "time_ms": 0}, steps
                n = -(-(total - cached) // 64)
                assert [s["processed"] for s in steps] == [cached + 64 * i for i in range(n)] + [total], steps
                assert all(s["cache"] == cached for s in steps), steps
            assert cached > 0
        many = {"prompt": [prompt[:200], prompt[200:]], "max_tokens": 1, "stream": True, "return_progress": True}
        steps = [e["prompt_progress"] for e in chunks(h.stream("/v1/completions", many)) if "prompt_progress" in e]
        assert steps[0]["processed"] == steps[0]["cache"] and steps[-1]["processed"] == 400, steps
        assert [s["processed"] for s in steps] == sorted({s["processed"] for s in steps}), steps


def test_prompt_logprobs_once_per_prompt():
    """In the first choice of its prompt, where vLLM's clients look; the others have null."""
    body = dict(GREEDY, prompt=["Once upon a time", "Tom has"], n=3, prompt_logprobs=1, max_tokens=1)
    choices = ok("/v1/completions", body)["choices"]
    assert [c.get("prompt_logprobs", 0) is None for c in choices] == [False, True, True] * 2, choices
    for k, prompt in ((0, body["prompt"][0]), (3, body["prompt"][1])):
        single = ok("/v1/completions", dict(body, prompt=prompt, n=1))["choices"][0]
        assert choices[k]["prompt_logprobs"] == single["prompt_logprobs"]
    assert "prompt_logprobs" not in ok("/v1/completions", dict(GREEDY, n=2))["choices"][1]


# ---- responses ---------------------------------------------------------------------------------------

ASK = {"input": "What is 2+2?", "temperature": 0, "max_output_tokens": 48}


def response_events(server, body):
    return [json.loads(data) for _, data in server.stream("/v1/responses", dict(body, stream=True))]


def test_response_usage():
    """openai-python's models require every one of these."""
    usage = ok("/v1/responses", ASK)["usage"]
    assert set(usage) == {"input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details",
                          "total_tokens"}, usage
    assert set(usage["input_tokens_details"]) == {"cached_tokens", "cache_write_tokens"}, usage
    assert usage["output_tokens_details"] == {"reasoning_tokens": 0}
    final = response_events(SERVER, ASK)[-1]["response"]["usage"]
    assert set(final["input_tokens_details"]) == {"cached_tokens", "cache_write_tokens"}, final


def test_response_include():
    """Values that ask for nothing are accepted and named; a value that has an effect is refused."""
    for value in (["reasoning.encrypted_content"], ["file_search_call.results", "web_search_call.action.sources"],
                  [], None):
        status, head, answer = SERVER.post("/v1/responses", dict(ASK, include=value))
        assert status == 200, answer
        assert head.get("x-ignored-params") == ("include" if value else None), head
    status, head, _ = SERVER.post("/v1/responses", dict(ASK, include=["message.output_text.logprobs"], top_logprobs=2))
    assert status == 200 and "x-ignored-params" not in head, head
    assert SERVER.post("/v1/responses", dict(ASK, top_logprobs=2))[1]["x-ignored-params"] == "top_logprobs"
    for value in ("reasoning.encrypted_content", [5], {}, 7):
        refused("/v1/responses", dict(ASK, include=value), code="invalid_type", param="include")


# The members of a response in the schema of Open Responses, and of a function tool in it
NULL = type(None)
MEMBERS = {
    "id": (str,), "object": (str,), "created_at": (int,), "completed_at": (int, NULL), "status": (str,), "error": (NULL,),
    "incomplete_details": (dict, NULL), "model": (str,), "previous_response_id": (NULL,), "instructions": (str, NULL),
    "output": (list,), "tools": (list,), "tool_choice": (str, dict), "truncation": (str,), "parallel_tool_calls": (bool,),
    "text": (dict,), "top_p": (float,), "presence_penalty": (float,), "frequency_penalty": (float,), "top_logprobs": (int,),
    "temperature": (float,), "reasoning": (dict,), "user": (str, NULL), "usage": (dict, NULL), "max_output_tokens": (int, NULL),
    "max_tool_calls": (int, NULL), "store": (bool,), "background": (bool,), "service_tier": (str,), "metadata": (dict,),
    "safety_identifier": (str, NULL), "prompt_cache_key": (str, NULL)}
TOOL_MEMBERS = {"type": (str,), "name": (str,), "description": (str, NULL), "parameters": (dict, NULL), "strict": (bool, NULL)}
GIVEN = {"user": "u", "safety_identifier": "s", "prompt_cache_key": "k", "max_tool_calls": 3, "presence_penalty": 0.5,
         "frequency_penalty": -0.5, "top_logprobs": 2, "metadata": {"a": "b"}, "instructions": "Be brief."}


def check_members(members, value):
    for name, types in members.items():
        assert name in value and type(value[name]) in types, (name, value.get(name, "absent"))


def test_response_members():
    """Every member that Open Responses requires is there with its type, in answers and in every event's response."""
    tools = [{"type": "function", "name": "a"}, {"type": "function", "name": "b", "description": "d", "strict": True,
                                                 "parameters": {"type": "object", "properties": {}}, "defer_loading": True}]
    for more in ({}, GIVEN, {"tools": tools, "tool_choice": "none"}):
        body = dict(ASK, **more)
        events = response_events(SERVER, body)
        answers = [ok_of(SERVER, "/v1/responses", body)] + [e["response"] for e in events if "response" in e]
        for answer in answers:
            check_members(MEMBERS, answer)
            assert (answer["completed_at"] is not None) == (answer["status"] == "completed"), answer
            assert {k: answer[k] for k in more if k in GIVEN} == {k: v for k, v in more.items() if k in GIVEN}, answer
            assert answer["background"] is False and answer["service_tier"] == "default", answer
            assert len(answer["tools"]) == len(more.get("tools", [])), answer["tools"]
            for tool, sent in zip(answer["tools"], more.get("tools", [])):
                check_members(TOOL_MEMBERS, tool)
                assert {k: tool[k] for k in sent} == sent and all(tool[k] is None for k in TOOL_MEMBERS if k not in sent), tool
        assert len(answers) == 4 and answers[-1]["completed_at"] >= answers[-1]["created_at"]
    cut = ok_of(SERVER, "/v1/responses", dict(ASK, max_output_tokens=1))
    assert cut["status"] == "incomplete" and cut["completed_at"] is None, cut
    for name in ("user", "safety_identifier", "max_tool_calls", "top_logprobs"):
        refused("/v1/responses", dict(ASK, **{name: {}}), code="invalid_type", param=name)


def test_response_logprobs():
    """The log-probabilities are chat's; those of the deltas are those of the done events and of the answer."""
    ask = dict(ASK, include=["message.output_text.logprobs"])
    for top in (None, 0, 3):
        body = ask if top is None else dict(ask, top_logprobs=top)
        content, = ok_of(SERVER, "/v1/responses", body)["output"][0]["content"]
        chat = ok_of(SERVER, "/v1/chat/completions", {
            "messages": [{"role": "user", "content": ASK["input"]}], "temperature": 0, "max_tokens": ASK["max_output_tokens"],
            "logprobs": True, "top_logprobs": top or 0})["choices"][0]
        assert content["logprobs"] == chat["logprobs"]["content"] and content["text"] == chat["message"]["content"]
        assert b"".join(bytes(t["bytes"]) for t in content["logprobs"]).decode() == content["text"]
        assert all(len(t["top_logprobs"]) == (top or 0) for t in content["logprobs"])
        for options in ({}, {"stream_options": {"chunk_tokens": 1}}):
            events = response_events(SERVER, dict(body, **options))
            deltas = [t for e in events if e["type"] == "response.output_text.delta" for t in e["logprobs"]]
            done, = [e for e in events if e["type"] == "response.output_text.done"]
            assert deltas == done["logprobs"] == content["logprobs"] == events[-1]["response"]["output"][0]["content"][0]["logprobs"]
    assert ok_of(SERVER, "/v1/responses", ASK)["output"][0]["content"][0]["logprobs"] == []
    with loop_model() as model, Hearth("--model", model.dir) as h:  # a context of 16,384: too many for one event
        status, _, answer = h.post("/v1/responses", dict(ask, top_logprobs=20, max_output_tokens=None))
        assert status == 400 and answer["error"]["param"] == "top_logprobs", answer
        most = int(re.search(r"'max_output_tokens' to at most (\d+)", answer["error"]["message"])[1])
        for more, wanted in ((0, 200), (1, 400)):
            assert h.post("/v1/responses", dict(ask, top_logprobs=20, max_output_tokens=most + more))[0] == wanted


def test_timings_of_deltas():
    """timings_per_token: every delta has the timings so far, in the dialects that have timings."""
    for path, body in (("/v1/completions", GREEDY), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}],
                                                                             "max_tokens": 8, "ignore_eos": True})):
        got = chunks(SERVER.stream(path, dict(body, stream=True, timings_per_token=True, stream_options={"chunk_tokens": 1})))
        timed = [c["timings"] for c in got if "timings" in c]
        n = [t["predicted_n"] for t in timed]
        assert len(n) > 4 and n == sorted(n) and n[0] >= 1 and timed[0]["prompt_n"] + timed[0]["cache_n"] > 0, timed
        assert all(t["prompt_ms"] > 0 and t["predicted_ms"] >= 0 for t in timed), timed
        plain = chunks(SERVER.stream(path, dict(body, stream=True, timings=True)))
        assert sum("timings" in c for c in plain) == 1
    events = response_events(SERVER, dict(ASK, timings_per_token=True, stream_options={"chunk_tokens": 1}))
    deltas = [e for e in events if e["type"] == "response.output_text.delta"]
    assert all(e["timings"]["predicted_n"] >= 1 for e in deltas) and "timings" in events[-1]["response"]
    body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "timings_per_token": True}
    assert SERVER.post("/v1/messages", body)[1]["x-ignored-params"] == "timings_per_token"


def test_messages_usage_at_the_end_of_a_stream():
    body = {"messages": [{"role": "user", "content": "What is 2+2?"}], "max_tokens": 4, "temperature": 0}
    whole = ok_of(SERVER, "/v1/messages", body)["usage"]
    events = [json.loads(data) for _, data in SERVER.stream("/v1/messages", dict(body, stream=True))]
    first, last = events[0]["message"]["usage"], events[-2]["usage"]
    prompt = sum(whole[k] for k in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"))
    assert last["output_tokens"] == whole["output_tokens"] and type(last["input_tokens"]) is int
    for usage in (first, last):
        assert sum(usage[k] for k in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")) == prompt


def test_response_calls_of_litellm():
    """What LiteLLM's proxy makes of Anthropic calls, word for word."""
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is 2+2?"}]}
    plain = ok("/v1/chat/completions", dict(CHAT, messages=[{"role": "user", "content": "What is 2+2?"}]))
    body = {"model": "hearth-demo", "input": [message], "include": ["reasoning.encrypted_content"],
            "max_output_tokens": 32, "temperature": 0}
    answer = ok("/v1/responses", body)
    assert answer["output"][0]["content"][0]["text"] == plain["choices"][0]["message"]["content"]
    assert "".join(e["delta"] for e in response_events(SERVER, body) if e["type"].endswith("text.delta")) == \
        plain["choices"][0]["message"]["content"]
    turns = [message, {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4"}]},
             message]
    ok("/v1/responses", dict(body, input=turns, instructions="Be brief."))


def test_response_progress_and_timings():
    body = {"input": "Tom has a ball. " * 60, "max_output_tokens": 3, "timings": True, "return_progress": True}
    with Hearth("--chunk", "64") as h:
        events = response_events(h, dict(body, ignore_eos=True))
        assert [e["sequence_number"] for e in events] == list(range(len(events)))
        progress = [e for e in events if "prompt_progress" in e]
        steps = [e["prompt_progress"] for e in progress]
        assert steps[0]["processed"] == 0 and steps[-1]["processed"] == steps[-1]["total"] and len(steps) > 3, steps
        assert all(e["type"] == "response.in_progress" and e["response"]["status"] == "in_progress" for e in progress)
        first = next(i for i, e in enumerate(events) if e["type"] == "response.output_text.delta")
        assert events.index(progress[-1]) < first
        assert events[-1]["response"]["timings"]["predicted_n"] == 3, events[-1]
        assert not any("timings" in e["response"] for e in events[:-1] if "response" in e)
        assert ok_of(h, "/v1/responses", body)["timings"]["prompt_n"] >= 1
        assert not any("prompt_progress" in e for e in response_events(h, dict(body, return_progress=False)))


def ok_of(server, path, body):
    status, _, answer = server.post(path, body)
    assert status == 200, answer
    return answer


# ---- messages ----------------------------------------------------------------------------------------

VERSION = {"anthropic-version": "2023-06-01"}


def test_errors_name_what_the_client_sent():
    """A system prompt or instructions are a message of the chat, but not one of the client's."""
    image = [{"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}]
    for fields, place in (({"messages": [{"role": "user", "content": image}]}, "messages.0.content.0"),
                          ({"messages": [{"role": "user"}]}, "messages.0.content"), ({"system": image}, "system.0"),
                          ({"messages": [5]}, "messages.0"), ({"messages": []}, "'messages'"),
                          ({"stop_sequences": [5]}, "'stop_sequences'"), ({"max_tokens": 0}, "'max_tokens' is 0")):
        status, _, answer = SERVER.post("/v1/messages", dict(CHAT, **{"system": "s", **fields}))
        assert status == 400 and answer["error"]["message"].startswith(place), answer
    for value, param, code in (([{"role": "user", "content": 5}], "input[0].content", "invalid_type"),
                               ([{"role": "wizard", "content": "a"}], "input[0].role", "invalid_value")):
        refused("/v1/responses", {"input": value, "instructions": "s"}, code, param)
    refused("/v1/responses", {"input": []}, param="input")
    with DemoCopy() as m:
        m.template("{{ raise_exception('no') }}")
        with Hearth("--model", m.dir) as h:
            assert h.post("/v1/responses", {"input": "a"})[2]["error"]["param"] == "input"


def test_cache_control_is_checked_everywhere():
    """Types and values, in Anthropic's words, wherever Anthropic's API takes it."""
    text = {"type": "text", "text": "a"}
    tool = {"name": "f", "input_schema": {"type": "object"}}
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}

    def body(place, control):
        def put(block):
            return dict(block, cache_control=control) if control != "absent" else block
        user = [put(text) if place == "messages.0.content.0" else text]
        inner = [put(text) if place == "messages.2.content.0.content.0" else text]
        result = {"type": "tool_result", "tool_use_id": "t", "content": inner}
        out = {"max_tokens": 1, "system": [put(text) if place == "system.0" else text],
               "tools": [put(tool) if place == "tools.0" else tool], "messages": [
                   {"role": "user", "content": user}, call,
                   {"role": "user", "content": [put(result) if place == "messages.2.content.0" else result]}]}
        return put(out) if place == "" else out

    for place in ("", "system.0", "tools.0", "messages.0.content.0", "messages.2.content.0", "messages.2.content.0.content.0"):
        path = place + ".cache_control" if place else "cache_control"
        for good in (None, {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "5m"}, {"type": "ephemeral", "ttl": "1h"},
                     {"type": "ephemeral", "ttl": None}):
            for route in ("/v1/messages", "/v1/messages/count_tokens"):
                status, head, answer = SERVER.post(route, body(place, good))
                assert status == 200 and "x-ignored-params" not in head, (place, good, head, answer)
        for bad, message in (
                (5, path + ": Input should be an object"), ([], path + ": Input should be an object"),
                ({}, path + ".type: Field required"),
                ({"type": "forever"}, path + ": Input tag 'forever' found using 'type' does not match any of the expected tags: 'ephemeral'"),
                ({"type": 5}, path + ": Input tag "),
                ({"type": "ephemeral", "ttl": "2h"}, path + ".ephemeral.ttl: Input should be '5m' or '1h'"),
                ({"type": "ephemeral", "ttl": 5}, path + ".ephemeral.ttl: Input should be '5m' or '1h'")):
            status, _, answer = SERVER.post("/v1/messages", body(place, bad))
            assert status == 400 and answer["error"]["type"] == "invalid_request_error", (place, bad, answer)
            assert answer["error"]["message"].startswith(message), (message, answer)
    many = dict(text, cache_control={"type": "ephemeral"})
    four = {"max_tokens": 1, "cache_control": {"type": "ephemeral"}, "system": [many] * 2,
            "messages": [{"role": "user", "content": [many] * 2}]}
    assert SERVER.post("/v1/messages", four)[0] == 200
    status, _, answer = SERVER.post("/v1/messages", dict(four, system=[many] * 3))
    assert status == 400 and answer["error"]["message"] == (
        "A maximum of 4 blocks with cache_control may be provided. Found 5."), answer


def test_posts_to_models_that_are_no_routes():
    for path in ("/models/unload", "/v1/models/unload", "/v1/models/some/name"):
        status, _, answer = SERVER.post(path, {})
        assert status == 404 and answer["error"]["code"] == "unknown_url", (path, status, answer)
    assert SERVER.request("DELETE", "/v1/models/x")[0] == 405
    assert SERVER.request("OPTIONS", "/v1/models/x")[0] in (200, 204)


def test_messages_system_role():
    """Instructions between the turns are where the client put them."""
    talk = [*CHAT["messages"], {"role": "assistant", "content": "4"},
            {"role": "system", "content": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]},
            {"role": "user", "content": "Thanks"}]
    n = ok("/v1/messages/count_tokens", {"messages": talk})["input_tokens"]
    assert n == ok("/v1/chat/completions/input_tokens", {"messages": talk})["input_tokens"]
    usage = ok("/v1/messages", dict(CHAT, messages=talk))["usage"]
    assert n == sum(usage[k] for k in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"))


def test_messages_request_id():
    """The header request-id on every answer of the dialect, and the same id in its error bodies."""
    for path, body, status in (("/v1/messages", CHAT, 200), ("/v1/messages", dict(CHAT, stream=True), 200),
                               ("/v1/messages/count_tokens", CHAT, 200), ("/v1/messages", {}, 400),
                               ("/v1/messages", b"{", 400), ("/v1/messages/count_tokens", {}, 400),
                               ("/v1/messages", dict(CHAT, model="nope"), 404)):
        for given in ({}, {"x-request-id": "mine-1"}):
            got, head, answer = SERVER.post(path, body, given)
            assert got == status and head["request-id"] == head["x-request-id"], (path, got, head)
            assert head["request-id"] == given.get("x-request-id", head["request-id"])
            if status != 200:
                assert answer["request_id"] == head["request-id"] and answer["type"] == "error", answer
    ctx = SERVER.get("/props")[2]["n_ctx"]
    long = dict(CHAT, messages=[{"role": "user", "content": "a " * 2 * ctx}])
    status, head, answer = SERVER.post("/v1/messages", long)
    assert status == 400 and answer["request_id"] == head["request-id"], answer
    status, head, answer = SERVER.get("/v1/messages", VERSION)
    assert status == 405 and answer["request_id"] == head["request-id"], answer
    assert "request-id" not in SERVER.post("/v1/chat/completions", CHAT)[1]


def test_models_in_anthropics_shape():
    with Hearth("--alias", "one,two,org/three") as h:
        plain = h.get("/v1/models")[2]
        assert plain["object"] == "list" and plain["data"][0]["object"] == "model"
        status, head, page = h.get("/v1/models", VERSION)
        assert status == 200 and head["request-id"] and set(page) == {"data", "has_more", "first_id", "last_id"}, page
        assert [m["id"] for m in page["data"]] == ["one", "two", "org/three"]
        assert (page["first_id"], page["last_id"], page["has_more"]) == ("one", "org/three", False)
        m = page["data"][1]
        assert m["type"] == "model" and m["display_name"] == "two" and m["lifecycle"] == "active", m
        assert datetime.datetime.fromisoformat(m["created_at"].replace("Z", "+00:00")).year > 2000, m
        assert m["max_input_tokens"] == h.get("/props")[2]["n_ctx"]
        for query, ids, more in (("limit=2", ["one", "two"], True), ("after_id=one", ["two", "org/three"], False),
                                 ("limit=1&after_id=one", ["two"], True), ("before_id=org%2Fthree", ["one", "two"], False),
                                 ("limit=1&before_id=org/three", ["two"], True), ("after_id=org/three", [], False)):
            page = h.get("/v1/models?" + query, VERSION)[2]
            assert [m["id"] for m in page["data"]] == ids and page["has_more"] == more, (query, page)
            assert page["first_id"] == (ids[0] if ids else None) and page["last_id"] == (ids[-1] if ids else None)
        for query in ("limit=0", "limit=1001", "limit=x", "after_id=nope", "before_id="):
            status, head, answer = h.get("/v1/models?" + query, VERSION)
            assert status == 400 and answer["type"] == "error" and answer["request_id"] == head["request-id"], answer
        assert h.get("/v1/models/org/three", VERSION)[2] == dict(m, id="org/three", display_name="org/three")
        status, _, answer = h.get("/v1/models/four", VERSION)
        assert status == 404 and answer["error"]["type"] == "not_found_error" and answer["request_id"], answer
        status, _, answer = h.get("/v1/none", VERSION)
        assert status == 404 and answer["type"] == "error", answer


def test_an_answer_that_is_refused_late_has_the_dialects_error():
    names = [f"name{i}-" + "x" * 250 for i in range(900)]
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as f:
        f.write("alias = " + ",".join(names) + "\n")
        f.flush()
        with Hearth("--config", f.name, "--answer-memory", "100K") as h:
            status, _, answer = h.get("/v1/models")
            assert status == 503 and answer["error"]["code"] == "server_overloaded", (status, str(answer)[:200])
            status, head, answer = h.get("/v1/models?limit=900", VERSION)
            assert status == 503 and answer["error"]["type"] == "overloaded_error", (status, str(answer)[:200])
            assert answer["request_id"] == head["request-id"]


def test_messages_output_config():
    schema = {"type": "json_schema", "schema": {"enum": [17]}}
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        for fields in ({"output_config": {}}, {"output_config": None}, {"output_format": None},
                       {"output_config": {"format": None}}, {"output_config": {"format": schema}},
                       {"output_format": schema}):
            assert SERVER.post(path, dict(CHAT, **fields))[0] == 200, fields
        status, head, _ = SERVER.post(path, dict(CHAT, output_config={"effort": "high"}))
        assert status == 200 and head["x-ignored-params"] == "output_config", head
        assert SERVER.post(path, dict(CHAT, output_config="high"))[0] == 400
        assert SERVER.post(path, dict(CHAT, output_config={"format": schema}, output_format=schema))[0] == 200  # equal ones are one
        other = {"type": "json_schema", "schema": {"enum": [18]}}
        status, _, answer = SERVER.post(path, dict(CHAT, output_config={"format": schema}, output_format=other))
        assert status == 400 and "output_format" in answer["error"]["message"], answer


# ---- defaults of the server --------------------------------------------------------------------------

def test_sampling_options():
    """Request, then option, then generation_config.json, then the API's default."""
    def text(h, **fields):
        body = {"prompt": "Once upon a time", "ignore_eos": True, **fields}
        status, _, answer = h.post("/v1/completions", body)
        assert status == 200, answer
        return answer["choices"][0]["text"], answer["usage"]["completion_tokens"]
    with Hearth() as h:
        assert h.get("/props")[2]["default_sampling"]["max_tokens"] is None
        greedy = text(h, temperature=0, max_tokens=12)[0]
        drawn = text(h, seed=5, max_tokens=12)[0]
        assert len({text(h, max_tokens=12)[0] for _ in range(4)}) > 1
    with Hearth("--temperature", "0", "--max-tokens", "12", "--seed", "7", "--top-p", "0.9") as h:
        shown = h.get("/props")[2]["default_sampling"]
        assert (shown["temperature"], shown["max_tokens"], shown["seed"], shown["top_p"]) == (0, 12, 7, 0.9), shown
        assert text(h) == (greedy, 12)
        assert text(h, max_tokens=3)[1] == 3 and text(h, n_predict=4)[1] == 4
        assert text(h, temperature=1, seed=5, top_p=1)[0] == drawn
        assert text(h, temperature=1) == text(h, temperature=1, seed=7)
        assert len({text(h, temperature=1, top_p=1, seed=-1)[0] for _ in range(4)}) > 1
        talk = {"messages": CHAT["messages"], "ignore_eos": True}
        assert h.post("/v1/chat/completions", talk)[2]["usage"]["completion_tokens"] == 12
        assert h.post("/v1/responses", {"input": "a", "ignore_eos": True})[2]["usage"]["output_tokens"] == 12
        assert h.post("/v1/responses", {"input": "a"})[2]["temperature"] == 0
    with demo_without("generation_config.json") as directory:
        with open(os.path.join(directory, "generation_config.json"), "w", encoding="utf-8") as f:
            json.dump({"temperature": 0, "top_p": 0.5, "eos_token_id": 2}, f)
        args = ("--model", directory, "--generation-config", "--max-tokens", "12")
        with Hearth(*args) as h:
            assert text(h) == (greedy, 12) and h.get("/props")[2]["default_sampling"]["top_p"] == 0.5
        with Hearth(*args, "--temperature", "1", "--top-p", "1", "--seed", "5") as h:
            assert text(h)[0] == drawn and text(h, temperature=0)[0] == greedy


# ---- web pages ---------------------------------------------------------------------------------------

def test_a_refused_preflight_is_logged_once():
    def preflight(h, origin):
        head = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        status, got, _ = h.request("OPTIONS", "/v1/chat/completions", headers=head)
        assert status == 204
        return "access-control-allow-origin" in got
    with Hearth("--cors-origins", "https://good.example") as h:
        h.request("OPTIONS", "/v1/models")
        assert preflight(h, "https://good.example")
        for i in range(3):
            assert not preflight(h, f"https://bad{i}.example")
        h.wait_until(lambda: any("bad2" in l or "bad0" in l for l in list(h.log)), 5, "the line")
        h.stop()
        lines = [l for l in h.log if "cors-origins" in l]
        assert len(lines) == 1 and "https://bad0.example" in lines[0] and '"warning"' in lines[0], lines


# ---- metrics -----------------------------------------------------------------------------------------

def test_metrics_as_vllm_names_them():
    def value(name, m):
        return m[name + '{model_name="hearth-demo",engine="0"}']
    with Hearth("--chunk", "64") as h:
        before = h.metrics()
        body = {"prompt": [5 + i * 7 % 200 for i in range(100)], "max_tokens": 4, "ignore_eos": True, "n": 2}
        assert h.post("/v1/completions", body)[0] == 200
        assert h.post("/v1/chat/completions", {"messages": CHAT["messages"]})[0] == 200
        assert h.post("/v1/embeddings", {"input": "a"})[0] == 200
        # a request is counted when its answer has been sent, a step after its events
        h.wait_until(lambda: h.metrics()["hearth_requests_finished_total{reason=\"length\"}"]
                     + h.metrics()["hearth_requests_finished_total{reason=\"stop\"}"] == 3)
        m = h.metrics()
        rows = m["hearth_computed_prompt_tokens_total"] + m["hearth_generated_tokens_total"]
        assert value("vllm:iteration_tokens_total_sum", m) == rows > 0, rows
        assert value("vllm:iteration_tokens_total_count", m) == m["hearth_engine_steps_total"]
        assert m['vllm:iteration_tokens_total_bucket{model_name="hearth-demo",engine="0",le="64"}'] >= 2
        assert value("vllm:request_params_n_count", m) == 2 and value("vllm:request_params_n_sum", m) == 3
        ctx = h.get("/props")[2]["n_ctx"]
        chat = ctx - h.post("/tokenize", {"messages": CHAT["messages"]})[2]["count"] + 1
        assert value("vllm:request_params_max_tokens_sum", m) == 4 + chat, (m, chat)
        assert before.keys() == m.keys()


# ---- counting ----------------------------------------------------------------------------------------

def test_input_tokens():
    """llama-server's route for chats and OpenAI's for responses: the prompt's tokens, no model run."""
    steps = SERVER.settled_metrics()["hearth_engine_steps_total"]
    chat = ok("/v1/chat/completions/input_tokens", {"messages": CHAT["messages"], "model": "default"})
    assert chat["object"] == "response.input_tokens" and set(chat) == {"object", "input_tokens"}, chat
    assert chat["input_tokens"] == ok("/tokenize", {"messages": CHAT["messages"]})["count"]
    assert ok("/v1/responses/input_tokens", {"input": "What is 2+2?"}) == chat
    assert ok("/chat/completions/input_tokens", CHAT) == chat and ok("/responses/input_tokens", ASK) == chat
    assert SERVER.metrics()["hearth_engine_steps_total"] == steps
    refused("/v1/chat/completions/input_tokens", {}, code="missing_required_parameter", param="messages")
    refused("/v1/responses/input_tokens", {}, code="missing_required_parameter", param="input")
    ctx = SERVER.get("/props")[2]["n_ctx"]
    many = ok("/v1/chat/completions/input_tokens", {"messages": [{"role": "user", "content": "a " * 2 * ctx}]})
    assert many["input_tokens"] > ctx


if __name__ == "__main__":
    with Hearth(*SMALL_CONTEXT) as SERVER:
        run_cases(globals())
