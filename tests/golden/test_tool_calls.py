#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`hearth-filter parse`: texts of models to content, reasoning and calls, whole and at every cut.

The cases are those of tests/golden/tools/cases.jsonl and, with HEARTH_REFERENCE, the ones outside the
repository. Texts that a guide writes are read with and without it; random ones lose nothing but
markers, separators and white space.
"""
import json
import os
import random
import subprocess
import sys

FILTER = os.path.join(os.environ.get("HEARTH_BUILD_ROOT", "build"), "tests", "hearth-filter")
MODEL = os.path.join(os.environ.get("HEARTH_SOURCE_ROOT", "."), "deploy/demo")
REFERENCE = os.environ.get("HEARTH_REFERENCE")
SLOW = bool(os.environ.get("HEARTH_SLOW"))  # a sanitizer: every eighth single cut
HERE = os.path.dirname(os.path.abspath(__file__))
FORMATS = ("hermes", "list", "qwen-xml", "llama3", "mistral", "mistral-args", "functionary", "pythonic",
           "gemma4", "functiongemma")
PIECES = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>", "<think>", "</think>",
          "<function=ping>", "<function=ping>{}", "</function>", "<parameter=city>", "</parameter>", "[", "]", "{", "}", '"name": "ping"',
          '"arguments": {}', '"parameters": {"city": "x"}', "ping", "get_weather", ", ", "; ", "\n", " ", "\t", "text",
          "<|tool_call_start|>", "<|tool_call_end|>", "[ping(", "city=", "'x'", "True", ")]", "(", ")", "=",
          "<|tool_call>", "<tool_call|>", '<|"|>', "call:ping{", "call:", ":", "<start_function_call>", "<escape>",
          "é", "😀", '"', "\\", "null", "1", '{"name": "ping", "arguments": {}}', '"id": "123456789"']


def read_cases(directory):
    """The cases of a directory, with requests that can be sent."""
    with open(f"{directory}/tools.json", encoding="utf-8") as f:
        tools = json.load(f)
    for name in sorted(os.listdir(directory)):
        if not name.endswith(".jsonl") or name.startswith("examples"):
            continue
        with open(f"{directory}/{name}", encoding="utf-8") as f:
            cases = [json.loads(line) for line in f]
        for case in cases:
            if case["request"].get("tools") == "@tools.json":
                case["request"]["tools"] = tools
            if case["template"]:
                with open(f"{directory}/templates/{case['template']}.jinja", encoding="utf-8", newline="") as f:
                    case["request"]["template"] = f.read()
            case["name"] = f"{name}: {case['name']}"
        yield from cases


def check_directory():
    """The directory's own template: it has no additional_chat_templates, as most have none."""
    answer, = parse([{"text": '<tool_call>[{"name": "f", "arguments": {}}]</tool_call>'}])
    assert answer.get("format") == "list" and answer["tool_calls"][0]["name"] == "f", answer


def parse(requests):
    text = "".join(json.dumps(r) + "\n" for r in requests)
    done = subprocess.run([FILTER, "parse", "--model", MODEL], input=text.encode(), timeout=150, stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]


def join(deltas):
    """The fields that the deltas add up to."""
    answer = {"content": "", "reasoning": "", "tool_calls": []}
    for delta in deltas:
        call = delta.get("tool_call")
        if call and "name" in call:
            assert call["index"] == len(answer["tool_calls"]), deltas
            answer["tool_calls"].append({"arguments": ""} | {k: v for k, v in call.items() if k != "index"})
        elif call:
            assert call["arguments"], deltas
            answer["tool_calls"][call["index"]]["arguments"] += call["arguments"]
        else:
            (kind, text), = delta.items()
            assert text, deltas
            answer[kind] += text
    return answer


def check(case, request, answer):
    assert "error" not in answer, answer
    deltas, wanted = answer.pop("deltas"), case["expect"]
    joined = {k: answer[k] for k in ("content", "reasoning")}
    joined["tool_calls"] = [{k: v for k, v in call.items() if k != "complete"} for call in answer["tool_calls"]]
    assert join(deltas) == joined, (deltas, answer)
    if "cuts" not in request:
        kinds = [(list(d), d.get("tool_call", {}).get("index"), list(d.get("tool_call", {}))) for d in deltas]
        assert all(a != b for a, b in zip(kinds, kinds[1:])), deltas
    calls = answer["tool_calls"]
    for call, want in zip(calls, wanted["tool_calls"]):
        if not want["complete"] and answer["format"] == "qwen-xml" and call["arguments"].startswith(want["arguments"]):
            call["arguments"] = want["arguments"]
    assert answer == wanted, (answer, wanted)


def variants(case, rng):
    """A case whole, at every cut, byte by byte and at random cuts; guided too, where a guide writes it."""
    n = len(case["request"]["text"].encode())
    cuts = [None, list(range(n + 1))] + [[i] for i in range(0, n + 1, 8 if SLOW else 1)]
    cuts += [sorted(rng.choices(range(n + 1), k=rng.randrange(2, 20))) for _ in range(10)]
    for guided in (False, True) if case["guided"] else (False,):
        for cut in cuts:
            yield case["request"] | ({"guided": True} if guided else {}) | ({} if cut is None else {"cuts": cut})


def check_cases(directory, rng):
    failed, n = [], 0
    for case in read_cases(directory):
        requests = list(variants(case, rng))
        n += 1
        for request, answer in zip(requests, parse(requests), strict=True):
            try:
                check(case, request, answer)
            except AssertionError as e:
                failed.append(case["name"])
                print(f"{case['name']} cuts {request.get('cuts')} guided {request.get('guided')}: {e}")
                break
    print(f"{directory}: {n - len(failed)} of {n} cases")
    return n > 0 and not failed


def is_part(part, whole):
    """Whether whole has all characters of part, in their order."""
    rest = iter(whole)
    return all(c in rest for c in part)


def check_random(rng):
    """Random texts: no error, the same at random cuts, and content is made of the text alone."""
    requests = []
    for i in range(300 if SLOW else 1500):
        text = "".join(rng.choices(PIECES, k=rng.randrange(30)))
        request = {"text": text, "format": FORMATS[i % len(FORMATS)], "think": rng.choice([None, ["<think>", "</think>"]])}
        if rng.random() < 0.7:
            names = ("ping", "get_weather")
            request["tools"] = [{"type": "function", "function": {"name": name}} for name in names]
        n = len(text.encode())
        requests += [request, request | {"cuts": sorted(rng.choices(range(n + 1), k=6))}]
    answers = parse(requests)
    for request, whole, cut in zip(requests[::2], answers[::2], answers[1::2], strict=True):
        assert "error" not in whole, (request, whole)
        assert join(whole.pop("deltas")) == join(cut.pop("deltas")) and whole == cut, (request, whole, cut)
        assert is_part(whole["content"], request["text"]), (request, whole)
        assert is_part(whole["reasoning"], request["text"]), (request, whole)
        if not whole["tool_calls"]:
            rest = whole["reasoning"] + whole["content"]
            for marker in PIECES[:8]:
                assert rest.count(marker) <= request["text"].count(marker), (request, whole)


def main():
    rng = random.Random(13)
    check_directory()
    good = check_cases(os.path.join(HERE, "tools"), rng)
    if REFERENCE:
        good &= check_cases(f"{REFERENCE}/goldens/tools", rng)
    check_random(rng)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
