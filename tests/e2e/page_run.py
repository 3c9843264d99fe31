#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The chat page in Chromium, by hand: every case of page_cases.mjs.

    page_run.py [--shots DIR] [CASE...]

40 hostile strings through model, user and import, every error, keys, path prefixes, two tabs, axe-core in three
looks, answers of 10,000 tokens, conversations of 2,000 messages. --shots keeps screenshots. Needs chromium, node, and
puppeteer-core and axe-core in the folder that HEARTH_NODE_MODULES names (tests/run.sh installs both).
"""
import argparse
import os
import shutil
import subprocess
import sys

from hearth_server import SKIPPED, Hearth

KEY = "sk-page-0123456789abcdef"


def browser():
    """The path of Chromium; exits as skipped if it, node or a module is missing."""
    path = os.environ.get("HEARTH_CHROMIUM") or shutil.which("chromium")
    modules = os.environ.get("HEARTH_NODE_MODULES", "")
    missing = [name for name in ("puppeteer-core", "axe-core") if not os.path.isdir(os.path.join(modules, name))]
    if not path or not shutil.which("node") or missing:
        print("no chromium, no node, or HEARTH_NODE_MODULES names no folder with puppeteer-core and axe-core;"
              " tests/run.sh installs them")
        sys.exit(SKIPPED)
    return path


def run_in_browser(server, cases, env=None):
    """Runs cases of page_cases.mjs against a server; returns the exit status."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page_cases.mjs")
    return subprocess.run(["node", script, server.url, *cases], check=False, timeout=560,
                          env=dict(os.environ, HEARTH_CHROMIUM=browser(), **(env or {}))).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shots", help="folder for screenshots")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    a = parser.parse_args()
    browser()
    env = {"HEARTH_KEY": KEY}
    if a.shots:
        os.makedirs(a.shots, exist_ok=True)
        env["HEARTH_SHOTS"] = os.path.abspath(a.shots)
    with Hearth("--parallel", "4") as server, Hearth(env={"HEARTH_API_KEY": KEY}) as keyed:
        env["HEARTH_KEYED_URL"] = keyed.url
        sys.exit(run_in_browser(server, a.cases, env))


if __name__ == "__main__":
    main()
