#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""truncation: "auto" in three dialects: which messages go, where that is said, and that the cut stays where it is."""
import json

from hearth_server import Hearth, run_cases

SERVER = None
CTX = 512
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
COUNTS = {"chat": "/v1/chat/completions/input_tokens", "responses": "/v1/responses/input_tokens",
          "messages": "/v1/messages/count_tokens"}


def body_of(dialect, messages, n=8, **fields):
    """A conversation as chat has it, without calls, in each dialect. The first message instructs."""
    if dialect == "messages":
        return {"system": messages[0]["content"], "messages": messages[1:], "max_tokens": n, "temperature": 0, **fields}
    if dialect == "responses":
        return {"input": messages, "max_output_tokens": n, "temperature": 0, **fields}
    return {"messages": messages, "max_tokens": n, "temperature": 0, **fields}


def post(dialect, body, counts=False):
    """(dropped items by the header, the answer)"""
    status, head, answer = SERVER.post((COUNTS if counts else PATHS)[dialect], body)
    assert status == 200, answer
    return int(head.get("x-dropped-input-items", 0)), answer


def prompt_of(dialect, usage):
    if dialect == "chat":
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
    if dialect == "responses":
        return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]
    cached = usage["cache_read_input_tokens"]
    return usage["input_tokens"] + cached + usage["cache_creation_input_tokens"], cached


def refused(dialect, body, code="context_length_exceeded"):
    status, _, answer = SERVER.post(PATHS[dialect], body)
    assert status == 400, answer
    assert dialect == "messages" or answer["error"]["code"] == code, answer
    return answer["error"]


def tokens(messages, **fields):
    """(ids, dropped) of a chat, as /tokenize has them."""
    status, head, answer = SERVER.post("/tokenize", {"messages": messages, **fields})
    assert status == 200, answer
    return answer["tokens"], int(head.get("x-dropped-input-items", 0))


def long_talk(n):
    """n turns of known words, a question last."""
    turns = [{"role": "system", "content": "Be brief."}]
    for i in range(n):
        turns += [{"role": "user", "content": f"turn {i} " + "word " * 12},
                  {"role": "assistant", "content": f"answer {i} " + "text " * 12}]
    return turns + [{"role": "user", "content": "What is 2+2?"}]


def agent_talk(n):
    """One message of the user and n rounds: as chat, Responses, Messages have them."""
    user = {"role": "user", "content": "Go through the files."}
    chat, responses, messages = [user], [user], [user]
    for i in range(n):
        arguments = json.dumps({"path": f"file {i}"})
        chat += [{"role": "assistant", "content": None, "tool_calls": [
                     {"id": f"call_{i}", "type": "function", "function": {"name": "read", "arguments": arguments}}]},
                 {"role": "tool", "tool_call_id": f"call_{i}", "content": f"text {i} " * 12}]
        responses += [{"type": "function_call", "call_id": f"call_{i}", "name": "read", "arguments": arguments},
                      {"type": "function_call_output", "call_id": f"call_{i}", "output": f"text {i} " * 12}]
        messages += [{"role": "assistant", "content": [{"type": "tool_use", "id": f"call_{i}", "name": "read",
                                                        "input": json.loads(arguments)}]},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"call_{i}", "content": f"text {i} " * 12}]}]
    return {"chat": {"messages": chat, "max_tokens": 8}, "responses": {"input": responses, "max_output_tokens": 8},
            "messages": {"messages": messages, "max_tokens": 8}}


def test_old_turns_go():
    """Whole turns, and what is left is the prompt of who sends that alone. Without the field: 400 as ever."""
    talk = long_talk(60)
    _, n = tokens(talk, truncation="auto", max_tokens=8)
    kept = talk[:1] + talk[1 + n:]
    assert 0 < n < 120 and n % 2 == 0 and tokens(kept)[0] == tokens(talk, truncation="auto", max_tokens=8)[0]
    used, whole = len(tokens(kept)[0]), len(tokens(talk)[0])
    # the first cut whose tokens reach a multiple of a quarter of the context that leaves room for the answer
    target = -(-(whole - (CTX - 8)) // (CTX // 4)) * (CTX // 4)
    assert whole - used >= target > whole - len(tokens(talk[:1] + talk[1 + n - 2:])[0]), (whole, used, target)
    for dialect in PATHS:
        body = body_of(dialect, talk)
        assert refused(dialect, body) == refused(dialect, dict(body, truncation="disabled")) == \
            refused(dialect, dict(body, truncation=None))
        dropped, answer = post(dialect, dict(body, truncation="auto"))
        assert dropped == n == answer["usage"]["dropped_input_items"], answer
        assert prompt_of(dialect, answer["usage"])[0] == used
        assert post(dialect, dict(body, truncation="auto"), counts=True)[0] == n
        plain = post(dialect, body_of(dialect, kept))[1]
        assert "dropped_input_items" not in plain["usage"]
        for key in ("choices", "content"):
            assert plain.get(key) == answer.get(key), key
    status, head, answer = SERVER.post("/apply-template", {"messages": talk, "truncation": "auto", "max_completion_tokens": 8})
    assert status == 200 and head["x-dropped-input-items"] == str(n) and "x-ignored-params" not in head
    assert answer == SERVER.post("/apply-template", {"messages": kept})[2]


def test_streams_say_it():
    talk = long_talk(60)
    _, n = tokens(talk, truncation="auto", max_tokens=8)
    for dialect, fields in (("chat", {"stream_options": {"include_usage": True}}), ("responses", {}), ("messages", {})):
        body = body_of(dialect, talk, stream=True, truncation="auto", **fields)
        events = [json.loads(data) for _, data in SERVER.stream(PATHS[dialect], body) if data != "[DONE]"]
        usages = [u for e in events for u in (e.get("usage"), (e.get("response") or e.get("message") or {}).get("usage")) if u]
        assert usages and all(u["dropped_input_items"] == n for u in usages), (dialect, usages)


def test_what_fits_stays():
    """A prompt of exactly the context too; where the last turn alone is too long it is the error with the whole's numbers."""
    system, last = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "word " * 2 * CTX}
    n = 1
    while len(tokens([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "word " * n}])[0]) < CTX:
        n += 1
    exact = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "word " * n}]
    assert len(tokens(exact)[0]) == CTX and tokens(exact, truncation="auto")[1] == 0
    for dialect in PATHS:
        dropped, answer = post(dialect, body_of(dialect, long_talk(2), truncation="auto"))
        assert dropped == 0 and "dropped_input_items" not in answer["usage"]
        for talk in ([system, last], long_talk(30)[:-1] + [last]):
            body = body_of(dialect, talk)
            assert refused(dialect, dict(body, truncation="auto")) == refused(dialect, body)
        for value, code in (("newest", "invalid_value"), (5, "invalid_type")):
            refused(dialect, body_of(dialect, long_talk(1), truncation=value), code)
    assert post("responses", body_of("responses", long_talk(2), truncation="auto"))[1]["truncation"] == "auto"


def test_old_rounds_go():
    """One message of the user and 40 calls: the oldest rounds go, the same ones in each dialect."""
    talks, dropped = agent_talk(40), set()
    for dialect, body in talks.items():
        error = refused(dialect, body)
        assert refused(dialect, dict(body, truncation="disabled")) == error
        n, answer = post(dialect, dict(body, truncation="auto"))
        assert answer["usage"]["dropped_input_items"] == n and prompt_of(dialect, answer["usage"])[0] <= CTX
        dropped.add(n)
    assert len(dropped) == 1 and 0 < n < 80 and n % 2 == 0, dropped
    messages = talks["chat"]["messages"]
    assert tokens(messages, truncation="auto", max_tokens=8)[0] == tokens(messages[:1] + messages[1 + n:])[0]


def test_calls_keep_their_results():
    """Results out of order, for unknown ids, a system message on the way, a prefilled answer."""
    messages = agent_talk(40)["chat"]["messages"]
    late = messages[:2] + messages[3:20] + messages[2:3] + messages[20:]  # the first result comes nine rounds later
    n = tokens(late, truncation="auto", max_tokens=8)[1]
    assert n >= 19 and tokens(late, truncation="auto", max_tokens=8)[0] == tokens(late[:1] + late[1 + n:])[0]
    system = {"role": "system", "content": "Read them all."}
    middle = messages[:5] + [system] + messages[5:]
    n = tokens(middle, truncation="auto", max_tokens=8)[1]
    assert tokens(middle, truncation="auto", max_tokens=8)[0] == tokens(middle[:1] + [system] + middle[2 + n:])[0]
    talk = long_talk(60) + [{"role": "assistant", "content": "It is"}]
    flags = {"continue_final_message": True, "add_generation_prompt": False}
    ids, n = tokens(talk, truncation="auto", max_tokens=8, **flags)
    assert n > 0 and ids == tokens(talk[:1] + talk[1 + n:], **flags)[0]
    stray = {"role": "tool", "tool_call_id": "nobody", "content": "?"}
    talk = long_talk(60)
    talk = talk[:3] + [stray] + talk[3:]
    ids, n = tokens(talk, truncation="auto", max_tokens=8)
    assert n % 2 == 1 and ids == tokens(talk[:1] + talk[1 + n:])[0]


def test_nothing_to_cut():
    for role in ("system", "assistant"):
        refused("chat", {"messages": [{"role": role, "content": "word"}] * 4096, "truncation": "auto", "max_tokens": 8})


def test_more_fields():
    """Room for the answer is a quarter at most; several choices; breakpoints in what goes."""
    talk = long_talk(60)
    most = [post("chat", body_of("chat", talk, truncation="auto", n=n))[0] for n in (CTX // 4, CTX, 10 ** 9)]
    assert len(set(most)) == 1, most
    body = body_of("chat", talk, truncation="auto", ignore_eos=True)
    several = SERVER.post(PATHS["chat"], dict(body, n=4))[2]
    assert len(several["choices"]) == 4 and several["usage"]["dropped_input_items"] > 0
    marked = [dict(m) for m in talk[1:]]
    for i in (0, 2, len(marked) - 1):
        marked[i]["content"] = [{"type": "text", "text": marked[i]["content"], "cache_control": {"type": "ephemeral"}}]
    dropped, answer = post("messages", body_of("messages", talk[:1] + marked, truncation="auto"))
    assert dropped > 2 and answer["content"], answer


def test_the_cut_stays():
    """While a conversation grows by less than a quarter the cut stays, so that most of the prompt is in the cache."""
    talk, cuts = long_talk(30), []
    for i in range(24):
        dropped, answer = post("chat", body_of("chat", talk, truncation="auto"))
        prompt, cached = prompt_of("chat", answer["usage"])
        if cuts and dropped == cuts[-1]:
            assert cached >= prompt - 96, (prompt, cached)
        cuts.append(dropped)
        talk += [{"role": "assistant", "content": f"answer {i} " + "text " * 4}, {"role": "user", "content": f"more {i} " + "word " * 4}]
    assert 1 < len(set(cuts)) <= 8 and cuts == sorted(cuts), cuts


def test_reports_name_the_clients_places():
    talk = long_talk(60)
    body = body_of("chat", talk, truncation="auto", return_cache_report=True)
    n, _ = post("chat", body)
    at = 1 + n + 8  # what stays begins at 1 + n
    changed = [dict(m) for m in talk]
    changed[at]["content"] = changed[at]["content"].replace("turn", "TURN")
    report = post("chat", dict(body, messages=changed))[1]["usage"]["cache_report"]
    assert report["diverges"]["part"] == f"messages[{at}].content", report


def test_log_and_metric():
    before = SERVER.metrics()["hearth_truncated_requests_total"]
    body = body_of("chat", long_talk(47), truncation="auto")
    dropped, _ = post("chat", body)
    post("chat", body, counts=True)
    assert SERVER.metrics()["hearth_truncated_requests_total"] == before + 1
    assert json.loads(SERVER.wait_log(f'"dropped":{dropped}'))["endpoint"] == "chat"


def main():
    global SERVER
    with Hearth("--ctx-size", str(CTX), "--parallel", "4") as SERVER:
        run_cases(globals())


if __name__ == "__main__":
    main()
