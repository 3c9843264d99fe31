#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes cases.jsonl (cases.py rendered) and rendered.jsonl (templates/ by scenarios.py) beside it.

Usage: python3 tests/golden/chat/generate.py   (needs jinja2 >= 3.1)
"""
import copy
import json
import os
import warnings

import jinja2

from cases import CASES
from environment import render
from scenarios import SCENARIOS, VARIABLES

HERE = os.path.dirname(os.path.abspath(__file__))

# Output that differs from run to run, or that only Python could give.
UNSTABLE = (" object at 0x", "<built-in method", "<bound method", "<class ", "<function ", "<generator")


def write_lines(name, rows):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(f"{name}: {len(rows) - 1} rows, jinja2 {jinja2.__version__}")


def cases():
    """First the contexts, then rows that name theirs by number."""
    contexts = []
    rows = []
    for name, template, context in CASES:
        answer = render(template, copy.deepcopy(context))
        if any(mark in answer.get("text", "") for mark in UNSTABLE):
            continue
        if context not in contexts:
            contexts.append(context)
        rows.append({"name": name, "template": template, "context": contexts.index(context), **answer})
    return [{"contexts": contexts}, *rows]


def rendered():
    """First the scenarios, then rows that name theirs."""
    scenarios = {name: dict(zip(("messages", "tools", "kwargs"), parts))
                 for name, parts in SCENARIOS.items()}
    rows = [{"variables": VARIABLES, "scenarios": scenarios}]
    for file in sorted(os.listdir(os.path.join(HERE, "templates"))):
        with open(os.path.join(HERE, "templates", file), encoding="utf-8") as f:
            source = f.read()
        for name, scenario in scenarios.items():
            for prompt in (False, True):
                context = {**VARIABLES, **scenario["kwargs"], "messages": scenario["messages"],
                           "tools": scenario["tools"], "documents": None,
                           "add_generation_prompt": prompt}
                rows.append({"template": file, "scenario": name, "add_generation_prompt": prompt,
                             **render(source, copy.deepcopy(context))})
    return rows


def main():
    warnings.simplefilter("ignore")
    write_lines("cases.jsonl", cases())
    write_lines("rendered.jsonl", rendered())


if __name__ == "__main__":
    main()
