#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tests/check_tree.py on small trees: each limit is passed once, and each direction of an include refused."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from check_tree import BUDGETS, PAGE  # noqa: E402

SPDX = "/* SPDX-License-Identifier: MIT */\n"
GENEROUS = {"product_lines": sum(BUDGETS.values()), "chat_page_bytes": 100}


def check(files, ceiling=None):
    """(exit status, output) for a tree of these files, and a directory with that ceiling.json."""
    with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory() as reference:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
        env = dict(os.environ, HEARTH_SOURCE_ROOT=root)
        env.pop("HEARTH_REFERENCE", None)
        if ceiling:
            env["HEARTH_REFERENCE"] = reference
            with open(os.path.join(reference, "ceiling.json"), "w", encoding="utf-8") as f:
                json.dump(ceiling, f)
        p = subprocess.run([sys.executable, os.path.join(HERE, "check_tree.py")], env=env, capture_output=True, text=True,
                           check=False)
        return p.returncode, p.stdout + p.stderr


def refused(said, files, ceiling=None):
    status, output = check(files, ceiling)
    assert status == 1 and said in output, (said, status, output)


def lines(n):
    return SPDX + "\n" * (n - 1)


def test_rooms_keep_to_their_budgets():
    most = BUDGETS["base"]
    status, output = check({"base/a.c": lines(most - 10), "base/a.h": lines(10)})
    assert status == 0 and "HEARTH_REFERENCE is not set" in output, output
    refused(f"base: {most + 1} lines, its budget is {most}", {"base/a.c": lines(most - 10), "base/a.h": lines(11)})


def test_ceiling():
    tree = {"base/a.c": lines(20), "engine/b.c": lines(30), "tests/filters/c.c": lines(99), PAGE: "x" * 100}
    status, output = check(tree, GENEROUS)
    assert status == 0 and "HEARTH_REFERENCE" not in output, output
    refused("the product: 50 lines, the ceiling is 49", tree, {**GENEROUS, "product_lines": 49})
    most = GENEROUS["product_lines"]
    refused(f"the sum of all budgets: {most} lines, the ceiling is {most - 1}", tree, {**GENEROUS, "product_lines": most - 1})
    refused(f"{PAGE}: 101 bytes, the ceiling is 100", {**tree, PAGE: "x" * 101}, GENEROUS)


def test_rooms_include_lower_ones():
    for room, header in (("server", "server/models/set.h"), ("server/hub", "server/models/set.h"),
                         ("server/grammars", "server/models/set.h"), ("server/models", "server/http/request.h"),
                         ("server/models", "server/api/routes.h"), ("server/http", "server/models/serve_pull.h"), ("base", "engine/engine.h")):
        refused(f"{room}/a.c: {room} may not include {header}", {f"{room}/a.c": f'{SPDX}#include "{header}"\n'})
    refused("server/new: an unknown folder", {"server/new/a.c": SPDX})


for name, test in sorted(globals().items()):
    if name.startswith("test_"):
        test()
        print(f"{name}: ok")
