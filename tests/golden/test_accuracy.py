#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each numeric path on the demo model and text of its kind: within the bounds that docs/accuracy.md states.

The figures are those of tests/bench/accuracy.py; without numpy the test is skipped.
"""
import os
import subprocess
import sys
import tempfile
from types import SimpleNamespace

ROOT = os.environ.get("HEARTH_SOURCE_ROOT") or \
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "bench"))
SKIPPED, N_TOKENS = 77, 512
SYSTEM_PYTHON = "/usr/bin/python3"

# path -> largest allowed: difference of a logit, mean difference, mean KL, perplexity over exact's; least
# share of equal best tokens
BOUNDS = {
    "bf16": (0.4, 0.02, 5e-5, 1.002, 0.99),
    "int8": (1.6, 0.07, 1e-3, 1.01, 0.98),
    "int4": (7, 0.35, 0.013, 1.02, 0.94),
    "bf16 --kv-dtype int8": (0.6, 0.03, 2e-4, 1.005, 0.99),
}


def main():
    try:
        from accuracy import measure_group
    except ImportError as e:
        if os.path.exists(SYSTEM_PYTHON) and not os.path.samefile(sys.executable, SYSTEM_PYTHON):
            os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])  # the one that packages install numpy for
        print(f"{e}: apt install python3-numpy")
        return SKIPPED
    demo = os.path.join(ROOT, "deploy", "demo")
    program = os.path.join(os.environ.get("HEARTH_BUILD_ROOT", os.path.join(ROOT, "build")), "tests", "hearth-filter")
    failed = 0
    with tempfile.TemporaryDirectory() as tmp:
        text = os.path.join(tmp, "text")
        with open(text, "w", encoding="utf-8") as f:
            subprocess.run([sys.executable, os.path.join(demo, "make_text.py"), "--seed", "99", "--n", "24",
                            "--plain"], stdout=f, check=True)
        a = SimpleNamespace(filter=program, text=text, tokens=N_TOKENS, window=256, tmp=tmp, options="",
                            paths=["exact", *BOUNDS])
        rows = {r["path"]: r for r in measure_group(a, "demo", [(demo, None)])}
    for path, (max_diff, mean_diff, kl, perplexity, top1) in BOUNDS.items():
        r = rows[path]
        growth = r["perplexity"] / rows["exact"]["perplexity"]
        ok = r["max_diff"] <= max_diff and r["mean_diff"] <= mean_diff and r["kl_mean"] <= kl \
            and growth <= perplexity and r["top1"] >= top1
        failed += not ok
        print(f"{path}: {'ok' if ok else 'FAILED'}: largest difference {r['max_diff']:.3g}, mean "
              f"{r['mean_diff']:.3g}, KL {r['kl_mean']:.3g}, same best token {r['top1']:.2%}, perplexity "
              f"{growth:.4f} of exact's {rows['exact']['perplexity']:.4f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
