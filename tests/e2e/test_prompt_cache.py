#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What coding agents' prompts need of the prefix cache: hints, lines that change with every request, usage numbers."""
import json

from hearth_server import Hearth, run_cases
from tiny_models import DemoCopy

SERVER = None
RULES = " ".join(f"Rule {i}: keep the answer of step {i} short and name the file that was changed." for i in range(20))


def ok(path, body, h=None, **headers):
    status, _, answer = (h or SERVER).post(path, body, headers=headers)
    assert status == 200, f"{status}: {answer}"
    return answer


# ---- prompt_cache_key ------------------------------------------------------------------------------------

def codex(session, text):
    """A turn as Codex sends it: the session's id is the key."""
    shell = {"type": "function", "name": "shell", "description": "Runs a command.", "strict": False,
             "parameters": {"type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}},
                            "required": ["command"], "additionalProperties": False}}
    return {"model": "default", "instructions": "You are a coding agent. " + RULES, "tools": [shell], "store": False,
            "tool_choice": "auto", "parallel_tool_calls": False, "max_output_tokens": 1, "prompt_cache_key": session,
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}]}


def test_sessions_with_different_keys_share():
    first, second = (codex(f"0199a213-81c0-7800-8aa1-bbab2a035a5{i}", text)
                     for i, text in enumerate(("Fix the bug in the parser.", "Which tests are slow?")))
    ok("/v1/responses", first)
    usage = ok("/v1/responses", second)["usage"]
    common = ok("/v1/responses/input_tokens", dict(second, input=""))["input_tokens"]
    assert common > 500 and usage["input_tokens_details"]["cached_tokens"] >= 0.95 * common, (common, usage)


def test_only_a_salt_separates():
    for path, rest in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "A salt. " + RULES}]}),
                       ("/v1/completions", {"prompt": "Another salt. " + RULES})):
        for extra, shared in (({}, False), ({"prompt_cache_key": "a"}, True), ({"prompt_cache_key": "b"}, True),
                              ({"cache_salt": "a"}, False), ({"cache_salt": "a", "prompt_cache_key": "a"}, True)):
            usage = ok(path, {"max_tokens": 1, **rest, **extra})["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            assert (cached > 0.8 * usage["prompt_tokens"]) == shared, (path, extra, usage)


def test_length_of_a_key():
    body = {"prompt": "a", "max_tokens": 1}
    ok("/v1/completions", dict(body, prompt_cache_key=64 * "\u00e9"))
    status, _, answer = SERVER.post("/v1/completions", dict(body, prompt_cache_key=65 * "k"))
    assert status == 400 and answer["error"]["param"] == "prompt_cache_key", answer
    assert "65" in answer["error"]["message"] and "64" in answer["error"]["message"], answer


# ---- usage -----------------------------------------------------------------------------------------------

def usage_of(path, body, stream):
    """The usage of an answer, or what the events of its stream say together."""
    if not stream:
        return ok(path, body)["usage"]
    usage, more = {}, {"stream_options": {"include_usage": True}} if path.endswith("completions") else {}
    for _, data in SERVER.stream(path, {**body, **more, "stream": True}):
        event = {} if data == "[DONE]" else json.loads(data)
        for holder in (event, event.get("message", {}), event.get("response", {})):
            usage.update(holder.get("usage") or {})
    return usage


def numbers(usage):
    """(prompt, cached, written) of any dialect; written is None where the dialect has no such number."""
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    if details:
        prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
        assert set(details) == {"cached_tokens", "cache_write_tokens"}, usage
        return prompt, details["cached_tokens"], details["cache_write_tokens"]
    parts = [usage[k] for k in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")]
    return sum(parts), parts[1], None


def test_usage_adds_up():
    """The same conversations in every dialect, whole and streamed: equal prompts, and what one request adds the next finds."""
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/completions"):
        for stream in (False, True):
            for n, seen in ((1, False), (20, False), (90, False), (90, True)):
                text = f"{path} {stream}: " + " ".join(f"word {i}" for i in range(n))
                body = {"cache_salt": "usage", "max_tokens": 2, "messages": [{"role": "user", "content": text}]}
                count = "/v1/messages/count_tokens" if "messages" in path else path + "/input_tokens"
                if path == "/v1/responses":
                    body = {"cache_salt": "usage", "max_output_tokens": 2, "input": text}
                if path == "/v1/completions":
                    body = {"cache_salt": "usage", "max_tokens": 2, "prompt": text}
                usage = usage_of(path, body, stream)
                prompt, cached, written = numbers(usage)
                if path != "/v1/completions":
                    assert prompt == ok(count, body)["input_tokens"], (path, stream, n, usage)
                if written is not None:
                    assert cached + written == prompt // 32 * 32 or seen, (path, stream, n, usage)
                assert not seen or (prompt > 200 and cached == (prompt - 1) // 32 * 32 and not written), (path, stream, usage)
                apart = numbers(usage_of(path, {**body, "cache_prompt": False}, stream))
                assert apart == (prompt, 0, None if written is None else 0), (path, stream, n, apart)


# ---- metadata lines --------------------------------------------------------------------------------------

PREFIX = "x-anthropic-billing-header"
LINES = [f"{PREFIX}: cc_version=2.1.{104 + i}.{i:03x}; cc_entrypoint=cli;" + (f" cch={7919 * i:05x};" if i % 5 else "")
         for i in range(12)]


def claude_code(turn, history, text, in_one_block=False):
    """A turn as Claude Code sends it: its line first, breakpoints behind system prompt and last message."""
    kept = {"cache_control": {"type": "ephemeral"}}
    tools = [{"name": name, "description": f"{name} a file of the project.", "input_schema": {
        "type": "object", "properties": {"file_path": {"type": "string"}}, "required": ["file_path"],
        "additionalProperties": False, "$schema": "http://json-schema.org/draft-07/schema#"}} for name in ("Read", "Edit")]
    rules = {"type": "text", "text": "You help with a project. " + RULES, **kept}
    if in_one_block:
        system = [dict(rules, text=LINES[turn] + "\n" + rules["text"])]
    else:
        system = [{"type": "text", "text": LINES[turn]}, rules]
    question = {"role": "user", "content": [{"type": "text", "text": text, **kept}]}
    return {"model": "default", "max_tokens": 24, "temperature": 0, "stream": True, "tools": tools, "system": system,
            "messages": history + [question], "metadata": {"user_id": "user_1"}}


def stream_message(body, h=None):
    """(content blocks, usage) of a streamed message."""
    blocks, usage = [], {}
    for _, data in (h or SERVER).stream("/v1/messages?beta=true", body):
        event = json.loads(data)
        usage.update(event.get("usage") or event.get("message", {}).get("usage") or {})
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta" and "text" in event["delta"]:
            blocks[-1]["text"] += event["delta"]["text"]
    return blocks, usage


def claude_code_session(in_one_block, h=None):
    """[(prompt tokens that are new, prompt tokens computed)] of each turn behind the first, and the first's prompt."""
    history, rows, before, first = [], [], 0, 0
    for turn in range(12):
        text = f"Step {turn}: rename a variable in file {'abc'[turn % 3]}.c"
        blocks, usage = stream_message(claude_code(turn, history, text, in_one_block), h)
        prompt = sum(usage[k] for k in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"))
        rows.append((prompt - before, prompt - usage["cache_read_input_tokens"]))
        first = first or prompt
        before = prompt + usage["output_tokens"]
        history += [{"role": "user", "content": [{"type": "text", "text": text}]}, {"role": "assistant", "content": blocks}]
    return rows[1:], first


def test_claude_code_session():
    """From the second turn on at most 64 tokens more than the new ones are computed, though the first line changes."""
    for in_one_block in (False, True):
        rows, _ = claude_code_session(in_one_block)
        assert all(computed <= new + 64 for new, computed in rows), rows
    with Hearth("--keep-metadata-lines", "on") as h:
        rows, first = claude_code_session(False, h)
        assert all(computed > 0.95 * first for _, computed in rows), (first, rows)


def prompts(system, h=None):
    """What is rendered in three dialects for a system prompt, {"role": "user", "content": "a"} behind it."""
    user = {"role": "user", "content": "a"}
    ids = [ok("/v1/messages", {"messages": [user], "system": system, "max_tokens": 1}, h)["usage"],
           ok("/v1/messages/count_tokens", {"messages": [user], "system": system}, h)]
    counts = [u["input_tokens"] + u.get("cache_read_input_tokens", 0) for u in ids]
    chat = {"messages": [{"role": "system", "content": system}, user]}
    rendered = ok("/apply-template", chat, h)["prompt"]
    counts.append(ok("/v1/chat/completions/input_tokens", chat, h)["input_tokens"])
    counts.append(ok("/tokenize", chat, h)["count"])
    items = [{"role": "developer", "content": system}, user]
    if isinstance(system, list):
        items[0]["content"] = [dict(part, type="input_text") for part in system]
    counts.append(ok("/v1/responses/input_tokens", {"input": items}, h)["input_tokens"])
    if isinstance(system, str):
        counts.append(ok("/v1/responses/input_tokens", {"input": "a", "instructions": system}, h)["input_tokens"])
    assert len(set(counts)) == 1, (system, counts)
    return rendered, counts[0]


def block(text):
    return {"type": "text", "text": text}


def test_lines_that_are_taken_off():
    line = LINES[1]
    for system, same in ((line + "\nBe brief.", "Be brief."), (line + "\r\n\r\n \t\n  Be brief.", "  Be brief."),
                         (f"{line}\nx-anthropic-a1-b: 2\n{line}\nBe brief.\n{line}", f"Be brief.\n{line}"),
                         ([block(line), block("Be brief.")], [block("Be brief.")]),
                         ([block(line + "\n\n"), block("Be brief.")], [block("Be brief.")]),
                         ([block(line + "\nBe brief."), block("No.")], [block("Be brief."), block("No.")]),
                         (f"{PREFIX}: a\x00b\nBe brief.", "Be brief."),
                         (f"{PREFIX}: {1000000 * 'c'}\nBe brief.", "Be brief."),
                         (f"{PREFIX}: {1000000 * 'c'}", None), (line, None), (line + "\n \n", None), ([block(line)], None)):
        got = prompts(system)
        if same is not None:
            assert got == prompts(same), (str(system)[:200], got)
        else:
            alone = ok("/apply-template", {"messages": [{"role": "user", "content": "a"}]})["prompt"]
            assert got[0] == alone, (str(system)[:200], got)


def test_lines_that_stay():
    line = LINES[1]
    for system in ("Be brief.\n" + line, " " + line, "\n" + line, line.upper(), line.title(), PREFIX, PREFIX + " : a",
                   "x-anthropic-: a", "x-anthropic-caf\u00e9: a", "y" + line, "x-openai-header: a"):
        assert system.strip() in prompts(system)[0], system
    assert line in prompts([block("Be brief."), block(line)])[0]
    assert prompts([block(line), block(line)])[0].count(line) == 1
    for message in ({"role": "user", "content": line}, {"role": "user", "content": [block(line)]}):
        assert line in ok("/apply-template", {"messages": [message]})["prompt"]
    later = [{"role": "user", "content": "a"}, {"role": "system", "content": line + "\nBe brief."}]
    assert line in ok("/apply-template", {"messages": later})["prompt"]
    only = ok("/apply-template", {"messages": [{"role": "system", "content": line}]})["prompt"]
    assert only == ok("/apply-template", {"messages": [{"role": "system", "content": ""}]})["prompt"]


def test_lines_are_shown():
    line, user = LINES[1], {"role": "user", "content": "a"}
    before = SERVER.metrics()["hearth_metadata_lines_total"]
    for path, body, place in (
            ("/v1/messages", {"messages": [user], "system": [block(line)], "max_tokens": 1}, "system.0"),
            ("/v1/messages/count_tokens", {"messages": [user], "system": line}, "system"),
            ("/v1/messages", {"messages": [{"role": "system", "content": line}, user], "max_tokens": 1}, "messages.0"),
            ("/v1/chat/completions", {"messages": [{"role": "system", "content": line}, user], "max_tokens": 1}, "messages[0]"),
            ("/v1/responses", {"instructions": line, "input": "a", "max_output_tokens": 1}, "instructions"),
            ("/v1/responses", {"input": [{"role": "developer", "content": line}, user], "max_output_tokens": 1}, "input[0]")):
        for extra, names in (({}, []), ({"surprise": 1}, ["surprise"])):
            status, head, answer = SERVER.post(path, {**body, **extra})
            assert status == 200 and head["x-ignored-params"] == ",".join(names + [f"{place}:{PREFIX}"]), (path, head, answer)
            if "instructions" in body:
                assert answer["instructions"] == line, answer
    status, head, _ = SERVER.post("/v1/messages", {"messages": [user], "system": f"x-anthropic-{100 * 'a'}: b", "max_tokens": 1})
    assert status == 200 and head["x-ignored-params"] == "...+1", head
    assert SERVER.metrics()["hearth_metadata_lines_total"] == before + 13
    with Hearth("--keep-metadata-lines", "on", "--strict-params") as h:
        status, head, _ = h.post("/v1/messages", {"messages": [user], "system": line, "max_tokens": 1})
        assert status == 200 and "x-ignored-params" not in head, head
        assert line in prompts(line, h)[0]


def test_template_that_refuses_an_empty_system_prompt():
    with DemoCopy() as m:
        m.template("{% for m in messages %}{% if m.role == 'system' and not m.content %}{{ raise_exception('empty') }}{% endif %}"
                   "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}")
        with Hearth("--model", m.dir) as h:
            assert "system" not in prompts(LINES[1], h)[0]
            assert h.post("/apply-template", {"messages": [{"role": "system", "content": ""}]})[0] == 400


# ---- places ----------------------------------------------------------------------------------------------

def test_cache_fields_are_not_rendered():
    """A template that prints messages as they are shows no field that clients move from turn to turn."""
    kept = {"cache_control": {"type": "ephemeral"}}
    with DemoCopy() as m:
        m.template("{% for m in messages %}{{ m | tojson }}{{ m.content | string }}{% endfor %}")
        with Hearth("--model", m.dir) as h:
            plain, marked = ([{"role": "system", "content": [block("S")]},
                              {"role": "user", "content": [block("a"), {**block("b"), **more}], **more}]
                             for more in ({}, {**kept, "prompt_cache_breakpoint": {"mode": "explicit"}}))
            assert ok("/apply-template", {"messages": marked}, h) == ok("/apply-template", {"messages": plain}, h)
            marked[1].pop("prompt_cache_breakpoint")
            counts = [ok("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": [{**block("b"), **more}]}],
                                                       "system": [{**block("S"), **more}]}, h) for more in ({}, kept)]
            assert counts[0] == counts[1], counts


def test_system_messages_between_the_turns():
    """With a template that refuses them there, what came before them is found in the cache all the same."""
    with DemoCopy() as m:
        m.template("{% for m in messages %}{% if m.role == 'system' and loop.index0 %}{{ raise_exception('first only') }}"
                   "{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}")
        with Hearth("--model", m.dir) as h:
            talk = [{"role": "user", "content": RULES}, {"role": "assistant", "content": "Yes."}]
            later = [*talk, {"role": "system", "content": "Be kind."}, {"role": "user", "content": "Go on."}]
            ok("/v1/messages", {"messages": [*talk, {"role": "user", "content": "Go on."}], "max_tokens": 1}, h)
            usage = ok("/v1/messages", {"messages": later, "max_tokens": 1}, h)["usage"]
            assert usage["cache_read_input_tokens"] > 400 and usage["input_tokens"] < 96, usage
            prompt = ok("/apply-template", {"messages": later}, h)["prompt"]
            assert prompt.endswith("user\n<system-reminder>\nBe kind.\n</system-reminder>\nGo on.<|im_end|>\n"), prompt


if __name__ == "__main__":
    with Hearth() as SERVER:
        run_cases(globals())
