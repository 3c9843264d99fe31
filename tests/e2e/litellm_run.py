#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run by hand: LiteLLM as a library, and its proxy, asked in three dialects.

    tests/e2e/litellm_run.py [CASE...]       # first installs LiteLLM into build/libraries

The proxy turns Anthropic calls into Responses calls and passes chats and Responses on. Every answer must
be the one the server gives without the proxy. test_dialects.py holds the calls it sends. Tool loops run against a model
that calls add(2, 3) and answers LOOP_TEXT when it sees the result.
"""
import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile

from install_libraries import enter_venv

enter_venv("litellm", "requirements_litellm.txt")
os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", NO_PROXY="127.0.0.1")

from pydantic import BaseModel, ConfigDict, Field

from hearth_server import Hearth, run_cases
from scripted_model import LOOP_TEXT, loop_model

DEMO = LOOP = PROXY = None
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

    def __init__(self, config, key):
        super().__init__()
        with socket.create_server(("127.0.0.1", 0)) as s:
            self.port = s.getsockname()[1]
        self.host = "127.0.0.1"
        self.headers = {"Authorization": "Bearer " + key, "anthropic-version": "2023-06-01"}
        env = dict(os.environ, LITELLM_MASTER_KEY=key)
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
