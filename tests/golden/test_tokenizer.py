#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every layout of tests/golden/tokenizer through `hearth-filter tokenize`: encodings, decodings and streamed
decodings are those of the published tokenizers library, which wrote the fixtures (generate.py there).
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "tokenizer"))
import bases  # noqa: E402
from layouts import LAYOUTS  # noqa: E402

FILTER = os.path.join(os.environ.get("HEARTH_BUILD_ROOT", "build"), "tests", "hearth-filter")


def ask(model, requests):
    text = "".join(json.dumps(r) + "\n" for r in requests)
    done = subprocess.run([FILTER, "tokenize", "--model", model], input=text.encode(),
                          stdout=subprocess.PIPE, timeout=60, check=True)
    return [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]


def check_encode(name, model, texts, cases):
    requests = [{"text": texts[i], "add_special": add, "parse_special": parse} for i, add, parse, _ in cases]
    return [f"{name}: {r}: {c[3]}, not {a}" for r, c, a in zip(requests, cases, ask(model, requests))
            if a.get("ids") != c[3]]


def check_pairs(name, model, texts, cases):
    answers = ask(model, [{"text": texts[i], "pair": texts[j]} for i, j, _, _ in cases])
    return [f"{name}: pair {c}, not {a}" for c, a in zip(cases, answers) if a != {"ids": c[2], "n_first": c[3]}]


def check_decode(name, model, cases):
    problems = []
    answers = ask(model, [{"ids": ids, "skip_special": skip} for ids, skip, _, _ in cases])
    for (ids, skip, text, pieces), a in zip(cases, answers):
        joined = "".join(p or "" for p in a["pieces"]) + a["tail"]
        late = pieces is not None and any(
            sum(len(p or "") for p in a["pieces"][:i]) < sum(len(p or "") for p in pieces[:i])
            for i in range(len(ids) + 1))
        if a["text"] != text or joined != text or late:
            problems.append(f"{name}: {ids} (skip_special {skip}): {text!r}, {pieces}, not {a}")
    return problems


def main():
    with open(f"{HERE}/tokenizer/bases.json", encoding="ascii") as f:
        trained = json.load(f)
    with open(f"{HERE}/tokenizer/cases.jsonl", encoding="ascii") as f:
        texts, *layouts = map(json.loads, f)
    problems, n = [], 0
    for layout in layouts:
        name = layout["name"]
        with tempfile.TemporaryDirectory() as model:
            with open(f"{model}/tokenizer.json", "w", encoding="utf-8") as f:
                json.dump(bases.make(trained, *LAYOUTS[name]), f)
            problems += check_encode(name, model, texts["texts"], layout["encode"])
            problems += check_decode(name, model, layout["decode"])
            problems += check_pairs(name, model, texts["texts"], layout.get("pairs", []))
        n += len(layout["encode"]) + len(layout["decode"]) + len(layout.get("pairs", []))
    print("\n".join(problems[:10]))
    print(f"{len(layouts)} layouts, {n} cases, {len(problems)} differ")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
