#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The trained mixture of experts (mixture/train.py) works out sums that it has not seen, digit by digit, on every
path; without the bias of selection, or if the weights of a token's experts are not normalised, it does not.

    test_mixture.py [--model DIR] [--all]    DIR: another; --all: all 2,063 sums, not a sample

A sum is right if after its question, and after each token of the right answer, the best token is the next one.
"""
import argparse
import json
import os
import random
import re
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "deploy", "demo"), os.path.join(HERE, "..", "e2e")]
import make_text  # noqa: E402
from gguf_files import read_directory, write_directory  # noqa: E402
from logits_check import score  # noqa: E402

PATHS = {"exact": 95, "bf16": 95, "int8": 95, "int4": 95}  # per cent that must be right, at least
MOST_WITHOUT = 50  # at most


def right(directory, questions, numerics):
    """Per cent of the sums."""
    texts = []
    for question in questions:
        answer = make_text.worked_sum(*map(int, re.findall(r"\d+", question))) + make_text.END_TURN
        texts.append((f"{make_text.TURN}user\n{question}{make_text.END_TURN}\n{make_text.TURN}assistant\n", answer))
    whole = score(directory, [{"text": q + a} for q, a in texts], ["--numerics", numerics])
    asked = score(directory, [{"text": q} for q, _ in texts], ["--numerics", numerics])
    n = 0
    for a, q in zip(whole, asked):
        first = len(q["ids"])
        assert a["ids"][:first] == q["ids"]
        n += a["argmax"][first - 1:-1] == a["ids"][first:]
    return 100 * n / len(questions)


def changed(directory, to, no_bias=False, **settings):
    """A copy with other settings, or without the bias."""
    shutil.copytree(directory, to)
    config, tensors = read_directory(directory)
    if no_bias:
        tensors = {name: (shape, [0.0] * len(values) if name.endswith("expert_bias") else values)
                   for name, (shape, values) in tensors.items()}
    write_directory(to, {**config, **settings}, tensors)
    return to


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default=os.path.join(HERE, "mixture"))
    parser.add_argument("--all", action="store_true")
    args = parser.parse_args()
    with open(os.path.join(HERE, "demo", "sums.jsonl"), encoding="utf-8") as f:
        questions = [json.loads(line)["question"] for line in f]
    if not args.all:
        questions = random.Random(1).sample(questions, 150)
    failed = 0
    with tempfile.TemporaryDirectory() as tmp:
        rows = [(path, args.model, path, least) for path, least in PATHS.items()]
        rows.append(("without the bias", changed(args.model, tmp + "/bias", no_bias=True), "exact", None))
        rows.append(("not normalised", changed(args.model, tmp + "/norm", norm_topk_prob=False), "exact", None))
        for name, directory, path, least in rows:
            share = right(directory, questions, path)
            ok = share >= least if least else share <= MOST_WITHOUT
            failed += not ok
            print(f"{name}: {share:.1f} % of {len(questions)} sums: {'ok' if ok else 'FAILED'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
