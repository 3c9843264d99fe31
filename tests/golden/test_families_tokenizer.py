#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tokenizers of the reference data for more families: every case of a tokenizer.json.

Pairs are joined by the tokenizer. Callers truncate; here that is done on the ids of single texts, with
the special tokens that the tokenizer puts around and between the texts "a" and "a".
"""
import json
import os
import sys

from test_tokenizer_reference import ask, lines

SKIPPED = 77


def cut(parts, room, strategy):
    """Content ids of one or two texts, cut to `room` in all; of two, the longer one first. When both are
    cut and the room is odd, the one that was longer, or the second, keeps the odd one.
    """
    if len(parts) == 1:
        return [parts[0][:room]]
    a, b = map(len, parts)
    if strategy == "only_first":
        a = min(a, room - b)
    elif strategy == "only_second":
        b = min(b, room - a)
    elif a + b > room:
        short = min(a, b, room // 2)
        a, b = (room - short, short) if a > b else (short, room - short)
    return [parts[0][:a], parts[1][:b]]


def frame(model, n):
    """The special tokens before, between and behind n texts, from how n times "a" is encoded."""
    one = ask(model, [{"text": "a"}])[0]["ids"]
    whole = ask(model, [{"text": "a", "pair": "a"} if n == 2 else {"text": "a", "add_special": True}])[0]["ids"]
    out, at = [], 0
    for _ in range(n):
        begin = next(i for i in range(at, len(whole)) if whole[i:i + len(one)] == one)
        out.append(whole[at:begin])
        at = begin + len(one)
    return out + [whole[at:]]


def assemble(case, plain, special):
    """The ids of a case from those of its texts and the special tokens around them."""
    parts = plain
    if "max_length" in case:
        parts = cut(plain, case["max_length"] - sum(map(len, special)), case.get("strategy"))
    if case.get("add_special") is False:
        return [i for p in parts for i in p]
    return [i for before, p in zip(special, parts + [[]]) for i in (*before, *p)]


def request(case):
    """What asks for a case that is not truncated."""
    if "pair" in case:
        return {"text": case["text"], "pair": case["pair"]}
    return {"text": case["text"], "add_special": case.get("add_special", True)}


def check(model):
    cases = lines(f"{model}/cases.jsonl")
    wrong = {}
    by_parts = [c for c in cases if "max_length" in c or ("pair" in c and c.get("add_special") is False)]
    texts = [t for c in by_parts for t in ([c["text"], c["pair"]] if "pair" in c else [c["text"]])]
    plain = iter([a["ids"] for a in ask(model, [{"text": t} for t in texts])])
    special = {1: frame(model, 1), 2: frame(model, 2)}
    for case in by_parts:
        parts = [next(plain) for _ in range(1 + ("pair" in case))]
        got = assemble(case, parts, special[len(parts)])
        if got != case["ids"]:
            wrong[case["id"]] = f"{case['ids']}, got {got}"
    rest = [c for c in cases if c not in by_parts]
    for case, a in zip(rest, ask(model, [request(c) for c in rest])):
        first = case.get("type1_from", len(case["ids"]))
        if a.get("ids") != case["ids"] or a.get("n_first", first) != first:
            wrong[case["id"]] = f"{case['ids']}, {first} of type 0, got {a}"
    for case, a in zip(cases, ask(model, [{"ids": c["ids"], "skip_special": True} for c in cases])):
        if "pair" not in case and "max_length" not in case and a.get("text") != case.get("decoded", case["text"]):
            wrong[case["id"]] = f"{case.get('decoded', case['text'])!r}, got {a.get('text')!r}"
    for id, what in list(wrong.items())[:5]:
        print(f"case {id}: {what}")
    print(f"{os.path.basename(model)}: {len(cases)} cases, {len(wrong)} failed")
    return len(wrong)


def main():
    root = os.environ.get("HEARTH_REFERENCE")
    folder = os.path.join(root or "", "goldens", "families", "tokenizers")
    if not root or not os.path.isdir(folder):
        print("HEARTH_REFERENCE does not name reference data with goldens/families")
        return SKIPPED
    return 1 if sum([check(os.path.join(folder, name)) for name in sorted(os.listdir(folder))]) else 0


if __name__ == "__main__":
    sys.exit(main())
