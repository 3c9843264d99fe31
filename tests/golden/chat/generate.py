#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Renders cases.py with the reference and writes cases.jsonl beside it.

Usage: python3 tests/golden/chat/generate.py   (needs jinja2 >= 3.1)
"""
import json
import os
import warnings

import jinja2

from cases import CASES
from environment import render

HERE = os.path.dirname(os.path.abspath(__file__))

# Output that differs from run to run, or that only Python could give.
UNSTABLE = (" object at 0x", "<built-in method", "<bound method", "<class ", "<function ", "<generator")


def main():
    warnings.simplefilter("ignore")
    n = 0
    with open(os.path.join(HERE, "cases.jsonl"), "w", encoding="utf-8") as out:
        for name, template, context in CASES:
            answer = render(template, context)
            if any(mark in answer.get("text", "") for mark in UNSTABLE):
                continue
            row = {"name": name, "template": template, "context": context, **answer}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            n += 1
    print(f"{n} cases, jinja2 {jinja2.__version__}")


if __name__ == "__main__":
    main()
