#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains a small mixture of experts of LFM2's kind on the demo's text: deploy/demo/train.py with
another network. Eight experts, two a token; what each gets is kept even by the bias of selection alone.

    train.py --steps 1400 --checkpoint FILE; train.py --export --checkpoint FILE --out DIR

The weights here took 1,400 steps and 2,482 s on one core of a busy machine; their first 400 steps went without
what is said last below.

Its tokenizer is the demo's: copy tokenizer.json. The options are those of the demo's script, which says
what it needs (torch 2 here).

It is made to notice faults of routing. An expert's scores are drawn to a level of its own, low and unlike
those of the others: then the two weights of a token are far from a sum of 1 before they are normalised, and
scores without the bias choose other experts. And a model whose experts can do without each other would not
mind: so every second step also asks that the loss is large if the bias is left out, or enters the weights,
or these are not normalised.
"""
import math
import os
import sys

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../../deploy/demo"))
import train  # noqa: E402  (the demo's: this file runs as __main__)

CONFIG = train.CONFIG
CONFIG.clear()
CONFIG.update({
    "architectures": ["Lfm2MoeForCausalLM"],
    "bos_token_id": 1,
    "conv_L_cache": 2,
    "conv_bias": False,
    "eos_token_id": 2,
    "hidden_size": 128,
    "intermediate_size": 128,
    "layer_types": ["conv"] + 4 * ["full_attention"],
    "max_position_embeddings": 2048,
    "model_type": "lfm2_moe",
    "moe_intermediate_size": 64,
    "norm_eps": 1e-5,
    "norm_topk_prob": True,
    "num_attention_heads": 4,
    "num_dense_layers": 0,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 5,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "rope_theta": 10000.0,
    "routed_scaling_factor": 1.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_expert_bias": True,
    "vocab_size": 1024,
})
D, KERNEL = CONFIG["hidden_size"], CONFIG["conv_L_cache"]
N, K = CONFIG["num_experts"], CONFIG["num_experts_per_tok"]
HEADS, KV_HEADS = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"]
D_HEAD = D // HEADS
FAULTS = ("no bias", "bias in the weight", "not normalised")
FAULTY_LOSS = 3.0  # at least
LEVELS = torch.linspace(-4, 0, N)  # of the experts' logits
BIAS_STEP = 0.02


def document(r, of=train.make_text.document):
    """Two documents of three are sums."""
    text = train.make_text
    if r.random() < 1 / 3:
        return of(r)
    a, b = text.train_pair(r)
    return [(f"{text.TURN}user\nWhat is {a}+{b}?{text.END_TURN}\n{text.TURN}assistant\n", False),
            (text.worked_sum(a, b) + text.END_TURN, True), ("\n", False)]


def new_weights(seed):
    """Tensors under their Hugging Face names, the experts of a layer in one."""
    g = torch.Generator().manual_seed(seed)
    rand = lambda rows, cols, std=D**-0.5: torch.randn(rows, cols, generator=g) * std
    out_std = D**-0.5 / math.sqrt(2 * CONFIG["num_hidden_layers"])
    w = {"model.embed_tokens.weight": rand(CONFIG["vocab_size"], D, 0.05),
         "model.embedding_norm.weight": torch.ones(D)}
    for i, kind in enumerate(CONFIG["layer_types"]):
        p = f"model.layers.{i}."
        w[p + "operator_norm.weight"] = torch.ones(D)
        w[p + "ffn_norm.weight"] = torch.ones(D)
        if kind == "conv":
            w[p + "conv.in_proj.weight"] = rand(3 * D, D)
            w[p + "conv.conv.weight"] = rand(D, KERNEL, KERNEL**-0.5)
            w[p + "conv.out_proj.weight"] = rand(D, D, out_std)
        else:
            w[p + "self_attn.q_layernorm.weight"] = torch.ones(D_HEAD)
            w[p + "self_attn.k_layernorm.weight"] = torch.ones(D_HEAD)
            w[p + "self_attn.q_proj.weight"] = rand(D, D)
            w[p + "self_attn.k_proj.weight"] = rand(KV_HEADS * D_HEAD, D)
            w[p + "self_attn.v_proj.weight"] = rand(KV_HEADS * D_HEAD, D)
            w[p + "self_attn.out_proj.weight"] = rand(D, D, out_std)
        p += "feed_forward."
        if i < CONFIG["num_dense_layers"]:
            ff = CONFIG["intermediate_size"]
            w[p + "w1.weight"], w[p + "w3.weight"] = rand(ff, D), rand(ff, D)
            w[p + "w2.weight"] = rand(D, ff, out_std)
            continue
        ff = CONFIG["moe_intermediate_size"]
        w[p + "gate.weight"] = rand(N, D)
        w[p + "expert_bias"] = torch.zeros(N)  # moved by hand: it has no gradient
        w[p + "experts.w1"], w[p + "experts.w3"] = rand(N * ff, D), rand(N * ff, D)
        w[p + "experts.w2"] = rand(N * D, ff, out_std * math.sqrt(3))
    return {name: t.requires_grad_() for name, t in w.items()}


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + CONFIG["norm_eps"]) * weight


def convolution(w, p, x):
    b, c, x = F.linear(x, w[p + "in_proj.weight"]).chunk(3, -1)
    x = F.pad((b * x).transpose(1, 2), (KERNEL - 1, 0))
    x = F.conv1d(x, w[p + "conv.weight"].unsqueeze(1), groups=D).transpose(1, 2)
    return F.linear(c * x, w[p + "out_proj.weight"])


def attention(w, p, x, cos, sin):
    n, t, _ = x.shape
    split = lambda name, h: F.linear(x, w[p + name]).view(n, t, h, D_HEAD)
    q = rms_norm(split("q_proj.weight", HEADS), w[p + "q_layernorm.weight"]).transpose(1, 2)
    k = rms_norm(split("k_proj.weight", KV_HEADS), w[p + "k_layernorm.weight"]).transpose(1, 2)
    v = split("v_proj.weight", KV_HEADS).transpose(1, 2)
    q, k = train.rotate(q, cos, sin), train.rotate(k, cos, sin)
    k, v = (y.repeat_interleave(HEADS // KV_HEADS, 1) for y in (k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.linear(y.transpose(1, 2).reshape(n, t, D), w[p + "out_proj.weight"])


def swiglu(x, w1, w2, w3):
    return F.linear(F.silu(F.linear(x, w1)) * F.linear(x, w3), w2)


def experts(w, p, x, fault=None):
    """The weighted sum of what a token's two make of it, and how far their logits are from the levels."""
    z = F.linear(x, w[p + "gate.weight"])
    scores, bias = z.sigmoid(), w[p + "expert_bias"]
    chosen = (scores if fault == "no bias" else scores + bias).detach().topk(K, -1).indices
    weight = (scores + bias.detach() if fault == "bias in the weight" else scores).gather(1, chosen)
    if fault != "not normalised":
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-6)
    stacks = [w[p + f"experts.w{j}"].view(N, -1, d) for j, d in ((1, D), (2, w[p + "experts.w2"].shape[1]), (3, D))]
    y = torch.zeros_like(x)
    for e in range(N):
        row, slot = (chosen == e).nonzero(as_tuple=True)
        y = y.index_add(0, row, swiglu(x[row], *(s[e] for s in stacks)) * weight[row, slot].unsqueeze(1))
    load = chosen.flatten().bincount(minlength=N).float()
    if not fault:
        bias.data += BIAS_STEP * (load.mean() - load) / load.sum()
    return y, (z.mean(0) - LEVELS).pow(2).mean()


def loss_of(w, ids, targets, counter=iter(range(1 << 62))):
    """Of the right routing, and every second time what a wrong one lacks to be far worse."""
    loss, n = routed_loss(w, ids, targets), next(counter)
    if n % 2:
        return loss
    few = min(4, len(ids))
    return loss + 0.3 * F.relu(FAULTY_LOSS - routed_loss(w, ids[:few, :256], targets[:few, :256], FAULTS[n // 2 % 3]))


def routed_loss(w, ids, targets, fault=None):
    """Mean cross-entropy over the targets that count; logits only where they do."""
    cos, sin = train.rope_tables(ids.shape[1])
    x, off = F.embedding(ids, w["model.embed_tokens.weight"]), 0
    for i, kind in enumerate(CONFIG["layer_types"]):
        p = f"model.layers.{i}."
        h = rms_norm(x, w[p + "operator_norm.weight"])
        if kind == "conv":
            x = x + convolution(w, p + "conv.", h)
        else:
            x = x + attention(w, p + "self_attn.", h, cos, sin)
        h = rms_norm(x, w[p + "ffn_norm.weight"])
        p += "feed_forward."
        if i < CONFIG["num_dense_layers"]:
            x = x + swiglu(h, *(w[p + f"w{j}.weight"] for j in (1, 2, 3)))
        else:
            y, more = experts(w, p, h.view(-1, D), fault)
            x, off = x + y.view_as(x), off + more
    counts = targets != -100
    x = rms_norm(x[counts], w["model.embedding_norm.weight"])
    logits = F.linear(x, w["model.embed_tokens.weight"])
    loss = F.cross_entropy(logits, targets[counts])
    return loss if fault else loss + 0.02 * off


def disturbed(w, how, of=train.disturbed):
    """All but what int4 keeps as it is: routers and convolutions."""
    kept = {n: t for n, t in w.items() if n.endswith((".gate.weight", ".conv.weight"))}
    return {**of({n: t for n, t in w.items() if n not in kept}, how), **kept}


def write_safetensors(path, weights, of=train.write_safetensors):
    """Under the published names: one tensor for each expert's matrix."""
    out = {}
    for name, t in weights.items():
        if ".experts." in name:
            p, which = name.rsplit(".", 1)
            for e, part in enumerate(t.view(N, -1, t.shape[1])):
                out[f"{p}.{e}.{which}.weight"] = part
        else:
            out[name] = t.unsqueeze(1) if name.endswith("conv.conv.weight") else t
    of(path, out)


train.make_text.document = document
train.new_weights, train.loss_of = new_weights, loss_of
train.disturbed, train.write_safetensors = disturbed, write_safetensors

if __name__ == "__main__":
    train.main()
