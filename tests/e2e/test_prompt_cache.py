#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What coding agents' prompts need of the prefix cache: hints, lines that change with every request, usage numbers."""
import json

from hearth_server import Hearth, run_cases

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


if __name__ == "__main__":
    with Hearth() as SERVER:
        run_cases(globals())
