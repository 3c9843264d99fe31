#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How a chat template writes tool calls and reasoning: found, shown and overridden; template variables of the server;
earlier calls and results in the prompt."""
import json
import os
import tempfile

from hearth_server import Hearth, run, run_cases

TEMPLATES = os.path.join(os.environ.get("HEARTH_SOURCE_ROOT") or os.path.join(os.path.dirname(__file__), "..", ".."),
                         "tests", "golden", "tools", "templates")
USER = {"role": "user", "content": "Hi"}
CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"arguments": '{"city":"Oslo"}', "name": "weather"}}]}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "rain"}


def template(name):
    return ["--chat-template-file", os.path.join(TEMPLATES, name + ".jinja")]


def inspect(*args):
    status, out, err = run("inspect", "--json", *args)
    assert status == 0, err
    report = json.loads(out)
    return report["tool_format"], report["reasoning"]


def render(h, **body):
    status, _, answer = h.post("/apply-template", body)
    assert status == 200, answer
    return answer["prompt"]


def test_inspect():
    assert inspect() == ({"id": "list", "source": "fallback", "open": "<tool_call>", "close": "</tool_call>"}, None)
    assert inspect(*template("marked")) == (
        {"id": "hermes", "source": "detected", "open": "<call>", "close": "</call>"},
        {"open": "<reason>", "close": "</reason>", "forced": True})
    assert inspect(*template("bare")) == ({"id": "llama3", "source": "detected", "open": "", "close": ""}, None)
    assert inspect(*template("code"))[0]["id"] == "unknown"
    assert inspect(*template("code"), "--tool-format", "list")[0] == {
        "id": "list", "source": "option", "open": "<tool_call>", "close": "</tool_call>"}
    status, out, _ = run("inspect", *template("marked"))
    assert status == 0 and "tool calls: hermes (detected), behind <call> and before </call>" in out, out
    assert "reasoning: between <reason> and </reason>, begun by the prompt" in out, out


def test_options_refused():
    for args, says in ((["--tool-format", "yaml"], "qwen-xml"),
                       (["--chat-template-kwargs", "[1]"], "chat-template-kwargs is not a JSON object"),
                       (["--chat-template-kwargs", '{"a":1} 2'], "chat-template-kwargs is not a JSON object"),
                       (["--chat-template-kwargs", '{"tools":1}'], "must not name messages, tools")):
        status, _, err = run("serve", *args)
        assert status > 0 and says in err, (args, err)


def test_props():
    with Hearth(*template("dropped"), "--tool-format", "hermes") as h:
        props = h.get("/props")[2]
        assert props["tool_format"] == {"id": "hermes", "source": "option", "open": "<tool_call>",
                                        "close": "</tool_call>"}, props["tool_format"]
        assert props["reasoning"] == {"open": "<think>", "close": "</think>", "forced": False}, props["reasoning"]


def test_dropped_calls():
    """A template that drops calls: they reach the model in its own format, with and without tools."""
    with Hearth(*template("dropped")) as h:
        assert render(h, messages=[USER, CALL, RESULT, USER]) == (
            "<|turn|>system\n<|end|>\n<|turn|>user\nHi<|end|>\n"
            '<|turn|>assistant\n<tool_call>\n{"name": "weather", "arguments": {"city":"Oslo"}}\n</tool_call><|end|>\n'
            "<|turn|>user\n<tool_response>\nrain\n</tool_response>\nHi<|end|>\n<|turn|>assistant\n")


def test_template_writes_calls():
    with Hearth(*template("hermes")) as h:
        assert render(h, messages=[USER, CALL, RESULT]) == (
            "<|turn|>user\nHi<|end|>\n"
            '<|turn|>assistant\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call><|end|>\n'
            "<|turn|>tool\nrain<|end|>\n<|turn|>assistant\n")


def test_server_variables():
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
        f.write("{{ a }}|{{ b }}|{% for m in messages %}{{ m.content }}{% endfor %}")
        f.flush()
        with Hearth("--chat-template-file", f.name, "--chat-template-kwargs", '{"a": 1, "b": "two"}') as h:
            assert render(h, messages=[USER]) == "1|two|Hi"
            assert render(h, messages=[USER], chat_template_kwargs={"b": False}) == "1|False|Hi"


if __name__ == "__main__":
    run_cases(globals())
