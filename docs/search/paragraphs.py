#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Brings paragraphs.jsonl up to the pages: a paragraph that its page no longer has becomes the one most like it there.

    paragraphs.py [FILE]     writes FILE instead
"""
import difflib
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def of_page(text):
    """(heading, paragraph) of Markdown, without code and tables."""
    heading, fenced, kept, found = "", False, [], []
    for line in text.split("\n") + [""]:
        item = re.match(r"\s*([-*]|\d+\.) ", line)
        if line.startswith("```"):
            fenced = not fenced
        ends = line.startswith(("```", "#", "|", "<!--")) or not line.strip() or item
        if (ends or fenced) and kept:
            found.append((heading, " ".join(kept)))
            kept = []
        if line.startswith("#") and not fenced:
            heading = line.strip("# ")
        elif not fenced and line.strip() and (item or not ends):
            kept.append(line[item.end():].strip() if item else line.strip())
    return found


def plain(text):
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(text.replace("`", "").replace("**", "").split())


def current(row, others):
    """The row with the text that stands for it in its page today, which is none of the others'."""
    with open(os.path.join(HERE, "..", "..", row["page"]), encoding="utf-8") as f:
        found = {plain(p): h for h, p in of_page(f.read())}
    if row["text"] not in found:
        near = [p for p in found if p not in others and len(p.split()) >= 8]
        text = max(near, key=lambda p: difflib.SequenceMatcher(None, p, row["text"], autojunk=False).ratio())
        print(f"{row['page']}: {row['text'][:60]}... is now {text[:60]}...")
        row["text"] = text
    return dict(row, heading=found[row["text"]])


def main():
    path = os.path.join(HERE, "paragraphs.jsonl")
    with open(path, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    texts = {row["text"] for row in rows}
    with open(sys.argv[1] if len(sys.argv) > 1 else path, "w", encoding="utf-8") as f:
        for row in rows:
            row = current(row, texts)
            texts.add(row["text"])
            f.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
