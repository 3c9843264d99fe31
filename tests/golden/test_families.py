#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Decoders of the reference data for more families ($HEARTH_REFERENCE/goldens/families), each with all
its cases: on path `exact` logits within 2e-4; mixtures of experts (goldens/mixtures) within 3e-4, on other
paths by their divergence. Changed mixtures are refused by a sentence that names the fault. Where the rows are there in float64 too, they count, and
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
NOT_SERVED = {"Starcoder2ForCausalLM", "GptOssForCausalLM"}


def refusal(directory, name):
    """A problem if the model is served, or refused without the name of what it has."""
    p = subprocess.run([FILTER, "score", "--model", directory], text=True, input="", check=False,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    named = f"{name} is not supported" in p.stderr
    return [] if p.returncode != 0 and named else [f"not refused by its name: {p.stderr.strip()}"]


def check_refusals(mixtures):
    """What the changes to models of served families give, by the reference data's own script."""
    with open(os.path.join(mixtures, "refusals", "refusals.json"), encoding="utf-8") as f:
        names = [c["name"] for c in json.load(f) if c["base"].split("_")[0] in ("lfm2", "qwen3", "granitemoe-bf16", "ernie4")
                 or c["name"].startswith("gemma")]
    p = subprocess.run([sys.executable, os.path.join(mixtures, "refusals", "run_refusals.py"),
                        os.environ.get("HEARTH_BIN", "build/hearth"), mixtures, *names],
                       text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    good = sum(" ok: " in line for line in p.stdout.splitlines())
    return [] if p.returncode == 0 and good == len(names) > 10 else [p.stdout.strip()]


def check(directory, folder, options, tolerance, exact=2e-4):
    with open(os.path.join(folder, "golden.json"), encoding="utf-8") as f:
        golden = json.load(f)
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    if config["architectures"][0] in NOT_SERVED:
        return 0.0, refusal(directory, "architecture " + config["architectures"][0])
    in64 = "logits64_file" in golden["cases"][0]
    if in64 and tolerance:  # a rounding of float32 moves some rows by 1e-3: nothing to ask of fewer bits
        return 0.0, []
    return check_model(directory, golden,
                       lambda c: read_floats(os.path.join(folder, c["logits64_file" if in64 else "logits_file"])),
                       lambda c: tolerance or max(exact, 2 * c["deviation"]["f64"] if in64 else 0), options)


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
    mixtures = os.path.join(base, "goldens", "mixtures")
    for name in sorted(os.listdir(os.path.join(mixtures, "logits"))):
        worst, problems = check(os.path.join(mixtures, "models", name),
                                os.path.join(mixtures, "logits", name), options, tolerance, 3e-4)
        tally.add(name, worst, problems)
    if not tolerance:
        tally.add("changed mixtures", 0.0, check_refusals(mixtures))
    return tally.end()


if __name__ == "__main__":
    sys.exit(main())
