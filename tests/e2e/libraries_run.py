#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run by hand: agents, tools and structured output of client libraries for Python and Node, unmodified.

    tests/e2e/libraries_run.py [CASE...]       # first installs the libraries into build/libraries

Agents run against a model that calls add(2, 3) and answers LOOP_TEXT when it sees the result. Libraries get an object
of a schema from the demo model, without repairing it or asking again. test_clients.py and test_clients_node.py have the
official clients, litellm_run.py has LiteLLM.
"""
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from typing import Literal

from install_libraries import enter_venv, node_modules

enter_venv("python", "requirements_libraries.txt")
os.environ.update(NO_PROXY="127.0.0.1", PYDANTIC_AI_DISABLE_TELEMETRY="1", LANGSMITH_TRACING="false",
                  OPENAI_AGENTS_DISABLE_TRACING="1")

import anthropic
import openai
from pydantic import BaseModel, ConfigDict

from hearth_server import Hearth, run_cases
from scripted_model import LOOP_TEXT, loop_model

DEMO = LOOP = None
NAME = "default"
QUESTION = "What is 2+3?"
CALLS = []


class Person(BaseModel):
    """Somebody. Enums, since some libraries leave limits of strings and numbers to the prompt."""
    model_config = ConfigDict(extra="forbid")
    name: Literal["Tom", "Ann"]
    age: Literal[7, 40]


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    CALLS.append((a, b))
    return a + b


def ran_once(text):
    """The tool was run once since the last check, and the answer is the model's."""
    assert CALLS == [(2, 3)] and text == LOOP_TEXT, (CALLS, text)
    CALLS.clear()


def openai_client(server, kind=openai.OpenAI):
    return kind(base_url=server.url + "/v1", api_key="none", max_retries=0)


def closing():
    """A logit_bias with which an object of any shape ends soon."""
    return {str(DEMO.post("/tokenize", {"content": t, "add_special": False})[2]["tokens"][0]): 4 for t in '"}'}


# ---- LangChain -----------------------------------------------------------------------------------

def chat_openai(server, **options):
    from langchain_openai import ChatOpenAI
    return ChatOpenAI(base_url=server.url + "/v1", api_key="none", model=NAME, temperature=0, max_tokens=300,
                      max_retries=0, **options)


def chat_anthropic(server):
    from langchain_anthropic import ChatAnthropic
    return ChatAnthropic(base_url=server.url, api_key="none", model=NAME, temperature=0, max_tokens=300, max_retries=0)


def check_agent(model):
    from langchain.agents import create_agent
    agent = create_agent(model, tools=[add], system_prompt="Be brief.")
    ask = {"messages": [{"role": "user", "content": QUESTION}]}
    ran_once(agent.invoke(ask)["messages"][-1].text)
    chunks = [chunk for chunk, _ in agent.stream(ask, stream_mode="messages")]
    ran_once("".join(c.text for c in chunks if type(c).__name__ == "AIMessageChunk"))


def test_langchain_agent_openai():
    check_agent(chat_openai(LOOP))


def test_langchain_agent_openai_responses():
    check_agent(chat_openai(LOOP, use_responses_api=True))


def test_langchain_agent_anthropic():
    check_agent(chat_anthropic(LOOP))


def test_langchain_agent_with_an_object():
    """Both ways of an agent to answer with an object: a tool, and the provider's own format."""
    from langchain.agents import create_agent
    from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
    with loop_model("Person", '{"name": "Tom", "age": 7}') as caller, Hearth("--model", caller.dir) as tom:
        for model, strategy in ((chat_openai(tom), ToolStrategy), (chat_openai(DEMO), ProviderStrategy),
                                (chat_anthropic(tom), ToolStrategy), (chat_anthropic(DEMO), ProviderStrategy)):
            agent = create_agent(model, tools=[], response_format=strategy(Person))
            answer = agent.invoke({"messages": [{"role": "user", "content": "Who?"}]})
            assert isinstance(answer["structured_response"], Person), (model, strategy, answer)


def test_langchain_structured_output():
    for model in (chat_openai(DEMO), chat_openai(DEMO, use_responses_api=True), chat_anthropic(DEMO)):
        for method in ("function_calling", "json_schema"):
            bound = model.with_structured_output(Person, method=method)
            for answer in (bound.invoke("Who?"), list(bound.stream("Who?"))[-1]):
                assert isinstance(answer, Person), (model, method, answer)
            raw = model.with_structured_output(Person, method=method, include_raw=True).invoke("Who?")
            assert isinstance(raw["parsed"], Person) and raw["parsing_error"] is None, (model, method, raw)
    for method in ("function_calling", "json_schema"):
        bound = chat_openai(DEMO).with_structured_output(Person, method=method, strict=True)
        assert isinstance(bound.invoke("Who?"), Person), method
    bound = chat_openai(DEMO, logit_bias=closing()).with_structured_output(Anything, method="json_mode")
    assert isinstance(bound.invoke("Tom is 7 years old. Answer in JSON."), Anything)


# ---- pydantic-ai ---------------------------------------------------------------------------------

def pydantic_models(server):
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider
    provider = OpenAIProvider(base_url=server.url + "/v1", api_key="none")
    claude = anthropic.AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0)
    return [OpenAIChatModel(NAME, provider=provider), OpenAIResponsesModel(NAME, provider=provider),
            AnthropicModel(NAME, provider=AnthropicProvider(anthropic_client=claude))]


def test_pydantic_ai_agent():
    from pydantic_ai import Agent

    async def both(model):
        agent = Agent(model, tools=[add], retries=0, model_settings={"max_tokens": 300})
        ran_once((await agent.run(QUESTION)).output)
        async with agent.run_stream(QUESTION) as result:
            ran_once(await result.get_output())
    for model in pydantic_models(LOOP):
        asyncio.run(both(model))


def test_pydantic_ai_tool_output():
    """By a tool, and by the API's own format, which the library has for Anthropic's models alone."""
    from pydantic_ai import Agent, NativeOutput, ToolOutput
    for model in pydantic_models(DEMO):
        for output in [ToolOutput(Person)] + [NativeOutput(Person)] * (model.system == "openai"):
            agent = Agent(model, output_type=output, retries=0,
                          model_settings={"max_tokens": 300, "temperature": 0, "parallel_tool_calls": False})
            answer = agent.run_sync("Tom is 7 years old.").output
            assert isinstance(answer, Person), (model, output, answer)


# ---- instructor ----------------------------------------------------------------------------------

def test_instructor():
    import instructor
    from instructor import Mode
    for mode in (Mode.TOOLS, Mode.TOOLS_STRICT, Mode.JSON_SCHEMA, Mode.RESPONSES_TOOLS, Mode.JSON):
        wrapped = instructor.from_openai(openai_client(DEMO), mode=mode)
        kind = Anything if mode == Mode.JSON else Person  # its schema is in the prompt alone
        limit = {"max_output_tokens" if mode == Mode.RESPONSES_TOOLS else "max_tokens": 300}
        bias = {"logit_bias": closing()} if mode == Mode.JSON else {}
        ask = {"model": NAME, "messages": [{"role": "user", "content": "Tom is 7 years old."}], "max_retries": 0,
               "response_model": kind, "temperature": 0, **limit, **bias}
        assert isinstance(wrapped.chat.completions.create(**ask), kind), mode
        if mode != Mode.RESPONSES_TOOLS:
            parts = list(wrapped.chat.completions.create_partial(**ask))
            kind.model_validate(parts[-1].model_dump())


def test_instructor_anthropic():
    import instructor
    claude = anthropic.Anthropic(base_url=DEMO.url, api_key="none", max_retries=0)
    wrapped = instructor.from_anthropic(claude, mode=instructor.Mode.ANTHROPIC_TOOLS)
    answer = wrapped.messages.create(model=NAME, max_tokens=300, max_retries=0, response_model=Person,
                                     messages=[{"role": "user", "content": "Tom is 7 years old."}])
    assert isinstance(answer, Person), answer


# ---- outlines --------------------------------------------------------------------------------------

def test_outlines_sglang():
    """outlines with its backend for SGLang: `regex` and `ebnf` beside OpenAI's fields."""
    import outlines
    from outlines.types import CFG, Regex
    model = outlines.from_sglang(openai_client(DEMO), NAME)
    Person.model_validate_json(model("Tom is 7 years old.", Person, max_tokens=300))
    for kind, pattern in ((Regex(r"[a-c]{3}-\d{2}!"), r"[a-c]{3}-\d{2}!"), (Literal["yes", "no"], "yes|no"),
                          (CFG('root ::= "a" [bc]{3} "."'), r"a[bc]{3}\.")):
        assert re.fullmatch(pattern, model("Tom?", kind, max_tokens=100)), kind
        assert re.fullmatch(pattern, "".join(model.stream("Tom?", kind, max_tokens=100))), kind


# ---- llm -----------------------------------------------------------------------------------------

def run_llm(server, *args):
    """The result of the program `llm` with a model `mine`, which the server has."""
    with tempfile.TemporaryDirectory() as home:
        with open(os.path.join(home, "extra-openai-models.yaml"), "w", encoding="utf-8") as f:
            f.write(f"- model_id: mine\n  model_name: {NAME}\n  api_base: {server.url}/v1\n"
                    "  supports_tools: true\n  supports_schema: true\n")
        p = subprocess.run([sys.executable, "-m", "llm", "prompt", "-m", "mine", "--no-log", "--key", "none",
                            "-o", "max_tokens", "300", *args], capture_output=True, text=True, timeout=60, check=False,
                           env=dict(os.environ, LLM_USER_PATH=home))
    assert p.returncode == 0, p.stderr
    return p


def test_llm_tools():
    code = "import sys\ndef add(a: int, b: int) -> int:\n    print('ran', a, b, file=sys.stderr)\n    return a + b\n"
    for extra in ([], ["--no-stream"]):
        p = run_llm(LOOP, *extra, "--functions", code, QUESTION)
        assert p.stderr.strip() == "ran 2 3" and p.stdout.strip() == LOOP_TEXT, p
    assert run_llm(LOOP, "-T", "llm_version", "--td", QUESTION).stdout.strip() == LOOP_TEXT


def test_llm_schema():
    for extra in ([], ["--no-stream"]):
        p = run_llm(DEMO, *extra, "-o", "temperature", "0", "--schema", json.dumps(Person.model_json_schema()), "Who?")
        Person.model_validate_json(p.stdout)


# ---- openai-agents -------------------------------------------------------------------------------

def agents_models(server):
    from agents import OpenAIChatCompletionsModel, OpenAIResponsesModel
    return [kind(NAME, openai_client(server, openai.AsyncOpenAI))
            for kind in (OpenAIResponsesModel, OpenAIChatCompletionsModel)]


def test_openai_agents():
    from agents import Agent, Runner, function_tool

    async def both(model):
        agent = Agent(name="adder", instructions="Be brief.", model=model, tools=[function_tool(add)])
        ran_once((await Runner.run(agent, QUESTION)).final_output)
        result = Runner.run_streamed(agent, QUESTION)
        async for _ in result.stream_events():
            pass
        ran_once(result.final_output)
    for model in agents_models(LOOP):
        asyncio.run(both(model))


def test_openai_agents_output_type():
    from agents import Agent, ModelSettings, Runner
    for model in agents_models(DEMO):
        agent = Agent(name="reader", model=model, output_type=Person,
                      model_settings=ModelSettings(temperature=0, max_tokens=300))
        answer = Runner.run_sync(agent, "Tom is 7 years old.").final_output
        assert isinstance(answer, Person), answer


# ---- Node ----------------------------------------------------------------------------------------

def test_node():
    """LangChain, Vercel's AI SDK and openai-agents for Node: the cases of libraries.mjs."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libraries.mjs")
    env = dict(os.environ, HEARTH_NODE_MODULES=node_modules("node", "package_libraries.json"))
    p = subprocess.run(["node", script, DEMO.url, LOOP.url], timeout=240, check=False, env=env)
    assert p.returncode == 0, "see above"


if __name__ == "__main__":
    with Hearth("--parallel", "8") as DEMO, loop_model() as looping, Hearth("--model", looping.dir) as LOOP:
        run_cases(globals())
