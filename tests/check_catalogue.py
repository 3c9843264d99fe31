#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every number in the name of a test is a row of tests/e2e/CATALOGUE.md that lists the test, and every row lists tests
that exist. Prints each breach and exits 1 if there is one. Standard library only."""
import glob
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CATALOGUE = os.path.join(HERE, "e2e", "CATALOGUE.md")


def functions(path):
    with open(path, encoding="utf-8") as f:
        return set(re.findall(r"^def (\w+)", f.read(), re.M))


def numbered():
    """{number: {test}} by the names of tests."""
    found = {}
    for path in glob.glob(os.path.join(HERE, "*", "test_*.py")):
        for name in functions(path):
            numbers = re.match(r"test_((?:\d\d_)*)", name)
            for number in numbers.group(1).split("_")[:-1] if numbers else ():
                found.setdefault(number, set()).add(name)
    return found


def listed(breaches):
    """{number: {test}} by the rows of the catalogue."""
    rows = {}
    with open(CATALOGUE, encoding="utf-8") as f:
        found = re.findall(r"^\| (\d\d) \| (.+) \| (.+) \|$", f.read(), re.M)
    for number, sentence, tests in found:
        if number in rows or not sentence.endswith("."):
            breaches.append(f"row {number}: there are two, or its sentence is cut")
        rows[number] = set(re.findall(r"`(\w+)`", tests))
        for group in tests.split("; "):
            file, names = group.split(": ")
            path = os.path.join(HERE, "e2e", file)
            known = functions(path) if os.path.exists(path) else set()
            breaches += [f"row {number}: {file} has no {name}" for name in re.findall(r"`(\w+)`", names)
                         if name not in known]
    return rows


def main():
    breaches = []
    rows, tests = listed(breaches), numbered()
    breaches += [f"{name}: row {number} does not list it" for number in tests
                 for name in sorted(tests[number] - rows.get(number, set()))]
    breaches += [f"row {number}: no test" for number, names in rows.items() if not names]
    print("\n".join(breaches + [f"{len(rows)} rows, {sum(map(len, tests.values()))} tests, {len(breaches)} breaches"]))
    return 1 if breaches or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
