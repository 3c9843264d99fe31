#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains the demo model from nothing: tokenizer, weights and the Hugging Face files around them.

    train.py --tokenizer          trains and writes tokenizer.json (needs PyPI's `tokenizers`)
    train.py --steps N [--resume] trains; a checkpoint every 100 steps
    train.py --export             writes model.safetensors (bf16) and the JSON files

Needs torch (1.13 is enough), numpy and tokenizers; a CPU will do. Everything follows from --seed.
The data is endless: every step draws new documents from make_text.py, so nothing is seen twice on
purpose. The last part of training runs on weights disturbed the way int4 (groups of 32) disturbs
them, so that coarse formats keep the sums right.
"""

import argparse
import json
import math
import os
import random
import re
import time

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import make_text

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 128,
    "initializer_range": 0.02,
    "intermediate_size": 384,
    "max_position_embeddings": 2048,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 5,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-5,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 1024,
}
SPECIALS = [make_text.END_TEXT, make_text.TURN, make_text.END_TURN]  # ids 0, 1, 2
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' or message['role'] == 'developer' %}"
    "{% if message['content'] %}"  # an empty system message says nothing
    "{{ '<|im_start|>system\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endif %}"
    "{% else %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


# ---------------------------------------------------------------- tokenizer


def train_tokenizer(seed):
    r = random.Random(seed)
    texts = (text for _ in range(20000) for text, _ in make_text.document(r))
    strip = lambda text: re.sub("|".join(map(re.escape, SPECIALS)), "\n", text)
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=CONFIG["vocab_size"], special_tokens=SPECIALS, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))  # every byte has a token
    tok.train_from_iterator((strip(t) for t in texts), trainer)
    assert tok.get_vocab_size() == CONFIG["vocab_size"]
    tok.save(os.path.join(HERE, "tokenizer.json"), pretty=False)


# ---------------------------------------------------------------- data


class Rows:
    """Endless packed rows: documents back to back from position 0, the last one cut."""

    def __init__(self, tok, seed):
        self.tok, self.r = tok, random.Random(seed)

    def batch(self, n_rows, n_tokens):
        ids, learn = [], []
        for _ in range(n_rows):
            row, mask = [], []
            while len(row) < n_tokens + 1:
                parts = make_text.document(self.r)
                for enc, (_, counts) in zip(self.tok.encode_batch([t for t, _ in parts]), parts):
                    row += enc.ids
                    mask += [counts] * len(enc.ids)
            ids.append(row[: n_tokens + 1])
            learn.append(mask[: n_tokens + 1])
        ids, learn = torch.tensor(ids), torch.tensor(learn)
        return ids[:, :-1], ids[:, 1:].masked_fill(~learn[:, 1:], -100)


# ---------------------------------------------------------------- model


def new_weights(seed):
    """Tensors under their Hugging Face names."""
    g = torch.Generator().manual_seed(seed)
    d, ff = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    kv = d * CONFIG["num_key_value_heads"] // CONFIG["num_attention_heads"]
    rand = lambda rows, cols, std: torch.randn(rows, cols, generator=g) * std
    std, out_std = d**-0.5, d**-0.5 / math.sqrt(2 * CONFIG["num_hidden_layers"])
    w = {
        "model.embed_tokens.weight": rand(CONFIG["vocab_size"], d, 0.05),
        "model.norm.weight": torch.ones(d),
    }
    for i in range(CONFIG["num_hidden_layers"]):
        p = f"model.layers.{i}."
        w[p + "input_layernorm.weight"] = torch.ones(d)
        w[p + "post_attention_layernorm.weight"] = torch.ones(d)
        w[p + "self_attn.q_proj.weight"] = rand(d, d, std)
        w[p + "self_attn.k_proj.weight"] = rand(kv, d, std)
        w[p + "self_attn.v_proj.weight"] = rand(kv, d, std)
        w[p + "self_attn.o_proj.weight"] = rand(d, d, out_std)
        w[p + "mlp.gate_proj.weight"] = rand(ff, d, std)
        w[p + "mlp.up_proj.weight"] = rand(ff, d, std)
        w[p + "mlp.down_proj.weight"] = rand(d, ff, out_std)
    return {name: t.requires_grad_() for name, t in w.items()}


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + CONFIG["rms_norm_eps"]) * weight


def rope_tables(n_tokens):
    d_head = CONFIG["hidden_size"] // CONFIG["num_attention_heads"]
    freq = CONFIG["rope_theta"] ** (-torch.arange(0, d_head, 2).float() / d_head)
    angle = torch.outer(torch.arange(n_tokens).float(), freq)
    return torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def attention(w, p, x, cos, sin, mask):
    n, t, d = x.shape
    heads, kv_heads = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"]
    group, d_head = heads // kv_heads, d // heads
    split = lambda y, h: y.view(n, t, h, d_head).transpose(1, 2)
    q = rotate(split(F.linear(x, w[p + "q_proj.weight"]), heads), cos, sin) * d_head**-0.5
    k = rotate(split(F.linear(x, w[p + "k_proj.weight"]), kv_heads), cos, sin)
    v = split(F.linear(x, w[p + "v_proj.weight"]), kv_heads)
    q = q.reshape(n, kv_heads, group * t, d_head)  # the heads of a group share k and v
    score = torch.matmul(q, k.transpose(2, 3)) + mask.repeat(group, 1)
    y = torch.matmul(score.softmax(-1), v).view(n, heads, t, d_head)
    return F.linear(y.transpose(1, 2).reshape(n, t, d), w[p + "o_proj.weight"])


def loss_of(w, ids, targets):
    """Mean cross-entropy over the targets that count; logits only where they do."""
    cos, sin = rope_tables(ids.shape[1])
    mask = torch.full((ids.shape[1],) * 2, -1e30).triu(1)
    x = F.embedding(ids, w["model.embed_tokens.weight"])
    for i in range(CONFIG["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = rms_norm(x, w[p + "input_layernorm.weight"])
        x = x + attention(w, p + "self_attn.", h, cos, sin, mask)
        h = rms_norm(x, w[p + "post_attention_layernorm.weight"])
        gate = F.silu(F.linear(h, w[p + "mlp.gate_proj.weight"]))
        h = gate * F.linear(h, w[p + "mlp.up_proj.weight"])
        x = x + F.linear(h, w[p + "mlp.down_proj.weight"])
    counts = targets != -100
    x = rms_norm(x[counts], w["model.norm.weight"])
    return F.cross_entropy(F.linear(x, w["model.embed_tokens.weight"]), targets[counts])


# ---------------------------------------------------------------- training


def disturbed(w, how):
    """The weights as int4 in groups of 32 would store them, or with noise of the same size."""
    out = {}
    for name, t in w.items():
        if t.dim() == 2:
            groups = t.detach().reshape(-1, 32)
            step = groups.abs().amax(1, keepdim=True).clamp_min(1e-8) / 7
            if how == "int4":
                moved = (groups / step).round() * step
            else:
                moved = groups + (torch.rand_like(groups) - 0.5) * step
            t = t + (moved.view_as(t) - t.detach())  # gradients go straight through
        out[name] = t
    return out


def learning_rate(step, steps, peak):
    warm = min(1.0, (step + 1) / 100)
    return peak * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def train(args):
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    tok = Tokenizer.from_file(os.path.join(HERE, "tokenizer.json"))
    rows, w, first, spent = Rows(tok, args.seed), new_weights(args.seed), 0, 0.0
    groups = [
        {"params": [t for t in w.values() if t.dim() == 2], "weight_decay": 0.05},
        {"params": [t for t in w.values() if t.dim() == 1], "weight_decay": 0.0},
    ]
    opt = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98), eps=1e-9)
    if args.resume:
        state = torch.load(args.checkpoint)
        for name, t in state["weights"].items():
            w[name].data.copy_(t)
        opt.load_state_dict(state["optimizer"])
        rows.r.setstate(state["random"])
        torch.set_rng_state(state["torch_random"])
        first, spent = state["step"], state["seconds"]
    begin, mean = time.time() - spent, None
    for step in range(first, args.steps):
        shape = (2, 2048) if step % 20 == 19 else (4, 1024) if step % 20 == 9 else (args.rows, 256)
        ids, targets = rows.batch(*shape)
        late = step >= 0.6 * args.steps
        how = ["none", "noise", "int4"][step % 3] if late else "none"
        for group in opt.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.lr)
        loss = loss_of(w if how == "none" else disturbed(w, how), ids, targets)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        opt.step()
        mean = loss.item() if mean is None else 0.95 * mean + 0.05 * loss.item()
        if step % 20 == 0:
            seconds = time.time() - begin
            print(f"step {step} loss {loss.item():.4f} mean {mean:.4f} {seconds:.0f} s", flush=True)
        if (step + 1) % 100 == 0 or step + 1 == args.steps:
            state = {
                "weights": {n: t.detach() for n, t in w.items()},
                "optimizer": opt.state_dict(),
                "random": rows.r.getstate(),
                "torch_random": torch.get_rng_state(),
                "step": step + 1,
                "seconds": time.time() - begin,
            }
            torch.save(state, args.checkpoint + ".new")
            os.replace(args.checkpoint + ".new", args.checkpoint)
    print(f"{args.steps} steps in {time.time() - begin:.0f} s")


# ---------------------------------------------------------------- export


def write_safetensors(path, weights):
    """8 bytes header length, JSON header padded to 8, then the tensors in order, all bf16."""
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name in sorted(weights):
        bits = weights[name].to(torch.bfloat16).contiguous().view(torch.int16)
        blob = bits.numpy().astype("<i2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(bits.shape),
                        "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def export(args):
    end_text, turn, end_turn = SPECIALS
    flags = dict.fromkeys(["lstrip", "normalized", "rstrip", "single_word"], False)
    plain_token = lambda text: {"content": text, **flags}
    files = {
        "config.json": CONFIG,
        "generation_config.json": {
            "bos_token_id": 1,
            "do_sample": False,
            "eos_token_id": [2, 0],
            "pad_token_id": 0,
        },
        "special_tokens_map.json": {
            "additional_special_tokens": [turn, end_turn],
            "bos_token": plain_token(turn),
            "eos_token": plain_token(end_turn),
            "pad_token": plain_token(end_text),
        },
        "tokenizer_config.json": {
            "add_bos_token": False,
            "add_prefix_space": False,
            "added_tokens_decoder": {
                str(i): dict(plain_token(s), special=True) for i, s in enumerate(SPECIALS)
            },
            "additional_special_tokens": [turn, end_turn],
            "bos_token": turn,
            "chat_template": CHAT_TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "eos_token": end_turn,
            "model_max_length": CONFIG["max_position_embeddings"],
            "pad_token": end_text,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    }
    for name, value in files.items():
        with open(os.path.join(args.out, name), "w") as f:
            f.write(json.dumps(value, indent=2) + "\n")
    state = torch.load(args.checkpoint)
    write_safetensors(os.path.join(args.out, "model.safetensors"), state["weights"])
    n = sum(t.numel() for t in state["weights"].values())
    print(f"{n} parameters, {state['step']} steps, {state['seconds']:.0f} s of training")


def main():
    p = argparse.ArgumentParser(description="train the demo model")
    p.add_argument("--tokenizer", action="store_true", help="train the tokenizer and stop")
    p.add_argument("--export", action="store_true", help="write the model directory and stop")
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--rows", type=int, default=16, help="rows of 256 tokens a step")
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=2025)
    p.add_argument("--threads", type=int, default=1, help="more than 1 gains little at this size")
    p.add_argument("--resume", action="store_true")
    p.add_argument("--checkpoint", default="/tmp/hearth-demo.pt")
    p.add_argument("--out", default=HERE)
    args = p.parse_args()
    if args.tokenizer:
        train_tokenizer(args.seed)
    elif args.export:
        export(args)
    else:
        train(args)


if __name__ == "__main__":
    main()
