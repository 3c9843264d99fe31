#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The names that templates have in jinja2 and not here: left_out.py, docs/internals/templates.md and the
program agree on them. A template that comes to one fails, by line and name. That every other name is here is shown by cases.jsonl (template/test_template)."""
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.environ.get("HEARTH_SOURCE_ROOT", ".")
FILTER = os.path.join(os.environ.get("HEARTH_BUILD_ROOT", "build"), "tests", "hearth-filter")
sys.path.insert(0, os.path.join(ROOT, "tests", "golden", "chat"))

from left_out import LEFT_OUT  # noqa: E402

VALUES = {"str": "''", "Markup": "(''|safe)", "list": "[]", "tuple": "()", "dict": "{}", "range": "range(2)",
          "bool": "true", "int": "(1)", "float": "(1.5)"}


def documented():
    """{kind: names} of the table's rows"""
    found = {kind: set() for kind in LEFT_OUT}
    with open(os.path.join(ROOT, "docs", "internals", "templates.md"), encoding="utf-8") as f:
        for names, kinds in re.findall(r"^\| (`.*?) \| ([\w, ]+) \|", f.read(), re.M):
            for kind in kinds.split(", "):
                found[kind].update(re.findall(r"`(\w+)`", names))
    return found


def use(kind, name):
    """A template that uses the name on its second line."""
    if kind in VALUES:
        use_ = VALUES[kind] + "." + name + "()"
    else:
        use_ = {"filter": "'a' | %s", "test": "'a' is %s", "global": "%s()"}[kind] % name
    return "\n{{ " + use_ + " }}"


def render(directory, template):
    with open(os.path.join(directory, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(template)
    done = subprocess.run([FILTER, "render", "--model", directory], input=b'{"context": {}}\n', timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    return json.loads(done.stdout) if done.stdout else {"error": done.stderr.decode()}


def main():
    wrong = []
    for kind, names in documented().items():
        if names != set(LEFT_OUT[kind]):
            wrong.append(f"{kind}: the page has {sorted(names)}, left_out.py {sorted(LEFT_OUT[kind])}")
    with tempfile.TemporaryDirectory() as directory:
        for kind, names in LEFT_OUT.items():
            for name in names:
                error = render(directory, use(kind, name)).get("error", "")
                if not re.search(f"line 2: .*'{name}'", error):
                    wrong.append(f"{kind} {name} is not refused: {error!r}")
        if "text" not in render(directory, "{{ ''.upper() }}{{ 'a' | upper }}{{ range(1) | list }}"):
            wrong.append("nothing renders")
    print("\n".join(wrong) or f"{sum(map(len, LEFT_OUT.values()))} names are left out, and documented")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
