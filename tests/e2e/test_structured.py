#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Structured output: every spelling of a constraint in every dialect, every finished answer a member of its
language, errors before anything is computed, and how constraints meet the rest of the sampling."""
import concurrent.futures
import json
import os
import re

from accept_filter import Accept
from hearth_server import DEMO, Hearth, chunks, run_cases

SERVER = None
SLOW = bool(os.environ.get("HEARTH_SLOW"))
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8},
                                           "age": {"type": "integer", "minimum": 0, "maximum": 120}},
          "required": ["name", "age"], "additionalProperties": False}
PROMPT = {"prompt": "Once upon a time", "max_tokens": 200, "temperature": 1, "seed": 7}
CHAT = {"messages": [{"role": "user", "content": "Who?"}], "max_tokens": 200, "temperature": 1, "seed": 7}
WRAPPED = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}


def ok(path, body):
    status, head, answer = SERVER.post(path, body)
    assert status == 200, f"{status}: {answer}"
    return answer, head


def refused(body, code, param=None, path="/v1/completions"):
    status, _, answer = SERVER.post(path, dict({"prompt": "a"} if path == "/v1/completions" else {}, **body))
    assert status == 400, f"{status}: {str(answer)[:300]}"
    error = answer["error"]
    assert error["type"] == "invalid_request_error" and error["code"] == code, error
    assert param is None or error["param"] == param, error
    assert len(error["message"].encode()) <= 320, error
    return error["message"]


def text_of(path, body):
    """The text of an answer in any dialect, and why it ended."""
    answer, _ = ok(path, body)
    if path == "/v1/messages":
        return answer["content"][0]["text"], answer["stop_reason"]
    if path == "/v1/responses":
        return answer["output"][0]["content"][0]["text"], answer["status"]
    choice = answer["choices"][0]
    return choice["message"]["content"] if "message" in choice else choice["text"], choice["finish_reason"]


def is_person(text):
    value = json.loads(text)
    assert sorted(value) == ["age", "name"] and 0 <= value["age"] <= 120 and len(value["name"]) <= 8, text
    assert type(value["age"]) is int and type(value["name"]) is str, text


# ---- spellings ---------------------------------------------------------------------------------------

def test_every_spelling_of_a_schema():
    spellings = [
        {"response_format": WRAPPED},
        {"response_format": {"type": "json_schema", "schema": PERSON}},
        {"response_format": {"type": "json_object", "schema": PERSON}},
        {"response_format": {"type": "json_object", "value": PERSON}},
        {"response_format": {"type": "json", "value": PERSON}},
        {"response_format": {"type": "json", "value": json.dumps(PERSON)}},
        {"response_format": {"type": "json_schema", "value": {"name": "person", "schema": PERSON}}},
        {"structured_outputs": {"json": PERSON}},
        {"structured_outputs": {"json": json.dumps(PERSON)}},
        {"guided_json": PERSON},
        {"guided_json": json.dumps(PERSON, indent=2)},
        {"json_schema": PERSON},
    ]
    for path, body in (("/v1/completions", PROMPT), ("/v1/chat/completions", CHAT)):
        for fields in spellings:
            text, reason = text_of(path, dict(body, **fields))
            assert reason == "stop", (fields, text, reason)
            is_person(text)


def test_responses_and_messages():
    flat = {"type": "json_schema", "name": "person", "schema": PERSON}
    body = {"input": "Who?", "max_output_tokens": 200, "text": {"format": flat}}
    answer, _ = ok("/v1/responses", body)
    is_person(answer["output"][0]["content"][0]["text"])
    assert answer["text"]["format"] == flat and answer["status"] == "completed", answer
    events = [json.loads(data) for _, data in SERVER.stream("/v1/responses", dict(body, stream=True))]
    assert events[-1]["response"]["text"]["format"] == flat
    indented = json.dumps(body, indent=1)
    assert ok("/v1/responses", indented)[0]["text"]["format"] == flat
    for fields in ({"output_config": {"format": {"type": "json_schema", "schema": PERSON}}},
                   {"output_format": {"type": "json_schema", "schema": PERSON}}):
        body = {"model": "hearth-demo", "max_tokens": 200, "messages": CHAT["messages"]}
        text, reason = text_of("/v1/messages", dict(body, **fields))
        assert reason == "end_turn", reason
        is_person(text)


def test_other_kinds():
    kinds = [
        ({"guided_choice": ["yes", "no", "perhaps"]}, r"yes|no|perhaps"),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, r"yes|no"),
        ({"guided_regex": "[a-c]{3}-\\d+!"}, r"[a-c]{3}-\d+!"),
        ({"structured_outputs": {"regex": "x{2,5}"}}, r"x{2,5}"),
        ({"response_format": {"type": "regex", "value": "x{2,5}"}}, r"x{2,5}"),
        ({"regex": "y{2,5}"}, r"y{2,5}"),
        ({"ebnf": 'root ::= "z"+ "."'}, r"z+\."),
        ({"guided_grammar": 'root ::= "a" ("b" | "c"){2} "d"?'}, r"a[bc]{2}d?"),
        ({"structured_outputs": {"grammar": 'root ::= "1"+ "2"'}}, r"1+2"),
        ({"grammar": 'root ::= word "."\nword ::= [a-f]{1,4}'}, r"[a-f]{1,4}\."),
    ]
    for fields, pattern in kinds:
        for seed in range(1 if SLOW else 3):
            text, reason = text_of("/v1/completions", dict(PROMPT, **fields, seed=seed))
            assert reason == "length" or re.fullmatch(pattern, text), (fields, text)
    for fields in ({"response_format": {"type": "json_object"}}, {"guided_json_object": True},
                   {"structured_outputs": {"json_object": True}}):
        text, reason = text_of("/v1/completions", dict(PROMPT, **fields, max_tokens=400))
        assert text.startswith("{"), text
        assert reason == "length" or isinstance(json.loads(text), dict), text


def test_no_constraint():
    free, _ = text_of("/v1/completions", PROMPT)
    for fields in ({"response_format": {"type": "text"}}, {"response_format": None}, {"response_format": {}},
                   {"guided_json_object": False}, {"guided_json": None}):
        assert text_of("/v1/completions", dict(PROMPT, **fields))[0] == free


# ---- errors ------------------------------------------------------------------------------------------

def test_errors_name_field_and_place():
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": "x"}}}
    message = refused({"json_schema": schema}, "invalid_json_schema", "json_schema")
    assert "/properties/age/minimum" in message, message
    for path in ("/v1/completions", "/v1/chat/completions"):
        body = dict(CHAT if "chat" in path else {}, response_format={"type": "json_schema", "json_schema": {
            "strict": True, "schema": {"properties": {"a": {"$ref": "https://x.org/y.json"}}}}})
        message = refused(body, "invalid_json_schema", "response_format.json_schema.schema", path=path)
        assert "$ref" in message and "https://x.org/y.json" in message, message
    relaxed = {"type": "array", "contains": {"type": "integer"}}
    strict = {"type": "json_schema", "json_schema": {"schema": relaxed, "strict": True}}
    assert "strict" in refused({"response_format": strict}, "invalid_json_schema")
    refused({"json_schema": False}, "invalid_json_schema")
    assert "byte 2" in refused({"guided_regex": "a*(?=bc)d"}, "invalid_grammar", "guided_regex")
    assert "no text" in refused({"guided_regex": "ab(?=c)"}, "invalid_grammar", "guided_regex")
    assert "'numbr'" in refused({"grammar": "root ::= numbr"}, "invalid_grammar", "grammar")
    refused({"guided_choice": []}, "invalid_grammar", "guided_choice")
    refused({"guided_regex": ""}, "invalid_grammar")
    refused({"structured_outputs": {"structural_tag": {}}}, "unsupported_parameter",
            "structured_outputs.structural_tag")
    refused({"grammar": "root ::= \"a\"", "grammar_lazy": True}, "unsupported_parameter", "grammar_lazy")
    refused({"response_format": {"type": "json_schema"}}, "missing_required_parameter")
    refused({"response_format": {"type": "yaml"}}, "invalid_value", "response_format.type")
    refused({"json_schema": 5}, "invalid_type", "json_schema")
    refused({"guided_choice": "yes"}, "invalid_type", "guided_choice")


def test_one_constraint_per_request():
    message = refused({"response_format": WRAPPED, "guided_regex": "a"}, "invalid_value", "guided_regex")
    assert "response_format" in message, message
    refused({"structured_outputs": {"regex": "a", "json": {}}}, "invalid_value")
    refused({"structured_outputs": {}}, "invalid_value", "structured_outputs")
    refused({"grammar": "root ::= \"a\"", "json_schema": {}}, "invalid_value", "json_schema")
    refused({"structured_outputs": {"json": {}, "whitespace_pattern": " ", "disable_any_whitespace": True}},
            "invalid_value")


def test_relaxed_keywords_are_named():
    schema = {"properties": {"a": {"contains": {}}, "é": {"contains": {}}}}
    _, head = ok("/v1/completions", dict(PROMPT, json_schema=schema, max_tokens=5))
    assert head["x-schema-relaxed"].split(", ") == ["/properties/a/contains", "/properties/%C3%A9/contains"], head
    many = {"properties": {f"property_{i}": {"contains": {}} for i in range(100)}}
    named = ok("/v1/completions", dict(PROMPT, json_schema=many, max_tokens=5))[1]["x-schema-relaxed"]
    shown, left = named.rsplit(", ...+", 1)
    assert len(named) <= 1000 and len(shown.split(", ")) + int(left) == 100, named
    assert "x-schema-relaxed" not in ok("/v1/completions", dict(PROMPT, json_schema=PERSON))[1]


def test_keywords_that_cannot_be_compiled_are_left_out():
    schema = {"type": "object", "required": ["a"],
              "properties": {"a": {"type": "string", "pattern": "(?<=x)y", "maxLength": 3}}}
    wrapped = {"type": "json_schema", "name": "x", "schema": schema}
    for path, body in (("/v1/completions", dict(PROMPT, json_schema=schema)),
                       ("/v1/chat/completions", dict(CHAT, response_format={"type": "json_schema", "json_schema": wrapped})),
                       ("/v1/responses", {"input": "a", "text": {"format": wrapped}, "max_output_tokens": 50}),
                       ("/v1/messages", dict(CHAT, output_config={"format": wrapped}))):
        _, head = ok(path, body)
        assert head["x-schema-relaxed"] == "/properties/a/pattern", (path, head)
    for keyword, value in (("pattern", "a" * 4097), ("enum", [str(i) for i in range(10001)])):
        _, head = ok("/v1/completions", dict(PROMPT, max_tokens=5, json_schema={"type": "string", keyword: value}))
        assert head["x-schema-relaxed"] == f"/{keyword}", head
    text, reason = text_of("/v1/completions", dict(PROMPT, json_schema=schema))
    assert reason == "stop" and len(json.loads(text)["a"]) <= 3, text
    text, _ = text_of("/v1/completions", dict(PROMPT, json_schema={
        "type": "string", "pattern": "^(?!a|\\d)(?=.*[a-z]$)[a-z0-9]{4}$"}))
    assert re.fullmatch(r"(?!a|\d)[a-z0-9]{3}[a-z]", json.loads(text)), text


def test_limits():
    deep = {"type": "integer"}
    for _ in range(100):
        deep = {"items": deep}
    ok("/v1/completions", dict(PROMPT, json_schema=deep, max_tokens=5))
    for _ in range(29):
        deep = {"items": deep}
    refused({"json_schema": deep}, "invalid_json_schema")
    refused({"guided_choice": ["x" * 5000]}, "invalid_grammar")
    ok("/v1/completions", dict(PROMPT, json_schema={"type": "string", "maxLength": 2147483647}, max_tokens=5))
    huge = '{"prompt": "a", "max_tokens": 60, "json_schema": {"const": 123456789012345678901234567890}}'
    text, _ = text_of("/v1/completions", huge)
    assert json.loads(text) == 1.2345678901234568e29, text


def test_ambiguous_grammars_are_answered():
    ambiguous = 'root ::= (x)* "end"\nx ::= y | z | "(" x ")"\ny ::= [^()]{1,30} z?\nz ::= [^()]{1,20} y?'
    heavy = ('root ::= (a? b? c? d?){0,50} "end"\na ::= "(" root ")" | [a-z]\nb ::= "(" root ")" | [a-z]{1,9}\n'
             'c ::= [a-z]{2,9} root?\nd ::= ([a-z] ("[" root "]")?){1,40}')
    for grammar, pattern in ((ambiguous, r"[^()]*(\(+[^()]+\)*[^()]*)*"), (heavy, r"[a-z()\[\]]*")):
        text, reason = text_of("/v1/completions", dict(PROMPT, grammar=grammar, max_tokens=40))
        assert re.fullmatch(pattern, text), text
        assert reason == "length" or text.endswith("end"), text


def test_slow_masks_leave_others_alone():
    """Masks of milliseconds are made beside the steps of a stream, which gets many tokens for each of theirs."""
    grammar = 'root ::= (a | b | c | d)* "\\n\\n\\n"\n' + "".join(
        f"{x} ::= [^()]{{1,{30 + i}}} ({' | '.join(y for y in 'abcd' if y != x)})?\n" for i, x in enumerate("abcd"))
    body = dict(PROMPT, grammar=grammar, n=4, max_tokens=8, speculate=False)
    stream = {"prompt": "A", "max_tokens": 2000, "ignore_eos": True, "stream": True, "speculate": False}
    before, n_free = SERVER.metrics(), 0
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        free = SERVER.stream("/v1/completions", stream)
        next(free)
        slow = pool.submit(ok, "/v1/completions", body)
        while not slow.done():
            for _ in free:
                n_free += 1
                if slow.done():
                    break
            else:
                free = SERVER.stream("/v1/completions", stream)
        for _ in free:
            pass
    beside = slow.result()[0]["choices"]
    assert n_free > 10 * body["max_tokens"], n_free
    assert SERVER.metrics()["hearth_grammar_late_masks_total"] - before["hearth_grammar_late_masks_total"] > 20
    assert beside == ok("/v1/completions", body)[0]["choices"]


# ---- together with the rest ----------------------------------------------------------------------------

def test_streams_give_the_same_text():
    body = dict(PROMPT, json_schema=PERSON)
    whole, _ = text_of("/v1/completions", body)
    for extra in ({}, {"stream_options": {"chunk_tokens": 1}}):
        events = chunks(SERVER.stream("/v1/completions", dict(body, stream=True, **extra)))
        assert "".join(e["choices"][0]["text"] for e in events) == whole
        assert events[-1]["choices"][0]["finish_reason"] == "stop"


def test_choices_and_prompts():
    answer, _ = ok("/v1/completions", dict(PROMPT, prompt=["a", "b", "c", "d", "e", "f"], n=3, json_schema=PERSON))
    assert len(answer["choices"]) == 18
    for choice in answer["choices"]:
        if choice["finish_reason"] == "stop":
            is_person(choice["text"])
    single, _ = ok("/v1/completions", dict(PROMPT, prompt="c", n=3, json_schema=PERSON))
    assert [c["text"] for c in single["choices"]] == [c["text"] for c in answer["choices"][6:9]]
    best, _ = ok("/v1/completions", dict(PROMPT, best_of=4, n=2, json_schema=PERSON))
    for choice in best["choices"]:
        is_person(choice["text"])


def test_forced_end_needs_no_end_token():
    answer, _ = ok("/v1/completions", dict(PROMPT, guided_choice=["yes"], ignore_eos=True))
    assert answer["choices"][0]["text"] == "yes" and answer["choices"][0]["finish_reason"] == "stop"
    text, reason = text_of("/v1/completions", dict(PROMPT, guided_choice=["yes"], min_tokens=50))
    assert (text, reason) == ("yes", "stop")
    text, reason = text_of("/v1/completions", dict(PROMPT, json_schema=PERSON, max_tokens=4))
    assert reason == "length"


def test_min_tokens_while_the_value_can_go_on():
    body = dict(PROMPT, guided_regex="a+", max_tokens=64)
    for n in (5, 20):
        answer, _ = ok("/v1/completions", dict(body, min_tokens=n))
        assert answer["usage"]["completion_tokens"] >= n
        assert set(answer["choices"][0]["text"]) == {"a"}


def test_stop_strings_are_found_inside():
    answer, _ = ok("/v1/completions", dict(PROMPT, guided_regex="ab{3}cd", stop="c"))
    assert answer["choices"][0]["text"] == "abbb" and answer["choices"][0]["finish_reason"] == "stop"


def test_nothing_left():
    body = {"guided_choice": ["yes"], "allowed_token_ids": SERVER.post("/tokenize", {"content": "q"})[2]["tokens"][-1:]}
    before = SERVER.metrics()['hearth_http_requests_total{code="500"}']
    assert "logit_bias" in refused(body, "no_token_left")
    events = list(SERVER.stream("/v1/completions", dict(PROMPT, **body, stream=True)))
    assert any("no_token_left" in data for _, data in events), events
    assert SERVER.metrics()['hearth_http_requests_total{code="500"}'] == before


def test_four_choices():
    """Every choice has a state of its own under the one grammar; streamed they are the same."""
    body = dict(PROMPT, n=4, json_schema=PERSON)
    whole = ok("/v1/completions", body)[0]["choices"]
    assert [c["index"] for c in whole] == [0, 1, 2, 3] and len({c["text"] for c in whole}) > 1, whole
    for choice in whole:
        assert choice["finish_reason"] == "stop", choice
        is_person(choice["text"])
    texts = [""] * 4
    for event in chunks(SERVER.stream("/v1/completions", dict(body, stream=True))):
        for choice in event["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == [c["text"] for c in whole]


def id_of(text):
    [token] = SERVER.post("/tokenize", {"content": text, "add_special": False})[2]["tokens"]
    return token


def test_logit_bias_chooses_among_what_is_allowed():
    body = dict(PROMPT, guided_choice=["y", "n"])
    for wanted, other in (("y", "n"), ("n", "y")):
        bias = {str(id_of(wanted)): 100, str(id_of(other)): -100, str(id_of("c")): 100}
        for seed in range(3):
            assert text_of("/v1/completions", dict(body, logit_bias=bias, seed=seed)) == (wanted, "stop")


def test_allowed_ids_meet_the_grammar():
    body = dict(PROMPT, guided_regex="[a-c0-9]{30}", allowed_token_ids=[id_of(c) for c in "bcd12"])
    text, reason = text_of("/v1/completions", body)
    assert reason == "stop" and re.fullmatch("[bc12]{30}", text) and len(set(text)) > 2, text


def test_ignore_eos_goes_on_as_long_as_the_value_can():
    text, reason = text_of("/v1/completions", dict(PROMPT, guided_regex="a+", ignore_eos=True, max_tokens=40))
    assert reason == "length" and set(text) == {"a"}, (text, reason)
    text, reason = text_of("/v1/completions", dict(PROMPT, json_schema={"type": "integer"}, ignore_eos=True))
    assert reason == "stop" and re.fullmatch(r"0|-?[1-9]\d{18}", text), text


def test_several_end_ids_wait_for_a_complete_value():
    """An end id that every draw would take comes exactly where the value is complete."""
    [endoftext, im_start, im_end] = (id_of(t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    for i in (endoftext, im_start, im_end):
        body = dict(PROMPT, guided_regex="[a-z]{30}[a-z]*", logit_bias={str(i): 100}, max_tokens=60)
        answer, _ = ok("/v1/completions", dict(body, stop_token_ids=[im_start]))
        choice = answer["choices"][0]
        assert choice["finish_reason"] == "stop" and 30 <= len(choice["text"]) < 38, choice
        assert choice["stop_reason"] in (i, None), choice
        text, reason = text_of("/v1/completions", dict(body, ignore_eos=True))
        assert reason == "length" and re.fullmatch("[a-z]+", text), (text, reason)


def test_stop_ids_with_text_are_found_inside():
    body = dict(PROMPT, guided_regex="ab{3}cd", logit_bias={str(id_of(c)): 50 for c in "abcd"})
    choice = ok("/v1/completions", dict(body, stop_token_ids=[id_of("c")]))[0]["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("abbb", "stop", id_of("c")), choice


def test_logprobs_are_those_of_the_model():
    """The alternatives are the raw distribution, whatever the mask allows."""
    plain, _ = ok("/v1/completions", dict(PROMPT, temperature=0, max_tokens=1, logprobs=5))
    bound, _ = ok("/v1/completions", dict(PROMPT, temperature=0, max_tokens=1, logprobs=5, json_schema=PERSON))
    best, seen = (a["choices"][0]["logprobs"]["top_logprobs"][0] for a in (plain, bound))
    assert len(best) == 5 and best.items() <= seen.items(), (best, seen)


def test_answers_do_not_depend_on_what_runs_beside():
    bodies = [dict(PROMPT, json_schema=PERSON, seed=i) for i in range(4)]
    bodies += [dict(PROMPT, guided_regex="[a-z ]{20,40}", seed=i) for i in range(4)] + [dict(PROMPT, seed=3)]
    alone = [text_of("/v1/completions", b) for b in bodies]
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        assert list(pool.map(lambda b: text_of("/v1/completions", b), bodies)) == alone


def test_repeatable_on_every_server():
    """Mixed grammars: one alone, one thread, no cache; then all at once with other batches, chunks and threads, the
    second time from warm caches."""
    alone = ["--threads", "1", "--parallel", "1", "--chunk", "128", "--prefix-cache", "off", "--grammar-cache-mb", "0"]
    others = [["--threads", "2", "--parallel", "16", "--chunk", "16"], ["--threads", "2", "--parallel", "5", "--chunk", "1"],
              ["--threads", "1", "--parallel", "4", "--chunk", "33"],
              ["--threads", "2", "--parallel", "16", "--chunk", "128", "--prefix-cache", "off"]]
    kinds = [{"json_schema": PERSON}, {"response_format": {"type": "json_object"}}, {"guided_regex": "([a-z]+ ){3,9}[a-z]+[.]"},
             {"guided_choice": ["yes", "no", "perhaps not"]}, {"grammar": 'root ::= "(" root? ")" [a-z]{1,5}'}, {},
             {"json_schema": {"type": "array", "items": {"type": "string", "format": "date"}, "maxItems": 9}}]
    bodies = [dict(PROMPT, prompt="Tom has a red ball. " * (i % 4 * 3) + "Anna", max_tokens=60, logprobs=3, seed=i,
                   temperature=i % 3 / 2, n=1 + i % 4 // 3 * 3, **kind) for i, kind in enumerate(kinds * 2)]

    def answers(h, clients):
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            return [a[2]["choices"] for a in pool.map(lambda b: h.post("/v1/completions", b), bodies)]

    with Hearth(*alone) as h:
        wanted = answers(h, 1)
    assert {c["finish_reason"] for a in wanted for c in a} == {"stop", "length"}
    for options in others[:1] if SLOW else others:
        with Hearth(*options) as h:
            for clients in (len(bodies), 3):
                for body, right, got in zip(bodies, wanted, answers(h, clients)):
                    assert got == right, (options, body, right, got)


def test_schemas_compile_beside_each_other_and_beside_guided_requests():
    """New and known schemas at once from many clients: every answer is that of the schema alone."""
    def body(i):
        schema = {"type": "object", "additionalProperties": False, "required": ["kind"], "properties": {
            "kind": {"const": f"kind {i % 12}"}, "size": {"type": "integer", "maximum": 99 + i % 12},
            **{f"field_{k}": {"type": "string", "format": "date-time"} for k in range(i % 12 * 4)}}}
        return dict(PROMPT, json_schema=schema, seed=i % 12, max_tokens=24)

    def answer(i):
        status, _, a = SERVER.post("/v1/completions", body(i))
        assert status == 200, a
        return a["choices"][0]["text"]
    n = 3 if SLOW else 8
    before = SERVER.metrics()["hearth_grammar_cache_misses_total"]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        texts = list(pool.map(answer, range(12 * n)))
    assert texts == [answer(i) for i in range(12)] * n
    assert all(t.startswith("{") for t in texts) and len(set(texts)) == 12
    assert SERVER.metrics()["hearth_grammar_cache_misses_total"] - before >= 12


# Says nothing about other keys, as most schemas of tools do.
SILENT = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 4}}, "required": ["name"]}


def keys_of(server, **fields):
    """The keys of answers by a model that writes commas wherever it may; None if it goes on to further keys for ever."""
    comma, = server.post("/tokenize", {"content": ",", "add_special": False})[2]["tokens"]
    status, _, answer = server.post("/v1/completions", dict(PROMPT, logit_bias={str(comma): 100}, max_tokens=80, n=4, **fields))
    assert status == 200, answer
    return [None if c["finish_reason"] == "length" else list(json.loads(c["text"])) for c in answer["choices"]]


def test_objects_that_say_nothing_are_closed():
    more = dict(SILENT, required=["name", "more"], properties=dict(SILENT["properties"], more={"type": "null"}))
    asked = dict(SILENT, allOf=[{"required": ["more"]}, {"properties": {"more": {"type": "null"}}}])
    closed = {"structured_outputs": {"json": asked, "disable_additional_properties": True}}
    assert keys_of(SERVER, json_schema=SILENT) == [["name"]] * 4
    for fields in ({"json_schema": more}, {"json_schema": asked}, closed):
        assert keys_of(SERVER, **fields) == [["name", "more"]] * 4, fields
    assert keys_of(SERVER, json_schema=dict(SILENT, additionalProperties=True)) == [None] * 4
    with Hearth("--schema-objects", "open") as server:
        assert keys_of(server, json_schema=SILENT) == [None] * 4
        assert keys_of(server, **closed) == [["name", "more"]] * 4


def test_arguments_that_say_nothing_are_closed():
    tool = {"type": "function", "function": {"name": "greet", "parameters": SILENT}}
    body = dict(CHAT, tools=[tool], tool_choice="required", parallel_tool_calls=False)
    for seed in range(4):
        choice = ok("/v1/chat/completions", dict(body, seed=seed))[0]["choices"][0]
        call, = choice["message"]["tool_calls"]
        assert list(json.loads(call["function"]["arguments"])) == ["name"], call


def test_white_space_has_one_style():
    """A model that writes blanks wherever it may."""
    blank, = SERVER.post("/tokenize", {"content": " ", "add_special": False})[2]["tokens"]
    bias = {"logit_bias": {str(blank): 100}}
    tool = {"type": "function", "function": {"name": "greet", "parameters": PERSON}}
    call = dict(CHAT, tools=[tool], tool_choice={"type": "function", "function": {"name": "greet"}}, **bias)

    def arguments(server):
        return server.post("/v1/chat/completions", call)[2]["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]

    def answer(server, **fields):
        return server.post("/v1/completions", dict(PROMPT, structured_outputs=dict(fields, json=PERSON), **bias))[2]["choices"][0]["text"]
    one_style, any_place = re.compile(r'{ "name": " *\S*", "age": \d+ }'), re.compile(r'{ "name" : " *\S*" ?, ?"age" ?: ?\d+ ?}')
    assert one_style.fullmatch(answer(SERVER)) and one_style.fullmatch(arguments(SERVER)), answer(SERVER)
    assert any_place.fullmatch(answer(SERVER, any_whitespace=True)), answer(SERVER, any_whitespace=True)
    assert one_style.fullmatch(answer(SERVER, any_whitespace=False))
    refused({"structured_outputs": {"json": PERSON, "any_whitespace": 1}}, "invalid_type", "structured_outputs.any_whitespace")
    with Hearth("--json-whitespace", "any") as server:
        assert any_place.fullmatch(answer(server)) and any_place.fullmatch(arguments(server))
        assert '": ' not in answer(server, disable_any_whitespace=True)


def required(n, value):
    return {"type": "object", "properties": {f"k{i}": value for i in range(n)}, "required": [f"k{i}" for i in range(n)]}


# what one id may open, formats, patterns, distinct items, dependencies, numbers within bounds, recursion
CLOSED = [
    PERSON,
    {"type": "object", "properties": {"a": {"type": "string"}, "b": required(20, {"type": "string"})}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"type": "array", "minItems": 30, "items": {"type": "integer"}}, "b": {"type": "null"}}},
    {"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}, "id": {"type": "string", "format": "uuid"},
                                      "by": {"type": "string", "format": "email"}}, "required": ["at", "id", "by"]},
    {"type": "array", "items": {"type": "integer", "minimum": 95, "multipleOf": 7}, "minItems": 12, "uniqueItems": True},
    {"type": "array", "items": {"type": "string", "pattern": "^[a-f]{2,9}\u00e9$"}, "minItems": 2, "uniqueItems": True},
    {"type": "array", "items": {"enum": ["red", "green", "blue", "b"]}, "minItems": 3, "uniqueItems": True},
    {"type": "object", "minProperties": 3, "additionalProperties": {"type": "boolean"}},
    {"type": "object", "properties": dict.fromkeys("abcd", {"type": "number", "exclusiveMinimum": 0.25, "maximum": 0.5}),
     "dependentRequired": {"a": ["c"], "c": ["d"]}, "required": ["b"]},
    {"type": "object", "properties": {"v": {"type": "number"}, "kids": {"type": "array", "items": {"$ref": "#"}, "minItems": 1}},
     "required": ["v"]},
    {"anyOf": [{"type": "object", "properties": {"kind": {"const": "x"}, "n": {"type": "string", "minLength": 40}}, "required": ["kind", "n"]},
               {"type": "object", "properties": {"kind": {"const": "yy"}}, "required": ["kind"]}]},
]


def least_ids(schema):
    with Accept(DEMO) as accept:
        (text, _, n_ids, _), = accept.ask(schema=schema, texts=[""], shortest=True, whitespace="style",
                                          disable_additional_properties=True)["shortest"]
        return text, n_ids


def test_answers_end_before_their_tokens_do():
    """Every answer is whole, if the shortest one is not longer; what was written to close it is counted."""
    before, n_closed = SERVER.metrics()["hearth_closed_answers_total"], 0
    with Accept(DEMO) as accept:
        for schema in CLOSED:
            least, n_least = least_ids(schema)
            json.loads(least)
            for max_tokens in [n_least - 1, *range(n_least, n_least + 40, 13 if SLOW else 3), 300]:
                body = dict(PROMPT, json_schema=schema, seed=max_tokens, max_tokens=max_tokens)
                answer, _ = ok("/v1/completions", body)
                choice, usage = answer["choices"][0], answer["usage"]
                counts = usage.get("completion_tokens_details", {})
                assert usage["completion_tokens"] <= max_tokens and (choice["finish_reason"] == "length" or not counts), answer
                whole = accept.ask(schema=schema, texts=[choice["text"]], whitespace="style",
                                   disable_additional_properties=True)["accepted"] == [True]
                assert whole or max_tokens < n_least, (schema, max_tokens, choice)
                assert not counts or whole and counts.keys() == {"closing_tokens", "closing_values"}, answer
                n_closed += bool(counts)
                alone = ok("/v1/completions", dict(body, structured_outputs={"close": False}))[0]
                assert "completion_tokens_details" not in alone["usage"]
                # Closing begins where the shortest end just fits, although the model might have ended in time with longer tokens.
                assert (alone["choices"] == answer["choices"]) == (not counts), (choice, alone)
    assert n_closed > (20 if SLOW else 80) and SERVER.metrics()["hearth_closed_answers_total"] - before == n_closed, n_closed
    many = {"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "string"}, "b": {
        "type": "array", "items": {"type": "string", "format": "uuid"}, "minItems": 20}}}
    for bias in (1, -100):  # a ban of a token that the closing does not need
        answer, _ = ok("/v1/completions", dict(PROMPT, json_schema=many, max_tokens=800, logit_bias={"5": bias}))
        assert answer["usage"]["completion_tokens_details"]["closing_tokens"] > 512, answer
        assert len(json.loads(answer["choices"][0]["text"])["b"]) == 20, answer


def test_closing_shows_on_every_route():
    """What a client sees of an answer that ran out of tokens: those that it asked for, or those of --schema-max-tokens."""
    schema, messages = required(4, {"type": "string", "minLength": 3}), CHAT["messages"]
    wrapped = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}

    def chosen(answer):
        choice = answer["choices"][0]
        return choice.get("text") or choice["message"]["content"], choice["finish_reason"], answer["usage"]["completion_tokens_details"]
    # route, body, how many tokens, the text with the reason and the counts
    routes = [
        ("/v1/chat/completions", {"messages": messages, "response_format": wrapped}, "max_tokens", chosen, "length"),
        ("/v1/completions", {"prompt": "Who?", "response_format": wrapped}, "max_tokens", chosen, "length"),
        ("/v1/responses", {"input": "Who?", "text": {"format": {"type": "json_schema", "name": "a", "schema": schema}}}, "max_output_tokens",
         lambda a: (a["output"][0]["content"][0]["text"], a["status"], a["usage"]["output_tokens_details"]), "incomplete"),
        ("/v1/messages", {"messages": messages, "output_config": {"format": {"type": "json_schema", "schema": schema}}}, "max_tokens",
         lambda a: (a["content"][0]["text"], a["stop_reason"], a["usage"]), "max_tokens"),
        ("/api/chat", {"messages": messages, "format": schema, "stream": False}, "num_predict",
         lambda a: (a["message"]["content"], a["done_reason"], a), "length"),
        ("/api/generate", {"prompt": "Who?", "format": schema, "stream": False}, "num_predict",
         lambda a: (a["response"], a["done_reason"], a), "length"),
        ("/completion", {"prompt": "Who?", "json_schema": schema}, "n_predict", lambda a: (a["content"], a["stop_type"], a), "limit"),
    ]
    _, n_least = least_ids(schema)
    with Hearth("--schema-max-tokens", str(n_least + 2)) as short:
        for path, body, limit, seen, reason in routes:
            bounds = [{"options": {limit: n_least + 9}} if limit == "num_predict" else {limit: n_least + 9}]
            if path not in ("/v1/completions", "/v1/messages"):  # 16 tokens, and a limit that must be there
                bounds.append({})
            for bound in bounds:
                status, _, answer = short.post(path, dict(body, **bound))
                assert status == 200, (path, answer)
                text, why, counts = seen(answer)
                assert why == reason and len(json.loads(text)) == 4, (path, bound, answer)
                assert 0 < counts["closing_tokens"] <= n_least + 9 and 0 <= counts["closing_values"] <= 4, (path, bound, answer)
    with Hearth("--schema-max-tokens", "9") as short:
        assert short.post("/v1/completions", {"prompt": "Who?", "response_format": wrapped})[2]["usage"]["completion_tokens"] == 9
    chat = dict(CHAT, response_format=wrapped, max_tokens=60)
    two = ok("/v1/chat/completions", dict(chat, n=2))[0]
    assert all(len(json.loads(choice["message"]["content"])) == 4 for choice in two["choices"])
    events = chunks(SERVER.stream("/v1/chat/completions", dict(chat, stream=True)))
    assert "".join(e["choices"][0]["delta"].get("content") or "" for e in events if e["choices"]) == text_of("/v1/chat/completions", chat)[0]


def test_what_closing_leaves_alone():
    schema = required(4, {"type": "string", "minLength": 3})
    pieces = [SERVER.post("/detokenize", {"tokens": [i]})[2]["content"] for i in range(SERVER.get("/props")[2]["n_vocab"])]
    no_end = [i for i, piece in enumerate(pieces) if "}" not in piece]
    for fields in ({"allowed_token_ids": no_end}, {"guided_regex": "[a-z ]{300}", "json_schema": None}, {"max_tokens": 5}):
        answer, _ = ok("/v1/completions", dict(PROMPT, **dict({"max_tokens": 50, "json_schema": schema}, **fields)))
        assert answer["choices"][0]["finish_reason"] == "length" and "completion_tokens_details" not in answer["usage"], answer
    refused({"structured_outputs": {"json": PERSON, "close": 1}}, "invalid_type", "structured_outputs.close")
    with Hearth("--close-answers", "off") as off:
        cut = off.post("/v1/completions", dict(PROMPT, json_schema=schema, max_tokens=50))[2]
        assert cut["choices"] == ok("/v1/completions", dict(PROMPT, json_schema=schema, max_tokens=50,
                                                            structured_outputs={"close": False}))[0]["choices"]


def test_calls_are_closed_only_if_they_are_named():
    tools = [{"type": "function", "function": {"name": name, "parameters": required(n, {"type": "string"})}}
             for name, n in (("greet", 3), ("leave", 1))]
    named = {"type": "function", "function": {"name": "greet"}}
    n_whole = 0
    with Hearth("--close-answers", "off") as off:
        for max_tokens in range(4, 90, 20 if SLOW else 6):
            body = dict(CHAT, tools=tools, max_tokens=max_tokens)
            for choice in ("auto", "required"):
                answers = [s.post("/v1/chat/completions", dict(body, tool_choice=choice))[2] for s in (SERVER, off)]
                assert answers[0]["choices"][0]["message"].get("content") == answers[1]["choices"][0]["message"].get("content")
                calls = [[c["function"] for c in a["choices"][0]["message"].get("tool_calls") or []] for a in answers]
                assert calls[0] == calls[1] and len({a["usage"]["completion_tokens"] for a in answers}) == 1, answers
                assert not any("completion_tokens_details" in a["usage"] for a in answers), answers
            answer = ok("/v1/chat/completions", dict(body, tool_choice=named))[0]
            call = (answer["choices"][0]["message"].get("tool_calls") or [None])[0]
            try:
                n_whole += call is not None and len(json.loads(call["function"]["arguments"])) == 3
            except ValueError:
                assert n_whole == 0, answer  # the shortest call did not fit
    assert n_whole > (1 if SLOW else 3), n_whole


def test_cache_and_metrics():
    schema = dict(PERSON, title="only here")
    before = SERVER.metrics()
    for _ in range(3):
        ok("/v1/completions", dict(PROMPT, json_schema=schema))
    refused({"json_schema": {"type": 5}}, "invalid_json_schema")
    after = SERVER.metrics()

    def grown(name):
        return after[name] - before[name]
    assert grown("hearth_grammar_cache_misses_total") == 2 and grown("hearth_grammar_cache_hits_total") == 2
    assert grown('hearth_grammar_refused_total{code="invalid_json_schema"}') == 1
    all_props = SERVER.get("/props")[2]
    props = all_props["structured_output"]
    tokenizer = os.path.getsize(os.path.join(DEMO, "tokenizer.json")) * 5 // 2 + os.path.getsize(os.path.join(DEMO, "tokenizer_config.json"))
    planned = all_props["memory"]["other_bytes"] - (12 << 20) - tokenizer  # 12 MiB: the program
    assert planned == 80 * all_props["n_vocab"] and 0 < props["vocabulary_bytes"] <= planned, (planned, props)
    assert "regex" in props["kinds"] and 1 <= props["cached_grammars"] <= 64 and props["cached_bytes"] > 0, props
    assert grown("hearth_grammar_compile_seconds_count") == 4 and grown("hearth_grammar_mask_seconds_count") > 10


def main():
    global SERVER
    with Hearth() as SERVER:
        run_cases(globals())


if __name__ == "__main__":
    main()
