#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What coding agents' prompts need of the prefix cache: hints, lines that change with every request, usage numbers."""
import json
import tempfile

from hearth_server import Hearth, run_cases
from tiny_models import DemoCopy, hybrid_model

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


# ---- breakpoints -----------------------------------------------------------------------------------------

def kept(text, **more):
    return {**block(text), "cache_control": {"type": "ephemeral", **more}}


def test_tokens_up_to_breakpoints():
    """Computed tokens up to the last breakpoint are created, in whole answers and streams, and everything adds up."""
    user = {"role": "user", "content": "Which step is next?"}
    tool = {"name": "f", "description": RULES[:200], "input_schema": {"type": "object"}}

    def ask(salt, stream=False, **body):
        body = {"messages": [user], "max_tokens": 1, "cache_salt": salt, **body}
        total = ok("/v1/messages/count_tokens", body)["input_tokens"]
        usage = usage_of("/v1/messages", body, stream)
        read, made = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
        of = usage["cache_creation"]
        assert usage["input_tokens"] + read + made == total, (usage, total)
        assert of["ephemeral_5m_input_tokens"] + of["ephemeral_1h_input_tokens"] == made, usage
        return total, read, made, of["ephemeral_1h_input_tokens"]

    alone = ok("/v1/messages/count_tokens", {"messages": [user]})["input_tokens"]
    for stream in (False, True):
        salt = f"marks {stream} "
        system = [kept("First. " + RULES, ttl="1h"), kept("Second. " + RULES[:300]), block("Third.")]
        total, read, made, hour = ask(salt + "1", stream, system=system)
        front = ok("/v1/messages/count_tokens", {"messages": [user], "system": system[:2]})["input_tokens"] - alone
        first = ok("/v1/messages/count_tokens", {"messages": [user], "system": system[:1]})["input_tokens"] - alone
        assert read == 0 and abs(made - front) <= 8 and abs(hour - first) <= 8, (total, made, front, hour, first)
        assert ask(salt + "1", stream, system=system)[2] < 32  # whole pages are found again
        system[1] = kept("Other. " + RULES[:300])
        total, read, made, hour = ask(salt + "1", stream, system=system)
        assert read > 0 and hour <= 32 and abs(read + made - front) <= 8, (total, read, made, hour)
        assert ask(salt + "2", stream, system=RULES)[2:] == (0, 0)
        total, read, made, _ = ask(salt + "3", stream, system=RULES, cache_control={"type": "ephemeral"})
        assert read == 0 and 0 <= total - made <= 12, (total, made)
        total, _, made, _ = ask(salt + "4", stream, system="S", tools=[{**tool, "cache_control": {"type": "ephemeral"}}])
        assert total // 2 < made < total, (total, made)
        assert ask(salt + "5", stream, system=system, cache_prompt=False)[1:] == (0, 0, 0)
        long = {**user, "content": [kept(""), kept("Go on. " + RULES)]}
        total, _, made, _ = ask(salt + "6", stream, messages=[long])
        assert 0 <= total - made <= 12, (total, made)


def test_pages_are_kept():
    """Prompts up to a breakpoint outlive a flood of others that takes all pages several times; others do not."""
    with Hearth("--model", "demo", "--parallel", "1", "--ctx-size", "1024", "--kv-memory", "6M") as h:
        n_pages = h.get("/props")[2]["n_pages"]
        marked = {"messages": [{"role": "user", "content": [kept("Kept. " + RULES[:800])]}], "max_tokens": 1}
        plain = {"messages": [{"role": "user", "content": "Plain. " + RULES[:800]}], "max_tokens": 1}
        wish = {**plain, "cache_salt": "wish", "prompt_cache_options": {"ttl": "30m"}}
        paths = {"/v1/messages": marked, "/v1/chat/completions": plain}
        for path, body in paths.items():
            ok(path, body, h)
        ok("/v1/chat/completions", wish, h)
        n_kept = h.settled_metrics()["hearth_prefix_kept_pages"]
        assert 0 < n_kept <= n_pages / 2, (n_kept, n_pages)
        for i in range(3 * n_pages // 12):
            ok("/v1/completions", {"prompt": [300 + i] * 400, "max_tokens": 1}, h)
        assert h.settled_metrics()["hearth_prefix_kept_pages"] == n_kept
        usage = ok("/v1/messages", marked, h)["usage"]
        assert usage["cache_read_input_tokens"] > 200, usage
        for body, cached in ((plain, False), (wish, True)):
            usage = ok("/v1/chat/completions", body, h)["usage"]
            assert (usage["prompt_tokens_details"]["cached_tokens"] > 200) == cached, usage


def test_cache_options():
    body = {"messages": [{"role": "user", "content": RULES}], "max_tokens": 1, "cache_salt": "options"}
    for field, good, bad in (("prompt_cache_retention", ["in_memory", "in-memory", "24h", None], ["1h", 5]),
                             ("prompt_cache_options", [{"mode": "implicit", "ttl": "30m"}, {}, None],
                              ["x", {"mode": "none"}, {"ttl": "1h"}, {"ttl": 30}])):
        for value in good:
            status, head, answer = SERVER.post("/v1/chat/completions", {**body, field: value})
            assert status == 200 and "x-ignored-params" not in head, (field, value, answer)
        for value in bad:
            status, _, answer = SERVER.post("/v1/chat/completions", {**body, field: value})
            assert status == 400 and answer["error"]["param"].startswith(field), (field, value, answer)
    explicit = {**body, "cache_salt": "explicit", "prompt_cache_options": {"mode": "explicit"}}
    assert [numbers(ok("/v1/chat/completions", explicit)["usage"])[1:] for _ in range(2)] == [(0, 0)] * 2
    explicit["messages"] = [{"role": "user", "content": [{**block(RULES), "prompt_cache_breakpoint": {"mode": "explicit"}}]}]
    assert numbers(ok("/v1/chat/completions", explicit)["usage"])[2] > 0
    answer = ok("/v1/responses", {"input": "a", "max_output_tokens": 1, "prompt_cache_retention": "24h"})
    assert answer["prompt_cache_retention"] == "24h", answer


# ---- where it missed -------------------------------------------------------------------------------------

def report(path, body, h=None, **headers):
    field = {} if headers else {"return_cache_report": True}
    return ok(path, {**body, **field}, h, **headers)["usage"]["cache_report"]


def test_cache_report():
    """The text that is new, by the client's own path and near the byte, in every dialect."""
    one, two = RULES[:700] + "ONE" + RULES[700:], RULES[:700] + "two" + RULES[700:]
    user, tool = {"role": "user", "content": "a"}, {"name": "f", "input_schema": {"type": "object"}}
    chat_tool = {"type": "function", "function": {"name": "f"}}
    cases = [
        ("/v1/completions", lambda t: {"prompt": t}, "prompt", 700),
        ("/v1/chat/completions", lambda t: {"messages": [{"role": "system", "content": t}, user]}, "messages[0].content", 700),
        ("/v1/chat/completions", lambda t: {"messages": [user, {"role": "assistant", "content": "b"}, {
            "role": "user", "content": [block("Hello there."), block(t)]}]}, "messages[2].content[1]", 700),
        ("/v1/chat/completions", lambda t: {"messages": [{"role": "system", "content": "Be brief."}, user], "tools": [
            {**chat_tool, "function": {**chat_tool["function"], "description": t}}]}, "tools", None),
        ("/v1/messages", lambda t: {"system": [block("You help with a project."), block(t)], "messages": [user]}, "system[1]", 700),
        ("/v1/messages", lambda t: {"system": f"{LINES[1]}\n{t}", "messages": [user]}, "system", 700),
        ("/v1/messages", lambda t: {"messages": [user, {"role": "assistant", "content": [
            {"type": "tool_use", "id": "t1", "name": "f", "input": {}}]}, {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": t}]}], "tools": [tool]}, "messages[2].content[0].content", 700),
        ("/v1/messages", lambda t: {"system": "Be brief.", "messages": [user], "tools": [{**tool, "description": t}]}, "tools", None),
        ("/v1/responses", lambda t: {"instructions": t, "input": "a"}, "instructions", 700),
        ("/v1/responses", lambda t: {"input": [{"role": "user", "content": [{"type": "input_text", "text": t}]}]},
         "input[0].content[0]", 700)]
    for i, (path, make, part, byte) in enumerate(cases):
        extra = {"cache_salt": f"report {i}", "max_output_tokens" if path == "/v1/responses" else "max_tokens": 1}
        assert report(path, {**make(one), **extra})["reason"] is None, path
        again = report(path, {**make(one), **extra})
        assert again["reason"] is None and again["diverges"] is None and again["matched_tokens"] > 200, again
        found = report(path, {**make(two), **extra})
        assert found["reason"] == "content" and found["diverges"]["part"] == part, (path, found)
        # a template trims, and joins what stands in front of a text without its line
        assert byte is None or byte - 16 < found["diverges"]["byte"] - (len(LINES[1]) + 1 if part == "system" else 0) <= byte, found
        assert found["matched_tokens"] % 32 == 0 and found["matched_tokens"] < found["prompt_tokens"], found


def test_reasons_of_a_miss():
    def misses(h):
        return {k.split('"')[1]: v for k, v in h.metrics().items() if k.startswith("hearth_prefix_miss_total")}
    with Hearth("--kv-memory", "8M") as h:
        body = {"prompt": RULES, "max_tokens": 1}
        assert report("/v1/completions", body, h)["reason"] is None
        assert report("/v1/completions", {"prompt": "a", "max_tokens": 1}, h)["reason"] == "too_short"
        assert report("/v1/completions", {**body, "cache_prompt": False}, h)["reason"] == "scope"
        # another key's or salt's prompts are not told of
        assert report("/v1/completions", {**body, "cache_salt": "x"}, h)["reason"] is None
        for i in range(14):
            ok("/v1/completions", {"prompt": f"{i} {RULES}", "max_tokens": 1}, h)
        gone = report("/v1/completions", body, h)
        assert gone["reason"] == "evicted" and gone["diverges"] == {"part": "prompt", "byte": 0}, gone
        counted = misses(h)
        assert counted["evicted"] == 1 and counted["too_short"] == 1 and counted["scope"] == 1, counted
        tokens = h.metrics()
        assert tokens['hearth_prefix_tokens_total{source="computed"}'] == tokens["hearth_computed_prompt_tokens_total"]
        usage = ok("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}, h)["usage"]
        assert "cache_report" not in usage, usage
        report("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}, h,
               **{"anthropic-beta": "other-1,cache-diagnosis-2026-04-07"})


# ---- recurrent layers --------------------------------------------------------------------------------------

def test_ends_of_messages_with_recurrent_layers():
    """A model with states goes on from the end of what two prompts share: instructions, or all before an edited turn."""
    question = [{"role": "user", "content": "What does the old fox say to the little duck? " * 5}]
    other = [{"role": "user", "content": "Tell me a story of the moon and of the stars. " * 5}]
    system, said = {"role": "system", "content": RULES[:400]}, {"role": "assistant", "content": "It says hello. " * 20}

    def computed(h, messages):
        """Prompt tokens that are computed, and the answer."""
        answer = ok("/v1/chat/completions", {"messages": messages, "max_tokens": 4, "temperature": 0}, h)
        usage = answer["usage"]
        return usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"], answer["choices"][0]["message"]

    def n_tokens(h, messages):
        prompt = ok("/apply-template", {"messages": messages, "add_generation_prompt": False}, h)["prompt"]
        return len(ok("/tokenize", {"content": prompt, "parse_special": True}, h)["tokens"])

    for name in ("lfm2-conv-bf16", "qwen3_5-delta-bf16"):
        with tempfile.TemporaryDirectory() as folder, Hearth("--model", hybrid_model(folder, name)) as h:
            turns = [([system, *question], [system]), ([system, *other], [system]),
                     ([system, *question, said, *question], [system, *question]),
                     ([system, *question, said, *other], [system, *question, said])]
            for i, (messages, shared) in enumerate(turns):
                new = n_tokens(h, messages) + 3 - (n_tokens(h, shared) if i > 0 else 0)  # 3: the answer's beginning
                n, said_now = computed(h, messages)
                assert new <= n <= new + 32, (i, n, new)
                assert ok("/v1/chat/completions", {"messages": messages, "max_tokens": 4, "temperature": 0,
                                                   "cache_prompt": False}, h)["choices"][0]["message"] == said_now


if __name__ == "__main__":
    with Hearth() as SERVER:
        run_cases(globals())
