#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Repeatability under `--gemm blas` with every set of kernels that OpenBLAS has and this machine runs.

    tests/golden/blas_run.py [BUILD_DIR] [MODEL_DIR ...]

For each name the program test_repeatability compares every make of engine, bit by bit, and test_concurrent.py the answers
of whole servers. Prints a table. Exit status 1 if a set of kernels that runs here is not repeatable.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

# The names that OpenBLAS 0.3 takes in OPENBLAS_CORETYPE on x86 and ARM; a library has some of them.
CORES = """Katmai Coppermine Northwood Prescott Banias Atom Core2 Penryn Dunnington Nehalem Athlon Opteron Opteron_SSE3
           Barcelona Nano Sandybridge Bobcat Bulldozer Piledriver Haswell Steamroller Excavator Zen SkylakeX Cooperlake
           SapphireRapids armv8 cortexa53 cortexa57 cortexa72 cortexa73 cortexa76 neoversen1 neoversev1 neoversen2
           thunderx thunderx2t99 tsv110 emag8180 thunderx3t110 a64fx""".split()


SERVERS = pathlib.Path(__file__).resolve().parent.parent / "e2e" / "test_concurrent.py"


def servers_verdict(build, core):
    """As verdict, of servers that answer one request at a time and 32."""
    env = {**os.environ, "OPENBLAS_CORETYPE": core, "HEARTH_BIN": str(build.resolve() / "hearth")}
    p = subprocess.run([sys.executable, SERVERS, "--gemm", "blas"], env=env, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True)
    n = len(re.findall(r"(\d+) of \1 identical", p.stdout))
    return ("same", f"{n} servers") if p.returncode == 0 and n else ("other", p.stdout[-600:])


def verdict(program, core, models):
    """(state, text): "same", "other", "absent" or "cannot run"."""
    with tempfile.TemporaryFile("w+") as out:
        rc = subprocess.run([program, "--blas", core, *models], stdout=out, stderr=subprocess.STDOUT).returncode
        out.seek(0)
        text = out.read()
    if rc == -signal.SIGILL or "Illegal instruction" in text:  # cmocka catches the signal
        return "cannot run", "instructions that this CPU does not have"
    if "OpenBLAS runs its" in text:
        return "absent", re.search(r"OpenBLAS runs its (\S+) kernels", text).group(1) + " in its place"
    if rc != 0:
        return "other", text[-600:]
    rows = [int(n) for n in re.findall(r": (\d+) rows of the same bits", text)]
    return ("same", f"{sum(rows):,} rows, {len(rows)} models") if rows else ("absent", "no BLAS in this build")


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build")
    program = build / "tests/golden/test_repeatability"
    verdicts = {}
    for core in CORES:
        verdicts[core], text = verdict(program, core, sys.argv[2:])
        if verdicts[core] == "same":
            verdicts[core], more = servers_verdict(build, core)
            text += ", " + more
        if verdicts[core] != "absent":
            print(f"{core:<14} {verdicts[core]:<11} {text}", flush=True)
    same, other = (list(verdicts.values()).count(state) for state in ("same", "other"))
    print(f"{same} sets of kernels give the same bits, {other} do not")
    return 0 if same and not other else 1


if __name__ == "__main__":
    sys.exit(main())
