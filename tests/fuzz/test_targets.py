#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Row 84 of e2e/CATALOGUE.md: every parser of foreign bytes has a fuzz target with seeds, which every
run of the tests replays. Standard library only."""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# what the catalogue asks for -> the target that has it
WANTED = {
    "safetensors header": "safetensors",
    "pages of a prompt in a file": "extent",
    "GGUF header": "gguf",
    "blocks of quantised weights": "blocks",
    "index of shards": "index",
    "tokenizer.json": "tokenizer_json",
    "config.json": "config",
    "template parse and render": "template",
    "request JSON to parameters": "request",
    "chunk of SSE writer": "request",  # its events are taken apart and must be valid
    "tokens to text": "decoder",
    "text to tokens": "encode",
    "option file": "ini",
    "JSON schema": "schema",
    "regular expression": "regex",
    "GBNF": "gbnf",
    "ids under a grammar": "guide",
    "tool calls and reasoning in a model's text": "parse",
    "listings, headers and index of a model hub": "hub",
    "parts of a form": "multipart",
}


def read(*parts):
    with open(os.path.join(HERE, *parts), encoding="utf-8") as f:
        return f.read()


def test_84_every_parser_has_a_target_with_seeds():
    built = set(re.findall(r"^  '(\w+)': \w+_dep,$", read("meson.build"), re.M))
    sources = {f[5:-2] for f in os.listdir(HERE) if re.fullmatch(r"fuzz_\w+\.c", f)}
    assert built == sources, f"without a row in meson.build: {built ^ sources}"
    assert set(WANTED.values()) == built, set(WANTED.values()) ^ built
    for name in sorted(built):
        assert "LLVMFuzzerTestOneInput" in read(f"fuzz_{name}.c"), name
        seeds = [os.path.join(path, f) for path, _, files in os.walk(os.path.join(HERE, "corpus", name)) for f in files]
        assert len(seeds) >= 5 and any(os.path.getsize(s) for s in seeds), f"{name}: {len(seeds)} seeds"
        print(f"{name}: {len(seeds)} seeds")


if __name__ == "__main__":
    try:
        test_84_every_parser_has_a_target_with_seeds()
    except AssertionError as e:
        print("FAILED:", e)
        sys.exit(1)
