#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random schemas and random texts: `hearth accept` and python-jsonschema must agree.

    differential_schema.py [--model DIR] [--cases 2000] [--seed 1]

Needs jsonschema with its format checks (PyPI: jsonschema[format-nongpl]). Values keep to
the spellings and the key order of our language, so that verdicts can be compared. A difference is printed with its
seed and makes the status 1. Not differences, but counted: more is accepted where a keyword is relaxed; a schema is too
complex; a duplicate of `uniqueItems` is let through because its digits or characters leave nothing else possible.
"""
import argparse
import json
import os
import random
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
        keys = [k for k in value if k in declared] + [k for k in value if k not in declared]
        return {k: ordered(value[k], declared.get(k, {})) for k in keys}
    if isinstance(value, list):
        return [ordered(v, schema.get("items", {})) for v in value]
    return value


def few_keys(value):
    if isinstance(value, dict):
        return len(value) < 2 and all(map(few_keys, value.values()))
    return all(map(few_keys, value)) if isinstance(value, list) else True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEMO)
    parser.add_argument("--cases", type=int, default=2000, help="schemas")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    count, wrong = {"accepted": 0, "refused": 0, "relaxed": 0, "empty": 0, "complex": 0, "duplicate": 0}, 0
    with Accept(args.model) as accept:
        for seed in range(args.seed, args.seed + args.cases):
            maker = Maker(seed)
            schema = maker.schema()
            values = [maker.fitting(schema) if i % 3 else maker.value() for i in range(12)]
            values = [ordered(v, schema) for v in values]
            if not order_is_ours(schema):
                values = [v for v in values if few_keys(v)]
            check = jsonschema.Draft202012Validator(
                schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
            expected = [check.is_valid(v) for v in values]
            answer = accept.ask(schema=schema, texts=[json.dumps(v, ensure_ascii=False) for v in values])
            if "error" in answer:
                message = answer["error"]["message"]
                count["complex" if "too complex" in message else "empty"] += 1
                if "too complex" not in message and (any(expected) or "no value is possible" not in message):
                    wrong += 1
                    print(f"seed {seed}: {json.dumps(schema)}: {message}")
                continue
            for value, right, ours in zip(values, expected, answer["accepted"]):
                count["accepted" if ours else "refused"] += 1
                if ours and not right and answer["relaxed"]:
                    count["relaxed"] += 1
                elif ours and not right and '"uniqueItems": true' in json.dumps(schema):
                    count["duplicate"] += 1
                elif ours != right:
                    wrong += 1
                    print(f"seed {seed}: {json.dumps(schema)}: {json.dumps(value)}: jsonschema {right}, hearth {ours}")
    print(f"{args.cases} schemas: {count}, {wrong} differences")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
