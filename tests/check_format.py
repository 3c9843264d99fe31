#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every C file of the repository is as .clang-format has it: the formatter of Debian 12 decides.

Versions of clang-format disagree, so with another one the test is skipped, which it says.
"""
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ("base", "engine", "server", "tests", "tokenizer")
VERSION = "14"
SKIPPED = 77


def c_files():
    for folder in FOLDERS:
        for where, _, names in os.walk(os.path.join(ROOT, folder)):
            yield from (os.path.join(where, n) for n in names if n.endswith((".c", ".h")))


def main():
    tool = shutil.which(f"clang-format-{VERSION}") or shutil.which("clang-format")
    if not tool:
        print("no clang-format: apt install clang-format")
        sys.exit(SKIPPED)
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    if not re.search(rf"version {VERSION}\.", version):
        print(f"{version.strip()}: only version {VERSION} decides; apt install clang-format-{VERSION}")
        sys.exit(SKIPPED)
    files = sorted(c_files())
    result = subprocess.run([tool, "--dry-run", "-Werror", *files], stderr=subprocess.PIPE, text=True)
    bad = sorted(set(re.findall(r"^(\S+):\d+:\d+: error", result.stderr, re.M)))
    for path in bad:
        print(f"{os.path.relpath(path, ROOT)}: clang-format -i changes it")
    print(f"{len(files)} files, {len(bad)} to format")
    sys.exit(1 if result.returncode else 0)


if __name__ == "__main__":
    main()
