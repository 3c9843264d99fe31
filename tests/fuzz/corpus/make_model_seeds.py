#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the seeds of fuzz_safetensors, fuzz_gguf, fuzz_blocks, fuzz_config and fuzz_index into the folders beside it."""
import json
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "../../golden/models")
sys.path.insert(0, os.path.join(HERE, "../../e2e"))
import gguf_files  # noqa: E402


def put(target, name, data):
    with open(os.path.join(HERE, target, name), "wb") as f:
        f.write(data)


def header(name, n_data, text):
    put("safetensors", name, struct.pack("<Q", n_data) + text.encode())


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_seeds():
    one = {"a": tensor("F32", [2, 3], 0, 24)}
    header("empty", 0, "{}")
    header("one", 24, json.dumps(one))
    header("metadata", 24, json.dumps({"__metadata__": {"format": "pt"}, **one}) + "   ")
    header("short", 20, json.dumps(one))
    header("two", 5, json.dumps({"b": tensor("F32", [1], 1, 5), "a": tensor("U8", [1], 0, 1)}))
    header("zero", 4, json.dumps({"z": tensor("BF16", [0, 5], 0, 0), "s": tensor("F32", [], 0, 4)}))
    header("rank9", 2, json.dumps({"a": tensor("F16", [1] * 9, 0, 2)}))
    header("wrap", 0, json.dumps({"a": tensor("U8", [1 << 32, 1 << 32], 0, 0)}))
    header("hole", 3, json.dumps({"a": tensor("U8", [1], 0, 1), "b": tensor("U8", [1], 2, 3)}))
    header("overlap", 3, json.dumps({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 1, 3)}))
    header("dtypes", 25, json.dumps({"a": tensor("F4", [2], 0, 1), "b": tensor("F6_E2M3", [4], 1, 4),
                                     "c": tensor("F8_E4M3", [5], 4, 9), "d": tensor("C64", [2], 9, 25)}))
    header("twice", 2, '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                       '"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}')
    header("escapes", 1, '{"\\u0041\\n\\ud83d\\ude00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}')
    header("deep", 0, '{"a":' + "[" * 200 + "]" * 200 + "}")
    header("pointer", 0, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


def config_seeds():
    for name in sorted(os.listdir(MODELS)):
        path = os.path.join(MODELS, name, "config.json")
        if os.path.exists(path):
            with open(path, "rb") as f:
                put("config", name, f.read())
    base = {"model_type": "llama", "vocab_size": 99}
    for name, more in {
            "v5": {"rope_parameters": {"rope_theta": 1e5, "rope_type": "linear", "factor": 2.0},
                   "dtype": "bfloat16"},
            "yarn": {"rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": 1e-3,
                                      "mscale": 1, "mscale_all_dim": 0.5, "truncate": False}},
            "llama3": {"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                                        "high_freq_factor": 4,
                                        "original_max_position_embeddings": 8192}},
            "eos-list": {"eos_token_id": [1, 2, 3], "bos_token_id": None},
            "experts": {"num_local_experts": 8, "quantization_config": {"bits": 4}},
            "numbers": {"hidden_size": 2 ** 63 - 1, "rms_norm_eps": 1e308},
    }.items():
        put("config", name, json.dumps({**base, **more}).encode())
    put("config", "generation", json.dumps(base).encode() + b"\0" + b'{"eos_token_id": [4, 5]}')
    put("config", "no-object", b"[1]")


def index_seeds():
    def index(name, weight_map, **more):
        put("index", name, json.dumps({"weight_map": weight_map, **more}).encode())
    index("two", {"a": "1.safetensors", "lm_head.weight": "2.safetensors"}, metadata={"total_size": 5})
    index("folder", {"a": "x/1.safetensors"})
    index("parent", {"a": "../1.safetensors"})
    index("inner", {"a": "x/../../1.safetensors"})
    index("absolute", {"a": "/dev/zero"})
    index("empty", {})
    index("numbers", {"a": 1})
    index("dots", {"a": "...", "b": "..x", "c": ".hidden"})
    put("index", "twice", b'{"weight_map":{"a":"x","a":"y"}}')
    put("index", "pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


def gguf_seeds():
    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()

    def key(name, kind, value):
        return text(name) + struct.pack("<I", kind) + value

    def tensor(name, dims, kind, offset):
        return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)

    def seed(name, keys, tensors, n_data, version=3):
        head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys + tensors)
        put("gguf", name, struct.pack("<I", n_data) + head + b"\0" * (-len(head) % 32))

    def array(kind, n, values):
        return struct.pack("<IQ", kind, n) + values

    keys = [key("general.architecture", 8, text("llama")), key("a.u8", 0, b"\1"), key("a.f32", 6, struct.pack("<f", 1.5)),
            key("a.i64", 11, struct.pack("<q", -3)), key("a.bool", 7, b"\1"),
            key("a.texts", 9, array(8, 2, text("x") + text(""))), key("a.i16", 9, array(3, 2, struct.pack("<2h", -2, 300)))]
    tensors = [tensor("m", [64, 3], 8, 0), tensor("v", [5], 0, 224)]
    seed("empty", [], [], 0)
    seed("whole", keys, tensors, 244)
    seed("version-2", keys, tensors, 244, version=2)
    seed("alignment", [key("general.alignment", 4, struct.pack("<I", 8))], [tensor("a", [256], 12, 0), tensor("b", [1, 1, 1, 1], 0, 144)], 148)
    seed("cut", keys, tensors, 243)
    seed("twice", [keys[1], keys[1]], [], 0)
    seed("wrap", [], [tensor("a", [1 << 32, 1 << 32], 0, 0)], 0)
    seed("long", [key("a", 9, array(8, 1 << 40, b""))], [], 0)
    seed("nan", [key("a", 12, b"\xff" * 8), key("b", 9, array(6, 1, b"\0\0\x80\x7f"))], [], 0)
    for name, make, folder in (("experts", gguf_files.mixture, "lfm2-experts-bf16"), ("gemma4", gguf_files.gemma4, "gemma4-experts-bf16")):
        keys, tensors, _ = make(*gguf_files.read_directory(os.path.join(MODELS, folder)))
        whole = gguf_files.gguf(keys, tensors)
        head = gguf_files.header(keys, [(*t[:3], len(t[3])) for t in tensors])
        put("gguf", name, struct.pack("<I", len(whole) - len(head)) + head)


def blocks_seeds():
    sizes = [18, 20, 22, 24, 34, 110, 144, 176, 210, 18, 136]
    state = 1
    for kind, size in enumerate(sizes):
        row = bytearray()
        for _ in range(2 * size):
            state = state * 1664525 + 1013904223 & 0xffffffff
            row.append(state >> 24 & 0x3f)  # every F16 is finite
        put("blocks", f"type-{kind}", bytes([kind]) + row)
    put("blocks", "infinite", b"\0" + b"\0\x7c" + b"\x12" * 16)
    put("blocks", "short", b"\1abc")


for folder in ("safetensors", "gguf", "blocks", "config", "index"):
    os.makedirs(os.path.join(HERE, folder), exist_ok=True)
safetensors_seeds()
gguf_seeds()
blocks_seeds()
config_seeds()
index_seeds()
