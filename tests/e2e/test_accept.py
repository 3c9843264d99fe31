#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`hearth-filter accept` on the demo model: its manners, its fields, and what it says of each kind of grammar."""
import itertools
import json
import os
import random
import shutil
import subprocess
import tempfile

from accept_filter import Accept
from hearth_server import DEMO, FILTER, run_cases

FIELDS = ["accepted", "by_bytes", "bytes", "compile_ms", "compiled", "masks", "relaxed", "steps"]

# line -> the code of its error; None: it is answered
LINES = [
    (b'{"regex":"[a-z]+","texts":["abc","ABC",""]}', None),
    (b"", "invalid_json"),
    (b"not json", "invalid_json"),
    (b"[1]", "invalid_json"),
    (b'{"regex":"a","texts":["\xff"]}', "invalid_json"),
    (b'{"regex":5,"texts":[]}', "invalid_json"),
    (b'{"schema":true,"texts":[],"strict":"yes"}', "invalid_json"),
    (b'{"regex":"a"}', "invalid_value"),
    (b'{"texts":["a"]}', "invalid_value"),
    (b'{"regex":"a","choice":["a"],"texts":[]}', "invalid_value"),
    (b'{"json_object":true,"whitespace_pattern":" *","disable_any_whitespace":true,"texts":[]}', "invalid_value"),
    (b'{"regex":"a","texts":' + b"[" * 300 + b"]" * 300 + b"}", "invalid_json"),
    (b'{"regex":"a","texts":["' + b"x" * (16 << 20) + b'"]}', "invalid_value"),
    (b'{"schema":[],"texts":[]}', "invalid_json_schema"),
    (b'{"schema":{"format":"color"},"strict":true,"texts":[]}', None),
    (b'{"schema":{"contains":{}},"strict":true,"texts":[]}', "invalid_json_schema"),
    (b'{"regex":"(?=a)","texts":[]}', "invalid_grammar"),
    (b'{"choice":[],"texts":[]}', "invalid_grammar"),
    (b'{"grammar":"root ::= x","texts":[]}', "invalid_grammar"),
    (b'{"grammar":"root ::= <[5]>","texts":[]}', "unsupported_parameter"),
    (b'{"json_object":true,"whitespace_pattern":"(","texts":[]}', "invalid_grammar"),
    (b'{"json_object":true,"whitespace":"none","texts":[]}', "invalid_value"),
    (b'{"regex":null,"choice":["a"],"unknown":{"x":[]},"texts":["a"]}', None),
    (b'{"json_object":false,"grammar":"root ::= \\"a\\"","texts":[]}', None),
]


def test_every_line_is_answered_in_order():
    done = subprocess.run([FILTER, "accept", "--model", DEMO], input=b"\n".join(line for line, _ in LINES),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100, check=False)
    answers = done.stdout.split(b"\n")
    assert done.returncode == 0 and answers.pop() == b"" and not done.stderr, done
    assert len(answers) == len(LINES), f"{len(answers)} answers to {len(LINES)} lines"
    for (line, code), answer in zip(LINES, map(json.loads, answers)):
        if code is None:
            assert sorted(answer) == FIELDS and answer["compiled"] is True, (line[:80], answer)
        else:
            error = answer["error"]
            tried = answer.keys() - {"error"}
            assert not tried or tried == {"compile_ms", "steps"} and answer["steps"] > 0, answer
            assert sorted(error) == ["code", "keyword", "message", "pointer"], answer
            assert error["code"] == code and 0 < len(error["message"].encode()) <= 300, (line[:80], error)


# white space of styles: after a comma, after a colon, inside {} and [], the indent
INLINE = [(comma, colon, pads, "") for comma in ("", " ") for colon in ("", " ") for pads in itertools.product(("", " "), repeat=2)]
BROKEN = [("", colon, ("", ""), indent) for colon in ("", " ") for indent in [" " * n for n in range(1, 9)] + ["\t"]]


def printed(value, style, depth=1):
    """JSON in one style."""
    comma, colon, pads, indent = style
    if not isinstance(value, (dict, list)) or not value:
        return json.dumps(value, ensure_ascii=False)
    parts = ([f"{json.dumps(key)}:{colon}{printed(item, style, depth + 1)}" for key, item in value.items()]
             if isinstance(value, dict) else [printed(item, style, depth + 1) for item in value])
    opened, closed = "{}" if isinstance(value, dict) else "[]"
    pad = "\n" + indent * depth if indent else pads[isinstance(value, list)]
    return opened + pad + ("," + (pad if indent else comma)).join(parts) + (pad[:-len(indent)] if indent else pad) + closed


def some_value(rng, depth):
    kind = rng.randrange(9) if depth < 5 else 0
    if kind < 4:
        return rng.choice([None, True, rng.randrange(-999, 999), rng.randrange(999) / 8, "", "a b", '\u00e9"\n', "x" * rng.randrange(9)])
    items = [some_value(rng, depth + 1) for _ in range(rng.randrange(5))]
    return items if kind < 6 else {f"k{i}": item for i, item in enumerate(items)}


def test_white_space_in_one_style():
    rng = random.Random(1)
    texts = [printed([some_value(rng, 1), {"a": some_value(rng, 1)}], rng.choice(INLINE + BROKEN)) for _ in range(400)]
    for indent in (1, 2, 3, 4, 8, "\t", None):
        texts.append(json.dumps({"a": [1, {"b": [], "c": {}}], "d": 2.5}, indent=indent))
    texts += ['{ "a": [1, 2], "b": { "c": 3 } }', '{\n  "a": [1, 2],\n  "b": { "c": [3] }\n}', "[[],[1]]", "[\n\t[\n\t\t1\n\t],\n\t[2]\n]"]
    wrong = ["{ }", "[ ]", " {}", "{} ", '{"a" :1}', '{"a":1 ,"b":2}', '{"a": 1,"b":2}', "[1, 2,3]", '{ "a":1}', '{"a":1 }', '{"a":  1}',
             "[1,  2]", '{"a":[ 1 ],"b":[1]}', '{"a":1,"b":{ "c":1 }}', '[\n1\n]', '{\n\n "a":1\n}', '{\r\n "a":1\r\n}', "[\n 1, 2\n]",
             "[\n 1,2\n]", "[\n  1,\n 2\n]", "[\n  1]", "[\n  1\n  ]", '[\n  {\n   "a":1\n  }\n]', "[[\n 1\n]]", "[\n\t1,\n  2\n]",
             "[\n \t1\n]", "[\n" + " " * 9 + "1\n]", "[\n  [1,2],\n  [1, 2]\n]"]
    with Accept(DEMO) as accept:
        answer = accept.ask(schema=True, whitespace="style", texts=texts + wrong)
        for text, accepted, by_bytes in zip(texts + wrong, answer["accepted"], answer["by_bytes"]):
            assert accepted == by_bytes == (text not in wrong), text
        assert all(accept.ask(schema=True, whitespace="any", texts=wrong[4:9])["accepted"])


def test_shortest_ends():
    """What completes a beginning, in the style that it has shown."""
    person = {"type": "object", "properties": {"name": {"type": "string", "minLength": 2}, "ok": {"type": "boolean"}, "n": {
        "type": "integer", "minimum": 500}, "at": {"type": "string", "format": "time"}}, "required": ["name", "n"]}
    tree = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "v": {"type": "null"}},
            "required": ["v"]}
    rows = [
        (person, "", '{"name":"00","n":500}'), (person, "{", '"name":"00","n":500}'), (person, '{ "name": "', '00","n": 500 }'),
        (person, '{\n  "na', 'me":"00",\n  "n":500\n}'), (person, '{"name": "x\\', '"","n": 500}'),
        (person, '{"name":"ab","o', 'k":true,"n":500}'), (person, '{"name":"ab", "n":7', '00, "a'), (person, '{"name":"ab", "n":700', "}"),
        (person, '{"name":"ab","n":500,"at":"1', '0:00:00Z"}'),
        (tree, '{"kids":[{"v":null', '}],"v":null}'), (tree, '{"k', 'ids":[{"v":null}],"v":null}'),
        ({"enum": ["tan", "red", "yellow"]}, '"', 'tan"'), ({"type": "array", "items": {"type": "integer"}, "minItems": 12, "uniqueItems": True},
                                                           "[5", ",0,1,2,3,4,6,7,8,9,10,11]"),
        ({"type": "object", "minProperties": 2, "additionalProperties": {"type": "null"}}, "", '{"":null,"0":null}'),
        ({"type": "string", "pattern": "^(?:[a-f]{3}-)+\u00e9$"}, '"ab', 'a-\u00e9"'), ({"type": "number", "exclusiveMinimum": 0.25, "maximum": 0.3}, "0.2", "6"),
    ]
    with Accept(DEMO) as accept:
        for schema, begun, wanted in rows:
            (end, rest, n_ids, _), = accept.ask(schema=schema, texts=[begun], whitespace="style", shortest=True)["shortest"]
            assert accept.ask(schema=schema, texts=[begun + end], whitespace="style")["accepted"] == [True], (begun, end)
            assert len(end) <= len(wanted) or begun.endswith(":7"), (begun, end, wanted)
            assert n_ids <= len(end.encode()) <= 4 * rest + 16, (begun, end, rest)
        assert accept.ask(schema=person, texts=["[", '{"ok":'], shortest=True)["shortest"] == [None, None]
        json.loads(accept.ask(json_object=True, texts=['{"a":[[[{"b": "'], shortest=True)["shortest"][0][0].join(['{"a":[[[{"b": "', ""]))


def test_answers_come_at_once():
    with Accept(DEMO) as accept:
        for text in ("yes", "no"):
            assert accept.ask(choice=["yes"], texts=[text])["accepted"] == [text == "yes"]


def test_each_kind():
    cases = [({"schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}},
              ['{"a": 1}', '{"a":1,"b":[]}'], ['{"a": "1"}', "{}", '{"a": 1} ']),
             ({"schema": True}, ["null", '"\u00e4"'], ["nul"]), ({"json_object": True}, ["{}"], ["[]", ""]),
             ({"regex": "a{2,3}|\u00e4"}, ["aa", "\u00e4"], ["a", "aaaa"]),
             ({"choice": ["red", "redder"]}, ["red", "redder"], ["redd"]),
             ({"grammar": 'root ::= "(" root? ")"'}, ["(())"], ["(()"]),
             ({"schema": {"type": "array"}, "disable_any_whitespace": True}, ["[1,2]"], ["[1, 2]"]),
             ({"schema": {"type": "array"}, "whitespace_pattern": " {2}"}, ["[  1  ,  2  ]"], ["[1,2]", "[ 1 ]"]),
             ({"schema": {"properties": {"a": {}}, "type": "object"}, "disable_additional_properties": True},
              ['{"a":1}'], ['{"b":1}'])]
    with Accept(DEMO) as accept:
        for request, good, bad in cases:
            answer = accept.ask(**request, texts=good + bad)
            assert answer.get("accepted") == [True] * len(good) + [False] * len(bad), (request, answer)
            assert answer["by_bytes"] == answer["accepted"], (request, answer)


def test_special_tokens_are_plain_text():
    with Accept(DEMO) as accept:
        answer = accept.ask(regex=r"<\|im_end\|>x", texts=["<|im_end|>x"])
        assert answer["accepted"] == [True], answer


def test_relaxed_keywords_are_named():
    schema = {"properties": {"a/b": {"contains": {"const": 1}}, "c": {"format": "color"}}}
    with Accept(DEMO) as accept:
        answer = accept.ask(schema=schema, texts=[])
        assert answer["relaxed"] == ["/properties/a~1b/contains", "/properties/c/format"], answer
        error = accept.ask(schema=schema, strict=True, texts=[])["error"]
        assert error["pointer"] == "/properties/a~1b/contains" and error["keyword"] == "contains", error


def test_times_and_memory():
    with Accept(DEMO) as accept:
        answer = accept.ask(schema={"type": "string", "maxLength": 2000}, texts=['"' + "ab " * 300 + '"'], mask_ns=True)
    masks, times = answer["masks"], answer["mask_ns"]
    assert masks["n"] == len(times) > 300 and all(ns > 0 for ns in times), answer
    assert 0 < masks["p50_us"] <= masks["p99_us"] <= masks["max_us"] and masks["avg_us"] <= masks["max_us"], masks
    assert abs(masks["max_us"] - max(times) / 1e3) < 0.01 and 0 < answer["compile_ms"] < 1000
    assert 1000 < answer["bytes"] < 1 << 20, answer["bytes"]


def test_limits():
    """Each limit and one more than it."""
    def deep(n):
        return {"items": deep(n - 1)} if n > 1 else {}

    cases = [("schema", lambda n: {"enum": list(range(n))}, 10000), ("schema", deep, 128),
             ("schema", lambda n: {"pattern": "^" + "a" * (n - 1)}, 4096), ("regex", lambda n: "a" * n, 16384),
             ("choice", lambda n: [str(i) for i in range(n)], 1000), ("choice", lambda n: ["a" * n], 4096),
             ("grammar", lambda n: 'root ::= "a" #' + "x" * (n - 14), 131072),
             ("schema", lambda n: {"description": "x" * (n - 19)}, 524288)]
    with Accept(DEMO) as accept:
        for kind, make, limit in cases:
            assert "accepted" in accept.ask(**{kind: make(limit)}, texts=[]), (kind, limit)
            error = accept.ask(**{kind: make(limit + 1)}, texts=[], strict=True)["error"]
            assert str(limit) in error["message"], (kind, limit, error)


def test_end_ids():
    """Those of generation_config.json, else of config.json, else a usual name, else none."""
    with tempfile.TemporaryDirectory() as directory:
        shutil.copy(os.path.join(DEMO, "tokenizer.json"), directory)
        for name in ("config.json", "generation_config.json", None):
            with Accept(directory) as accept:
                assert accept.ask(regex="a+", texts=["a", ""])["accepted"] == [True, False]
            if name:
                with open(os.path.join(directory, name), "w", encoding="utf-8") as f:
                    f.write('{"eos_token_id": [1, 2]}')


def test_wrong_directories():
    with tempfile.TemporaryDirectory() as directory:
        for model in ("/nonexistent", directory):
            done = subprocess.run([FILTER, "accept", "--model", model], input=b"{}\n", stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=100, check=False)
            assert done.returncode == 1 and not done.stdout and done.stderr.count(b"\n") == 1, done


if __name__ == "__main__":
    run_cases(globals())
