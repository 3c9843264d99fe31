#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""All models and cases of the reference data ($HEARTH_REFERENCE/goldens/logits, and the story models) on
path `exact`: logits within 1e-3 (2e-3 on the long `far` prompts), log-probabilities, argmax and greedy
paths.

    test_logits_reference.py [OPTION ...]                   such as --gemm blas
    test_logits_reference.py PATH TOLERANCE [OPTION ...]    another numeric path, to its own tolerance
"""
import json
import os
import sys

from logits_check import Tally, check_model, path_options, read_floats

SKIPPED = 77


def model_directory(base, name):
    inside = os.path.join(base, "goldens", "models", name)
    return inside if os.path.isdir(inside) else os.path.join(base, "models", name)


def main():
    base = os.environ.get("HEARTH_REFERENCE")
    if not base:
        print("HEARTH_REFERENCE is not set; it names the directory of the reference data")
        return SKIPPED
    logits = os.path.join(base, "goldens", "logits")
    options, tolerance = path_options(sys.argv[1:])
    tally = Tally()
    for name in sorted(os.listdir(logits)):
        path = os.path.join(logits, name, "golden.json")
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as f:
            golden = json.load(f)
        worst, problems = check_model(
            model_directory(base, name), golden,
            lambda c, d=os.path.dirname(path): read_floats(os.path.join(d, c["logits_file"])),
            lambda c: tolerance or (2e-3 if c["name"] == "far" else 1e-3), options)
        tally.add(name, worst, problems)
    return tally.end()


if __name__ == "__main__":
    sys.exit(main())
