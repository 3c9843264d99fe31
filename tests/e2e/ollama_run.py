#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ollama's dialect with LlamaIndex and LiteLLM (ollama_chat/): text, streams, a tool loop, a schema, an error; and a load that
takes 20 s, with --heartbeat-ms 1000, for each client: these two, ollama, ollama-js ($OLLAMA_JS, its index.mjs) and LangChain.

By hand, in an environment with ollama, langchain-ollama, llama-index-llms-ollama and litellm.
"""
import json
import os
import subprocess
import threading
import time

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
from hearth_server import DEMO, Hearth, run_cases  # noqa: E402
from scripted_model import LOOP_TEXT, loop_model  # noqa: E402
from test_on_demand import hold_a_stream  # noqa: E402
from tiny_models import DemoCopy  # noqa: E402

SERVER = LOOP = None
WAIT_SECONDS = 20
QUESTION = [{"role": "user", "content": "What is 2+2?"}]
ADD = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}}]
OK = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


def name_of(server):
    return server.get("/v1/models")[2]["data"][0]["id"]


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def test_llama_index():
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.ollama import Ollama
    from pydantic import create_model
    ask = [ChatMessage(role="user", content="What is 2+2?")]
    m = Ollama(model=name_of(SERVER), base_url=SERVER.url, temperature=0, additional_kwargs={"num_predict": 12})
    assert m.chat(ask).message.content == "".join(p.delta or "" for p in m.stream_chat(ask)) != "" and m.complete("Once").text
    m = Ollama(model=name_of(SERVER), base_url=SERVER.url, temperature=0)
    assert type(m.as_structured_llm(create_model("Answer", ok=(bool, ...))).chat(ask).raw.ok) is bool
    m, tools = Ollama(model=name_of(LOOP), base_url=LOOP.url), [FunctionTool.from_defaults(add)]
    answer = m.chat_with_tools(tools, user_msg="Add 2 and 3")
    call, = m.get_tool_calls_from_response(answer)
    assert call.tool_name == "add" and call.tool_kwargs == {"a": 2, "b": 3}, call
    result = ChatMessage(role="tool", content="5", additional_kwargs={"tool_call_id": call.tool_id})
    answer = m.chat_with_tools(tools, chat_history=[ChatMessage(role="user", content="Add 2 and 3"), answer.message, result])
    assert LOOP_TEXT in str(answer.message.content), answer


def test_litellm():
    import litellm
    ask = {"model": "ollama_chat/" + name_of(SERVER), "api_base": SERVER.url, "messages": QUESTION, "temperature": 0}
    short = {**ask, "max_tokens": 12, "frequency_penalty": 0}
    streamed = "".join(p.choices[0].delta.content or "" for p in litellm.completion(**short, stream=True))
    assert litellm.completion(**short).choices[0].message.content == streamed != ""
    assert litellm.completion(**{**short, "model": "ollama/" + name_of(SERVER)}).choices[0].message.content
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": OK}}
    assert type(json.loads(litellm.completion(**ask, response_format=form).choices[0].message.content)["ok"]) is bool
    loop = {"model": "ollama_chat/" + name_of(LOOP), "api_base": LOOP.url, "tools": ADD}
    for stream in (False, True):
        answer = litellm.completion(**loop, messages=QUESTION, stream=stream)
        if stream:
            answer = litellm.stream_chunk_builder(list(answer), messages=QUESTION)
        message = answer.choices[0].message
        call, = message.tool_calls
        assert call.function.name == "add" and json.loads(call.function.arguments) == {"a": 2, "b": 3}, call
    talk = [*QUESTION, message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "5"}]
    assert litellm.completion(**loop, messages=talk).choices[0].message.content == LOOP_TEXT
    try:
        litellm.completion(**{**ask, "model": "ollama_chat/none"})
        raise AssertionError("an unknown model was found")
    except litellm.NotFoundError as e:
        assert "does not exist" in str(e), e


def by_ollama(url):
    import ollama
    answer = ollama.Client(host=url).chat("other", QUESTION, stream=True, options={"num_predict": 3})
    return "".join(p.message.content for p in answer)


def by_langchain(url):
    from langchain_ollama import ChatOllama
    return "".join(p.content for p in ChatOllama(model="other", base_url=url, num_predict=3).stream("Hi"))


def by_llama_index(url):
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.ollama import Ollama
    m = Ollama(model="other", base_url=url, request_timeout=60, context_window=256, additional_kwargs={"num_predict": 3})
    return "".join(p.delta or "" for p in m.stream_chat([ChatMessage(role="user", content="Hi")]))


def by_litellm(url):
    import litellm
    answer = litellm.completion(model="ollama_chat/other", api_base=url, messages=QUESTION, stream=True, max_tokens=3, timeout=60)
    return "".join(p.choices[0].delta.content or "" for p in answer)


def by_node(url):
    code = """import {Ollama} from '%s'; let t = '';
        for await (const p of await new Ollama({host: process.argv[1]}).chat({model: 'other', stream: true,
            messages: [{role: 'user', content: 'Hi'}], options: {num_predict: 3}})) t += p.message.content;
        console.log(t);""" % os.environ["OLLAMA_JS"]
    return subprocess.run(["node", "--input-type=module", "-e", code, url], text=True, timeout=90, check=True, capture_output=True).stdout


def test_a_load_of_20_seconds():
    clients = [by_ollama, by_langchain, by_llama_index, by_litellm] + ([by_node] if "OLLAMA_JS" in os.environ else [])
    with DemoCopy() as copy, Hearth("--model", f"chat={DEMO}", "--model", f"other={copy.dir}", "--memory", "110M", "--parallel", "2",
                                    "--threads", "2", "--ctx-size", "256", "--debug-hooks", "on", "--heartbeat-ms", "1000") as h:
        busy, texts = hold_a_stream(h), {}
        threads = [threading.Thread(target=lambda c=c: texts.update({c.__name__: c(h.url)})) for c in clients]
        for t in threads:
            t.start()
        time.sleep(WAIT_SECONDS)
        assert not texts, texts
        h.resume_engine()
        busy.close()
        for t in threads:
            t.join()
        assert len(texts) == len(clients) and all(texts.values()), texts


if __name__ == "__main__":
    with Hearth("--threads", "2") as SERVER, loop_model() as looping, Hearth("--model", looping.dir, "--threads", "2") as LOOP:
        run_cases(globals())
