#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The manners of `hearth-filter tokenize`: one answer a line whatever the line, at once, in order; wrong
directories end it with one line on stderr.
"""
import json
import os
import subprocess
import sys
import tempfile

FILTER = os.path.join(os.environ.get("HEARTH_BUILD_ROOT", "build"), "tests", "hearth-filter")

ROOT = os.environ.get("HEARTH_SOURCE_ROOT") or "."
DEMO = os.path.join(ROOT, "deploy", "demo")
MAX_LINE = 16 << 20

# line -> the members an answer has
LINES = [
    (b'{"text":"The river"}', ["ids"]),
    (b"", ["error"]),
    (b"not json", ["error"]),
    (b"[1]", ["error"]),
    (b"{}", ["error"]),
    (b'{"text":3}', ["error"]),
    (b'{"text":"a","ids":[1]}', ["error"]),
    (b'{"text":"a","add_special":"yes"}', ["error"]),
    (b'{"text":"a","add_special":null,"parse_special":null,"other":1}', ["ids"]),
    (b'{"text":"a\\u0000b"}', ["ids"]),
    (b'{"text":"\\ud800"}', ["error"]),
    (b'{"text":"\xff"}', ["error"]),
    (b'{"text":"a","text":"b"}', ["error"]),
    (b'{"ids":[1,2,3]}', ["text", "pieces", "tail"]),
    (b'{"ids":[]}', ["text", "pieces", "tail"]),
    (b'{"ids":[2147483647]}', ["text", "pieces", "tail"]),
    (b'{"ids":[-1]}', ["error"]),
    (b'{"ids":[1.5]}', ["error"]),
    (b'{"ids":[2147483648]}', ["error"]),
    (b'{"ids":"1"}', ["error"]),
    (b'{"text":"' + b"x" * MAX_LINE + b'"}', ["error"]),
    (b'{"text":"' + b"ab " * (MAX_LINE // 3 - 20) + b'"}', ["ids"]),
    (b'{"text":"last, without a line break"}', ["ids"]),
]


def run(model, data):
    return subprocess.run([FILTER, "tokenize", "--model", model], input=data,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100)


def check_lines(problems):
    done = run(DEMO, b"\n".join(line for line, _ in LINES))
    answers = done.stdout.split(b"\n")
    if done.returncode or answers.pop() != b"" or len(answers) != len(LINES):
        problems.append(f"status {done.returncode}, {len(answers)} answers to {len(LINES)} lines")
        return
    for (line, members), answer in zip(LINES, map(json.loads, answers)):
        if sorted(answer) != sorted(members):
            problems.append(f"{line[:60]}: {str(answer)[:100]}")


def check_at_once(problems):
    """An answer comes before the next line is sent."""
    p = subprocess.Popen([FILTER, "tokenize", "--model", DEMO],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for text in ("one", "two"):
        p.stdin.write(json.dumps({"text": text}).encode() + b"\n")
        p.stdin.flush()
        if "ids" not in json.loads(p.stdout.readline()):
            problems.append("no ids")
    p.stdin.close()
    if p.wait(timeout=20):
        problems.append("the end of the input is not a good end")


def check_wrong_directories(problems):
    with tempfile.TemporaryDirectory() as d:
        cases = [("/nonexistent", None), (d, None), (d, b""), (d, b"{"), (d, b'{"model":{"type":"WordLevel"}}')]
        for model, content in cases:
            if content is not None:
                with open(os.path.join(model, "tokenizer.json"), "wb") as f:
                    f.write(content)
            done = run(model, b"{}\n")
            if done.returncode == 0 or done.stdout or done.stderr.count(b"\n") != 1:
                problems.append(f"{model} {content}: {done.returncode} {done.stdout} {done.stderr}")


def main():
    problems = []
    check_lines(problems)
    check_at_once(problems)
    check_wrong_directories(problems)
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
