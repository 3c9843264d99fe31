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


def chat_template(name):
    return ["--chat-template-file", os.path.join(TEMPLATES, "..", "..", "chat", "templates", name + ".jinja")]


def test_instructions():
    """What Codex sends, developer, developer, user, user: each text is in the prompt, in every dialect and when counted."""
    roles = ["developer", "developer", "user", "user"]
    messages = [{"role": role, "content": f"{role}-{i}"} for i, role in enumerate(roles)]
    for name, front in (("turns", "[INST] <<SYS>>\n{}\n\n{}\n<</SYS>>\n\n{}\n\n{} [/INST]"),
                        ("nosystem", "<turn>user\n{}\n\n{}\n\n{}\n\n{}</turn>\n"),
                        ("chatml", "<|im_start|>system\n{}<|im_end|>\n<|im_start|>system\n{}<|im_end|>\n"
                                   "<|im_start|>user\n{}<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n")):
        wanted = front.format(*(m["content"] for m in messages))
        with Hearth(*chat_template(name)) as h:
            assert wanted in render(h, messages=messages), render(h, messages=messages)
            n = len(h.post("/tokenize", {"messages": messages})[2]["tokens"])
            chat = {"messages": messages, "max_tokens": 1}
            assert h.post("/v1/chat/completions", chat)[2]["usage"]["prompt_tokens"] == n
            both = {"instructions": "developer-0", "input": messages[1:]}
            assert h.post("/v1/responses/input_tokens", both)[2]["input_tokens"] == n
            for body in (both, {"input": messages}):
                answer = h.post("/v1/responses", {**body, "max_output_tokens": 1})[2]
                assert answer["usage"]["input_tokens"] == n, answer
            anthropic = {"system": "developer-0", "max_tokens": 1,
                         "messages": [{"role": "system", "content": "developer-1"}, *messages[2:]]}
            assert h.post("/v1/messages/count_tokens", anthropic)[2]["input_tokens"] == n
            usage = h.post("/v1/messages", anthropic)[2]["usage"]
            assert usage["input_tokens"] + usage["cache_read_input_tokens"] == n, usage


def test_instructions_in_the_cache():
    """What joined instructions share with those of another request, and that the report names the client's own messages."""
    def long(name):
        return name + "".join(f" {name}{i}" for i in range(60))

    with Hearth(*chat_template("nosystem")) as h:
        def ask(*texts):
            messages = [{"role": role, "content": long(text)} for role, text in zip(["developer", "developer", "user"], texts)]
            status, _, answer = h.post("/v1/chat/completions", {
                "messages": messages, "max_tokens": 1, "return_cache_report": True})
            assert status == 200, answer
            return answer["usage"]["cache_report"]
        ask("first", "second", "third")
        for texts, place in ((["first", "second", "other"], 2), (["first", "other", "third"], 1), (["other", "second", "third"], 0)):
            report = ask(*texts)
            assert report["diverges"] == {"part": f"messages[{place}].content", "byte": 0}, report
            assert place * 150 < report["matched_tokens"] < report["prompt_tokens"] or not place, report


def test_server_variables():
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
        f.write("{{ a }}|{{ b }}|{% for m in messages %}{{ m.content }}{% endfor %}")
        f.flush()
        with Hearth("--chat-template-file", f.name, "--chat-template-kwargs", '{"a": 1, "b": "two"}') as h:
            assert render(h, messages=[USER]) == "1|two|Hi"
            assert render(h, messages=[USER], chat_template_kwargs={"b": False}) == "1|False|Hi"


if __name__ == "__main__":
    run_cases(globals())
