#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random templates, rendered by jinja2 and by `hearth-filter render`; prints every difference.

Usage: HEARTH_BUILD_ROOT=build python3 tests/golden/chat/differential.py [N] [SEED]

Needs jinja2. The seed is printed; the same seed gives the same templates. A difference is one side
rendering what the other refuses, or two different texts. Exits 1 where there is one.
"""
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor

from environment import make_environment

FILTER = os.path.join(os.environ.get("HEARTH_BUILD_ROOT", "build"), "tests", "hearth-filter")

CONTEXT = {
    "s": "Hello Wörld", "t": "  a,b,,c \n", "e": "", "n": None, "i": 7, "z": 0, "f": 2.5, "b": True,
    "l": [3, 1, 2], "w": ["b", "A", "c"], "d": {"k": 1, "A": "x", "l": [1, {"q": None}]}, "m": [
        {"role": "system", "content": "S"}, {"role": "user", "content": "u<1>", "n": 2},
        {"role": "assistant", "content": None, "tool_calls": [{"f": {"a": {"x": 1.5}}}]}],
}
NAMES = list(CONTEXT) + ["u", "v", "x"]
STRINGS = ["''", "'a'", "'ab c'", "'<x>&'", "'a <b>&lt;c&amp</b>  d'", "\"it's\"", "'é你😀'", r"'\n'", "','", "'%s'", "'{}'", "'a.b'", "'role'", "'k'"]
NUMBERS = ["0", "1", "2", "-1", "3", "10", "1.5", "0.1", "-2.5", "1e3", "7", "100", ]
FILTERS = ["capitalize", "count", "default('q')", "default('q', true)", "dictsort",
           "dictsort(by='value')", "first", "indent", "indent(2, true)", "int",
           "int(5)", "items", "join", "join(',')", "join(',', attribute='role')", "last", "length", "list", "lower", "map('string')", "map('upper')", "map(attribute='role')",
           "map(attribute='x', default=1)", "max", "min", "reject", "reject('none')", "rejectattr('content')", "replace('a', 'b')", "safe",
           "select", "select('odd')", "select('string')", "selectattr('role', 'eq', 'user')", "selectattr('n', 'defined')", "sort", "sort(attribute='role')", "string",            "tojson", "tojson(indent=1)", "trim", "unique", "upper", ]
TESTS = ["boolean", "defined", "eq(1)", "even", "false", "filter", "float", "ge 1", "gt(1)", "in([1, 'a'])", "in 'abc'", "integer", "iterable", "le 2",
         "lt 2", "mapping", "ne 1", "none", "number", "odd", "sequence", "string", "test", "true", "undefined"]
METHODS = ["upper()", "lower()", "title()", "strip()", "split()", "split(',')", "split(',', 1)", "startswith('H')", "endswith(('a', 'd'))", "replace('l', 'L')", "join(['p', 'q'])",
           "items()", "keys()", "values()", "get('k')", "get('zz', 5)", "splitlines()", "format(1, a=2)", "append(1)",
           "pop()", "nope", "role", "k", "l", "capitalize()", "lstrip('H ')", ]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.in_loop = 0
        self.macros = 0

    def pick(self, *weighted):
        return self.r.choices([w[1] for w in weighted], [w[0] for w in weighted])[0]()

    def one(self, choices):
        return self.r.choice(choices)

    def name(self):
        if self.in_loop and self.r.random() < 0.2:
            return "loop." + self.one(["index", "index0", "first", "last", "length", "revindex", "previtem", "nextitem", "depth"])
        return self.one(NAMES)

    def args(self, depth):
        return ", ".join(self.expr(depth - 1) for _ in range(self.r.randrange(3)))

    def expr(self, depth):
        if depth <= 0:
            return self.pick((4, self.name), (3, lambda: self.one(STRINGS)), (3, lambda: self.one(NUMBERS)),
                             (1, lambda: self.one(["true", "false", "none", "[]", "{}", "()"])))
        sub = lambda: self.expr(depth - 1)
        return self.pick(
            (2, lambda: self.expr(0)),
            (3, lambda: f"{sub()} {self.one(['+', '-', '*', '%', '~', '+', '~'])} {sub()}"),
            (2, lambda: f"{sub()} {self.one(['==', '!=', '<', '<=', '>', '>=', 'in', 'not in'])} {sub()}"),
            (2, lambda: f"{sub()} {self.one(['and', 'or'])} {sub()}"),
            (1, lambda: f"not {sub()}"), (1, lambda: f"-{sub()}"), (2, lambda: f"({sub()})"),
            (6, lambda: f"{sub()}|{self.one(FILTERS)}"), (2, lambda: f"({sub()})|{self.one(FILTERS)}|{self.one(FILTERS)}"),
            (3, lambda: f"{sub()} is {self.one(['', 'not '])}{self.one(TESTS)}"), (5, lambda: f"({sub()}).{self.one(METHODS)}"), (1, lambda: f"{sub()} if {sub()} else {sub()}"), (1, lambda: f"({sub()} if {sub()})"),
            (2, lambda: f"{sub()}[{sub()}]"), (1, lambda: f"{self.name()}[{self.one(['', '1', '-2', 'z'])}:{self.one(['', '2', '-1', 'i'])}{self.one(['', ':2', ':-1', ':'])}]"),
            (2, lambda: f"[{self.args(depth)}]"), (1, lambda: f"({sub()}, {sub()})"), (1, lambda: f"{{'k': {sub()}, {self.one(STRINGS)}: {sub()}}}"),
            (1, lambda: f"range({self.one(['3', 'i', '1, 4', '5, 0, -2'])})"), (1, lambda: f"dict(a={sub()})"),
            (1, lambda: f"namespace(a={sub()}).{self.one(['a', 'b'])}"), (1, lambda: f"mac({self.args(depth)})" if self.macros else sub()))

    def typed(self, kind, depth):
        """An expression that has the kind wanted, so that most of them render."""
        sub = lambda k: self.typed(k, depth - 1)
        if depth <= 0:
            return {"str": lambda: self.one(STRINGS + ["s", "t", "e", "m[1].role", "m[1].content", "w[0]"]),
                    "int": lambda: self.one(["0", "1", "2", "3", "-1", "-2", "i", "z", "5", "12"]),
                    "num": lambda: self.one(NUMBERS + ["i", "f", "z"]),
                    "bool": lambda: self.one(["true", "false", "b", "u is defined", "s is string"]),
                    "list": lambda: self.one(["l", "w", "[1, 2, 3, 4]", "[]", "['x', 'Y', 'z']", "range(5)|list"]),
                    "any": lambda: self.one(NAMES)}[kind]()
        if kind == "any":
            return sub(self.one(["str", "int", "num", "bool", "list"]))
        if kind == "str":
            return self.pick(
                (2, lambda: f"({sub('str')} + {sub('str')})"), (3, lambda: f"({sub('any')} ~ {sub('any')})"), (1, lambda: f"{sub('str')} * {sub('int')}"),
                (4, lambda: f"({sub('str')})|{self.one(['upper', 'lower', 'capitalize', 'trim', 'safe', 'string', 'indent(1)', 'tojson', 'first', 'last'])}"),
                (3, lambda: f"({sub('str')}).{self.one(['strip()', 'upper()', 'title()', 'lstrip()', 'rstrip()', 'capitalize()'])}"),
                (2, lambda: f"({sub('str')}).{self.one(['strip', 'lstrip'])}({sub('str')})"),
                (2, lambda: f"({sub('str')}).replace({sub('str')}, {sub('str')})"),
                (2, lambda: f"({sub('str')})|replace({sub('str')}, {sub('any')}, {sub('int')})"), (3, lambda: f"({sub('str')})[{self.one(['', '1', '-3'])}:{self.one(['', '4', '-1'])}]"),
                (2, lambda: f"({sub('list')})|join({sub('str')})"), (1, lambda: f"({sub('list')})|string"), (2, lambda: f"({sub('str')} if {sub('bool')} else {sub('str')})"),
                (2, lambda: f"'{{}}{{}}'.format({sub('str')}, {sub('any')})"),
                (1, lambda: f"({sub('list')})|tojson({self.one(['', 'indent=1', 'sort_keys=true', 'ensure_ascii=true'])})"))
        if kind == "int":
            return self.pick(
                (4, lambda: f"({sub('int')} {self.one(['+', '-', '*'])} {sub('int')})"), (2, lambda: f"({sub('int')} % {self.one(['2', '3', '-3', '7'])})"), (1, lambda: f"-{sub('int')}"),
                (2, lambda: f"({sub('str')})|{self.one(['length', 'int'])}"), (2, lambda: f"({sub('list')})|length"), (1, lambda: f"({sub('num')})|int"))
        if kind == "num":
            return self.pick((3, lambda: f"({sub('num')} {self.one(['+', '-', '*'])} {sub('num')})"), (1, lambda: f"({sub('num')} / {self.one(['2', '3', '0.5', '-7'])})"), (1, lambda: sub("int")))
        if kind == "bool":
            return self.pick((3, lambda: f"({sub('num')} {self.one(['<', '>=', '==', '!='])} {sub('num')})"), (2, lambda: f"({sub('str')} {self.one(['in', 'not in', '==', '<'])} {sub('str')})"), (2, lambda: f"({sub('any')} is {self.one(['string', 'number', 'defined', 'iterable', 'sequence', 'mapping', 'none', 'boolean', 'integer', 'float', 'true'])})"),
                             (2, lambda: f"({sub('bool')} {self.one(['and', 'or'])} {sub('bool')})"), (1, lambda: f"(not {sub('bool')})"), (1, lambda: f"({sub('any')} in {sub('list')})"), (1, lambda: f"({sub('str')}).{self.one(['startswith', 'endswith'])}({sub('str')})"))
        return self.pick(
            (2, lambda: f"[{sub('any')}, {sub('any')}]"), (2, lambda: f"({sub('list')} + {sub('list')})"), (2, lambda: f"({sub('list')})[{self.one(['', '1', '-2'])}:{self.one(['', '3', '-1'])}{self.one(['', ':2', ':-1'])}]"),
            (2, lambda: f"({sub('str')}).split({self.one(['', repr(','), repr(' '), repr(',') + ', 1'])})"), (1, lambda: f"({sub('str')})|list"), (1, lambda: f"({sub('str')}).{self.one(['splitlines()', 'splitlines(true)'])}"),
            (3, lambda: f"({sub('list')})|{self.one(['map', 'select', 'reject'])}('{self.one(['string', 'defined', 'number', 'none', 'in'])}'{self.one(['', ', ' + sub('list')])})|list"), (2, lambda: f"({sub('list')})|unique|list"), (1, lambda: f"({sub('list')})|map('string')|sort"))

    def text(self):
        return self.one(["", " ", "\n", "a", "x \n", "  ", "\n  ", "é", "{", "b\n\n", "\t"])

    def open(self, tag):
        return "{%" + self.one(["", "", "-", "+"]) + " " + tag + " " + self.one(["", "", "-", "+"]) + "%}"

    def block(self, depth):
        return "".join(self.text() + self.statement(depth) for _ in range(self.r.randrange(1, 3))) + self.text()

    def loop(self, depth):
        head = self.one([f"for x in {self.expr(1)}", f"for x in {self.one(['l', 'm', 'w', 's', 'range(3)', 'd'])}", "for u, v in d.items()", "for u, v in d|dictsort",
                         f"for x in l if {self.expr(1)}", f"for x in m if x.role != {self.one(STRINGS)}"])
        self.in_loop += 1
        body = self.block(depth - 1)
        if self.r.random() < 0.3:
            body += self.open("if " + self.expr(1)) + self.open(self.one(["break", "continue"])) + "{% endif %}"
        self.in_loop -= 1
        otherwise = self.open("else") + self.block(depth - 1) if self.r.random() < 0.3 else ""
        return self.open(head) + body + otherwise + self.open("endfor")

    def condition(self, depth):
        out = self.open("if " + self.expr(2)) + self.block(depth - 1)
        if self.r.random() < 0.3:
            out += self.open("elif " + self.expr(2)) + self.block(depth - 1)
        if self.r.random() < 0.4:
            out += self.open("else") + self.block(depth - 1)
        return out + self.open("endif")

    def assignment(self, depth):
        return self.pick(
            (4, lambda: self.open(f"set {self.one(['u', 'v', 'x', 's', 'l'])} = {self.expr(2)}")),
            (1, lambda: self.open(f"set u, v = {self.expr(1)}, {self.expr(1)}")),
            (2, lambda: self.open(f"set {self.one(['u', 'v', 's'])}") + self.block(depth - 1) + self.open("endset")),
            (1, lambda: self.open(f"set u | {self.one(['upper', 'trim', 'length', 'replace(s, e)'])}") + self.block(depth - 1) + self.open("endset")),
            (1, lambda: "{% set ns = namespace(a=1) %}{% for x in l %}{% set ns.a = " + self.expr(1) + " %}{% endfor %}{{ ns.a }}"))

    def macro(self, depth):
        params = self.one(["", "x", "x, u=1", "u, v=s", "x=l"])
        loops, self.in_loop = self.in_loop, 0
        body = self.block(depth - 1)
        self.in_loop = loops
        self.macros += 1
        return self.open(f"macro mac({params})") + body + self.open("endmacro") + "{{ mac(" + self.args(1) + ") }}"

    def statement(self, depth):
        if depth <= 0:
            return "{{" + self.one(["", "-"]) + " " + self.one([self.expr(1), self.typed("any", 3), self.typed("str", 2)]) + " " + self.one(["", "-"]) + "}}"
        return self.pick(
            (3, lambda: "{{ " + self.expr(3) + " }}"), (5, lambda: "{{ " + self.typed("any", 4) + " }}"), (3, lambda: self.loop(depth)), (3, lambda: self.condition(depth)), (3, lambda: self.assignment(depth)), (1, lambda: self.macro(depth)),
            (1, lambda: self.open(f"filter {self.one(['upper', 'trim', 'indent(1)'])}") + self.block(depth - 1) + self.open("endfilter")),
            (1, lambda: "{#" + self.one(["", "-"]) + " c " + self.one(["", "-"]) + "#}"), (1, lambda: self.open("generation") + self.block(depth - 1) + self.open("endgeneration")))


# Texts with an address in them.
UNSTABLE = re.compile(r"0[xX][0-9a-fA-F]{6,}|<class ", re.I)
LEFT_OUT = "not supported in chat templates"


def reference(template):
    env = make_environment()
    try:
        text = env.from_string(template).render(**json.loads(json.dumps(CONTEXT)))
        text.encode("utf-8")
        return {"text": text}
    except Exception as error:  # whatever the template did wrong
        return {"error": f"{type(error).__name__}: {error}"}


def hearth(template):
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "chat_template.jinja"), "w", encoding="utf-8", newline="") as f:
            f.write(template)
        line = json.dumps({"context": CONTEXT}) + "\n"
        done = subprocess.run([FILTER, "render", "--model", directory], input=line.encode(), timeout=60,
                              env={**os.environ, "HEARTH_NOW": "2025-03-09T14:05:06"}, stdout=subprocess.PIPE)
        return json.loads(done.stdout.decode()) if done.returncode == 0 else {"crash": done.returncode}


def same(wanted, got):
    return "error" in got if "error" in wanted else got.get("text") == wanted["text"]


def main():
    warnings.simplefilter("ignore")
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    templates = [Maker(seed * 1000003 + i).block(3) for i in range(n)]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(hearth, templates))
    differences = texts = 0
    for template, got in zip(templates, answers):
        wanted = reference(template)
        if UNSTABLE.search(str(wanted)) or LEFT_OUT in got.get("error", ""):
            continue
        texts += "text" in wanted
        if not same(wanted, got):
            differences += 1
            print(f"{template!r}\n  jinja2 {wanted!r}\n  hearth {got!r}")
    print(f"{n} templates from seed {seed}: {texts} render, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
