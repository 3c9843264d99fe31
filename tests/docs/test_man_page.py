#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""mandoc finds no error in docs/hearth.1. Skipped if mandoc is not installed."""
import os
import shutil
import subprocess
import sys

ROOT = os.environ.get("HEARTH_SOURCE_ROOT") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIPPED = 77

if not shutil.which("mandoc"):
    print("no mandoc: apt install mandoc")
    sys.exit(SKIPPED)
result = subprocess.run(["mandoc", "-Tlint", "-W", "error", os.path.join(ROOT, "docs", "hearth.1")],
                        capture_output=True, text=True, check=False, timeout=60)
print(result.stdout + result.stderr, end="")
sys.exit(1 if result.returncode or result.stdout else 0)
