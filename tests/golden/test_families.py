#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Decoders of the reference data for more families ($HEARTH_REFERENCE/goldens/families), each with all
its cases: on path `exact` logits within 2e-4. Where the rows are there in float64 too, they count, and
twice as far off as the reference's own in float32 is near enough: in these random delta nets a head's small
output is normed, so that in float64 embeddings that differ by 2^-25 move a logit by up to 3e-4, and float32's
rounding of each activation, all else exact, by 2e-5 to 9e-4. A family that is not served must be refused by
its name.

    test_families.py [OPTION ...]                   such as --gemm blas
    test_families.py PATH TOLERANCE [OPTION ...]    another numeric path, to its own tolerance
"""
import json
import os
import subprocess
import sys

from logits_check import FILTER, Tally, check_model, path_options, read_floats

SKIPPED = 77
NOT_SERVED = {"Qwen3MoeForCausalLM", "Starcoder2ForCausalLM", "GptOssForCausalLM"}


def refusal(directory, architecture):
    """A problem if the model is served, or refused without its name."""
    p = subprocess.run([FILTER, "score", "--model", directory], text=True, input="", check=False,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    named = f"architecture {architecture} is not supported" in p.stderr
    return [] if p.returncode != 0 and named else [f"not refused by its name: {p.stderr.strip()}"]


def check(directory, folder, options, tolerance):
    with open(os.path.join(folder, "golden.json"), encoding="utf-8") as f:
        golden = json.load(f)
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    if config["architectures"][0] in NOT_SERVED:
        return 0.0, refusal(directory, config["architectures"][0])
    in64 = "logits64_file" in golden["cases"][0]
    if in64 and tolerance:  # a rounding of float32 moves some rows by 1e-3: nothing to ask of fewer bits
        return 0.0, []
    return check_model(directory, golden,
                       lambda c: read_floats(os.path.join(folder, c["logits64_file" if in64 else "logits_file"])),
                       lambda c: tolerance or max(2e-4, 2 * c["deviation"]["f64"] if in64 else 0), options)


def main():
    base = os.environ.get("HEARTH_REFERENCE")
    families = os.path.join(base or "", "goldens", "families")
    if not base or not os.path.isdir(families):
        print("HEARTH_REFERENCE does not name reference data with goldens/families")
        return SKIPPED
    options, tolerance = path_options(sys.argv[1:])
    tally = Tally()
    for name in sorted(os.listdir(os.path.join(families, "logits"))):
        worst, problems = check(os.path.join(families, "models", name),
                                os.path.join(families, "logits", name), options, tolerance)
        tally.add(name, worst, problems)
    return tally.end()


if __name__ == "__main__":
    sys.exit(main())
