#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a model directory with random bf16 weights in the shape of a real model, for speed and load tests.

    make_model.py OUT [--shape smollm2-135m] [--tokenizer DIR]

The same shape always gives the same bytes. With --tokenizer the tokenizer files of DIR are copied;
otherwise those of the demo model (its ids are the low ones of the vocabulary). Standard library only.
"""
import argparse
import json
import math
import os
import random
import shutil
import struct

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# hidden, layers, heads, kv heads, intermediate, vocabulary, rope theta, context
SHAPES = {
    "smollm2-135m": (576, 30, 9, 3, 1536, 49152, 100000.0, 8192),
    "smollm2-360m": (960, 32, 15, 5, 2560, 49152, 100000.0, 8192),
    "small": (192, 4, 6, 2, 512, 4096, 10000.0, 2048),
}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def tensor_shapes(hidden, layers, heads, kv_heads, inter, vocab):
    head = hidden // heads
    yield "model.embed_tokens.weight", (vocab, hidden)
    for i in range(layers):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (hidden,)
        yield p + "self_attn.q_proj.weight", (hidden, hidden)
        yield p + "self_attn.k_proj.weight", (kv_heads * head, hidden)
        yield p + "self_attn.v_proj.weight", (kv_heads * head, hidden)
        yield p + "self_attn.o_proj.weight", (hidden, hidden)
        yield p + "post_attention_layernorm.weight", (hidden,)
        yield p + "mlp.gate_proj.weight", (inter, hidden)
        yield p + "mlp.up_proj.weight", (inter, hidden)
        yield p + "mlp.down_proj.weight", (hidden, inter)
    yield "model.norm.weight", (hidden,)


def matrix_bytes(rng, n):
    """n bf16 values of either sign with magnitudes from 1/64 to 1/32: about 0.02, as in a fresh model."""
    draws = rng.randbytes(n)
    out = bytearray(2 * n)
    out[0::2] = draws.translate(LOW)
    out[1::2] = draws.translate(HIGH)
    return out


def norm_bytes(rng, n):
    """n bf16 values from 1 to 1.5."""
    return b"".join(struct.pack("<H", 0x3F80 | rng.getrandbits(6)) for _ in range(n))


# a byte gives the sign (its high bit) and the 7 bits of mantissa; the exponent is that of 1/64
LOW = bytes((0x79 << 7 & 0x80) | (b & 0x7F) for b in range(256))
HIGH = bytes((b & 0x80) | (0x79 >> 1) for b in range(256))


def write_weights(path, shapes):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes:
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    rng = random.Random(1)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, shape in shapes:
            f.write(norm_bytes(rng, shape[0]) if len(shape) == 1 else matrix_bytes(rng, math.prod(shape)))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--shape", choices=sorted(SHAPES), default="smollm2-135m")
    p.add_argument("--tokenizer", default=os.path.join(ROOT, "deploy", "demo"))
    a = p.parse_args()
    hidden, layers, heads, kv_heads, inter, vocab, theta, ctx = SHAPES[a.shape]
    os.makedirs(a.out, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
              "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
              "intermediate_size": inter, "vocab_size": vocab, "rope_theta": theta, "rms_norm_eps": 1e-5,
              "max_position_embeddings": ctx, "tie_word_embeddings": True, "hidden_act": "silu",
              "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 0}
    with open(os.path.join(a.out, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)
    with open(os.path.join(a.out, "generation_config.json"), "w", encoding="utf-8") as f:
        json.dump({"bos_token_id": 0, "eos_token_id": 0}, f)
    for name in TOKENIZER_FILES:
        source = os.path.join(a.tokenizer, name)
        if os.path.exists(source):
            shutil.copyfile(source, os.path.join(a.out, name))
    write_weights(os.path.join(a.out, "model.safetensors"),
                  list(tensor_shapes(hidden, layers, heads, kv_heads, inter, vocab)))


if __name__ == "__main__":
    main()
