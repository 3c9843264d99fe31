#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tokenizers of the reference data for more families: every case of a tokenizer.json that is served.

Pairs and truncation are the retrieval routes' own; here they are put together from the ids of single
texts, so that every case judges the tokenizer.
"""
import json
import os
import sys

from test_tokenizer_reference import ask, lines

SKIPPED = 77
SERVED = ["gemma", "bpe-qwen"]


def cut(parts, room, strategy):
    """Content ids of one or two texts, cut to `room` in all."""
    parts = [list(p) for p in parts]
    while sum(map(len, parts)) > room:
        longest = len(parts) - 1 if strategy == "only_second" else \
            max(range(len(parts)), key=lambda i: (len(parts[i]), i))
        if strategy == "only_first":
            longest = 0
        parts[longest].pop()
    return parts


def assemble(case, plain, special):
    """The ids of a case: `special` are those of the empty text, before and after the content."""
    before, after = special
    parts = plain
    if "max_length" in case:
        room = case["max_length"] - len(plain) * (len(before) + len(after))
        parts = cut(plain, room, case.get("strategy"))
    if case.get("add_special") is False:
        return [i for p in parts for i in p]
    return [i for p in parts for i in (*before, *p, *after)]


def check(model):
    cases = lines(f"{model}/cases.jsonl")
    texts = [t for c in cases for t in ([c["text"], c["pair"]] if "pair" in c else [c["text"]])]
    plain = iter([a["ids"] for a in ask(model, [{"text": t, "parse_special": True} for t in texts])])
    marked = ask(model, [{"text": "a", "add_special": True}, {"text": "a"}])
    whole, one = marked[0]["ids"], marked[1]["ids"]
    at = next(i for i in range(len(whole)) if whole[i:i + len(one)] == one)
    special = whole[:at], whole[at + len(one):]
    failed = 0
    for case in cases:
        parts = [next(plain) for _ in range(1 + ("pair" in case))]
        got = assemble(case, parts, special)
        if got != case["ids"]:
            failed += 1
            if failed <= 5:
                print(f"case {case['id']}: {case['ids']}, got {got}")
    back = ask(model, [{"ids": c["ids"], "skip_special": True} for c in cases])
    for case, answer in zip(cases, back):
        if "pair" in case or "max_length" in case:
            continue
        failed += answer.get("text") != case.get("decoded", case["text"])
    print(f"{os.path.basename(model)}: {len(cases)} cases, {failed} failed")
    return failed


def main():
    root = os.environ.get("HEARTH_REFERENCE")
    folder = os.path.join(root or "", "goldens", "families", "tokenizers")
    if not root or not os.path.isdir(folder):
        print("HEARTH_REFERENCE does not name reference data with goldens/families")
        return SKIPPED
    return 1 if sum(check(os.path.join(folder, name)) for name in SERVED) else 0


if __name__ == "__main__":
    sys.exit(main())
