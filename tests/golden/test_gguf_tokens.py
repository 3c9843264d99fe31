#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tokenizers that are built from the keys of GGUF files, through `hearth-filter tokenize`.

Needs HEARTH_REFERENCE (else exit 77). The texts of the reference's own files; and for each rule of splitting text a
file made of the published tokenizer.json that has it, which must encode 10,000 texts as that does. What BUILD/real
holds of real files (tests/e2e/real_models.md) is compared as well.
"""
import glob
import json
import os
import sys
import tempfile

from test_tokenizer_reference import ask, lines

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "e2e"))
from gguf_files import gguf, tokenizer_keys  # noqa: E402

ROOT = os.environ.get("HEARTH_REFERENCE")
# tokenizer.ggml.pre, or the model "gemma4" -> the folder of a published tokenizer.json
PUBLISHED = {"smollm": "models/smollm2-135m", "llama-bpe": "models/llama3-tokenizer", "llama3": "models/llama3-tokenizer",
             "llama-v3": "models/llama3-tokenizer", "qwen2": "models/qwen2.5-tokenizer", "gpt-2": "models/gpt2-tokenizer",
             "tekken": "goldens/tokenizers/made/tekken", "gemma4": "goldens/families/tokenizers/gemma"}
N_TEXTS = 10000
failed = 0


def check(ok, *what):
    global failed
    failed += not ok
    if not ok and failed < 10:
        print(*(str(w)[:300] for w in what))


def golden_texts():
    folder = f"{ROOT}/goldens/gguf"
    with open(f"{folder}/tokens/models.json", encoding="utf-8") as f:
        models = json.load(f)
    for kind, name in models.items():
        cases = lines(f"{folder}/tokens/{kind}.jsonl")
        answers = ask(f"{folder}/models/{name}/{name}.gguf", [{"text": c["text"], "add_special": s} for c in cases
                                                              for s in (False, True)])
        wanted = [i for c in cases for i in (c["ids"], c.get("with_special", c["ids"]))]
        for got, ids in zip(answers, wanted):
            check(got.get("ids") == ids, kind, ids, got)
        print(f"{kind}: {len(answers)} of the reference's texts")


def many_texts():
    """Those of the reference's corpus, and pieces of its long texts, which begin and end anywhere."""
    folder = f"{ROOT}/goldens/tokenizers"
    texts = {c["text"]: None for c in lines(f"{folder}/corpus.jsonl")}
    for path in sorted(glob.glob(f"{folder}/big-*.txt")):
        with open(path, encoding="utf-8", newline="") as f:
            big = f.read()
        texts.update((big[i:i + 61], None) for i in range(0, len(big), 29))
    assert len(texts) >= N_TEXTS, len(texts)
    return [{"text": t, "parse_special": i % 2 == 0} for i, t in enumerate(texts)]


def same(what, built, wanted):
    for got, ids in zip(built, wanted):
        check(got == ids, what, ids, got)
    print(f"{what}: {len(built)} texts")


def main():
    if not ROOT:
        print("HEARTH_REFERENCE is not set; it names the directory of the reference data")
        return 77
    golden_texts()
    texts, published = many_texts(), {}
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "x.gguf")
        for pre, folder in PUBLISHED.items():
            if folder not in published:
                published[folder] = ask(f"{ROOT}/{folder}", texts)
            with open(f"{ROOT}/{folder}/tokenizer.json", encoding="utf-8") as f:
                tokenizer = json.load(f)
            with open(path, "wb") as f:
                f.write(gguf(tokenizer_keys(tokenizer, pre)))
            same(pre, ask(path, texts), published[folder])
    real = glob.glob(os.path.join(os.environ.get("HEARTH_BUILD_ROOT", "build"), "real", "SmolLM2*.gguf"))
    if real:
        same("SmolLM2's file", ask(real[0], texts), published["models/smollm2-135m"])
    else:
        print("skipped: SmolLM2's file is not there")
    print(f"{failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
