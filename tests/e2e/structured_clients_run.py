#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run by hand: libraries that bind answers to a schema, against the demo model.

    VENV/bin/python tests/e2e/structured_clients_run.py      # pip install -r tests/e2e/requirements_structured.txt

instructor, pydantic-ai, LiteLLM, llm and LangChain each get an object of the schema without repairing or asking again.
Ways of theirs that send tools are not tried here. test_clients.py and test_clients_node.py have the official clients.
"""
import json
import os
import subprocess
import sys
import tempfile

os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", NO_PROXY="127.0.0.1", PYDANTIC_AI_DISABLE_TELEMETRY="1")

import openai
from pydantic import BaseModel, ConfigDict, Field

from hearth_server import Hearth, run_cases

SERVER = None
NAME = "hearth-demo"
QUESTION = [{"role": "user", "content": "Tom is 7 years old."}]


class Person(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(max_length=8)
    age: int = Field(ge=0, le=120)


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


def client():
    return openai.OpenAI(base_url=SERVER.url + "/v1", api_key="none", max_retries=0)


def closing():
    """A logit_bias with which an object of any shape ends soon."""
    return {str(SERVER.post("/tokenize", {"content": t, "add_special": False})[2]["tokens"][0]): 4 for t in '"}'}


# ---- instructor ----------------------------------------------------------------------------------

def instruct(mode, kind, **options):
    import instructor
    wrapped = instructor.from_openai(client(), mode=mode)
    return wrapped.chat.completions.create(model=NAME, messages=QUESTION, response_model=kind, max_retries=0,
                                           max_tokens=300, temperature=0, **options)


def test_instructor_json_schema():
    import instructor
    assert isinstance(instruct(instructor.Mode.JSON_SCHEMA, Person), Person)


def test_instructor_json():
    """Any object: this way puts the schema into the prompt alone."""
    import instructor
    assert isinstance(instruct(instructor.Mode.JSON, Anything, logit_bias=closing()), Anything)


def test_instructor_streams_a_partial_object():
    import instructor
    wrapped = instructor.from_openai(client(), mode=instructor.Mode.JSON_SCHEMA)
    parts = list(wrapped.chat.completions.create_partial(
        model=NAME, messages=QUESTION, response_model=Person, max_retries=0, max_tokens=300, temperature=0))
    Person.model_validate(parts[-1].model_dump())


# ---- pydantic-ai ---------------------------------------------------------------------------------

def agent(output):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    model = OpenAIChatModel(NAME, provider=OpenAIProvider(base_url=SERVER.url + "/v1", api_key="none"))
    return Agent(model, output_type=output, retries=0, model_settings={"max_tokens": 300, "temperature": 0})


def test_pydantic_ai_native_output():
    from pydantic_ai import NativeOutput
    assert isinstance(agent(NativeOutput(Person)).run_sync("Tom is 7 years old.").output, Person)


# ---- LiteLLM -------------------------------------------------------------------------------------

def test_litellm():
    import litellm
    litellm.telemetry = False
    for kind in (Person, {"type": "json_schema", "json_schema": {"name": "person", "schema": Person.model_json_schema()}}):
        answer = litellm.completion(model="openai/" + NAME, api_base=SERVER.url + "/v1", api_key="none",
                                    messages=QUESTION, response_format=kind, max_tokens=300, temperature=0)
        Person.model_validate_json(answer.choices[0].message.content)


# ---- llm -----------------------------------------------------------------------------------------

def test_llm_schema():
    with tempfile.TemporaryDirectory() as home:
        with open(os.path.join(home, "extra-openai-models.yaml"), "w", encoding="utf-8") as f:
            f.write(f"- model_id: demo\n  model_name: {NAME}\n  api_base: {SERVER.url}/v1\n  supports_schema: true\n")
        for extra in ([], ["--no-stream"]):
            p = subprocess.run([sys.executable, "-m", "llm", "prompt", "-m", "demo", "--no-log", "--key", "none", *extra,
                                "-o", "max_tokens", "300", "-o", "temperature", "0",
                                "--schema", json.dumps(Person.model_json_schema()), "Tom is 7 years old."],
                               capture_output=True, text=True, timeout=60, check=False,
                               env=dict(os.environ, LLM_USER_PATH=home))
            assert p.returncode == 0, p.stderr
            Person.model_validate_json(p.stdout)


# ---- LangChain -----------------------------------------------------------------------------------

def chat(**options):
    from langchain_openai import ChatOpenAI
    return ChatOpenAI(base_url=SERVER.url + "/v1", api_key="none", model=NAME, temperature=0, max_tokens=300,
                      max_retries=0, **options)


def test_langchain_json_schema():
    for strict in (None, True):
        bound = chat().with_structured_output(Person, method="json_schema", strict=strict)
        assert isinstance(bound.invoke("Tom is 7 years old."), Person)
    raw = chat().with_structured_output(Person, method="json_schema", include_raw=True).invoke("Tom is 7 years old.")
    assert isinstance(raw["parsed"], Person) and raw["parsing_error"] is None, raw


def test_langchain_json_mode():
    bound = chat(logit_bias=closing()).with_structured_output(Anything, method="json_mode")
    assert isinstance(bound.invoke("Tom is 7 years old."), Anything)


if __name__ == "__main__":
    with Hearth() as SERVER:
        run_cases(globals())
