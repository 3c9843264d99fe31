#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""commit.py ROOT [COMMIT]: prints which commit the sources in ROOT are of, for `hearth --version`.

COMMIT, if given, else what git says of a checkout, else what `git archive` wrote into .git_archival.txt, else
"unknown". A checkout with changed files gets the ending -dirty."""
import os
import re
import subprocess
import sys

ABBREVIATED = 12


def of_checkout(root):
    if not os.path.exists(os.path.join(root, ".git")):
        return None
    command = ["git", "--no-optional-locks", "-C", root, "describe", "--always", "--dirty", "--exclude=*", f"--abbrev={ABBREVIATED}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def of_archive(root):
    try:
        with open(os.path.join(root, ".git_archival.txt"), encoding="utf-8") as f:
            found = re.search(r"^node: ([0-9a-f]{40,64})$", f.read(), re.M)
    except OSError:
        return None
    return found and found.group(1)[:ABBREVIATED]


def main():
    root, given = sys.argv[1], "".join(sys.argv[2:])
    if not re.fullmatch(r"[0-9A-Za-z._+-]{0,64}", given):
        sys.exit(f"commit '{given}': letters, digits, '.', '_', '+' and '-', at most 64")
    print(given or of_checkout(root) or of_archive(root) or "unknown")


if __name__ == "__main__":
    main()
