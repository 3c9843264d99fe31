#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The drawing of the code base in numbers: rooms, arrows between them, circles, asserts, long functions. By hand.

    tests/tree_report.py [ROOT [BUILD]]

Lines and includes are read from the sources below ROOT (default: this tree), calls from the symbols of the object
files of a Meson build of it (default: ROOT/build): file A calls file B if A's object needs a function that B's
defines. Calls through pointers are not seen. Standard library and nm only.
"""
import collections
import json
import os
import re
import statistics
import subprocess
import sys

TOP = ("base", "engine", "tokenizer", "server")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
ASSERT = re.compile(r"(?<![\w])assert\s*\(")
LONGEST = 10


def read_sources(root):
    """{path: text} of the product's C files."""
    texts = {}
    for top in TOP:
        for where, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                if name.endswith((".c", ".h")):
                    path = os.path.join(where, name)
                    with open(path, encoding="utf-8") as f:
                        texts[os.path.relpath(path, root)] = f.read()
    return texts


def room(path):
    """The folder of a file; server/main.c, which may use every room, is one of its own."""
    return path if path == "server/main.c" else os.path.dirname(path)


def components(graph):
    """Strongly connected components of {node: {node}} with more than one node, largest first (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(found, key=len, reverse=True)


def include_graph(texts):
    return {path: {header for header in INCLUDE.findall(text) if header in texts} for path, text in texts.items()}


def module_graph(includes):
    """{module: {module}}: a header and the source of its name as one."""
    graph = collections.defaultdict(set)
    for path, headers in includes.items():
        module = os.path.splitext(path)[0]
        graph[module] |= {os.path.splitext(header)[0] for header in headers} - {module}
    return graph


def product_objects(root, build):
    """{source: object file}"""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        rows = json.load(f)
    found = {}
    for row in rows:
        source = os.path.relpath(os.path.join(row["directory"], row["file"]), root)
        if source.startswith(TOP) and not row["output"].startswith("tests"):
            found[source] = os.path.join(row["directory"], row["output"])
    return found


def call_graph(root, build):
    """{source: {source}} by functions needed and defined."""
    objects = product_objects(root, build)
    defined, needed = {}, {}
    for source, path in objects.items():
        symbols = subprocess.run(["nm", "-P", path], capture_output=True, text=True, check=True).stdout
        rows = [line.split()[:2] for line in symbols.splitlines()]
        defined.update({name: source for name, kind in rows if kind in "TW"})
        needed[source] = {name for name, kind in rows if kind == "U"}
    return {source: {defined[n] for n in names if defined.get(n, source) != source} for source, names in needed.items()}


def functions(text):
    """(name, lines) of each function of a formatted C file: its braces stand in the first column."""
    lines, start = text.split("\n"), None
    for n, line in enumerate(lines):
        if line == "{":
            start = n
        elif line == "}" and start is not None:
            first = start
            while first and lines[first - 1] and not lines[first - 1].startswith(("/", " */", "}", "#")):
                first -= 1
            name = re.search(r"(\w+)\(", " ".join(lines[first:start]))
            yield name.group(1) if name else "?", n - first + 1
            start = None


def n_lines(text):
    return text.count("\n")


def print_rooms(texts):
    total = sum(map(n_lines, texts.values()))
    print(f"{'room':22} {'.c':>4} {'.h':>4} {'lines':>6} {'share':>6} {'asserts':>8} {'per 1000':>9}")
    for name in sorted({room(path) for path in texts}):
        files = {path: text for path, text in texts.items() if room(path) == name}
        lines = sum(map(n_lines, files.values()))
        asserts = sum(len(ASSERT.findall(text)) for text in files.values())
        print(f"{name:22} {sum(p.endswith('.c') for p in files):4} {sum(p.endswith('.h') for p in files):4} {lines:6}"
              f" {lines / total:6.1%} {asserts:8} {1000 * asserts / lines:9.1f}")
    asserts = sum(len(ASSERT.findall(text)) for text in texts.values())
    print(f"{'all':22} {sum(p.endswith('.c') for p in texts):4} {sum(p.endswith('.h') for p in texts):4} {total:6}"
          f" {1:6.1%} {asserts:8} {1000 * asserts / total:9.1f}")


def print_arrows(title, graph):
    """Edges between rooms, and between rooms that point both ways."""
    arrows = collections.Counter((room(a), room(b)) for a, others in graph.items() for b in others if room(a) != room(b))
    print(f"\n{title}")
    for name in sorted({a for a, _ in arrows}):
        print(f"  {name} -> " + ", ".join(f"{b} ({n})" for (a, b), n in sorted(arrows.items()) if a == name))
    both = sorted({tuple(sorted(pair)) for pair in arrows if pair[::-1] in arrows})
    print("  both ways: " + ("; ".join(" and ".join(pair) for pair in both) or "none"))


def print_circles(title, graph):
    found = components(graph)
    print(f"\n{title}: {len(found)}" + (f", the largest of {len(found[0])} files" if found else ""))
    for files in found:
        print("  " + " ".join(files))


def print_functions(texts):
    rows = [(lines, name, path) for path, text in texts.items() if path.endswith(".c") for name, lines in functions(text)]
    lengths = [row[0] for row in rows]
    print(f"\n{len(rows)} functions, median {statistics.median(lengths):.0f} lines, {sum(n > 50 for n in lengths)} above 50;"
          f" the longest:")
    for lines, name, path in sorted(rows, reverse=True)[:LONGEST]:
        print(f"  {lines:4} {name} ({path})")


def main():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    root = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else here
    build = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else os.path.join(root, "build")
    texts = read_sources(root)
    includes, calls = include_graph(texts), call_graph(root, build)
    print_rooms(texts)
    print_arrows("includes from room to room", includes)
    print_arrows("calls from room to room (pairs of files)", calls)
    print_circles("include cycles", includes)
    print_circles("call circles between files", calls)
    print_circles("include circles between modules", module_graph(includes))
    print_functions(texts)


if __name__ == "__main__":
    main()
