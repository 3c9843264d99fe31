#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whether a file's unit test notices a fault in it.

    tests/mutate_run.py [--build BUILD] [--seed N] [--count N] [--own] FILE...

Changes each FILE (a .c of the product) in `count` (3) seeded ways, one at a time: another operator, constant or
condition, a statement removed. Compiles the changed file alone, links it into the unit tests of its room, the program
named for the file first (with --own: only this one), and runs them until one fails. A change that the compiler turns
into the same code is replaced by another. Prints a row per change and exits 1 if a file has none that is noticed.
The tree stays as it is; the build folder (build) gets objects under mutate/.
"""
import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys

ROOT = os.environ.get("HEARTH_SOURCE_ROOT") or os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from relink import Build  # noqa: E402

SECONDS = 60  # a test that runs longer hangs: noticed
MEMORY = 4 << 30  # address space of a test
LITERAL = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:\\\n|[^\n])*", re.S | re.M)
OPERATORS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
             "+": "-", "-": "+", "+=": "-=", "-=": "+="}
# kind -> (pattern over the source without comments and texts, its replacement)
KINDS = {
    "operator": (r"(?<= )(<=?|>=?|==|!=|&&|\|\||[+-]=?)(?= )", lambda m: OPERATORS[m.group()]),
    "constant": (r"(?<![\w.\[])(0|[1-9]\d*)(?![\w.\]])", lambda m: str(int(m.group()) + 1)),
    "condition": (r"(?<=\bif )(\((?:[^()\n]|\((?:[^()\n]|\([^()\n]*\))*\))*\))(?= )", lambda m: f"(!{m.group()})"),
    "statement": (r"^[ \t]+(?:[a-z]\w*(?:->\w+|\.\w+|\[\w+\])* (?:[-+|&]?=) [^;{}\n]*|[a-z]\w*\([^;{}\n]*\));$", lambda m: ";"),
}
NOT_HERE = re.compile(r"\b(assert|_Static_assert|return|case|enum|static const)\b")


def blank(text):
    """text, its comments, literals and preprocessor lines as spaces"""
    return LITERAL.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def changes(text, random_):
    """Every change of the text in an order of the seed's: (line, kind, old, new, changed text), kinds in turn"""
    code = blank(text)
    body = code.find("\n{")  # the first function's
    by_kind = {}
    for kind, (pattern, replacement) in KINDS.items():
        found = []
        for m in re.finditer(pattern, code[body:], re.M):
            start, end = body + m.start(), body + m.end()
            line = code[code.rfind("\n", 0, start) + 1:code.find("\n", start)]
            if line[:1].isspace() and not (NOT_HERE.search(line) if kind in ("statement", "constant") else "assert" in line):
                found.append((code.count("\n", 0, start) + 1, kind, text[start:end].strip(), replacement(m), text[:start] + replacement(m) + text[end:]))
        random_.shuffle(found)
        by_kind[kind] = found
    kinds = list(KINDS)
    random_.shuffle(kinds)
    while any(by_kind.values()):
        for kind in kinds:
            if by_kind[kind]:
                yield by_kind[kind].pop()


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


class Programs:
    """The unit tests of a build"""

    def __init__(self, build):
        self.build = build
        listed = subprocess.run(["meson", "introspect", build.folder, "--tests"], stdout=subprocess.PIPE, check=True)
        self.tests = {t["name"]: t for t in json.loads(listed.stdout) if "hearth:unit" in t["suite"] and "/" in t["name"]}
        self.passes = {}

    def of_file(self, path, own):
        """Names of the tests for the product's file: the one named for it, and those of its room"""
        folders, name = os.path.split(os.path.splitext(path)[0])
        folders = folders.split("/")
        rooms = ["_".join(folders[i:n]) for n in range(len(folders), 0, -1) for i in range(n)]
        room = next((r for r in rooms if any(t.startswith(r + "/") for t in self.tests)), rooms[0])
        named = f"{room}/{name}"
        others = [] if own else sorted(t for t in self.tests if t.startswith(room + "/") and t != named)
        return [t for t in [named, *others] if t in self.tests and self.sound(t)]

    def sound(self, test):
        """Whether the test passes with the file unchanged"""
        if test not in self.passes:
            self.passes[test] = self.runs(test, self.tests[test]["cmd"]) == "passes"
        return self.passes[test]

    def runs(self, name, command):
        """What the command for the test did: passes, skipped, fails, hangs"""
        try:
            done = subprocess.run(command, cwd=self.build.folder, env={**os.environ, **self.tests[name]["env"]}, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, timeout=SECONDS, preexec_fn=limit_memory, check=False)
        except subprocess.TimeoutExpired:
            return "hangs"
        return {0: "passes", 77: "skipped"}.get(done.returncode, "fails")


class Mutant:
    """One file of the product as a text of our choice, compiled"""

    def __init__(self, build, path):
        self.build, self.source = build, os.path.join(ROOT, path)
        folder = os.path.join(build.folder, "mutate")
        os.makedirs(folder, exist_ok=True)
        self.copy = os.path.join(folder, os.path.basename(path))
        self.object, self.program = self.copy[:-2] + ".o", os.path.join(folder, "program")

    def compile(self, text):
        """The object's bytes, None if the text does not compile"""
        with open(self.copy, "w", encoding="utf-8") as f:
            f.write(text)
        done = self.build.compile(self.source, self.object, ["-O1", "-g0", "-w", "-iquote", os.path.dirname(self.source)], self.copy)
        if done.returncode:
            return None
        with open(self.object, "rb") as f:
            return f.read()

    def links(self, test):
        """Whether the test takes the object: one that plays functions which the file calls may not"""
        return self.build.link("tests/unit/" + test.replace("/", "_"), [self.object], self.program).returncode == 0


def notices(mutant, programs, tests):
    """The first test that fails, and how; ("", "") if none does"""
    for test in tests:
        if mutant.links(test) and (result := programs.runs(test, [mutant.program])) in ("fails", "hangs"):
            return test, result
    return "", ""


def judge(path, options, build, programs):
    """Prints a row per change of the file. Whether one is noticed."""
    tests = programs.of_file(path, options.own)
    if not tests:
        print(f"{path}\tno unit test")
        return False
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        text = f.read()
    mutant = Mutant(build, path)
    seen = {mutant.compile(text), None}
    tried = noticed = 0
    for line, kind, old, new, changed in changes(text, random.Random(f"{options.seed}:{path}")):
        if tried == options.count:
            break
        code = mutant.compile(changed)
        if code in seen:  # the same code, or none
            continue
        seen.add(code)
        tried += 1
        test, result = notices(mutant, programs, tests)
        noticed += bool(test)
        print(f"{path}:{line}\t{kind}: {old} -> {new}\t{test or 'not noticed'} {result}", flush=True)
    print(f"{path}\t{noticed} of {tried} noticed", flush=True)
    return noticed > 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--own", action="store_true")
    parser.add_argument("files", nargs="+", metavar="FILE")
    options = parser.parse_args()
    build = Build(options.build)
    programs = Programs(build)
    files = [os.path.relpath(os.path.realpath(f), os.path.realpath(ROOT)) for f in options.files]
    without = [f for f in files if not judge(f, options, build, programs)]
    print(f"\n{len(files) - len(without)} of {len(files)} files: at least one change noticed by {'the test named for it' if options.own else 'a unit test of the room'}")
    return 1 if without else 0


if __name__ == "__main__":
    sys.exit(main())
