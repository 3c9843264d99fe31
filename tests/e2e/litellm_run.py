#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run by hand: LiteLLM as a library, and its proxy, asked in three dialects; the proxy in front of two replicas.

    tests/e2e/litellm_run.py [CASE...]       # first installs LiteLLM into build/libraries

The proxy turns Anthropic calls into Responses calls and passes chats and Responses on. Every answer must
be the one the server gives without the proxy. test_dialects.py holds the calls it sends. Tool loops run against a model
that calls add(2, 3) and answers LOOP_TEXT when it sees the result. The replicas stand behind deploy/litellm/config.yaml;
500 requests of every kind are sent, and one replica is killed in the middle.
"""
import collections
import concurrent.futures
import contextlib
import http.client
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time

from install_libraries import enter_venv

enter_venv("litellm", "requirements_litellm.txt")
os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", NO_PROXY="127.0.0.1")

from pydantic import BaseModel, ConfigDict, Field

from hearth_server import ROOT, Hearth, run_cases
from scripted_model import LOOP_TEXT, loop_model

DEMO = LOOP = PROXY = None
N_REQUESTS, N_CLIENTS, KILL_AFTER = 500, 8, 200
QUESTION = [{"role": "user", "content": "What is 2+2?"}]
TALK = QUESTION + [{"role": "assistant", "content": "2+2=4."}, {"role": "user", "content": "What is 3+3?"}]
CONFIG = """model_list:
  - model_name: demo
    litellm_params: {{model: openai/default, api_base: "{demo}/v1", api_key: none}}
  - model_name: loop
    litellm_params: {{model: openai/default, api_base: "{loop}/v1", api_key: none}}
litellm_settings: {{telemetry: false, num_retries: 0}}
"""


NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
           "required": ["a", "b"], "additionalProperties": False}
FUNCTION = {"name": "add", "description": "Add two numbers.", "parameters": NUMBERS}
TOOLS = {"chat": {"type": "function", "function": FUNCTION}, "responses": {"type": "function", **FUNCTION},
         "messages": {"name": "add", "description": "Add two numbers.", "input_schema": NUMBERS}}


class Person(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(max_length=8)
    age: int = Field(ge=0, le=120)


class Proxy(Hearth):
    """The running proxy, with the helpers of the server for requests to it."""

    def __init__(self, config, key, **env):
        super().__init__()
        with socket.create_server(("127.0.0.1", 0)) as s:
            self.port = s.getsockname()[1]
        self.host = "127.0.0.1"
        self.headers = {"Authorization": "Bearer " + key, "anthropic-version": "2023-06-01"}
        env = dict(os.environ, LITELLM_MASTER_KEY=key, **env)
        program = os.path.join(os.path.dirname(sys.executable), "litellm")
        command = [program, "--config", config, "--host", self.host, "--port", str(self.port)]
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def is_up(self):
        assert self.process.poll() is None, "the proxy did not start"
        with contextlib.suppress(OSError):
            return self.request("GET", "/health/liveliness")[0] == 200
        return False

    def end(self):
        self.process.terminate()
        self.process.wait(20)


def text_of_messages(answer):
    return "".join(b["text"] for b in answer["content"])


def test_proxy_messages():
    for messages, extra in ((QUESTION, {}), (TALK, {"system": "Be brief."}), (QUESTION, {"stop_sequences": ["4"]}),
                            ([{"role": "user", "content": [{"type": "text", "text": "What is 2+2?"}]}], {})):
        body = {"messages": messages, "max_tokens": 32, "temperature": 0, **extra}
        plain = text_of_messages(DEMO.post("/v1/messages", body)[2])
        body["model"] = "demo"
        status, _, answer = PROXY.post("/v1/messages", body, PROXY.headers)
        assert status == 200 and answer["role"] == "assistant", answer
        if "stop_sequences" not in extra:  # the Responses dialect has no stop strings
            assert text_of_messages(answer) == plain, (answer, plain)
        assert answer["usage"]["output_tokens"] > 0
        events = [json.loads(d) for _, d in PROXY.stream("/v1/messages", dict(body, stream=True), PROXY.headers)]
        text = "".join(e["delta"].get("text", "") for e in events if e["type"] == "content_block_delta")
        assert text == text_of_messages(answer) and events[-1]["type"] == "message_stop", events


def test_proxy_chat():
    body = {"messages": TALK, "temperature": 0, "max_tokens": 32}
    plain = DEMO.post("/v1/chat/completions", body)[2]["choices"][0]["message"]["content"]
    body["model"] = "demo"
    status, _, answer = PROXY.post("/v1/chat/completions", body, PROXY.headers)
    assert status == 200 and answer["choices"][0]["message"]["content"] == plain, answer
    events = [d for _, d in PROXY.stream("/v1/chat/completions", dict(body, stream=True), PROXY.headers)]
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in map(json.loads, events[:-1]) if c["choices"])
    assert text == plain and events[-1] == "[DONE]", events


def test_proxy_responses():
    body = {"input": "What is 2+2?", "temperature": 0, "max_output_tokens": 32}
    plain = DEMO.post("/v1/responses", body)[2]["output"][0]["content"][0]["text"]
    body["model"] = "demo"
    status, _, answer = PROXY.post("/v1/responses", body, PROXY.headers)
    assert status == 200 and answer["output"][0]["content"][0]["text"] == plain, answer
    data = [d for _, d in PROXY.stream("/v1/responses", dict(body, stream=True), PROXY.headers) if d != "[DONE]"]
    events = [json.loads(d) for d in data]
    assert "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta") == plain, events


# ---- tool loops ----------------------------------------------------------------------------------

def called(name, arguments):
    assert name == "add" and (json.loads(arguments) if isinstance(arguments, str) else arguments) == {"a": 2, "b": 3}


def test_proxy_tools_of_chat():
    body = {"model": "loop", "messages": QUESTION, "tools": [TOOLS["chat"]]}
    events = [json.loads(d) for _, d in PROXY.stream("/v1/chat/completions", dict(body, stream=True), PROXY.headers)
              if d != "[DONE]"]
    pieces = [c["function"] for e in events for choice in e["choices"] for c in choice["delta"].get("tool_calls") or []]
    called(pieces[0]["name"], "".join(f.get("arguments") or "" for f in pieces))
    message = PROXY.post("/v1/chat/completions", body, PROXY.headers)[2]["choices"][0]["message"]
    call, = message["tool_calls"]
    called(call["function"]["name"], call["function"]["arguments"])
    talk = [*QUESTION, message, {"role": "tool", "tool_call_id": call["id"], "content": "5"}]
    answer = PROXY.post("/v1/chat/completions", dict(body, messages=talk), PROXY.headers)[2]
    assert answer["choices"][0]["message"]["content"] == LOOP_TEXT, answer


def test_proxy_tools_of_responses():
    body = {"model": "loop", "input": QUESTION, "tools": [TOOLS["responses"]]}
    data = [d for _, d in PROXY.stream("/v1/responses", dict(body, stream=True), PROXY.headers) if d != "[DONE]"]
    done = [e for e in map(json.loads, data) if e["type"] == "response.function_call_arguments.done"]
    called("add", done[0]["arguments"])
    first = PROXY.post("/v1/responses", body, PROXY.headers)[2]
    call, = first["output"]
    called(call["name"], call["arguments"])
    talk = [*QUESTION, call, {"type": "function_call_output", "call_id": call["call_id"], "output": "5"}]
    answer = PROXY.post("/v1/responses", dict(body, input=talk), PROXY.headers)[2]
    assert answer["output"][0]["content"][0]["text"] == LOOP_TEXT, answer


def test_proxy_tools_of_messages():
    body = {"model": "loop", "messages": QUESTION, "max_tokens": 200, "tools": [TOOLS["messages"]]}
    events = [json.loads(d) for _, d in PROXY.stream("/v1/messages", dict(body, stream=True), PROXY.headers)]
    called("add", "".join(e["delta"].get("partial_json", "") for e in events if e["type"] == "content_block_delta"))
    first = PROXY.post("/v1/messages", body, PROXY.headers)[2]
    assert first["stop_reason"] == "tool_use", first
    call = next(b for b in first["content"] if b["type"] == "tool_use")
    called(call["name"], call["input"])
    talk = [*QUESTION, {"role": "assistant", "content": first["content"]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "5"}]}]
    answer = PROXY.post("/v1/messages", dict(body, messages=talk), PROXY.headers)[2]
    assert text_of_messages(answer) == LOOP_TEXT, answer


# ---- two replicas --------------------------------------------------------------------------------

class Replicas:
    """Two servers behind a proxy with the shipped configuration."""

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.replicas = [Hearth("--parallel", "8"), Hearth("--parallel", "8")]
            for h in self.replicas:
                h.start()
                stack.callback(h.stop)
            with open(os.path.join(ROOT, "deploy", "litellm", "config.yaml"), encoding="utf-8") as f:
                text = f.read()
            for i, h in enumerate(self.replicas, 1):
                assert text.count(f"http://hearth-{i}:8080") == 1, text
                text = text.replace(f"http://hearth-{i}:8080", h.url)
            config = stack.enter_context(tempfile.NamedTemporaryFile("w", suffix=".yaml"))
            config.write(text)
            config.flush()
            self.proxy = Proxy(config.name, "sk-" + secrets.token_hex(32), HEARTH_API_KEY="none")
            stack.callback(self.proxy.end)
            self.replicas[0].wait_until(self.proxy.is_up, 180, "the proxy is up")
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error):
        self.stack.__exit__(*error)


CHAT = {"model": "hearth", "messages": QUESTION, "max_tokens": 400, "ignore_eos": True, "temperature": 0}
COMPLETION = {"model": "hearth", "prompt": "Once upon a time", "max_tokens": 48, "temperature": 0}
KINDS = {
    "chat": ("/v1/chat/completions", CHAT), "chat, streamed": ("/v1/chat/completions", dict(CHAT, stream=True)),
    "completion": ("/v1/completions", COMPLETION),
    "responses": ("/v1/responses", {"model": "hearth", "input": "What is 2+2?", "temperature": 0}),
    "responses, streamed": ("/v1/responses", {"model": "hearth", "input": "What is 2+2?", "stream": True}),
    "messages": ("/v1/messages", CHAT), "messages, streamed": ("/v1/messages", dict(CHAT, stream=True)),
    "embeddings": ("/v1/embeddings", {"model": "hearth", "input": "Tom"}),
}
LAST_EVENTS = {"/v1/chat/completions": b"data: [DONE]", "/v1/responses": b"response.completed",
               "/v1/messages": b"message_stop"}


def ask(proxy, kind):
    """"ok", "cut" for a stream that began and did not end, or what went wrong."""
    path, body = KINDS[kind]
    c, begun, answer = proxy.connect(120), False, b""
    try:
        c.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **proxy.headers})
        r = c.getresponse()
        if r.status != 200:
            return f"{r.status} {r.read()[:200]!r}"
        while piece := r.read1(65536):
            begun = True
            answer += piece
    except (OSError, http.client.HTTPException) as e:
        return "cut" if body.get("stream") and begun else repr(e)
    finally:
        c.close()
    if not body.get("stream"):
        return "ok" if isinstance(json.loads(answer), dict) else "no object"
    if LAST_EVENTS[path] in answer and b'"error":{' not in answer.replace(b" ", b""):
        return "ok"
    return "cut" if begun else "an empty stream"


def test_replicas_answer_every_kind():
    with Replicas() as r:
        for kind in KINDS:
            for _ in range(4):
                assert ask(r.proxy, kind) == "ok", (kind, ask(r.proxy, kind))
        plain = r.replicas[0].post("/v1/chat/completions", dict(CHAT, model="default"))[2]
        through = r.proxy.post("/v1/chat/completions", CHAT, r.proxy.headers)[2]
        assert through["choices"][0]["message"]["content"] == plain["choices"][0]["message"]["content"], through


def test_500_requests_with_a_replica_killed():
    with Replicas() as r:
        first, second = r.replicas
        done, lock, killed = collections.Counter(), threading.Lock(), threading.Event()

        def one(i):
            kind = list(KINDS)[i % len(KINDS)]
            result = ask(r.proxy, kind)
            with lock:
                done[result if result in ("ok", "cut") else f"{kind}: {result}"] += 1
                kill = sum(done.values()) == KILL_AFTER
            if kill:
                first.process.kill()
                killed.set()

        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(N_CLIENTS) as pool:
            list(pool.map(one, range(N_REQUESTS)))
        seconds = time.monotonic() - start
        answered = sum(v for k, v in second.metrics().items() if k.startswith("hearth_http_requests_total"))
        print(f"    {N_REQUESTS} requests, {N_CLIENTS} at a time, one of two replicas killed after {KILL_AFTER}: "
              f"{dict(done)} in {seconds:.1f} s; the other one answered {answered:.0f}")
        assert killed.is_set() and done["ok"] + done["cut"] == N_REQUESTS and done["cut"] <= N_CLIENTS, done


# ---- the library ---------------------------------------------------------------------------------

def complete(server, **options):
    import litellm
    return litellm.completion(model="openai/default", api_base=server.url + "/v1", api_key="none", num_retries=0,
                              **{"messages": QUESTION, "max_tokens": 300, "temperature": 0, **options})


def test_library_schema():
    schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": Person.model_json_schema()}}
    for kind in (Person, schema):
        answer = complete(DEMO, response_format=kind)
        Person.model_validate_json(answer.choices[0].message.content)


def test_library_tools():
    import litellm
    first = complete(LOOP, tools=[TOOLS["chat"]]).choices[0]
    call, = first.message.tool_calls
    called(call.function.name, call.function.arguments)
    assert first.finish_reason == "tool_calls", first
    chunks = list(complete(LOOP, tools=[TOOLS["chat"]], stream=True))
    joined, = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    called(joined.function.name, joined.function.arguments)
    talk = [*QUESTION, first.message, {"role": "tool", "tool_call_id": call.id, "content": "5"}]
    assert complete(LOOP, tools=[TOOLS["chat"]], messages=talk).choices[0].message.content == LOOP_TEXT


def test_library_of_responses_and_messages():
    import asyncio
    import litellm
    answer = litellm.responses(model="openai/default", api_base=LOOP.url + "/v1", api_key="none", input=QUESTION,
                               tools=[TOOLS["responses"]])
    called(answer.output[0].name, answer.output[0].arguments)
    answer = asyncio.run(litellm.anthropic.messages.acreate(
        model="anthropic/default", api_base=LOOP.url, api_key="none", messages=QUESTION, max_tokens=200,
        tools=[TOOLS["messages"]]))
    called(answer["content"][0]["name"], answer["content"][0]["input"])


def main():
    global DEMO, LOOP, PROXY
    with Hearth() as DEMO, loop_model() as looping, Hearth("--model", looping.dir) as LOOP, \
            tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        config.write(CONFIG.format(demo=DEMO.url, loop=LOOP.url))
        config.flush()
        PROXY = Proxy(config.name, "sk-" + secrets.token_hex(32))
        try:
            DEMO.wait_until(PROXY.is_up, 180, "the proxy is up")
            run_cases(globals())
        finally:
            PROXY.end()


if __name__ == "__main__":
    main()
