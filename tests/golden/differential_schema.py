#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random schemas and random texts: `hearth-filter accept`, python-jsonschema and llguidance must agree.

    differential_schema.py [--model DIR] [--cases 2000] [--seed 1]

Needs llguidance and jsonschema with its format checks (PyPI: llguidance, jsonschema[format-nongpl]). Texts are values
in the spelling and the order of keys of our language, and texts with one character changed. A difference is printed
with its seed and makes the status 1. Not differences, but counted:

- relaxed: more is accepted where a keyword is named as relaxed
- duplicate: one of `uniqueItems` is let through because its digits or characters leave nothing else possible
- spelling: a valid value whose spelling or order of keys our language has not
- email: jsonschema takes any text with an @; llguidance refuses it as we do
- empty, complex: no value is possible, and jsonschema takes none of the texts; a schema is too complex
- llguidance alone: jsonschema says what we say (it takes 29 February of every year, and no 28.50 with a bound)
"""
import argparse
import json
import os
import random
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "e2e"))
from accept_filter import Accept  # noqa: E402
from hearth_server import DEMO  # noqa: E402

import jsonschema  # noqa: E402

KEYS = ["a", "ab", "b", "c", "name"]
WORDS = ["", "a", "ab", "abc", "b1", "\u00e4", "2024-02-29", "10:20:30Z", "x@y.z", "1.2.3.4", "a\nb", '"', "\U0001f600"]
PATTERNS = ["^a", "b$", "^[a-c]*$", "\\d", "^(a|ab){1,2}$", "."]
FORMATS = ["date", "time", "email", "ipv4", "uuid", "json-pointer"]
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def some(self, chance):
        return self.r.random() < chance

    def scalar(self):
        return self.r.choice([None, True, False, 0, 1, 3, 12, -2, 1.5, *WORDS])

    def value(self, depth=2):
        kind = self.r.randrange(4 if depth else 2)
        if kind < 2:
            return self.scalar()
        if kind == 2:
            return [self.value(depth - 1) for _ in range(self.r.randrange(4))]
        keys = [k for k in KEYS if self.some(0.5)]
        return {k: self.value(depth - 1) for k in keys}

    def bounds(self, schema, names, top):
        low = self.r.randrange(top)
        if self.some(0.4):
            schema[names[0]] = low
        if self.some(0.4):
            schema[names[1]] = low + self.r.randrange(top)

    def typed(self, kind, depth):
        s = {"type": kind}
        if kind in ("integer", "number"):
            self.bounds(s, ("minimum", "maximum"), 9)
            if self.some(0.2):
                s["multipleOf"] = self.r.choice([2, 3, 0.5])
        elif kind == "string":
            self.bounds(s, ("minLength", "maxLength"), 3)
            if self.some(0.3):
                s["pattern"] = self.r.choice(PATTERNS)
            if self.some(0.2):
                s["format"] = self.r.choice(FORMATS)
        elif kind == "array" and depth:
            s["items"] = self.schema(depth - 1)
            self.bounds(s, ("minItems", "maxItems"), 3)
            if self.some(0.2):
                s["uniqueItems"] = True
        elif kind == "object" and depth:
            self.object(s, depth)
        return s

    def object(self, s, depth):
        s["properties"] = {k: self.schema(depth - 1) for k in KEYS if self.some(0.5)}
        s["required"] = [k for k in s["properties"] if self.some(0.3)]
        if self.some(0.3):
            s["additionalProperties"] = self.r.choice([False, {"type": "integer"}])
        if self.some(0.2):
            s["patternProperties"] = {self.r.choice(["^a", "b$"]): self.schema(0)}
        if self.some(0.2):
            s["dependentRequired"] = {self.r.choice(KEYS): [self.r.choice(KEYS)]}
        self.bounds(s, ("minProperties", "maxProperties"), 4)

    def schema(self, depth=2):
        kind = self.r.randrange(10)
        if depth and kind == 0:
            return {self.r.choice(["anyOf", "oneOf", "allOf"]): [self.schema(depth - 1) for _ in range(2)]}
        if depth and kind == 1:
            return {"not": self.schema(depth - 1), **self.typed(self.r.choice(TYPES), 0)}
        if kind == 2:
            return {"enum": [self.value(1) for _ in range(self.r.randrange(1, 4))]}
        return self.typed(self.r.choice(TYPES), depth)

    def fitting(self, s, depth=3):
        """A value that has a good chance to fit."""
        for name in ("anyOf", "oneOf", "allOf"):
            if name in s:
                return self.fitting(self.r.choice(s[name]), depth)
        if "enum" in s:
            return self.r.choice(s["enum"])
        kind = s.get("type")
        if kind == "object" and depth and "properties" in s:
            keys = [k for k in KEYS if k in s["required"] or self.some(0.4)]
            return {k: self.fitting(s["properties"].get(k, {"type": "integer"}), depth - 1) for k in keys}
        if kind == "array" and depth and "items" in s:
            n = self.r.randrange(s.get("minItems", 0), s.get("maxItems", s.get("minItems", 0) + 3) + 1)
            return [self.fitting(s["items"], depth - 1) for _ in range(n)]
        if kind in ("integer", "number"):
            return self.r.randrange(-3, 18) if self.some(0.8) or kind == "integer" else self.r.randrange(40) + 0.5
        return {"null": None, "boolean": True, "string": self.r.choice(WORDS), "object": {}, "array": []}.get(
            kind, self.scalar())


def order_is_ours(schema):
    """Merging may order keys in another way than KEYS; those schemas are tried with at most one key."""
    text = json.dumps(schema)
    return not any(name in text for name in ("allOf", "anyOf", "oneOf", "not", "patternProperties", "additional"))


def ordered(value, schema):
    """Declared keys first, as our language has them."""
    if isinstance(value, dict):
        declared = schema.get("properties", {})
        keys = [k for k in declared if k in value] + [k for k in value if k not in declared]
        return {k: ordered(value[k], declared.get(k, {})) for k in keys}
    if isinstance(value, list):
        return [ordered(v, schema.get("items", {})) for v in value]
    return value


def few_keys(value):
    if isinstance(value, dict):
        return len(value) < 2 and all(map(few_keys, value.values()))
    return all(map(few_keys, value)) if isinstance(value, list) else True


class Llguidance:
    """Verdicts of llguidance over single bytes; None where it does not compile a schema."""

    def __init__(self):
        import llguidance
        self.lib = llguidance
        self.tokens = llguidance.LLTokenizer("byte")

    def verdicts(self, schema, texts):
        try:
            grammar = self.lib.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides={"lenient": False})
            matcher = self.lib.LLMatcher(self.tokens, grammar)
        except ValueError:
            return [None] * len(texts)
        return [None if matcher.is_error() else self.verdict(matcher, text) for text in texts]

    def verdict(self, matcher, text):
        matcher.reset()
        ids = list(text.encode())
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


MUTATIONS = list('0159-.eE"\\,:[]{} \ntfnabu') + ["\u00e4", "", "", '""', "null", "true"]


class Case:
    """A schema, texts, whether jsonschema takes their values, and whether they are spelled as our language has them."""

    def __init__(self, seed):
        self.seed, maker = seed, Maker(seed)
        self.schema = maker.schema()
        values = [maker.fitting(self.schema) if i % 3 else maker.value() for i in range(12)]
        self.texts = [spell(ordered(v, self.schema)) for v in values]
        self.texts += [self.mutated(maker, text) for text in self.texts[:6]]
        self.check = jsonschema.Draft202012Validator(
            self.schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)

    def mutated(self, maker, text):
        at = maker.r.randrange(len(text) + 1)
        return text[:at] + maker.r.choice(MUTATIONS) + text[at + maker.r.randrange(2):]

    def judge(self, text):
        """(valid, spelled as ours)"""
        try:
            value = json.loads(text)
        except ValueError:
            return False, True
        ours = spell(ordered(value, self.schema)) == text and not NARROWED.search(text)
        return self.check.is_valid(value), ours and (order_is_ours(self.schema) or few_keys(value))

    def has(self, keyword):
        return json.dumps(keyword) in json.dumps(self.schema)


def spell(value):
    return json.dumps(value, ensure_ascii=False)


# numbers that validators take and our language has not: -0, and 1.0, which is an integer to them
NARROWED = re.compile(r"-0(?![.\d])|\d\.0+(?!\d)")
KINDS = ("accepted", "refused", "relaxed", "duplicate", "spelling", "email", "empty", "complex", "llguidance agrees",
         "llguidance alone", "llguidance refuses the schema")


class Report:
    def __init__(self):
        self.count, self.wrong = dict.fromkeys(KINDS, 0), 0

    def note(self, case, text):
        self.wrong += 1
        print(f"seed {case.seed}: {json.dumps(case.schema)}: {text}", flush=True)

    def error(self, case, message):
        if "too complex" in message:
            self.count["complex"] += 1
        elif "no value is possible" in message and not any(case.judge(text)[0] for text in case.texts):
            self.count["empty"] += 1
        else:
            self.note(case, message)

    def text(self, case, text, ours, relaxed, peer):
        """relaxed: some keyword is. peer: llguidance's verdict, or None."""
        valid, spelled = case.judge(text)
        why = "accepted" if ours else "refused"
        if ours and not valid:
            why = "relaxed" if relaxed else "duplicate" if case.has("uniqueItems") else None
        elif valid and not ours:
            why = "spelling" if not spelled else "email" if case.has("email") and not peer else None
        if why:
            self.count[why] += 1
        else:
            self.note(case, f"{text}: jsonschema {valid}, hearth {ours}, llguidance {peer}")
        if peer is None:
            self.count["llguidance refuses the schema"] += 1
        elif peer == ours:
            self.count["llguidance agrees"] += 1
        elif ours == valid:
            self.count["llguidance alone"] += 1
            print(f"llguidance alone: {json.dumps(case.schema)}: {text}: {peer}")
        elif why != "spelling":
            self.note(case, f"{text}: hearth {ours}, llguidance {peer}")


def run(model, cases, first_seed):
    """The report of so many schemas, each of its own seed."""
    report, peer = Report(), Llguidance()
    with Accept(model) as accept:
        for seed in range(first_seed, first_seed + cases):
            case = Case(seed)
            answer = accept.ask(schema=case.schema, texts=case.texts)
            if "error" in answer:
                report.error(case, answer["error"]["message"])
                continue
            if any(b not in (None, a) for a, b in zip(answer["accepted"], answer["by_bytes"])):
                report.note(case, "whole tokens and single bytes differ")
            verdicts = peer.verdicts(case.schema, case.texts)
            for text, ours, other in zip(case.texts, answer["accepted"], verdicts):
                report.text(case, text, ours, bool(answer["relaxed"]), other)
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEMO)
    parser.add_argument("--cases", type=int, default=2000, help="schemas")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    report = run(args.model, args.cases, args.seed)
    print(f"{args.cases} schemas: {report.count}, {report.wrong} differences")
    sys.exit(1 if report.wrong else 0)


if __name__ == "__main__":
    main()
