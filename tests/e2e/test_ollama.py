#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ollama's dialect: the requests of programs that know no other, and the answers that they look at.

Copilot, Zed, Home Assistant, Continue, Cline and Open WebUI are cases by what they send; the client libraries are
in test_clients.py. Standard library only.
"""
import concurrent.futures
import json
import os
import random
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hearth_server import DEMO, Hearth, read_all, run_cases, start_request  # noqa: E402
from scripted_model import LOOP_TEXT, loop_model  # noqa: E402
from test_models import EMBED  # noqa: E402
from test_on_demand import hold_a_stream  # noqa: E402
from tiny_models import DemoCopy  # noqa: E402

SERVER = LOOP = None  # the demo model; one that calls add(2, 3) and then answers LOOP_TEXT
QUESTION = [{"role": "user", "content": "What is 2+2?"}]
GREEDY = {"temperature": 0, "top_k": 0, "top_p": 1}
ADD = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}}]


def lines_of(answer):
    """The objects of an answer in lines; each has what clients look for in every line."""
    status, head, data = answer
    assert status == 200 and head["content-type"] == "application/x-ndjson", (status, head, data)
    objects = [json.loads(line) for line in data.decode().splitlines()]
    for o in objects:
        assert o["model"] and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", o["created_at"]), o
        assert type(o["done"]) is bool and o["done"] == (o is objects[-1]), o
        assert o["message"]["role"] == "assistant" and type(o["message"]["content"]) is str, o
    return objects


def chat(h, messages=QUESTION, **fields):
    return h.post("/api/chat", {"messages": messages, "stream": False, **fields})


def raw_chat(h, messages=QUESTION, **fields):
    """In lines; no Content-Type, as LiteLLM."""
    return h.request("POST", "/api/chat", json.dumps({"messages": messages, **fields}), {})


def refused(answer, status, code):
    assert answer[0] == status and set(answer[2]) == {"error", "code"} and answer[2]["code"] == code, answer
    return answer[2]["error"]


def test_lines_and_whole_answers():
    body = {"options": {**GREEDY, "num_predict": 12}}
    objects = lines_of(raw_chat(SERVER, **body))
    whole = chat(SERVER, **body)[2]
    text = "".join(o["message"]["content"] for o in objects)
    want = SERVER.post("/v1/chat/completions", {"messages": QUESTION, "temperature": 0, "max_tokens": 12})[2]
    assert text == whole["message"]["content"] == want["choices"][0]["message"]["content"]
    for last in (objects[-1], whole):
        assert last["done_reason"] == "length" and last["eval_count"] == 12, last
        assert last["prompt_eval_count"] == want["usage"]["prompt_tokens"]
        assert all(last[n] >= 1 for n in ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"))


def test_the_same_answers_as_chat():
    """Sampling and seed written out: text and counts are those of /v1/chat/completions, bit for bit."""
    rng = random.Random(51)
    n, requests = int(os.environ.get("SAME_ANSWERS", "40")), []
    for i in range(n):
        messages = [{"role": "user", "content": "".join(rng.choice("abc dé€ \n{}") for _ in range(rng.randint(1, 60)))}]
        sampling = {"temperature": rng.choice([0.2, 0.8, 1.5]), "top_k": rng.choice([0, 5, 40]),
                    "top_p": rng.choice([0.5, 1]), "seed": i, "repeat_penalty": rng.choice([1, 1.2])}
        tools = {"tools": ADD} if i % 2 else {}
        requests.append({"messages": messages, "options": {**sampling, "num_predict": 40}, **tools})
        ours = chat(SERVER, **requests[-1])[2]
        requests[-1]["want"] = ours["message"]
        want = SERVER.post("/v1/chat/completions", {"messages": messages, "max_tokens": 40, **sampling, **tools})[2]
        choice = want["choices"][0]
        assert ours["message"]["content"] == (choice["message"]["content"] or ""), (i, ours, want)
        assert ours["eval_count"] == want["usage"]["completion_tokens"]
        assert (ours["done_reason"] == "length") == (choice["finish_reason"] == "length")

    def again(request):
        want = request.pop("want")
        assert chat(SERVER, **request)[2]["message"] == want, request
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(again, requests))) == n


def test_defaults_of_sampling():
    """Home Assistant and others send none: those of Ollama, unless the operator has said one."""
    seeded = {"options": {"seed": 7, "num_predict": 24}}
    out = [chat(SERVER, options={"seed": 7, "num_predict": 24, "temperature": 0.8, "top_k": 40, "top_p": 0.9})[2],
           chat(SERVER, **seeded)[2]]
    assert out[0]["message"] == out[1]["message"]
    with Hearth("--threads", "1", "--temperature", "0") as h:
        texts = {chat(h, options={"num_predict": 24})[2]["message"]["content"] for _ in range(3)}
        assert len(texts) == 1, texts


def test_tools_of_home_assistant():
    """Calls and results without ids or names; a call comes whole, in one line."""
    ask = [{"role": "user", "content": "Add 2 and 3."}]
    objects = lines_of(raw_chat(LOOP, ask, tools=ADD, keep_alive="-1s", options={"num_ctx": 8192}))
    calls = [c for o in objects for c in o["message"].get("tool_calls", [])]
    assert len(calls) == 1 and calls[0]["function"] == {"index": 0, "name": "add", "arguments": {"a": 2, "b": 3}}, calls
    assert calls[0]["id"].startswith("call_") and objects[-1]["done_reason"] == "stop"
    history = [*ask, {"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": {"a": 2, "b": 3}}}]},
               {"role": "tool", "content": "5"}]
    status, head, body = chat(LOOP, history, tools=ADD, keep_alive="-1s", options={"num_ctx": 8192})
    assert status == 200 and body["message"]["content"] == LOOP_TEXT, body
    assert head["x-ignored-params"] == "num_ctx,keep_alive", head
    cut = chat(LOOP, ask, tools=ADD, options={"num_predict": 6})[2]
    assert not cut["message"].get("tool_calls") and cut["done_reason"] == "length", cut
    assert not [o for o in lines_of(raw_chat(LOOP, ask, tools=ADD, options={"num_predict": 6}))
                if "tool_calls" in o["message"]]


def test_schemas():
    schema = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 99}}, "required": ["age"]}
    for form in (schema, "json"):
        body = chat(SERVER, format=form, options={"num_predict": 300})[2]
        assert body["done_reason"] == "length" or type(json.loads(body["message"]["content"])) is dict
    assert chat(SERVER, format="")[0] == 200


def test_catalogue():
    """Four entries, one loaded: lists and 100 shows load nothing and say the same as when all are loaded."""
    four = ["--model", f"chat={DEMO}", "--model", f"embed={EMBED}", "--model", f"more={DEMO}", "--model", f"other={DEMO}"]
    names = ["chat", "embed", "more", "other"]
    with Hearth(*four, "--memory", "110M", "--parallel", "2", "--threads", "2", "--ctx-size", "256", "--swap", "on") as h:
        assert h.post("/api/generate", {"model": "chat", "stream": False})[2]["done_reason"] == "load"
        loads = h.metrics()
        tags = {m["name"]: m for m in h.get("/api/tags")[2]["models"]}
        shows = [h.post("/api/show", {"model": names[i % 4]})[2] for i in range(100)]
        assert list(tags) == names and h.metrics() is not None
        assert {k: v for k, v in h.metrics().items() if "loads_total" in k} == {k: v for k, v in loads.items() if "loads_total" in k}
        assert [m["name"] for m in h.get("/api/ps")[2]["models"]] == ["chat"]
        for name in names:
            want = ["embedding"] if name == "embed" else ["completion", "tools"]
            assert tags[name]["capabilities"] == shows[names.index(name)]["capabilities"] == want, name
            assert len(tags[name]["digest"]) == 64 and tags[name]["size"] > 1 << 20
            family = shows[names.index(name)]["model_info"]["general.architecture"]
            assert shows[names.index(name)]["model_info"][family + ".context_length"] == 256
        for name in ("embed", "other"):
            path, body = ("/api/embed", {"input": "a"}) if name == "embed" else ("/api/chat", {"messages": [], "stream": False})
            assert h.post(path, {"model": name, **body})[0] == 200
            assert h.post("/api/show", {"model": name})[2] == shows[names.index(name)], "the same as when it is loaded"
        # Open WebUI ejects a model so; without the right nothing happens.
        assert h.post("/api/generate", {"model": "other:latest", "keep_alive": 0, "stream": False})[2]["done_reason"] == "unload"
        h.wait_until(lambda: not h.get("/api/ps")[2]["models"], 10, "no model")
        status, head, body = h.post("/api/generate", {"model": "chat", "keep_alive": 0, "stream": False}, {"X-Forwarded-For": "1.2.3.4"})
        assert body["done_reason"] == "load" and head["x-ignored-params"] == "keep_alive"


# program: what it sends to a route, and the members that it reads, of the answer or of every line
TURN = [{"role": "system", "content": "Be brief."}, *QUESTION]
PROGRAMS = [
    ("Copilot", "GET", "/api/version", None, "version"),
    ("Copilot", "GET", "/api/tags", None, "models.0.name models.0.model"),
    ("Copilot", "POST", "/api/show", {"model": "NAME"}, "capabilities model_info.general.architecture model_info.general.basename"),
    ("Copilot", "POST", "/v1/chat/completions", {"model": "NAME", "messages": TURN, "max_tokens": 3}, "choices.0.message.content"),
    ("Zed", "GET", "/api/tags", None, "models.0.name models.0.modified_at models.0.size models.0.digest models.0.details.format "
     "models.0.details.family models.0.details.parameter_size models.0.details.quantization_level"),
    ("Zed", "POST", "/api/show", {"model": "NAME"}, "capabilities parameters model_info.general.architecture"),
    ("Zed", "POST", "/api/chat", {"model": "NAME", "messages": [{**TURN[1], "images": None, "thinking": None, "tool_calls": None}],
                                  "stream": True, "keep_alive": -1, "options": {"num_ctx": 2048, "num_predict": 3, "stop": []},
                                  "tools": [], "think": None}, "message.role message.content created_at done model"),
    ("Zed", "POST", "/api/generate", {"model": "NAME", "prompt": "def f(", "raw": True, "stream": False, "options": {"num_predict": 3}},
     "response done"),
    ("Home Assistant", "POST", "/api/chat", {"model": "NAME", "messages": TURN, "tools": ADD, "stream": True, "format": "", "think": False,
                                             "options": {"num_ctx": 8192, "num_predict": 3}, "keep_alive": "-1s"}, "message.content done"),
    ("Continue", "POST", "/api/show", {"name": "NAME"}, "parameters template capabilities"),
    ("Continue", "POST", "/api/chat", {"model": "NAME", "messages": TURN, "stream": True, "keep_alive": 1800, "raw": False,
                                       "options": {"num_predict": 3, "stop": ["zzz"], "num_ctx": 8192}}, "message.content"),
    ("Cline", "POST", "/api/chat", {"model": "NAME", "messages": TURN, "stream": True, "options": {"num_ctx": 32768, "num_predict": 3}},
     "created_at model done message.content"),
    ("n8n, Obsidian Copilot", "POST", "/api/chat", {
        "model": "NAME", "messages": TURN, "stream": True, "format": None, "keep_alive": "5m", "tools": [],
        "options": {"top_k": -1, "num_predict": 3, "use_mmap": True, "numa": False, "mirostat": None}}, "message.content done"),
    ("LiteLLM", "POST", "/api/chat", {"model": "NAME", "messages": [{**m, "images": []} for m in TURN], "stream": False,
                                      "options": {"repeat_penalty": 0, "num_predict": 3}}, "model done message.content eval_count"),
    ("LlamaIndex", "POST", "/api/show", {"model": "NAME"}, "model_info capabilities"),
    ("Open WebUI", "GET", "/api/ps", None, "models.0.name models.0.expires_at"),
    ("Open WebUI", "POST", "/api/generate", {"model": "NAME", "keep_alive": 0}, "done done_reason"),
    ("Codex", "POST", "/api/pull", {"model": "NAME", "stream": True}, "status"),
]


def has_member(value, path):
    """Names of members may hold dots."""
    if not path:
        return value is not None
    if isinstance(value, list):
        first, _, rest = path.partition(".")
        return int(first) < len(value) and has_member(value[int(first)], rest)
    return any(has_member(value[k], path[len(k) + 1:]) for k in value if path == k or path.startswith(k + "."))


def test_what_programs_send_and_read():
    for program, method, path, body, wanted in PROGRAMS:
        text = json.dumps(body).replace("NAME", "hearth-demo") if body else None
        status, _, data = SERVER.request(method, path, text, {})
        assert status == 200, (program, path, data)
        for line in data.decode().splitlines() if path.startswith("/api/") else [data.decode()]:
            for member in wanted.split():
                assert has_member(json.loads(line), member), (program, path, member, line)


def test_requests_of_programs():
    """Copilot, Zed, Continue, Cline, Codex: what each looks at."""
    version = SERVER.get("/api/version")[2]["version"]
    assert [int(n) for n in version.split(".")] >= [0, 6, 4]
    shown = SERVER.post("/api/show", {"model": "hearth-demo"})[2]
    family = shown["model_info"]["general.architecture"]
    assert shown["model_info"]["general.basename"] == "hearth-demo" and "tools" in shown["capabilities"]
    assert shown["model_info"][family + ".context_length"] == 2048 and shown["parameters"] == "num_ctx 2048"
    assert SERVER.post("/api/show", {"name": "hearth-demo:latest"})[2]["template"] == "{{ .Prompt }}"
    for path in ("/", "/?x=1"):
        assert SERVER.request("GET", path)[2] == b"Ollama is running"
        assert SERVER.request("HEAD", path)[0] == 200
        assert b"<html" in SERVER.request("GET", path, headers={"Accept": "text/html"})[2]
    assert SERVER.post("/api/pull", {"model": "hearth-demo"})[0] == 200
    assert "hearth pull" in refused(SERVER.post("/api/pull", {"model": "llama3"}), 404, "model_not_found")
    for path in ("/api/create", "/api/copy", "/api/push", "/api/experimental/x"):
        assert refused(SERVER.post(path, {}), 404, "unknown_url").startswith("There is no ")
    objects = lines_of(raw_chat(SERVER, tools=None, think=None, keep_alive=-1, options={"num_predict": 3, "stop": None}))
    assert objects[-1]["eval_count"] == 3
    raw = SERVER.post("/api/generate", {"prompt": "Once", "raw": True, "stream": False, "images": [], "context": [],
                                        "template": "", "options": {**GREEDY, "num_predict": 8}})[2]
    want = SERVER.post("/v1/completions", {"prompt": "Once", "temperature": 0, "max_tokens": 8})[2]
    assert raw["response"] == want["choices"][0]["text"] and "context" not in raw
    assert "does not support insert" in refused(SERVER.post("/api/generate", {"prompt": "a", "suffix": "b"}), 400, "unsupported_parameter")


def test_long_conversations():
    """`truncate` cuts whole turns and says so, unless it is false."""
    turns = [m for i in range(150) for m in ({"role": "user", "content": f"Question {i} about the garden?"},
                                             {"role": "assistant", "content": f"Answer {i}."})]
    messages = [{"role": "system", "content": "Be brief."}, *turns, *QUESTION]
    status, head, body = chat(SERVER, messages, options={"num_predict": 4})
    assert status == 200 and body["dropped_input_items"] == int(head["x-dropped-input-items"]) > 0, (head, body)
    assert body["prompt_eval_count"] <= 2048
    refused(chat(SERVER, messages, truncate=False), 400, "context_length_exceeded")
    refused(SERVER.post("/api/generate", {"prompt": "a b c d " * 2000}), 400, "context_length_exceeded")
    # an agent: one question and forty calls with results
    agent = [{"role": "user", "content": "Go through the files."}]
    for i in range(40):
        agent += [{"role": "assistant", "tool_calls": [{"function": {"name": "read", "arguments": {"path": f"file {i}"}}}]},
                  {"role": "tool", "tool_name": "read", "content": f"text {i} " * 12}]
    status, head, body = chat(SERVER, agent, options={"num_predict": 4})
    assert status == 200 and body["dropped_input_items"] == int(head["x-dropped-input-items"]) > 0, (head, body)
    assert "2048" in refused(chat(SERVER, agent, truncate=False), 400, "context_length_exceeded")


def test_hostile():
    for fields, status, code in (
            ({"options": []}, 400, "invalid_type"), ({"options": {"seed": "x"}}, 400, "invalid_type"),
            ({"options": {"num_predict": -2 ** 63}}, 400, "invalid_value"), ({"format": 5}, 400, "invalid_type"),
            ({"format": "yaml"}, 400, "invalid_type"), ({"think": "max "}, 400, "invalid_value"),
            ({"think": True}, 400, "unsupported_parameter"), ({"keep_alive": "9e9h"}, 400, "invalid_value"),
            ({"keep_alive": {}}, 400, "invalid_type"), ({"model": "x:latest:latest"}, 404, "model_not_found"),
            ({"model": "registry/ns/x:tag"}, 404, "model_not_found"), ({"model": ":latest"}, 404, "model_not_found"), ({"model": "../x"}, 404, "model_not_found"),
            ({"messages": [{"role": "tool", "content": "4"}]}, 400, "invalid_value"),
            ({"messages": [{"role": "user", "content": "a", "images": ["aa"]}]}, 400, "unsupported_parameter")):
        refused(chat(SERVER, **{"messages": QUESTION, **fields}), status, code)
    refused(SERVER.post("/api/generate", {"prompt": "a", "raw": True, "system": "b"}), 400, "invalid_value")
    large = {"type": "object", "properties": {f"p{i}": {"type": "string", "description": "x" * 200} for i in range(4500)}}
    assert chat(SERVER, format=large, options={"num_predict": 2})[0] in (200, 400)
    many = {f"x{i}": i for i in range(10000)}
    assert chat(SERVER, options={**many, "num_predict": 1})[0] == 200
    nested = json.loads("[" * 120 + "]" * 120)
    call = {"function": {"name": "add", "arguments": {"a": nested}}}
    for arguments in (call["function"]["arguments"], "x" * (1 << 20), "{\"a\":1,\"a\":2}"):
        history = [*QUESTION, {"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": arguments}}]},
                   {"role": "tool", "content": "5"}, {"role": "tool", "content": "6"}]
        assert chat(LOOP, history, tools=ADD)[0] == 400  # two results for one call
        assert chat(LOOP, history[:-1], tools=ADD)[0] in (200, 400)
    assert SERVER.request("POST", "/api/chat", '{"messages":[{"role":"user","content":"' + "[" * 500 + '"}],"options":{"temperature":1e400}}')[0] == 400
    for arguments in ([], 5, True):
        history = [*QUESTION, {"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": arguments}}]}]
        assert "arguments" in refused(chat(LOOP, history, tools=ADD), 400, "invalid_type")
    assert SERVER.request("HEAD", "/api/chat")[0] == 405
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    data = json.dumps({"messages": QUESTION, "options": {"num_predict": 1}})
    assert SERVER.request("POST", "/api/chat", data, form)[0] == 200
    assert SERVER.request("POST", "/api/chat", data, {**form, "Origin": "https://evil.example"})[0] == 403
    with Hearth("--threads", "1", env={"HEARTH_API_KEY": "secret"}) as h:
        refused(chat(h), 401, "invalid_api_key")
        assert h.get("/api/version")[0] == 200 and h.get("/api/tags")[0] == 401
        for _ in range(20):  # a key without the right unloads nothing
            answer = h.post("/api/generate", {"keep_alive": 0, "stream": False}, {"Authorization": "Bearer secret"})
            assert answer[2]["done_reason"] == "load" and answer[1]["x-ignored-params"] == "keep_alive", answer


def test_waiting_for_a_model():
    """A blank, which no reader of JSON lines minds, while a model loads or a prompt is computed; errors are lines."""
    with DemoCopy() as copy, Hearth("--model", f"chat={DEMO}", "--model", f"other={copy.dir}", "--memory", "110M", "--parallel",
                                    "2", "--threads", "2", "--ctx-size", "256", "--debug-hooks", "on", "--heartbeat-ms", "100") as h:
        busy = hold_a_stream(h)
        waiting = [start_request(h, "/api/chat", {"model": "other", "messages": QUESTION, "options": {"num_predict": 3, **more}})
                   for more in ({}, {"temperature": "hot"})]
        gone = start_request(h, "/api/chat", {"model": "other", "messages": QUESTION})
        gone.close()
        heard = [b"", b""]
        for i, s in enumerate(waiting):
            while heard[i].partition(b"\r\n\r\n")[2].count(b" ") < 2:
                heard[i] += (part := s.recv(4096))
                assert part, heard[i]
            assert b" 200 OK" in heard[i] and b"application/x-ndjson" in heard[i], heard[i]
        h.resume_engine()
        busy.close()
        for i, s in enumerate(waiting):
            heard[i] = re.sub(r"\r\n[0-9A-Fa-f]+\r\n", "", "\n" + (heard[i] + read_all(s)).decode().partition("\r\n\r\n")[2])
        lines = [[json.loads(line) for line in text.splitlines() if line.strip().startswith("{")] for text in heard]
        assert lines[0][-1]["done"] and lines[0][-1]["eval_count"] == 3, heard
        assert [set(o) for o in lines[1]] == [{"error", "code"}] and "DONE" not in heard[1], heard


if __name__ == "__main__":
    with Hearth("--threads", "2") as SERVER, loop_model() as looping, Hearth("--model", looping.dir, "--threads", "2") as LOOP:
        run_cases(globals())
