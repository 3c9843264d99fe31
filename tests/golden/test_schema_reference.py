#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`hearth-filter accept` over the reference data for structured output in $HEARTH_REFERENCE/goldens/schema: the JSON
Schema test suite, real schemas with their valid and invalid texts, and the cases of llama.cpp and xgrammar.

Every difference is either a keyword that is relaxed and named, a refusal, or listed here with its reason.
Every schema that compiles does so with closed objects too, which accept no text that is not accepted otherwise.
Standard library only; needs the tokenizer in $HEARTH_REFERENCE/models/smollm2-135m.

    test_schema_reference.py [--all]     all; else every sixteenth real schema (every 128th under a sanitizer), and
                                         no text of over 60 bytes under GBNF
"""
import collections
import json
import lzma
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "e2e"))
from accept_filter import Accept  # noqa: E402
from hearth_server import reference  # noqa: E402

DATA = reference("goldens", "schema")
MODEL = reference("models", "smollm2-135m")

CONDITIONS = "keys that only a condition names come last"
ORDER = "keys come in the order of the schema's text"
INTEGER = "integers have neither fraction nor exponent"
DIGITS = "numbers have at most 19 digits, exponents at most 199"
FORMAT = "formats are asserted"
A_LABEL = "a label in Punycode is not decoded"
CONTENT = "content* are annotations"
SIBLINGS = "without $schema, siblings of $ref apply"
LEAP = "times have no leap seconds"

# file, group, test of the suite (patterns) -> why we differ
SUITE = [
    (r"allOf", r"allOf|allOf with base schema", r"allOf|valid", ORDER),
    (r"const", r"const with object", r"same object with different property order is valid", ORDER),
    (r"unevaluatedProperties", r"unevaluatedProperties with \$ref", r"with no unevaluated properties", ORDER),
    (r"unevaluatedProperties", r"unevaluatedProperties with if/then/else.*",
     r"when if is true and has no unevaluated properties", ORDER),
    (r"const|enum", r".*", r"float (zero|one) is valid|float is valid|\[[01]\.0\] is valid", INTEGER),
    (r"type", r"integer type matches integers", r"a float with zero fractional part is an integer", INTEGER),
    (r"optional/bignum", r"integer|number", r"a (negative )?bignum is an? (integer|number)", DIGITS),
    (r"optional/float-overflow", r".*", r"valid if optional overflow handling is implemented", DIGITS),
    (r"format", r".* format", r"invalid .* string is only an annotation by default", FORMAT),
    (r"optional/format/hostname", r"validation of A-label \(punycode\) host names", r".*", A_LABEL),
    (r"optional/format/(date-)?time", r".*", r".*valid .*leap second.*", LEAP),
    (r"optional/content", r".*", r".*", CONTENT),
    (r"ref", r"ref overrides any sibling keywords", r"ref valid, maxItems ignored", SIBLINGS),
    (r"dynamicRef", r"multiple dynamic paths to the \$dynamicRef keyword", r".* list with .* values", CONDITIONS),
    (r"ref", r"\$ref prevents a sibling \$id from changing the base uri", r".*", SIBLINGS),
]
EMPTY = "no value is possible"
LOOKS = "look-aheads are followed"


def lines(name):
    path = os.path.join(DATA, name)
    opened = lzma.open(path, "rt", encoding="utf-8") if name.endswith("xz") else open(path, encoding="utf-8")
    with opened as f:
        return [json.loads(line) for line in f]


class Check:
    def __init__(self, accept):
        self.accept, self.problems = accept, []
        self.count = collections.Counter()

    def report(self, name):
        print(name, dict(self.count), flush=True)
        self.count = collections.Counter()

    def problem(self, text):
        self.problems.append(text)
        print("FAILED:", text[:600], flush=True)

    def closed(self, schema, texts, answer, where):
        """The same with objects that are closed unless they say otherwise, as answers are generated."""
        closed = self.accept.ask(schema=schema, texts=texts, disable_additional_properties=True)
        self.count["closed"] += 1
        if "error" in closed:
            self.problem(f"{where}: closed: {closed['error']['message']}")
        elif closed["relaxed"] != answer["relaxed"]:
            self.problem(f"{where}: closed: {closed['relaxed']} are relaxed instead of {answer['relaxed']}")
        elif any(c > a for c, a in zip(closed["accepted"], answer["accepted"])):
            self.problem(f"{where}: closed, it accepts {closed['accepted']}, otherwise {answer['accepted']}")

    def by_bytes(self, answer, where):
        for text, byte in zip(answer["accepted"], answer["by_bytes"]):
            if byte is not None and text != byte:
                self.problem(f"{where}: by tokens {text}, by bytes {byte}")

    # ---- the test suite ----

    def suite(self, name):
        groups = collections.OrderedDict()
        for row in lines(name):
            groups.setdefault((row["file"], row["group"], json.dumps(row["schema"])), []).append(row)
        for (file, group, _), rows in groups.items():
            schema, texts = rows[0]["schema"], [row["text"] for row in rows]
            answer = self.accept.ask(schema=schema, texts=texts)
            if "error" in answer:
                self.suite_refused(f"{name} {file}: {group}", rows, answer["error"]["message"])
                continue
            self.closed(schema, texts, answer, f"{name} {file}: {group}")
            self.by_bytes(answer, f"{name} {file}: {group}")
            for row, accepted in zip(rows, answer["accepted"]):
                self.suite_case(name, row, accepted, answer["relaxed"])
        self.report(name)

    def suite_refused(self, where, rows, message):
        if EMPTY not in message or any(row["valid"] for row in rows):
            self.problem(f"{where}: {message}")
        self.count["right"] += len(rows)

    def suite_case(self, name, row, accepted, relaxed):
        if accepted == row["valid"]:
            self.count["right"] += 1
        elif accepted and relaxed:
            self.count["relaxed"] += 1
        else:
            why = [reason for file, group, test, reason in SUITE if re.fullmatch(file, row["file"]) and
                   re.fullmatch(group, row["group"]) and re.fullmatch(test, row["test"])]
            self.count[why[0] if why else "wrong"] += 1
            if not why:
                self.problem(f"{name} {row['file']}: {row['group']}: {row['test']}: {row['text']} valid {row['valid']}")

    # ---- lists of accepted and refused ----

    def cases(self, name, field):
        for row in lines(name):
            if not row.get("use", True) or row.get("root", "root") != "root" or row[field] == "":
                self.count["not used"] += 1
                continue
            if field == "grammar" and len(row.get("text", "")) > 60 and "--all" not in sys.argv:
                self.count["long"] += 1
                continue
            source = json.loads(row[field]) if field == "schema" and isinstance(row[field], str) else row[field]
            answer = self.accept.ask(**{field: source}, texts=[row["text"]] if "text" in row else [])
            built = "error" not in answer
            expected = not row.get("error") if "accepted" not in row else row["accepted"]
            got = built if "accepted" not in row else built and answer["accepted"][0]
            if field == "regex" and got and row.get("error") and row["regex"].startswith("(?!"):
                self.count[LOOKS] += 1
                continue
            self.count["right" if got == expected else "wrong"] += 1
            if got != expected:
                self.problem(f"{name}: {json.dumps(row)[:400]}: {answer}")
            if built:
                self.by_bytes(answer, name)
        self.report(name)

    def grammar_files(self):
        folder = os.path.join(DATA, "gbnf")
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                answer = self.accept.ask(grammar=f.read(), texts=[])
            self.count["built" if "error" not in answer else "wrong"] += 1
            if "error" in answer:
                self.problem(f"{name}: {answer}")
        self.report("gbnf/*.gbnf")

    # ---- real schemas ----

    def real_schemas(self, step):
        right = total = n_valid = 0
        for row in lines("maskbench.jsonl.xz")[::step]:
            total += 1
            texts = [test["text"] for test in row["tests"]]
            answer = self.accept.ask(schema=row["schema"], texts=texts)
            if "error" in answer:
                self.count["refused"] += 1
                print(f"refused: {row['id']}: {answer['error']['message']}")
                continue
            self.closed(row["schema"], texts, answer, row["id"])
            self.by_bytes(answer, row["id"])
            good = True
            for test, accepted in zip(row["tests"], answer["accepted"]):
                n_valid += test["valid"]
                if accepted == test["valid"] or test.get("order") == "unsure":
                    continue
                good = False
                if accepted and answer["relaxed"]:
                    self.count["invalid accepted, relaxed"] += 1
                elif accepted:
                    self.problem(f"{row['id']}: invalid and accepted: {test['text'][:300]}")
                else:
                    self.count["valid refused"] += 1
                    print(f"valid refused: {row['id']}: {test['text'][:300]}")
            right += good
        if self.count["valid refused"] > 0.002 * n_valid:
            self.problem(f"{self.count['valid refused']} of {n_valid} valid texts are refused")
        if right < 0.95 * total:
            self.problem(f"only {right} of {total} schemas have every text right")
        self.count["schemas"], self.count["schemas right"] = total, right
        self.report("maskbench")


def main():
    with Accept(MODEL) as accept:
        check = Check(accept)
        for draft in ("2020-12",) if os.environ.get("HEARTH_SLOW") else ("2020-12", "7"):
            check.suite(f"testsuite-draft{draft}.jsonl")
        for name, field in (("schema-llamacpp", "schema"), ("json-xgrammar", "schema"), ("gbnf-llamacpp", "grammar"),
                            ("ebnf-xgrammar", "grammar"), ("regex-xgrammar", "regex")):
            check.cases(name + ".jsonl", field)
        check.grammar_files()
        check.real_schemas(1 if "--all" in sys.argv else 128 if os.environ.get("HEARTH_SLOW") else 16)
    sys.exit(1 if check.problems else 0)


if __name__ == "__main__":
    main()
