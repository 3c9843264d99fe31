#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Encoding speed of `hearth-filter tokenize` and of the published tokenizers library, on the same text in the
same run, one thread each, every text read once and cold, the two by turns.

    bench_tokenizer.py --model DIR [--text FILE] [--megabytes 5] [--chunk 65536]

HEARTH_BUILD_ROOT names the build folder; needs the PyPI package tokenizers. Without --text the text is made of the
documentation strings and manuals found on this machine, each line once. The program's time includes
reading JSON lines and writing the ids; the library's is that of encode() and taking the ids. Times are
of the processor, so that a busy machine does not blur them; wall time is given too.
"""
import argparse
import ast
import glob
import json
import os
import subprocess
import sys
import sysconfig
import time

FILTER = os.path.join(os.environ.get("HEARTH_BUILD_ROOT", "build"), "tests", "hearth-filter")

os.environ["TOKENIZERS_PARALLELISM"] = "false"


def lines_of(path):
    with open(path, encoding="utf-8", errors="ignore") as f:
        text = f.read()
    if not path.endswith(".py"):
        return text.split("\n")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
    return "\n".join(docs).split("\n")


def make_text(n_bytes):
    """Prose in which no line occurs twice."""
    seen, out, total = set(), [], 0
    places = [sysconfig.get_paths()["stdlib"], "/usr/lib/python3", "/usr/share/perl", "/usr/share/doc"]
    for place in places:
        files = [p for end in ("py", "pod", "txt", "md", "rst") for p in glob.glob(f"{place}/**/*.{end}", recursive=True)]
        for path in sorted(files):
            try:
                lines = lines_of(path)
            except OSError:
                continue
            for line in lines:
                if len(line.strip()) < 40 or line.strip() in seen:
                    continue
                seen.add(line.strip())
                out.append(line)
                total += len(line.encode()) + 1
            if total >= n_bytes:
                return "\n".join(out)
    sys.exit(f"this machine has only {total} bytes of text; give --text FILE")


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Ours:
    """`hearth-filter tokenize`, loaded; counts processor and wall seconds of what it is asked from then on."""

    def __init__(self, model):
        self.process = subprocess.Popen([FILTER, "tokenize", "--model", model],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.ask("")
        self.start, self.wall = processor_seconds(self.process.pid), 0.0

    def ask(self, text):
        self.process.stdin.write(json.dumps({"text": text}).encode() + b"\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def encode(self, text):
        start = time.monotonic()
        answer = self.ask(text)
        self.wall += time.monotonic() - start
        return json.loads(answer)["ids"]

    def end(self):
        cpu = processor_seconds(self.process.pid) - self.start
        self.process.stdin.close()
        self.process.wait()
        return cpu, self.wall


class Theirs:
    def __init__(self, model):
        from tokenizers import Tokenizer
        self.tokenizer = Tokenizer.from_file(f"{model}/tokenizer.json")
        self.cpu = self.wall = 0.0

    def encode(self, text):
        cpu, wall = time.process_time(), time.monotonic()
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        self.cpu += time.process_time() - cpu
        self.wall += time.monotonic() - wall
        return ids

    def end(self):
        return self.cpu, self.wall


def run_both(model, chunks):
    """They take turns at every piece of text: what slows the machine meets both."""
    ours, theirs = Ours(model), Theirs(model)
    n_ids, same = 0, True
    for i, chunk in enumerate(chunks):
        pair = [t.encode(chunk) for t in ((ours, theirs) if i % 2 else (theirs, ours))]
        n_ids += len(pair[0])
        same &= pair[0] == pair[1]
    return n_ids, same, ours.end(), theirs.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--text")
    parser.add_argument("--megabytes", type=float, default=5)
    parser.add_argument("--chunk", type=int, default=65536, help="characters in one request")
    args = parser.parse_args()
    if args.text:
        with open(args.text, encoding="utf-8", newline="") as f:
            text = f.read()
    else:
        text = make_text(args.megabytes * 1e6)
    chunks = [text[i:i + args.chunk] for i in range(0, len(text), args.chunk)]
    size = len(text.encode()) / 1e6
    n_ids, same, (our_cpu, our_wall), (their_cpu, their_wall) = run_both(args.model, chunks)
    print(f"{size:.2f} MB, {len(chunks)} requests, {n_ids} ids, {'the same' if same else 'DIFFERENT'}")
    print(f"hearth      {our_cpu:7.3f} s processor ({size / our_cpu:6.1f} MB/s)  {our_wall:7.3f} s wall")
    print(f"tokenizers  {their_cpu:7.3f} s processor ({size / their_cpu:6.1f} MB/s)  {their_wall:7.3f} s wall")
    print(f"ratio {their_cpu / our_cpu:.1f} (processor), {their_wall / our_wall:.1f} (wall)")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
