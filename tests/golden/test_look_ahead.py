#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Patterns that look ahead, against what node's RegExp (flag u) says of them: searched, as `pattern` is, and as the
whole text, as `regex` is. Standard library only.

    test_look_ahead.py                    the recorded verdicts in look_ahead.jsonl
    test_look_ahead.py --node [N] [SEED]  by hand, with node on the PATH: N texts (100,000) over the patterns below,
                                          generated ones and, with HEARTH_REFERENCE, those of its schemas. Patterns
                                          that are not followed are counted and named
    test_look_ahead.py --record           writes look_ahead.jsonl anew, with node
"""
import json
import lzma
import os
import random
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "e2e"))
from accept_filter import Accept  # noqa: E402
from hearth_server import DEMO  # noqa: E402

RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "look_ahead.jsonl")
GENERATED = 200
# zod 4, pydantic, and habits of people; hostname is too large an automaton
KNOWN = [
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$",
    r"^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$",
    r"^(?=.{1,253}\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
    r"(?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\.?$",
    r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d{0,2}0*$",
    r"^(?!^[-+.]*$)[+-]?0*(?:\d{0,4}|(?=[\d.]{1,5}0*$)\d{0,2}\.\d{0,2}0*$)",
    r"^(?!\s*$).+", r"^(?=.*\S).+$", r"^(?=.*[A-Z])(?=.*[a-z])(?=.*\d)[A-Za-z\d]{8,}$", r"^((?!foo).)*$",
    r"(?!(^xn--|.+-s3alias$))^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$", r"^a(?:(?!b?$).)+$",
    r"^(?=.{3,8}$)(?!-)[a-z-]+$", r"^P(?!$)(\d+Y)?(\d+M)?(T(?=\d)(\d+H)?(\d+M)?)?$", r"^(?!.*--)[a-z][a-z-]*$",
    r"^(?:(?!con|nul)[a-z]{1,4}|(?=a)[a-c]{5})$", r"(?:[^/]*/)*x(?=\.(?:a|b))", r"(?!a)^b|c", r"\b(?!a)\w", r"a(?![bc])",
    r"a(?=$|b)", r"(?=a)[ab]", r"^(?:(?!-)[a-c-]+)?$", r"^a{3}(?!bb)b*$", r"^(?!(?=a)b|c)", r"^.(?=é|\u{1F600}c).*$",
]
NODE = """
const rows = require("fs").readFileSync(0, "utf8").split("\\n").filter(Boolean).map(JSON.parse);
for (const {pattern, texts} of rows) {
  let found = null, whole = null;
  try {
    const search = new RegExp(pattern, "u"), all = new RegExp("^(?:" + pattern + ")$", "u");
    found = texts.map(t => search.test(t));
    whole = texts.map(t => all.test(t));
  } catch (e) {}
  console.log(JSON.stringify({pattern, texts, found, whole}));
}
"""


class Maker:
    """Patterns over a small alphabet, most of them anchored."""
    def __init__(self, seed):
        self.r = random.Random(seed)

    def atom(self, depth):
        kind = self.r.randrange(12 if depth else 9)
        if kind < 5:
            return self.r.choice(["a", "b", "c", "1", "-", r"\.", "ab", "bc"])
        if kind < 9:
            return self.r.choice(["[ab]", "[^a]", r"\d", r"\w", ".", "[a-c1]", r"[\s\S]"])
        return f"(?:{self.choice(depth - 1)})"

    def quantified(self, depth):
        atom, times = self.atom(depth), self.r.choice(["", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,3}"])
        return (f"(?:{atom})" if times and re.fullmatch(r"[a-c]{2}", atom) else atom) + times

    def choice(self, depth):
        return "|".join("".join(self.quantified(depth) for _ in range(self.r.randrange(1, 4)))
                        for _ in range(self.r.choice([1, 1, 1, 2])))

    def look(self):
        before = self.r.choice(["", ".*", ".*", "^", r"\w*"])
        end = self.r.choice(["", "", "$"])
        inside = self.choice(1)
        return f"(?{self.r.choice('!!=')}{before}{f'(?:{inside})' if '|' in inside and (before or end) else inside}{end})"

    def pattern(self):
        r, looks = self.r, [self.look() for _ in range(self.r.choice([1, 1, 2, 3]))]
        rest, end = f"(?:{self.choice(2)})", r.choice(["$", "$", ""])
        forms = ["^" + "".join(looks) + rest + end] * 6 + [
            f"^{looks[0]}{rest}{end}|^{looks[-1]}{self.quantified(1)}{end}",
            f"^(?:{looks[0]}{rest}|{looks[-1]}{self.quantified(1)}|{self.quantified(0)}){end}",
            f"^{r.choice(['a', '[ab]', 'ab', r'(?:ab|1.)', '.{3}'])}{looks[0]}{rest}{end}",
            f"^(?:(?!{r.choice(['a', 'ab', 'b1?c', r'[ab]-', r'a+b'])}){r.choice(['.', '[a-c1]', '[^c]'])}){r.choice('*+')}$",
            f"{self.quantified(1)}(?{r.choice('!=')}{r.choice(['a', '[b1]', '$', r'[^a]'])}){rest}{end}",
            f"^(?:{looks[0]}{rest})?{self.quantified(0)}{end}", f"{rest}(?={self.choice(1)})"]
        return r.choice(forms)

    def text(self, pattern):
        """From pieces of the pattern, since few others match."""
        pieces = re.findall(r"[A-Za-z0-9]+|[-.@_/ ]", pattern) + ["a", "b", "c", "1", "-", "."]
        if self.r.random() < 0.4:
            return "".join(self.r.choice("aabbc11-.") for _ in range(self.r.randrange(9)))
        text = "".join(self.r.choice(pieces) for _ in range(self.r.randrange(7)))
        return text if self.r.random() < 0.8 else self.r.choice(["\n", "é", "\U0001f600", " ", '"', "A"]).join([text, text[:3]])


def ask_node(rows):
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    done = subprocess.run(["node", "-e", NODE], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def reference_patterns():
    folder = os.environ.get("HEARTH_REFERENCE")
    found = {}

    def walk(value):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
            if key in ("pattern", "regex") and isinstance(inner, str):
                found[inner] = 1
            found.update(dict.fromkeys(inner) if key == "patternProperties" and isinstance(inner, dict) else {})
            walk(inner)
    names = sorted(os.listdir(os.path.join(folder, "goldens", "schema"))) if folder else []
    for name in (n for n in names if ".jsonl" in n):
        opened = lzma.open if name.endswith("xz") else open
        with opened(os.path.join(folder, "goldens", "schema", name), "rt", encoding="utf-8") as f:
            for line in f:
                walk(json.loads(line))
    return sorted(p for p in found if re.search(r"\(\?<?[=!]", p))


def check(accept, row):
    """The differences, as texts, and whether the pattern is followed."""
    schema = {"type": "string", "pattern": row["pattern"]}
    searched = accept.ask(schema=schema, texts=[json.dumps(text, ensure_ascii=False) for text in row["texts"]])
    whole = accept.ask(regex=row["pattern"], texts=row["texts"]) if row["pattern"] else {}
    problems = []
    if "error" in searched:
        empty = "no value is possible" in searched["error"]["message"] and not any(row["found"])
        problems += [] if empty else [searched["error"]["message"]]
    elif not searched["relaxed"]:
        problems += [f"searched in {text!r}: node says {found}" for text, found, ours in
                     zip(row["texts"], row["found"], searched["accepted"]) if found != ours]
    if "accepted" in whole:
        problems += [f"all of {text!r}: node says {found}" for text, found, ours in
                     zip(row["texts"], row["whole"], whole["accepted"]) if found != ours]
    elif whole and not re.search("not supported|too complex", whole["error"]["message"]) and any(row["whole"]):
        problems.append(f"as a whole: {whole['error']['message']}")
    return problems, searched.get("relaxed") == [], "accepted" in whole


def generate(n_texts, seed):
    maker = Maker(seed)
    fixed = KNOWN + reference_patterns()
    each = n_texts // (len(fixed) + GENERATED) + 1
    rows = ask_node({"pattern": p, "texts": [maker.text(p) for _ in range(each)]}
                    for p in fixed + [maker.pattern() for _ in range(3 * GENERATED)])
    return rows[:len(fixed)] + [row for row in rows[len(fixed):] if any(row["found"])][:GENERATED]


def record():
    maker = Maker(0)
    rows = ask_node({"pattern": p, "texts": sorted({maker.text(p) for _ in range(12)})}
                    for p in KNOWN + [maker.pattern() for _ in range(80)])
    with open(RECORDED, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows[:len(KNOWN)] +
                     [row for row in rows[len(KNOWN):] if any(row["found"])])


def main():
    if "--record" in sys.argv:
        record()
    if "--node" in sys.argv:
        numbers = [int(x) for x in sys.argv[sys.argv.index("--node") + 1:]]
        rows = generate(*(numbers + [100000, 1][len(numbers):]))
    else:
        with open(RECORDED, encoding="utf-8") as f:
            rows = [json.loads(line) for line in f]
    different, left_out, n_texts, n_whole, n_found = 0, [], 0, 0, 0
    with Accept(DEMO) as accept:
        for row in rows:
            if row["found"] is None:
                left_out.append(f"not a pattern of node: {row['pattern']}")
                continue
            problems, followed, whole = check(accept, row)
            n_texts += len(row["texts"]) if followed else 0
            n_whole += len(row["texts"]) if whole else 0
            n_found += sum(row["found"]) if followed else 0
            left_out += [] if followed else [row["pattern"]]
            different += len(problems)
            for problem in problems[:3]:
                print(f"FAILED: {row['pattern']}: {problem}", flush=True)
    print(f"{len(rows)} patterns; {len(left_out)} are not followed: {left_out}")
    print(f"{n_texts} texts searched, {n_found} of them found, and {n_whole} as a whole: {different} differ")
    sys.exit(1 if different or not n_found or not n_whole else 0)


if __name__ == "__main__":
    main()
