#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""House rules a compiler does not check: who may include whom, calls that are banned, lines too long.

Prints every breach and exits 1 where there is one. Standard library only.
"""
import os
import re
import sys

ROOT = os.environ.get("HEARTH_SOURCE_ROOT") or os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ("base", "server", "engine", "tokenizer")
MAX_COLUMNS = 120  # 100 is the aim; a table or a URL may pass it a little

# folder (the longest that matches) -> patterns of the project headers of other folders that it may include
MAY_INCLUDE = {
    "base": [],
    "engine/kernels": [],
    "engine": [r"engine/kernels/\w+\.h"],
    "tokenizer": [r"base/\w+\.h"],
    "server": [r"base/\w+\.h", r"engine/engine\.h", r"tokenizer/tokenizer\.h"],
}
# system header -> the only files that may include it
ONLY = {
    "microhttpd.h": r"server/(http|http_[a-z]+|request|stream)\.[ch]",
    "cblas.h": r"engine/gemm_blas\.c",
    "pcre2.h": r"tokenizer/\w+\.[ch]",
    "utf8proc.h": r"tokenizer/\w+\.[ch]",
    "immintrin.h": r"engine/(kernels/\w+|pool)\.[ch]",
}
BANNED = re.compile(r"\b(strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|atof|gets|alloca|system)\s*\(")
COMMENT = re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.S)


def sources():
    for folder in FOLDERS:
        for path, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(path, name), ROOT)


def room_of(path):
    """The row of MAY_INCLUDE for a file or header: its folder, or the nearest one above that has a row."""
    folder = os.path.dirname(path)
    while folder and folder not in MAY_INCLUDE:
        folder = os.path.dirname(folder)
    return folder


def check_include(rel, header, breaches):
    room = room_of(rel)
    if header in ONLY and not re.fullmatch(ONLY[header], rel):
        breaches.append(f"{rel}: may not include <{header}>")
    if header.split("/")[0] not in FOLDERS or room_of(header) == room:
        return
    if not any(re.fullmatch(pattern, header) for pattern in MAY_INCLUDE[room]):
        breaches.append(f"{rel}: {room} may not include {header}")


def check_file(rel, breaches):
    with open(os.path.join(ROOT, rel), encoding="utf-8") as f:
        text = f.read()
    if not text.startswith("/* SPDX-License-Identifier: MIT */"):
        breaches.append(f"{rel}: the first line is not the SPDX line")
    for header in re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', text, re.M):
        check_include(rel, header, breaches)
    code = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    for n, line in enumerate(code.split("\n"), 1):
        for call in BANNED.findall(line):
            breaches.append(f"{rel}:{n}: {call} is banned")
    for n, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_COLUMNS:
            breaches.append(f"{rel}:{n}: {len(line)} columns")


def main():
    breaches = []
    n = 0
    for rel in sources():
        check_file(rel, breaches)
        n += 1
    for breach in breaches:
        print(breach)
    print(f"{n} files, {len(breaches)} breaches")
    return 1 if breaches or n == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
