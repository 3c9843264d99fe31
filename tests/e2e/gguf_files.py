# SPDX-License-Identifier: MIT
"""GGUF files for tests: written from keys and tensors, and the keys of a tokenizer.json as converters write them."""
import struct

TYPES = {"u8": (0, "B"), "i8": (1, "b"), "u32": (4, "I"), "i32": (5, "i"), "f32": (6, "f"), "bool": (7, "?"),
         "str": (8, None), "u64": (10, "Q")}
NORMAL, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 3, 4, 5, 6
ALIGNMENT = 32


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def one(kind, value):
    return text(value) if kind == "str" else struct.pack("<" + TYPES[kind][1], value)


def key(name, kind, value):
    if isinstance(value, list):
        body = struct.pack("<IIQ", 9, TYPES[kind][0], len(value)) + b"".join(one(kind, v) for v in value)
    else:
        body = struct.pack("<I", TYPES[kind][0]) + one(kind, value)
    return text(name) + body


def gguf(keys, tensors=()):
    """The bytes of a file. keys: [(name, kind, value or list)]; tensors: [(name, dims, type, bytes)], the fastest
    dimension first."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(key(*k) for k in keys)
    at, data = 0, b""
    for name, dims, kind, content in tensors:
        out += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, at)
        data += content + b"\0" * (-len(content) % ALIGNMENT)
        at = len(data)
    return out + b"\0" * (-len(out) % ALIGNMENT) + data


def tokenizer_keys(tokenizer, pre, n_rows=0):
    """Of a tokenizer.json with BPE over bytes; ids that it lacks, up to n_rows, are unused."""
    model = tokenizer["model"]
    texts = {i: t for t, i in model["vocab"].items()}
    types = {i: NORMAL for i in texts}
    for token in tokenizer["added_tokens"]:
        texts[token["id"]] = token["content"]
        types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    n = max(n_rows, max(texts) + 1)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    return [("tokenizer.ggml.model", "str", "gpt2"), ("tokenizer.ggml.pre", "str", pre),
            ("tokenizer.ggml.tokens", "str", [texts.get(i, f"[PAD{i}]") for i in range(n)]),
            ("tokenizer.ggml.token_type", "i32", [types.get(i, UNUSED) for i in range(n)]),
            ("tokenizer.ggml.merges", "str", merges)]
