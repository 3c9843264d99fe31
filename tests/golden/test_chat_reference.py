#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`hearth-filter render` against the reference's renderings outside the repository (HEARTH_REFERENCE).

goldens/chat/rendered.jsonl: published templates by scenario; features.jsonl: one construct each;
models/*/golden_chat.json: whole directories; goldens/templates: more published templates, none of which may
be refused for a name that is left out. Where the reference raises, an error is wanted, of any
wording. Skipped (77) without HEARTH_REFERENCE.
"""
import collections
import glob
import json
import os
import subprocess
import sys
import tempfile

FILTER = os.path.join(os.environ.get("HEARTH_BUILD_ROOT", "build"), "tests", "hearth-filter")
REFERENCE = os.environ.get("HEARTH_REFERENCE")


# Cases of features.jsonl that use what templates here do not have (docs/internals/templates.md), and what the
# refusal says of it: no published template uses it.
LEFT_OUT = {
    "abs-round-sum": "No filter named 'abs'",
    "arith": "operator '//'",
    "batch-groupby": "No filter named 'groupby'",
    "big-int": "'+' with an integer beyond 64 bits",
    "cycler-joiner": "'joiner' is undefined",
    "filter-precedence": "No filter named 'abs'",
    "find-count": "has no attribute 'find'",
    "float-print": "'+' of floats",
    "format-filter": "'%' on a string",
    "int-float": "No filter named 'float'",
    "is-methods": "has no attribute 'isdigit'",
    "loop-changed": "has no attribute 'changed'",
    "loop-cycle": "has no attribute 'cycle'",
    "raw": "'raw'",
    "safe-escape": "No filter named 'e'",
    "slices": "a slice of a string with a step",
    "sort-unique": "No filter named 'reverse'",
    "splitlines": "has no attribute 'rsplit'",
    "tests-value": "No test named 'divisibleby'",
    "upper-lower": "No filter named 'title'",
    "wordcount": "No filter named 'wordcount'",
}


def read_lines(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def render(directory, requests, now):
    """The answers to requests, from one process."""
    text = "".join(json.dumps(request, ensure_ascii=False) + "\n" for request in requests)
    done = subprocess.run([FILTER, "render", "--model", directory], input=text.encode(), timeout=120,
                          env={**os.environ, "HEARTH_NOW": now}, stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]


def model_directory(parent, name, template, variables):
    directory = os.path.join(parent, name)
    os.mkdir(directory)
    with open(os.path.join(directory, "chat_template.jinja"), "w", encoding="utf-8", newline="") as f:
        f.write(template)
    with open(os.path.join(directory, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(variables, f)
    return directory


class Score:
    def __init__(self):
        self.right = collections.Counter()
        self.all = collections.Counter()

    def add(self, what, case, wanted, answer):
        right = "error" in answer if "error" in wanted else answer.get("text") == wanted["text"]
        self.all[what] += 1
        self.right[what] += right
        if not right:
            print(f"{what} {case}:\n  wanted {wanted.get('text', wanted.get('error'))!r}\n  got    {answer!r}")


def check_rendered(score, parent, now, variables):
    scenarios = {s["name"]: s for s in read_lines(f"{REFERENCE}/goldens/chat/scenarios.jsonl")}
    cases = collections.defaultdict(list)
    for case in read_lines(f"{REFERENCE}/goldens/chat/rendered.jsonl"):
        cases[case["template"]].append(case)
    for name, wanted in cases.items():
        with open(f"{REFERENCE}/goldens/chat/templates/{name}.jinja", encoding="utf-8", newline="") as f:
            directory = model_directory(parent, name, f.read(), variables[name])
        requests = []
        for case in wanted:
            scenario = scenarios[case["scenario"]]
            requests.append({k: scenario[k] for k in ("messages", "tools", "kwargs")}
                            | {"add_generation_prompt": case["add_generation_prompt"]})
        for case, answer in zip(wanted, render(directory, requests, now), strict=True):
            score.add("rendered", f"{name}/{case['scenario']}", case, answer)


def check_features(score, parent, now):
    skipped = []
    for i, case in enumerate(read_lines(f"{REFERENCE}/goldens/chat/features.jsonl")):
        directory = model_directory(parent, f"feature-{i}", case["template"], {})
        answers = render(directory, [{"context": case["context"]}], now)
        left_out = LEFT_OUT.get(case["name"])
        if left_out is None:
            score.add("features", case["name"], case, answers[0])
        elif left_out in answers[0].get("error", ""):
            skipped.append(case["name"])
        else:
            score.add("features", case["name"], {"error": f"{left_out} is left out"}, {"text": answers[0]})

    print(f"features skipped, refused by the name that is left out: {', '.join(skipped)}")
    assert sorted(skipped) == sorted(LEFT_OUT), "LEFT_OUT names cases that are not there"


def check_published(score, parent, now):
    request = {"messages": [{"role": "user", "content": "u"}], "add_generation_prompt": True}
    for path in sorted(glob.glob(f"{REFERENCE}/goldens/templates/*.jinja")):
        with open(path, encoding="utf-8", newline="") as f:
            directory = model_directory(parent, f"published-{os.path.basename(path)}", f.read(), {})
        answer = render(directory, [request], now)[0]
        loaded = "cannot be used" not in answer.get("error", "")
        score.add("published", path, {"text": "loaded"}, {"text": "loaded"} if loaded else answer)


def check_models(score, now):
    for path in sorted(glob.glob(f"{REFERENCE}/models/*/golden_chat.json")):
        with open(path, encoding="utf-8") as f:
            cases = json.load(f)
        requests = [{k: v for k, v in case.items() if k not in ("text", "ids")} for case in cases]
        for case, answer in zip(cases, render(os.path.dirname(path), requests, now), strict=True):
            score.add("models", os.path.basename(os.path.dirname(path)), case, answer)


def main():
    if not REFERENCE:
        print("HEARTH_REFERENCE is not set")
        return 77
    with open(f"{REFERENCE}/goldens/chat/variables.json", encoding="utf-8") as f:
        settings = json.load(f)
    score = Score()
    with tempfile.TemporaryDirectory() as parent:
        check_rendered(score, parent, settings["now"], settings["variables"])
        check_features(score, parent, settings["now"])
        check_published(score, parent, settings["now"])
    check_models(score, settings["now"])
    for what, n in score.all.items():
        print(f"{what}: {score.right[what]} of {n}")
    return 0 if score.all == score.right and len(score.all) == 4 else 1


if __name__ == "__main__":
    sys.exit(main())
