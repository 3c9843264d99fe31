#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tiny models of tests/golden/models against the reference's logits, on every exact triple: path
`exact` under each kernel level this machine runs, and under BLAS. Weights kept in F16 give the bits of the same
weights in F32.

    test_logits.py PATH TOLERANCE [OPTION ...]    another numeric path, to its own tolerance
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

from logits_check import FILTER, Tally, check_model, path_options, read_floats, score

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")
EXACT = 5e-4


def recorded_rows(directory, golden):
    """case name -> its rows; the cases lie one after the other in logits.f32."""
    vocab, at, rows = golden["vocab_size"], 0, {}
    for case in golden["cases"]:
        n = len(case["logits_rows"]) * vocab
        rows[case["name"]] = read_floats(os.path.join(directory, "logits.f32"), at, n)
        at += n
    return rows


def run(tally, options, tolerance):
    for name in sorted(os.listdir(MODELS)):
        directory = os.path.join(MODELS, name)
        path = os.path.join(directory, "golden.json")
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as f:
            golden = json.load(f)
        rows = recorded_rows(directory, golden)
        worst, problems = check_model(directory, golden, lambda c: rows[c["name"]],
                                      lambda c: tolerance, options)
        tally.add(" ".join([name, *options]), worst, problems)


def kernel_levels():
    """The levels this machine runs, by asking for each."""
    text = subprocess.run([os.environ.get("HEARTH_BIN", "build/hearth"), "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    names = next(l for l in text.splitlines() if l.startswith("kernel levels:")).split()[2:]
    model = os.path.join(MODELS, "mistral-window-bf16")
    for name in names:
        p = subprocess.run([FILTER, "score", "--model", model, "--kernels", name], input="", text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if p.returncode == 0:
            yield name


def widen_model(directory, to):
    """Copies a model of F16 tensors as F32."""
    with open(os.path.join(directory, "model.safetensors"), "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(size)), f.read()
    for name, entry in header.items():
        if name != "__metadata__":
            assert entry["dtype"] == "F16", name
            entry.update(dtype="F32", data_offsets=[2 * at for at in entry["data_offsets"]])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    n = len(data) // 2
    with open(os.path.join(to, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + struct.pack(f"<{n}f", *struct.unpack(f"<{n}e", data)))
    shutil.copy(os.path.join(directory, "config.json"), to)


def compare_f16(tally, levels):
    """Logits of an F16 checkpoint and of the same weights as F32, to the last bit."""
    directory = os.path.join(MODELS, "llama-dynamic-f16")
    with tempfile.TemporaryDirectory() as tmp:
        widen_model(directory, tmp)
        for level in levels:
            logits = []
            for model in (directory, tmp):
                path = os.path.join(tmp, "logits")
                score(model, [{"ids": list(range(3, 43)), "logits": path}],
                      ["--numerics", "exact", "--kernels", level, "--gemm", "native"])
                logits.append(read_floats(path))
            differ = sum(a != b for a, b in zip(*logits))
            assert len(logits[0]) == len(logits[1]) > 0
            tally.add(f"f16 as f32 on {level}", float(differ),
                      [f"{differ} logits are not those of F32 weights"] if differ else [])


def main():
    tally = Tally()
    options, tolerance = path_options(sys.argv[1:])
    if tolerance:
        run(tally, options, tolerance)
        return tally.end()
    levels = list(kernel_levels())
    assert "c" in levels, f"kernel levels {levels}"
    for level in levels:
        run(tally, ["--numerics", "exact", "--kernels", level, "--chunk", "16"], EXACT)
    run(tally, ["--numerics", "exact", "--gemm", "blas"], EXACT)
    compare_f16(tally, levels)
    return tally.end()


if __name__ == "__main__":
    sys.exit(main())
