#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The official Python clients against the demo model: openai, anthropic, langchain-openai, httpx.

Runs itself with the interpreter of $HEARTH_VENV, where tests/run.sh installed them; skipped without.
With --older it takes the older major of openai-python that is still released, from $HEARTH_VENV/openai-older.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

from hearth_server import ROOT, Hearth, enter_clients_venv, roomy_folder, run_cases
from scripted_model import LOOP_TEXT, loop_model

enter_clients_venv()
OLDER = "--older" in sys.argv
if OLDER:
    sys.argv.remove("--older")
    older = os.path.join(os.environ["HEARTH_VENV"], "openai-older")
    if not os.path.isdir(older):
        print("no older openai-python in the virtual environment")
        sys.exit(77)
    sys.path.insert(0, older)

try:
    import anthropic
    import httpx
    import openai
    from anthropic.types import Message, MessageTokensCount, ModelInfo, RawMessageStreamEvent
    from openai.types import Batch, CreateEmbeddingResponse, FileObject, Model
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    from openai.types.responses import Response, ResponseStreamEvent
    from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
except ImportError as e:
    print(e)
    sys.exit(77)

SERVER = LOOP = None  # the demo model; one that calls add(2, 3) and then answers LOOP_TEXT
QUESTION = [{"role": "user", "content": "What is 2+2?"}]


def client(**kw):
    return openai.OpenAI(base_url=SERVER.url + "/v1", api_key="none", max_retries=0, **kw)


def model():
    return client().models.list().data[0].id


def test_models():
    name = model()
    assert client().models.retrieve(name).id == name
    try:
        client().models.retrieve("org/none")
        raise AssertionError("an unknown model was found")
    except openai.NotFoundError as e:
        assert e.code == "model_not_found"


def test_completion():
    r = client().completions.create(model=model(), prompt="Once upon a time", max_tokens=16, temperature=0)
    s = client().completions.create(model=model(), prompt="Once upon a time", max_tokens=16, temperature=0,
                                    stream=True)
    assert "".join(c.choices[0].text for c in s) == r.choices[0].text
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens


def test_completion_n_stop_logprobs():
    r = client().completions.create(model=model(), prompt=["Hello", "Once upon"], n=2, max_tokens=12,
                                    stop=["."], logprobs=2, temperature=0.8, seed=4)
    assert [c.index for c in r.choices] == [0, 1, 2, 3]
    for c in r.choices:
        assert "." not in c.text and len(c.logprobs.tokens) == len(c.logprobs.token_logprobs)


def test_chat():
    r = client().chat.completions.create(model=model(), messages=QUESTION, temperature=0, logprobs=True,
                                         top_logprobs=2)
    assert "4" in r.choices[0].message.content and r.choices[0].finish_reason == "stop"
    assert b"".join(bytes(t.bytes) for t in r.choices[0].logprobs.content).decode() == \
        r.choices[0].message.content
    text, usage = "", None
    for chunk in client().chat.completions.create(model=model(), messages=QUESTION, temperature=0,
                                                  stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        text += chunk.choices[0].delta.content or "" if chunk.choices else ""
    assert text == r.choices[0].message.content and usage.completion_tokens == r.usage.completion_tokens


def test_prediction():
    """An edited answer is predicted; the text is the one without a prediction, and the counts say what it was worth."""
    ask = dict(model=model(), messages=QUESTION, temperature=0.8, seed=4, max_tokens=60, extra_body={"ignore_eos": True})
    plain = client().chat.completions.create(**ask)
    text = plain.choices[0].message.content
    parts = [{"type": "text", "text": text[:20]}, {"type": "text", "text": "X" + text[21:]}]
    for content in (text, parts):
        r = client().chat.completions.create(prediction={"type": "content", "content": content}, **ask)
        details = r.usage.completion_tokens_details
        assert r.choices[0].message.content == text and r.usage.completion_tokens == plain.usage.completion_tokens
        assert details.accepted_prediction_tokens > 20 > details.rejected_prediction_tokens, details
        assert details.rejected_prediction_tokens > 0 or content is text, details
        last = [*client().chat.completions.create(prediction={"type": "content", "content": content}, stream=True,
                                                  stream_options={"include_usage": True}, **ask)][-1]
        assert last.usage.completion_tokens_details == details
    assert plain.usage.completion_tokens_details is None


def test_chat_stream_helper():
    with client().chat.completions.stream(model=model(), messages=QUESTION, temperature=0) as s:
        for _ in s:
            pass
        final = s.get_final_completion()
    assert final.choices[0].message.role == "assistant" and "4" in final.choices[0].message.content


def test_n_choices_stream():
    seen = {}
    for chunk in client().chat.completions.create(model=model(), messages=QUESTION, n=2, stream=True,
                                                  temperature=0.7, seed=3):
        for c in chunk.choices:
            seen.setdefault(c.index, []).append(c)
    assert sorted(seen) == [0, 1]
    assert all(cs[-1].finish_reason for cs in seen.values())


def test_embeddings():
    r = client().embeddings.create(model=model(), input=["Hello", "friend"])
    assert len(r.data) == 2 and abs(sum(x * x for x in r.data[0].embedding) - 1) < 1e-3


def ended(c, batch):
    while batch.status in ("validating", "in_progress", "finalizing", "cancelling"):
        batch = c.batches.retrieve(batch.id)
    return batch


def chat_lines(n, **body):
    return "".join(json.dumps({"custom_id": f"l{i}", "method": "POST", "url": "/v1/chat/completions",
                               "body": {"messages": QUESTION, "max_tokens": 4, **body}}) + "\n" for i in range(n)).encode()


def test_files_and_batches():
    c, data = client(), chat_lines(3) + chat_lines(1, messages=5).replace(b'"l0"', b'"bad"')
    file = c.files.create(file=("in.jsonl", data), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600})
    assert isinstance(file, FileObject) and c.files.wait_for_processing(file.id, poll_interval=0.01).status == "processed"
    assert c.files.retrieve(file.id) == file and file.bytes == len(data) and c.files.content(file.id).read() == data
    order = {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    made = c.batches.create(**order, metadata={"run": "1"})
    assert isinstance(made, Batch) and made.status == "validating" and made.output_file_id is None, made
    done = ended(c, made)
    assert done.status == "completed" and done.metadata == {"run": "1"} and done.completed_at >= done.created_at, done
    assert (done.request_counts.total, done.request_counts.completed, done.request_counts.failed) == (4, 3, 1)
    rows = [json.loads(text) for text in c.files.content(done.output_file_id).text.splitlines()]
    assert [r["custom_id"] for r in rows] == ["l0", "l1", "l2"]
    answers = [ChatCompletion.model_validate(r["response"]["body"]) for r in rows]
    assert sum(a.usage.total_tokens for a in answers) == done.usage.total_tokens
    bad, = [json.loads(text) for text in c.files.content(done.error_file_id).text.splitlines()]
    assert bad["custom_id"] == "bad" and bad["response"]["status_code"] == 400 and bad["error"] is None, bad
    others = [ended(c, c.batches.create(**order)).id for _ in range(2)]
    assert [b.id for b in c.batches.list(limit=1)] == [*reversed(others), made.id]  # pages follow each other
    listed = [f.id for f in c.files.list(limit=1, order="asc")]
    assert listed[0] == file.id and len(listed) == 7 == len(set(listed)), listed
    assert c.files.delete(file.id).deleted
    for call, kind in ((lambda: c.files.retrieve(file.id), openai.NotFoundError), (lambda: c.batches.create(**order), openai.NotFoundError),
                       (lambda: c.batches.cancel(made.id), openai.BadRequestError), (lambda: c.batches.list(after="x").data, openai.BadRequestError)):
        try:
            call()
            raise AssertionError(kind)
        except kind as e:
            assert e.code, e
    wrong = ended(c, c.batches.create(**{**order, "input_file_id": c.files.create(file=b"no JSON\n", purpose="batch").id}))
    assert wrong.status == "failed" and wrong.errors.data[0].line == 1 and wrong.errors.data[0].code == "invalid_json_line", wrong


def test_cancel_of_a_batch():
    c = client()
    file = c.files.create(file=("in.jsonl", chat_lines(2000, max_tokens=300, ignore_eos=True)), purpose="batch")
    batch = c.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    try:
        c.files.delete(file.id)
        raise AssertionError("a file in use was deleted")
    except openai.ConflictError as e:
        assert e.code == "file_in_use"
    assert c.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    batch = ended(c, batch)
    assert batch.status == "cancelled" and batch.cancelled_at and batch.request_counts.total in (0, 2000), batch


def test_the_page_on_labels():
    """The commands for a running server, in a folder of their own."""
    with open(os.path.join(ROOT, "docs", "labels.md"), encoding="utf-8") as f:
        blocks = re.findall(r"^```(\w*)\n(.*?)^```", f.read(), re.M | re.S)
    requests, labels, serve, ask = [block for kind, block in blocks if not kind]
    assert serve.startswith("hearth serve --batch-dir "), serve
    script = requests + re.sub(r"^hearth .*\n", "", labels, flags=re.M).replace("python3 labels.py", "true") + ask
    script = script.replace("http://127.0.0.1:8080", SERVER.url).replace("sleep(1)", "sleep(0.01)").replace("python3", sys.executable)
    with tempfile.TemporaryDirectory() as d:
        subprocess.run(["bash", "-ec", script], cwd=d, check=True, timeout=120)
        with open(os.path.join(d, "labels.csv"), encoding="utf-8") as f:
            rows = f.read().splitlines()
        assert len(rows) == 5 and all(re.search(r",(positive|negative),[01]\.\d{3}$", row) for row in rows[1:]), rows


def test_responses():
    r = client().responses.create(model=model(), input="What is 2+2?", temperature=0)
    assert "4" in r.output_text and r.status == "completed"
    with client().responses.stream(model=model(), input="What is 2+2?", temperature=0) as s:
        for _ in s:
            pass
        assert s.get_final_response().output_text == r.output_text


def test_response_counts():
    n = client().responses.input_tokens.count(model=model(), input="What is 2+2?").input_tokens
    r = client().responses.create(model=model(), input="What is 2+2? " * 9, max_output_tokens=9,
                                  include=["reasoning.encrypted_content"])
    assert r.usage.input_tokens > n and r.usage.input_tokens_details.cache_write_tokens > 0


def test_truncation():
    """Each client sends the field and reads how many messages were dropped."""
    talk = [{"role": ("user", "assistant")[i % 2], "content": f"{i} " + "word " * 50} for i in range(200)]
    talk.append({"role": "user", "content": "What is 2+2?"})
    r = client().responses.create(model=model(), input=talk, truncation="auto", max_output_tokens=9)
    n = r.usage.dropped_input_items
    assert r.truncation == "auto" and 0 < n < 200, n
    auto = {"truncation": "auto"}
    assert client().chat.completions.create(model=model(), messages=talk, max_tokens=9, extra_body=auto).usage.dropped_input_items == n
    m = claude().messages.create(model=model(), messages=talk, max_tokens=9, extra_body=auto)
    assert m.usage.dropped_input_items == n
    from langchain_openai import ChatOpenAI
    chat = ChatOpenAI(base_url=SERVER.url + "/v1", api_key="none", model=model(), max_tokens=9, extra_body=auto)
    said = chat.invoke([(m["role"], m["content"]) for m in talk])
    assert said.response_metadata["token_usage"]["dropped_input_items"] == n, said.response_metadata


def test_answers_have_what_the_models_require():
    """The clients build objects without looking; their models, asked to, must find every required member."""
    def posted(path, body, headers=None):
        status, _, answer = SERVER.post(path, body, headers)
        assert status == 200, answer
        return answer

    def check(kind, value):
        try:
            TypeAdapter(kind).validate_python(value)
        except ValidationError as e:
            raise AssertionError(str(e)[:800]) from e

    def check_stream(kind, path, body, n_least):
        events = [json.loads(d) for _, d in SERVER.stream(path, dict(body, stream=True)) if d != "[DONE]"]
        assert len(events) >= n_least
        for event in events:
            check(kind, event)

    chat = {"messages": QUESTION, "max_tokens": 9, "logprobs": True, "top_logprobs": 2, "timings": True}
    check(ChatCompletion, posted("/v1/chat/completions", dict(chat, n=2)))
    options = {"include_usage": True, "continuous_usage_stats": True, "chunk_tokens": 1}
    check_stream(ChatCompletionChunk, "/v1/chat/completions", dict(chat, return_progress=True, stream_options=options), 9)
    check(CreateEmbeddingResponse, posted("/v1/embeddings", {"input": "a"}))
    check(Model, SERVER.get("/v1/models")[2]["data"][0])
    for limit in (1, 48):  # incomplete, completed
        ask = {"input": "What is 2+2?", "temperature": 0, "max_output_tokens": limit, "timings": True}
        check(Response, posted("/v1/responses", ask))
        check_stream(ResponseStreamEvent, "/v1/responses", dict(ask, return_progress=True), 8)
    talk = {"messages": QUESTION, "max_tokens": 48, "temperature": 0}
    check(Message, posted("/v1/messages", talk))
    check_stream(RawMessageStreamEvent, "/v1/messages", talk, 6)
    check(MessageTokensCount, posted("/v1/messages/count_tokens", talk))
    check(ModelInfo, SERVER.get("/v1/models", {"anthropic-version": "2023-06-01"})[2]["data"][0])


def claude(**kw):
    return anthropic.Anthropic(base_url=SERVER.url, api_key="none", max_retries=0, **kw)


def test_anthropic_messages():
    body = {"model": model(), "max_tokens": 48, "messages": QUESTION, "extra_body": {"temperature": 0}}
    m = claude().messages.create(**body)
    assert "4" in m.content[0].text and m.stop_reason == "end_turn" and m._request_id.startswith("req_")
    with claude().messages.stream(**body) as stream:
        assert "".join(stream.text_stream) == m.content[0].text
        assert stream.get_final_message().usage.output_tokens == m.usage.output_tokens
    n = claude().messages.count_tokens(model=model(), messages=QUESTION).input_tokens
    assert n == m.usage.input_tokens + m.usage.cache_read_input_tokens


def test_anthropic_models():
    assert [m.id for m in claude().models.list(limit=1)] == [model()]
    assert claude().models.retrieve(model()).created_at.year > 2000
    try:
        claude().models.retrieve("none")
        raise AssertionError("an unknown model was found")
    except anthropic.NotFoundError as e:
        assert e.request_id.startswith("req_") and e.body["request_id"] == e.request_id


def test_anthropic_errors():
    try:
        claude().messages.create(model=model(), max_tokens=9, messages=QUESTION,
                                 output_config={"format": {"type": "json_schema", "schema": {"type": "x"}}})
        raise AssertionError("accepted")
    except anthropic.BadRequestError as e:
        assert "/type" in str(e) and e.request_id == e.body["request_id"]


# ---- structured output --------------------------------------------------------------------------

PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8},
                                           "age": {"type": "integer", "minimum": 0, "maximum": 120}},
          "required": ["name", "age"], "additionalProperties": False}


class Person(BaseModel):
    model_config = ConfigDict(extra="forbid")  # else the demo model goes on with keys of its own
    name: str = Field(max_length=8)
    age: int = Field(ge=0, le=120)


def test_parse_of_chat_and_responses():
    chat = client().chat.completions.parse(model=model(), messages=QUESTION, response_format=Person, max_tokens=200)
    assert isinstance(chat.choices[0].message.parsed, Person), chat
    answer = client().responses.parse(model=model(), input="Who?", text_format=Person, max_output_tokens=200)
    assert isinstance(answer.output_parsed, Person), answer


def test_streamed_parse():
    with client().chat.completions.stream(model=model(), messages=QUESTION, response_format=Person,
                                          max_tokens=200) as stream:
        for _ in stream:
            pass
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Person)


def test_anthropic_output_config():
    message = claude().messages.create(model=model(), max_tokens=200, messages=QUESTION,
                                       output_config={"format": {"type": "json_schema", "schema": PERSON}})
    assert message.stop_reason == "end_turn"
    Person.model_validate_json(message.content[0].text)


def test_vllm_and_llama_server_spellings():
    """As their own clients send them: in the extra body of openai-python, for completions and chats."""
    numbers = [("guided_regex", "[0-9]{3}"), ("guided_grammar", "root ::= [0-9]{3}"), ("guided_choice", ["123", "456"]),
               ("guided_json", {"enum": [123, 456]}), ("grammar", "root ::= [0-9]{3}"), ("json_schema", {"enum": [123, 456]}),
               ("response_format", {"type": "json_object", "schema": PERSON}), ("guided_json", json.dumps(PERSON)),
               ("response_format", {"type": "json_schema", "schema": PERSON}), ("json_schema", PERSON)]
    numbers += [("structured_outputs", {kind: value}) for kind, value in (
        ("regex", "[0-9]{3}"), ("grammar", "root ::= [0-9]{3}"), ("choice", ["123", "456"]), ("json", PERSON))]
    for name, value in numbers:
        texts = [client().completions.create(model=model(), prompt="Who?", max_tokens=200, extra_body={name: value}).choices[0].text,
                 client().chat.completions.create(model=model(), messages=QUESTION, max_tokens=200,
                                                  extra_body={name: value}).choices[0].message.content]
        for text in texts:
            if "name" in json.dumps(value):
                Person.model_validate_json(text)
            else:
                assert text.isdigit() and len(text) == 3, (name, text)
    spaced = client().chat.completions.create(model=model(), messages=QUESTION, max_tokens=200, extra_body={
        "guided_json": PERSON, "guided_whitespace_pattern": " "}).choices[0].message.content
    assert spaced.startswith('{ "name" : "'), spaced


def test_langchain_structured_output():
    from langchain_openai import ChatOpenAI
    chat = ChatOpenAI(base_url=SERVER.url + "/v1", api_key="none", model=model(), temperature=0, max_tokens=200)
    for method in ("json_schema", "json_mode", "function_calling"):
        kind = None if method == "json_mode" else Person
        answer = chat.with_structured_output(kind, method=method).invoke("Who?")
        assert isinstance(answer, kind or dict), (method, answer)


# ---- tools ----------------------------------------------------------------------------------------

DIGITS = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9},
                                           "b": {"type": "integer", "minimum": 0, "maximum": 9}},
          "required": ["a", "b"], "additionalProperties": False}
ADD = {"type": "function", "function": {"name": "add", "description": "Add two digits.", "parameters": DIGITS,
                                        "strict": True}}


class Sum(BaseModel):
    a: int = Field(ge=0, le=9)
    b: int = Field(ge=0, le=9)


def test_loop_of_chat():
    """A required call, its result sent back, the final text; whole, by the stream helper, and parsed."""
    chat = client().chat.completions
    ask = {"model": model(), "messages": QUESTION, "tools": [ADD], "temperature": 0, "max_tokens": 300,
           "parallel_tool_calls": False}
    first = chat.create(**ask, tool_choice="required").choices[0]
    call, = first.message.tool_calls
    assert first.finish_reason == "tool_calls" and call.function.name == "add", first
    with chat.stream(**ask, tool_choice="required") as stream:
        kinds = {event.type for event in stream}
        again = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert again.function.arguments == call.function.arguments and "tool_calls.function.arguments.done" in kinds, kinds
    total = sum(Sum.model_validate_json(call.function.arguments).model_dump().values())
    talk = [*QUESTION, first.message, {"role": "tool", "tool_call_id": call.id, "content": str(total)}]
    final = chat.create(**dict(ask, messages=talk), tool_choice="none").choices[0]
    assert final.message.tool_calls is None and final.message.content, final
    tool = openai.pydantic_function_tool(Sum, name="add")
    parsed = chat.parse(**dict(ask, tools=[tool]), tool_choice="required").choices[0].message.tool_calls[0]
    assert isinstance(parsed.function.parsed_arguments, Sum), parsed


def test_loop_of_responses():
    ask = {"model": model(), "tools": [{"type": "function", **ADD["function"]}], "temperature": 0,
           "max_output_tokens": 300, "parallel_tool_calls": False}
    first = client().responses.create(**ask, input=QUESTION, tool_choice="required")
    call, = first.output
    assert call.type == "function_call" and first.status == "completed", first
    with client().responses.stream(**ask, input=QUESTION, tool_choice="required") as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output[0].arguments == call.arguments
    Sum.model_validate_json(call.arguments)
    talk = [*QUESTION, *[item.model_dump(exclude_none=True) for item in first.output],
            {"type": "function_call_output", "call_id": call.call_id, "output": "7"}]
    assert client().responses.create(**ask, input=talk, tool_choice="none").output_text


def test_loop_of_messages():
    tools = [{"name": "add", "description": "Add two digits.", "input_schema": DIGITS}]
    ask = {"model": model(), "max_tokens": 300, "tools": tools, "extra_body": {"temperature": 0}}
    only = {"type": "any", "disable_parallel_tool_use": True}
    first = claude().messages.create(**ask, messages=QUESTION, tool_choice=only)
    call, = first.content
    assert call.type == "tool_use" and first.stop_reason == "tool_use", first
    with claude().messages.stream(**ask, messages=QUESTION, tool_choice=only) as stream:
        assert stream.get_final_message().content[0].input == call.input
    Sum(**call.input)
    talk = [*QUESTION, {"role": "assistant", "content": first.content},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "7"}]}]
    assert claude().messages.create(**ask, messages=talk, tool_choice={"type": "none"}).stop_reason == "end_turn"


def test_anthropic_tool_runner():
    """The runner asks for a conversation kept by the server, is told that there is none, and sends all of it."""
    calls = []

    @anthropic.beta_tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        calls.append((a, b))
        return str(a + b)
    for extra in ({}, {"stream": True}, {"thread": False}):
        runner = anthropic.Anthropic(base_url=LOOP.url, api_key="none", max_retries=0).beta.messages.tool_runner(
            model="default", max_tokens=200, messages=QUESTION, tools=[add], **extra)
        final = runner.until_done()
        assert calls == [(2, 3)] and final.content[0].text == LOOP_TEXT, (extra, calls, final)
        calls.clear()


def test_huggingface_tools():
    from huggingface_hub import InferenceClient
    client = InferenceClient(base_url=LOOP.url + "/v1", api_key="none")
    ask = {"tools": [ADD], "max_tokens": 200}
    first = client.chat_completion(QUESTION, **ask).choices[0]
    call, = first.message.tool_calls
    assert first.finish_reason == "tool_calls" and call.function.name == "add", first
    assert json.loads(call.function.arguments) == {"a": 2, "b": 3}, call
    deltas = [c.choices[0].delta for c in client.chat_completion(QUESTION, **ask, stream=True)]
    joined = "".join(d.tool_calls[0].function.arguments for d in deltas if d.tool_calls)
    assert joined == call.function.arguments, deltas
    talk = [*QUESTION, first.message, {"role": "tool", "tool_call_id": call.id, "content": "5"}]
    assert client.chat_completion(talk, **ask).choices[0].message.content == LOOP_TEXT


def test_ollama():
    """Ollama's library and LangChain's: what they list, say, stream and call; their error."""
    import ollama
    c = ollama.Client(host=SERVER.url)
    name = c.list().models[0].model
    assert name == model() and c.ps().models[0].context_length == 2048
    assert c.show(name).capabilities == ["completion", "tools"] and c.pull(name).status == "success"
    ask = {"model": name, "messages": QUESTION, "options": {"temperature": 0, "num_predict": 12}}
    whole = c.chat(**ask)
    assert whole.message.content == "".join(p.message.content for p in c.chat(**ask, stream=True)) != ""
    assert c.generate(name, QUESTION[0]["content"], options=ask["options"]).response == whole.message.content
    assert c.generate(name).done_reason == "load" and whole.done_reason == "length" and whole.eval_count == 12
    try:
        c.chat("none", QUESTION)
        raise AssertionError("an unknown model was found")
    except ollama.ResponseError as e:
        assert e.status_code == 404 and "'none'" in e.error, e
    c, looping = ollama.Client(host=LOOP.url), LOOP.get("/v1/models")[2]["data"][0]["id"]
    for stream in (False, True):
        answer = c.chat(looping, QUESTION, tools=[ADD], stream=stream)
        messages = [p.message for p in answer] if stream else [answer.message]
        call, = [call for m in messages for call in m.tool_calls or []]
        assert call.function.name == "add" and call.function.arguments == {"a": 2, "b": 3}, messages
    talk = [*QUESTION, answer_of(messages), {"role": "tool", "tool_name": "add", "content": "5"}]
    assert c.chat(looping, talk, tools=[ADD]).message.content == LOOP_TEXT


def answer_of(messages):
    return next(m for m in messages if m.tool_calls)


def test_langchain_ollama():
    from langchain_ollama import ChatOllama
    m = ChatOllama(model=model(), base_url=SERVER.url, temperature=0, num_predict=12)
    whole = m.invoke("What is 2+2?")
    assert whole.content == "".join(p.content for p in m.stream("What is 2+2?")) != "" and whole.usage_metadata["output_tokens"] == 12
    schema = {"title": "answer", "type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    m = ChatOllama(model=model(), base_url=SERVER.url, temperature=0)
    assert type(m.with_structured_output(schema, method="json_schema").invoke("Is it?")["ok"]) is bool
    m = ChatOllama(model=LOOP.get("/v1/models")[2]["data"][0]["id"], base_url=LOOP.url).bind_tools([ADD])
    call, = m.invoke("What is 2+3?").tool_calls
    assert call["name"] == "add" and call["args"] == {"a": 2, "b": 3}, call


def test_huggingface_schema():
    """The schema is kept in every spelling that the client passes on, `value` among them."""
    from huggingface_hub import InferenceClient
    client = InferenceClient(base_url=SERVER.url + "/v1", api_key="none")
    schema = {"type": "object", "properties": {"name": {"enum": ["Tom", "Ann"]}, "age": {"enum": [7, 40]}},
              "required": ["name", "age"], "additionalProperties": False}
    ask = {"messages": QUESTION, "max_tokens": 300, "temperature": 0}
    for form in ({"type": "json_object", "value": schema}, {"type": "json", "value": schema},
                 {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}):
        whole = client.chat_completion(response_format=form, **ask).choices[0].message.content
        joined = "".join(c.choices[0].delta.content or "" for c in client.chat_completion(
            response_format=form, stream=True, **ask) if c.choices)
        for person in json.loads(whole), json.loads(joined):
            assert sorted(person) == ["age", "name"] and person["name"] in ("Tom", "Ann"), person
    text = client.chat_completion(response_format={"type": "regex", "value": "[ab]{4}x"}, **ask).choices[0].message.content
    assert re.fullmatch("[ab]{4}x", text), text


def test_langchain_tools():
    from langchain_openai import ChatOpenAI
    chat = ChatOpenAI(base_url=SERVER.url + "/v1", api_key="none", model=model(), temperature=0, max_tokens=300)
    bound = chat.bind_tools([ADD], tool_choice="add")
    call, = bound.invoke("What is 2+2?").tool_calls
    assert call["name"] == "add" and Sum(**call["args"]), call
    answer = None
    for chunk in bound.stream("What is 2+2?"):
        answer = chunk if answer is None else answer + chunk
    assert answer.tool_calls[0]["args"] == call["args"], answer


def test_errors():
    cases = [(dict(model="none", messages=QUESTION), openai.NotFoundError),
             (dict(model=model(), messages=[]), openai.BadRequestError),
             (dict(model=model(), messages=QUESTION, temperature=-1), openai.BadRequestError)]
    for kw, kind in cases:
        try:
            client().chat.completions.create(**kw)
            raise AssertionError("accepted")
        except kind as e:
            assert e.code and e.type == "invalid_request_error" and e.request_id


def test_abort_frees():
    stream = client().chat.completions.create(
        model=model(), messages=QUESTION, stream=True, max_tokens=500, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    SERVER.wait_until(lambda: SERVER.slots()["running"] == SERVER.slots()["pages"]["used"] == 0, 5, "all free after abort")


def test_httpx_raw():
    with httpx.Client(base_url=SERVER.url) as h:
        r = h.post("/v1/completions", json={"prompt": "Hello", "max_tokens": 2})
        assert r.status_code == 200 and r.headers["content-type"].startswith("application/json")
        assert r.headers["x-request-id"]
        with h.stream("POST", "/v1/completions", json={"prompt": "Hello", "max_tokens": 3, "stream": True,
                                                       "ignore_eos": True}) as s:
            lines = [l for l in s.iter_lines() if l.startswith("data: ")]
        assert lines[-1] == "data: [DONE]"


def test_langchain():
    try:
        from langchain_openai import ChatOpenAI, OpenAI
    except ImportError as e:
        print("langchain:", e)
        return
    chat = ChatOpenAI(base_url=SERVER.url + "/v1", api_key="none", model=model(), temperature=0)
    whole = chat.invoke("What is 2+2?").content
    assert "4" in whole
    assert "".join(c.content for c in chat.stream("What is 2+2?")) == whole
    llm = OpenAI(base_url=SERVER.url + "/v1", api_key="none", model=model(), temperature=0, max_tokens=8)
    assert isinstance(llm.invoke("Once upon a time"), str)


def test_version():
    assert int(openai.__version__.split(".")[0]) == (2 if OLDER else 3), openai.__file__


if __name__ == "__main__":
    with roomy_folder() as batches, Hearth("--parallel", "8", "--batch-dir", batches) as SERVER, loop_model() as looping, Hearth("--model", looping.dir) as LOOP:
        run_cases(globals())
