#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the seed corpus of fuzz_template: templates, each with a context behind a NUL or without.

Usage: python3 tests/fuzz/make_template_seeds.py
The seeds are the project's own templates and every 60th case of tests/golden/chat/cases.jsonl.
"""
import json
import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHAT = os.path.join(ROOT, "tests", "golden", "chat")
OUT = os.path.join(ROOT, "tests", "fuzz", "corpus", "template")


def write(name, template, context=None):
    data = template.encode()
    if context is not None:
        data += b"\0" + json.dumps(context, ensure_ascii=False).encode()
    with open(os.path.join(OUT, name), "wb") as f:
        f.write(data)


def main():
    os.makedirs(OUT, exist_ok=True)
    templates = os.path.join(CHAT, "templates")
    for name in sorted(os.listdir(templates)):
        with open(os.path.join(templates, name), encoding="utf-8") as f:
            write(name, f.read())
    with open(os.path.join(CHAT, "cases.jsonl"), encoding="utf-8") as f:
        contexts = json.loads(next(f))["contexts"]
        for i, line in enumerate(f):
            if i % 60 == 0:
                case = json.loads(line)
                write(f"case-{case['name']}", case["template"], contexts[case["context"]])


if __name__ == "__main__":
    main()
