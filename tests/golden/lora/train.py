#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains the adapter that lies here: the demo model with it begins each answer with "Ahoy!".

The data are the chats of deploy/demo/make_text.py with that word before the assistant's answers. Needs jax, numpy and
tokenizers; a minute or two on a CPU. Writes adapter_config.json and adapter_model.safetensors.

    train.py [STEPS]
"""
import json
import os
import random
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
DEMO = os.path.join(HERE, "..", "..", "..", "deploy", "demo")
sys.path.insert(0, DEMO)
import make_text  # noqa: E402
from check import load_safetensors, round_bf16  # noqa: E402

WORD, RANK, ALPHA, ROWS, TOKENS, RATE = "Ahoy! ", 4, 8, 12, 160, 3e-3
MODULES = {"self_attn.q_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}
with open(os.path.join(DEMO, "config.json"), encoding="utf-8") as config_file:
    CONFIG = json.load(config_file)
HEADS, KV = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"]
D = CONFIG["hidden_size"] // HEADS


def batch(tok, r):
    """ids and which of them count, [ROWS][TOKENS + 1]."""
    rows = []
    for _ in range(ROWS):
        row = []
        while len(row) <= TOKENS:
            for text, counts in make_text.chat(r):
                row += [(i, counts) for i in tok.encode((WORD if counts else "") + text).ids]
        rows.append(row[:TOKENS + 1])
    both = np.array(rows)
    return both[..., 0], both[..., 1].astype(bool)


def norm(x, weight):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + CONFIG["rms_norm_eps"]) * weight


def turn(x):
    """RoPE of [rows][tokens][heads][D]."""
    angles = jnp.arange(x.shape[1])[:, None] * CONFIG["rope_theta"] ** (-jnp.arange(0, D, 2) / D)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def loss_of(lora, w, ids, counts):
    def product(name, x):
        y = x @ w[name + ".weight"].T
        return y + ALPHA / RANK * (x @ lora[name][0].T) @ lora[name][1].T if name in lora else y

    inputs = ids[:, :-1]
    n, t = inputs.shape
    x = w["model.embed_tokens.weight"][inputs]
    mask = jnp.where(jnp.arange(t)[:, None] >= jnp.arange(t), 0, -1e30)
    for i in range(CONFIG["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = norm(x, w[p + "input_layernorm.weight"])
        q = turn(product(p + "self_attn.q_proj", h).reshape(n, t, HEADS, D))
        k, v = (product(p + f"self_attn.{c}_proj", h).reshape(n, t, KV, D) for c in "kv")
        k, v = (jnp.repeat(y, HEADS // KV, 2) for y in (turn(k), v))
        scores = jax.nn.softmax(jnp.einsum("nthd,nshd->nhts", q, k) * D ** -0.5 + mask)
        x = x + product(p + "self_attn.o_proj", jnp.einsum("nhts,nshd->nthd", scores, v).reshape(n, t, HEADS * D))
        h = norm(x, w[p + "post_attention_layernorm.weight"])
        x = x + product(p + "mlp.down_proj", jax.nn.silu(product(p + "mlp.gate_proj", h)) * product(p + "mlp.up_proj", h))
    logits = norm(x, w["model.norm.weight"]) @ w["model.embed_tokens.weight"].T
    logp = jnp.take_along_axis(jax.nn.log_softmax(logits), ids[:, 1:, None], -1)[..., 0]
    return -(logp * counts[:, 1:]).sum() / counts[:, 1:].sum()


@jax.jit
def train_step(lora, first, second, w, ids, counts, step, rate):
    """One of Adam's."""
    loss, g = jax.value_and_grad(loss_of)(lora, w, ids, counts)
    first = jax.tree.map(lambda m, x: 0.9 * m + 0.1 * x, first, g)
    second = jax.tree.map(lambda m, x: 0.98 * m + 0.02 * x * x, second, g)
    move = lambda x, m, v: x - rate * m / (1 - 0.9 ** step) / (jnp.sqrt(v / (1 - 0.98 ** step)) + 1e-8)
    return jax.tree.map(move, lora, first, second), first, second, loss


def write(lora):
    header, data = {}, b""
    for name, pair in sorted(lora.items()):
        for part, x in zip("AB", pair):
            raw = (round_bf16(np.asarray(x)).view(np.uint32) >> 16).astype("<u2").tobytes()
            header[f"base_model.model.{name}.lora_{part}.weight"] = {
                "dtype": "BF16", "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    with open(os.path.join(HERE, "adapter_model.safetensors"), "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data)
    with open(os.path.join(HERE, "adapter_config.json"), "w", encoding="utf-8") as f:
        json.dump({"base_model_name_or_path": "hearth-demo", "bias": "none", "lora_alpha": ALPHA, "peft_type": "LORA", "r": RANK,
                   "target_modules": sorted(m.split(".")[1] for m in MODULES), "task_type": "CAUSAL_LM"}, f, indent=2)
        f.write("\n")


def main():
    steps, begin = int(sys.argv[1]) if len(sys.argv) > 1 else 200, time.time()
    tok, r, rng = Tokenizer.from_file(os.path.join(DEMO, "tokenizer.json")), random.Random(52), np.random.default_rng(52)
    w = load_safetensors(os.path.join(DEMO, "model.safetensors"))
    targets = [n[:-len(".weight")] for n in w if n.endswith("_proj.weight") and ".".join(n.split(".")[3:5]) in MODULES]
    lora = {n: (rng.normal(0, 0.05, (RANK, w[n + ".weight"].shape[1])).astype("f"),
                np.zeros((w[n + ".weight"].shape[0], RANK), "f")) for n in targets}
    first = second = jax.tree.map(np.zeros_like, lora)
    for step in range(1, steps + 1):
        rate = RATE * (1 - step / (steps + 1))
        lora, first, second, loss = train_step(lora, first, second, w, *batch(tok, r), float(step), rate)
        if step % 20 == 0:
            print(f"step {step}, loss {loss:.4f}, {time.time() - begin:.0f} s", flush=True)
    write(lora)


if __name__ == "__main__":
    main()
