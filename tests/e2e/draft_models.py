# SPDX-License-Identifier: MIT
"""Draft models for the demo: its small sibling (tests/golden/draft), and copies of it that are random, damaged or of another size."""
import json
import os
import random
import struct

from tiny_models import pack, read_weights, write_file

SIBLING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/draft")
NAN, VOCAB = b"\xc0\x7f", 1024


def variant(out, change=lambda tensors: None, vocab=VOCAB, tokenizer=lambda text: text):
    """Writes the sibling to out with other tensors ({name: [shape, bytes]}), rows of the embedding, or tokenizer."""
    os.mkdir(out)
    header, data = read_weights(SIBLING)
    del header["__metadata__"]
    tensors = {k: [v["shape"], data[slice(*v["data_offsets"])]] for k, v in header.items()}
    embed = tensors["model.embed_tokens.weight"]
    row = 2 * embed[0][1]
    embed[:] = [vocab, embed[0][1]], (embed[1] + bytes(row * max(vocab - VOCAB, 0)))[:vocab * row]
    change(tensors)
    at, header, blobs = 0, {}, b""
    for k, (shape, blob) in tensors.items():
        header[k] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs += blob
    write_file(os.path.join(out, "model.safetensors"), pack(header, blobs))
    with open(os.path.join(SIBLING, "config.json"), encoding="utf-8") as f:
        write_file(os.path.join(out, "config.json"), dict(json.load(f), vocab_size=vocab))
    with open(os.path.join(SIBLING, "tokenizer.json"), encoding="utf-8") as f:
        write_file(os.path.join(out, "tokenizer.json"), tokenizer(f.read()))
    return out


def randomise(tensors):
    r = random.Random(7)
    for name, t in tensors.items():
        if "norm" not in name:
            t[1] = b"".join(bytes((r.randrange(256), r.choice((0x3c, 0x3d, 0xbc, 0xbd)))) for _ in range(len(t[1]) // 2))


def spoil(tensors):
    tensors["model.norm.weight"][1] = NAN * (len(tensors["model.norm.weight"][1]) // 2)


def every_kind(folder):
    """{kind: directory}: good, random, not finite, with fewer ids than the demo and with rows that pad its vocabulary."""
    return {"good": SIBLING, "random": variant(os.path.join(folder, "random"), randomise),
            "nan": variant(os.path.join(folder, "nan"), spoil),
            "smaller": variant(os.path.join(folder, "smaller"), vocab=1000),
            "larger": variant(os.path.join(folder, "larger"), vocab=1088)}
