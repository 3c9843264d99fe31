#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the tiny random models of this folder and what the reference makes of them.

    generate.py [NAME ...] every model, or those: config, weights, golden.json, logits.f32
    generate.py --rope     RoPE frequencies of the reference as C, for tests/unit/engine_model/rope_reference.inc
    generate.py --keys     every setting of the families' configuration classes as C, for
                           tests/unit/engine_model/family_keys.inc

Needs PyTorch and transformers from PyPI: 4.57, and 5.23 for the families whose tensors are `named`. The weights are drawn from a fixed seed and large on
purpose, so that a mistake shows; the reference loads them from the files, computes in float32 with
its plain attention, and its answers are what tests/golden/test_logits.py asks of hearth-filter score.
"""
import json
import os
import shutil
import struct
import sys
import textwrap

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
DTYPES = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1}

BASE = {
    "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 56, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "bos_token_id": 1,
    "eos_token_id": 2, "tie_word_embeddings": False,
}

# name: (architecture, model_type, what differs from BASE (None: leave out), storage); with "whole" these settings are
# the text_config of those
MODELS = {
    "llama-bias-tied-f32": (
        "LlamaForCausalLM", "llama",
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True,
         "num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 3,
         "num_key_value_heads": 1},
        {"dtype": "F32", "extra": True}),
    "llama-llama3-bf16": (
        "LlamaForCausalLM", "llama",
        {"head_dim": 16, "num_hidden_layers": 2, "rope_theta": 500000.0,
         "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                          "high_freq_factor": 4.0, "original_max_position_embeddings": 32}},
        {}),
    "llama-yarn-bf16": (
        "LlamaForCausalLM", "llama",
        {"head_dim": 16, "num_hidden_layers": 2,
         "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}},
        {}),
    "llama-dynamic-f16": (
        "LlamaForCausalLM", "llama",
        {"num_hidden_layers": 2, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
        {"dtype": "F16"}),
    "llama-mixed-shards": (
        "LlamaForCausalLM", "llama",
        {"hidden_size": 28, "num_attention_heads": 2, "num_key_value_heads": 2},
        {"dtype": "mixed", "shards": 2, "odd": True}),
    "mistral-window-bf16": (
        "MistralForCausalLM", "mistral",
        {"sliding_window": 7, "rms_norm_eps": None, "num_hidden_layers": 2}, {}),
    "qwen2-window-bf16": (
        "Qwen2ForCausalLM", "qwen2",
        {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1,
         "tie_word_embeddings": True}, {}),
    "qwen3-types-bf16": (
        "Qwen3ForCausalLM", "qwen3",
        {"head_dim": 16, "attention_bias": True, "use_sliding_window": True, "sliding_window": 5,
         "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}, {}),
    "smollm3-window-bf16": (
        "SmolLM3ForCausalLM", "smollm3",
        {"num_hidden_layers": 4, "no_rope_layer_interval": 2, "use_sliding_window": True,
         "sliding_window": 9, "tie_word_embeddings": None, "rope_theta": None,
         "pad_token_id": 3}, {}),
    # Families whose tensors are those that the reference names.
    "granite-bias-bf16": (
        "GraniteForCausalLM", "granite",
        {"num_hidden_layers": 2, "attention_bias": True, "embedding_multiplier": 12.0,
         "residual_multiplier": 0.22, "attention_multiplier": 0.3, "logits_scaling": 1.7,
         "rms_norm_eps": 1e-2},
        {"named": True}),
    "granite4-bf16": (
        "GraniteMoeHybridForCausalLM", "granitemoehybrid",
        {"num_hidden_layers": 2, "layer_types": ["attention"] * 2, "num_local_experts": 0,
         "num_experts_per_tok": 0, "shared_intermediate_size": 40, "mamba_n_heads": 8,
         "position_embedding_type": "rope", "embedding_multiplier": 12.0,
         "residual_multiplier": 0.25, "attention_multiplier": 0.2, "logits_scaling": 1.9, "rms_norm_eps": 1e-2,
         "tie_word_embeddings": True}, {"named": True}),
    "phi3-longrope-bf16": (
        "Phi3ForCausalLM", "phi3",
        {"hidden_size": 64, "num_hidden_layers": 2, "partial_rotary_factor": 0.75,
         "max_position_embeddings": 256, "original_max_position_embeddings": 24,
         "sliding_window": 40, "pad_token_id": 0,
         "rope_scaling": {"type": "longrope", "short_factor": [1 + i / 8 for i in range(6)],
                          "long_factor": [1 + i / 2 for i in range(6)]}}, {"named": True}),
    "olmo3-yarn-bf16": (
        "Olmo3ForCausalLM", "olmo3",
        {"num_hidden_layers": 4, "sliding_window": 7, "rope_theta": 500000.0,
         "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "attention_factor": 1.2,
                          "original_max_position_embeddings": 32}}, {"named": True}),
    "glm4-bf16": (
        "Glm4ForCausalLM", "glm4",
        {"num_hidden_layers": 2, "head_dim": 16, "pad_token_id": 0,
         "partial_rotary_factor": 0.5, "attention_bias": True}, {"named": True}),
    "ernie-bias-bf16": (
        "Ernie4_5ForCausalLM", "ernie4_5",
        {"num_hidden_layers": 2, "head_dim": 8, "use_bias": True, "pad_token_id": 0},
        {"named": True}),
    "exaone4-window-bf16": (
        "Exaone4ForCausalLM", "exaone4",
        {"num_hidden_layers": 4, "sliding_window": 9, "sliding_window_pattern": 4}, {"named": True}),
    "hunyuan-alpha-bf16": (
        "HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense",
        {"num_hidden_layers": 2, "head_dim": 16, "pad_token_id": 0,
         "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}}, {"named": True}),
    "gemma2-softcap-bf16": (
        "Gemma2ForCausalLM", "gemma2",
        {"num_hidden_layers": 3, "head_dim": 16, "query_pre_attn_scalar": 9, "sliding_window": 8,
         "attn_logit_softcapping": 4.0, "final_logit_softcapping": 3.0, "hidden_act": None,
         "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
         "rms_norm_eps": 1e-4, "pad_token_id": 0}, {"named": True}),
    "gemma3-windows-bf16": (
        "Gemma3ForCausalLM", "gemma3_text",
        {"num_hidden_layers": 4, "head_dim": 16, "query_pre_attn_scalar": 20, "sliding_window": 8,
         "sliding_window_pattern": 3, "rope_local_base_freq": 100.0, "hidden_act": None,
         "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
         "rope_scaling": {"rope_type": "linear", "factor": 4.0}, "rms_norm_eps": 1e-4,
         "pad_token_id": 0}, {"named": True}),
    "lfm2-conv-bf16": (
        "Lfm2ForCausalLM", "lfm2",
        {"num_hidden_layers": 4, "layer_types": ["conv", "full_attention", "conv", "conv"],
         "conv_L_cache": 4, "conv_bias": True, "intermediate_size": 109, "block_multiple_of": 8,
         "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 0.9, "rms_norm_eps": None,
         "norm_eps": 1e-2, "hidden_act": None,
         "tie_word_embeddings": True, "pad_token_id": 0}, {"named": True}),
    "qwen3_5-delta-bf16": (
        "Qwen3_5ForCausalLM", "qwen3_5_text",
        {"num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
         "head_dim": 16, "rope_theta": None,
         "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                             "mrope_section": [2, 1, 1], "mrope_interleaved": True},
         "linear_conv_kernel_dim": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
         "linear_key_head_dim": 12, "linear_value_head_dim": 20, "mtp_num_hidden_layers": 1,
         "rms_norm_eps": 3e-2,  # or the norm of a head's small output blows rounding up
         "tie_word_embeddings": True, "pad_token_id": 0},
        {"named": True, "float64": True,  # its chunks in float32 are further off than the limit
         "others": ["mtp.fc.weight", "mtp.layers.0.mlp.up_proj.weight", "model.visual.pos_embed.weight"]}),
    # Mixtures of experts.
    "lfm2-experts-bf16": (
        "Lfm2MoeForCausalLM", "lfm2_moe",
        {"layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1, "num_experts": 8,
         "num_experts_per_tok": 3, "moe_intermediate_size": 20, "routed_scaling_factor": 1.5,
         "norm_topk_prob": True, "use_expert_bias": True, "conv_L_cache": 3, "conv_bias": False,
         "rms_norm_eps": None, "norm_eps": 1e-2, "hidden_act": None, "tie_word_embeddings": True,
         "pad_token_id": 0}, {"named": True}),
    "qwen3-experts-bf16": (
        "Qwen3MoeForCausalLM", "qwen3_moe",
        {"head_dim": 8, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 36,
         "decoder_sparse_step": 2, "mlp_only_layers": [], "norm_topk_prob": True, "rms_norm_eps": 1e-2},
        {"named": True}),
    "olmoe-bf16": (
        "OlmoeForCausalLM", "olmoe",
        {"num_hidden_layers": 2, "num_experts": 7, "num_experts_per_tok": 3, "intermediate_size": 20,
         "norm_topk_prob": False, "rms_norm_eps": 1e-2, "pad_token_id": 0}, {"named": True}),
    "granite-experts-bf16": (
        "GraniteMoeForCausalLM", "granitemoe",
        {"num_hidden_layers": 2, "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 20,
         "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.3,
         "logits_scaling": 1.7, "rms_norm_eps": 1e-2}, {"named": True}),
    "ernie-experts-bf16": (
        "Ernie4_5_MoeForCausalLM", "ernie4_5_moe",
        {"moe_num_experts": 6, "moe_k": 2, "moe_num_shared_experts": 2, "moe_intermediate_size": 12,
         "moe_layer_start_index": 1, "moe_layer_end_index": 2, "moe_layer_interval": 1,
         "use_bias": False, "pad_token_id": 0, "rms_norm_eps": 1e-2, "head_dim": 8}, {"named": True}),
    "gemma4-shared-bf16": (
        "Gemma4ForCausalLM", "gemma4_text",
        {"num_hidden_layers": 6, "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
                                                 "sliding_attention", "sliding_attention", "full_attention"],
         "num_key_value_heads": 1, "head_dim": 8, "global_head_dim": 16, "sliding_window": 8,
         "num_kv_shared_layers": 3, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 6,
         "vocab_size_per_layer_input": 60, "final_logit_softcapping": 5.0, "hidden_act": None,
         "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True, "rope_theta": None,
         "rms_norm_eps": 1e-4, "pad_token_id": 0}, {"named": True}),
    "gemma4-values-bf16": (
        "Gemma4UnifiedForCausalLM", "gemma4_unified_text",
        {"num_hidden_layers": 3, "layer_types": ["full_attention", "sliding_attention", "full_attention"],
         "head_dim": 16, "global_head_dim": 24, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
         "sliding_window": 9, "hidden_act": None, "hidden_activation": "gelu_pytorch_tanh",
         "tie_word_embeddings": True, "rope_theta": None, "rms_norm_eps": 1e-4, "pad_token_id": 0,
         "rope_parameters": {
             "full_attention": {"rope_type": "proportional", "rope_theta": 5000.0, "partial_rotary_factor": 0.5},
             "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}}}, {"named": True}),
    "qwen3_5-experts-bf16": (
        "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text",
        {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], "head_dim": 16, "rope_theta": None,
         "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                             "mrope_section": [2, 1, 1], "mrope_interleaved": True},
         "linear_conv_kernel_dim": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 12,
         "linear_value_head_dim": 20, "intermediate_size": None, "num_experts": 5, "num_experts_per_tok": 2,
         "moe_intermediate_size": 20, "shared_expert_intermediate_size": 24, "rms_norm_eps": 3e-2, "pad_token_id": 0},
        {"named": True, "float64": True}),
    "gemma4-experts-bf16": (
        "Gemma4ForConditionalGeneration", "gemma4_text",
        {"layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "head_dim": 8, "global_head_dim": 16,
         "attention_k_eq_v": True, "num_global_key_value_heads": 1, "enable_moe_block": True, "num_experts": 5,
         "top_k_experts": 2, "moe_intermediate_size": 20, "hidden_size_per_layer_input": 0, "sliding_window": 9,
         "hidden_act": None, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": None, "rope_theta": None,
         "rms_norm_eps": 1e-4, "pad_token_id": 0},
        {"named": True, "others": ["model.vision_tower.patch.weight", "model.embed_vision.projection.weight"],
         "whole": {"model_type": "gemma4", "image_token_id": 5, "audio_token_id": 9, "video_token_id": 17,
                   "vision_config": None, "audio_config": None, "tie_word_embeddings": True}}),
}

CASES = {"one": 1, "short": 9, "long": 61}
GREEDY = 12


def to_bytes(x, dtype):
    if dtype == "F32":
        return x.astype("<f4").tobytes()
    if dtype == "F16":
        return x.astype("<f2").tobytes()
    if dtype == "U8":
        return x.astype("u1").tobytes()
    u = x.astype("<f4").view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype("<u2").tobytes()


def make_config(architecture, model_type, changes, whole=None):
    config = {"architectures": [architecture], "model_type": model_type, **BASE, **changes}
    config = {k: v for k, v in config.items() if v is not None or k == "sliding_window"}
    return {"architectures": config.pop("architectures"), **whole, "text_config": config} if whole else config


def make_tensors(c, architecture, rng):
    """Yields (name, array) by the names of the family."""
    d, ff, heads, kv = (c["hidden_size"], c["intermediate_size"], c["num_attention_heads"],
                        c["num_key_value_heads"])
    hd = c.get("head_dim", d // heads)
    tied = c.get("tie_word_embeddings", architecture == "SmolLM3ForCausalLM")
    qkv_bias = c.get("attention_bias", False) or architecture == "Qwen2ForCausalLM"

    def matrix(name, n_out, n_in, bias=False):
        yield name + ".weight", rng.standard_normal((n_out, n_in)) * (1.6 / np.sqrt(n_in))
        if bias:
            yield name + ".bias", rng.standard_normal(n_out) * 0.5

    def norm(name, n):
        return name + ".weight", 1 + 0.3 * rng.standard_normal(n)

    # A tied head would make logits of +-20, and every rounding error as much larger.
    yield "model.embed_tokens.weight", rng.standard_normal((c["vocab_size"], d)) * (0.3 if tied else 1)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        yield norm(p + "input_layernorm", d)
        yield from matrix(p + "self_attn.q_proj", heads * hd, d, qkv_bias)
        yield from matrix(p + "self_attn.k_proj", kv * hd, d, qkv_bias)
        yield from matrix(p + "self_attn.v_proj", kv * hd, d, qkv_bias)
        yield from matrix(p + "self_attn.o_proj", d, heads * hd, c.get("attention_bias", False))
        if architecture == "Qwen3ForCausalLM":
            yield norm(p + "self_attn.q_norm", hd)
            yield norm(p + "self_attn.k_norm", hd)
        yield norm(p + "post_attention_layernorm", d)
        for which in ("gate_proj", "up_proj"):
            yield from matrix(p + "mlp." + which, ff, d, c.get("mlp_bias", False))
        yield from matrix(p + "mlp.down_proj", d, ff, c.get("mlp_bias", False))
    yield norm("model.norm", d)
    if not tied:
        yield from matrix("lm_head", c["vocab_size"], d)


def make_named_tensors(path, rng):
    """The same for the tensors that the reference's model of this config.json has."""
    from transformers import AutoConfig, AutoModelForCausalLM
    config = AutoConfig.from_pretrained(path)
    plus_one = config.model_type.startswith(("gemma2", "gemma3", "qwen3_5"))
    for name, t in AutoModelForCausalLM.from_config(config).state_dict().items():
        if config.tie_word_embeddings and name == "lm_head.weight":
            continue
        x = rng.standard_normal(tuple(t.shape))
        if t.dim() >= 2 and t.shape[-2] > 1:
            x *= 0.3 if "embed" in name else 1.6 / np.sqrt(t.shape[-1])
        elif "norm" in name or "layer_scalar" in name or "scale" in name:
            x = (0 if plus_one and "linear_attn" not in name else 1) + 0.3 * x
        else:
            x *= 0.5
        yield from as_published(name, x)


PUBLISHED = [("block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.input_linear.weight"),
             ("block_sparse_moe.experts.down_proj", "block_sparse_moe.output_linear.weight"),
             ("block_sparse_moe.router.weight", "block_sparse_moe.router.layer.weight"),
             ("mlp.gate.moe_statics.", "mlp.moe_statics.")]


def as_published(name, x):
    """The experts of the reference's class are one tensor; in published files most, not Gemma 4's, are one each."""
    for own, published in PUBLISHED:
        name = name.replace(own, published)
    stem, _, kind = name.rpartition(".experts.")
    if not stem or x.ndim != 3 or stem[-1].isdigit():
        yield name, x
        return
    names = ("w1", "w3", "w2") if "feed_forward" in stem else ("gate_proj", "up_proj", "down_proj")
    for e, matrix in enumerate(x):
        parts = [(names[2], matrix)] if kind == "down_proj" else zip(names, np.split(matrix, 2))
        for part, rows in parts:
            yield f"{stem}.experts.{e}.{part}.weight", rows


def choose_dtype(storage, i):
    dtype = storage.get("dtype", "BF16")
    return ("F32", "BF16", "F16")[i % 3] if dtype == "mixed" else dtype


def write_safetensors(path, tensors, first=None):
    """tensors: [(name, array, dtype)]; `first` bytes of a tensor that has no effect make the offsets odd."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    if first:
        tensors = [("model.layers.0.self_attn.rotary_emb.inv_freq", np.zeros(first), "U8")] + tensors
    for name, x, dtype in tensors:
        raw = to_bytes(x, dtype)
        header[name] = {"dtype": dtype, "shape": list(x.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def write_weights(out, tensors, storage, rng):
    tensors = [(n, x, choose_dtype(storage, i)) for i, (n, x) in enumerate(tensors)]
    if storage.get("extra"):  # what old files hold besides the weights
        tensors.append(("model.layers.0.self_attn.rotary_emb.inv_freq", np.ones(4), "F32"))
        tensors.append(("lm_head.weight", rng.standard_normal(tensors[0][1].shape), "F32"))
    for name in storage.get("others", ()):  # parts of a checkpoint that are not served
        tensors.append((name, rng.standard_normal((3, 2)), "BF16"))
    n = storage.get("shards", 1)
    if n == 1:
        write_safetensors(f"{out}/model.safetensors", tensors)
        return
    order = rng.permutation(len(tensors))
    weight_map = {}
    for s in range(n):
        name = f"model-{s + 1:05d}-of-{n:05d}.safetensors"
        part = [tensors[i] for i in order[s::n]]
        write_safetensors(f"{out}/{name}", part, first=3 if storage.get("odd") and s == 0 else None)
        weight_map.update({t[0]: name for t in part})
    with open(f"{out}/model.safetensors.index.json", "w") as f:
        json.dump({"metadata": {}, "weight_map": dict(sorted(weight_map.items()))}, f, indent=1)


def in_float64():
    """Delta nets of the reference compute in float32 whatever the model's dtype is; from now on in float64."""
    import torch
    from transformers.models.qwen3_5 import modeling_qwen3_5

    class Torch:
        def __getattr__(self, name):
            return torch.float64 if name == "float32" else getattr(torch, name)

    modeling_qwen3_5.torch = Torch()
    torch.Tensor.float = torch.Tensor.double


def reference(path, cases, float64):
    """The reference's answers: logits of every position, log-probabilities, greedy continuation."""
    import torch
    from transformers import AutoModelForCausalLM
    if float64:
        in_float64()
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64 if float64 else torch.float32,
                                                 attn_implementation="eager", experts_implementation="eager")
    model.eval()
    out, rows = [], []
    with torch.no_grad():
        for name, ids in cases.items():
            logits = model(torch.tensor([ids])).logits[0]
            logprobs = torch.log_softmax(logits.double(), -1)
            row = {"name": name, "ids": ids, "argmax_ids": logits.argmax(-1).tolist(),
                   "prompt_logprobs": [round(float(logprobs[i, t]), 7)
                                       for i, t in enumerate(ids[1:])],
                   "greedy_ids": [], "greedy_margins": []}
            so_far = list(ids)
            for _ in range(GREEDY):
                last = model(torch.tensor([so_far])).logits[0, -1].float()
                best = last.topk(2).values
                so_far.append(int(last.argmax()))
                row["greedy_ids"].append(so_far[-1])
                row["greedy_margins"].append(round(float(best[0] - best[1]), 6))
            out.append(row)
            rows.append(logits.numpy().astype("<f4"))
    return out, rows


def write_model(index, name):
    architecture, model_type, changes, storage = MODELS[name]
    rng = np.random.default_rng(1000 + index)
    out = os.path.join(HERE, name)
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    config = make_config(architecture, model_type, changes, storage.get("whole"))
    vocab = config.get("text_config", config)["vocab_size"]
    with open(f"{out}/config.json", "w") as f:
        json.dump(config, f, indent=1, sort_keys=True)
    tensors = make_named_tensors(out, rng) if storage.get("named") else make_tensors(
        config, architecture, rng)
    write_weights(out, list(tensors), storage, rng)
    cases = {n: [int(i) for i in rng.integers(0, vocab, size)]
             for n, size in CASES.items()}
    answers, rows = reference(out, cases, storage.get("float64", False))
    for row, r in zip(answers, rows):
        row["logits_rows"] = list(range(len(r))) if len(r) < 20 else [*range(0, len(r), 5), len(r) - 1]
    with open(f"{out}/golden.json", "w") as f:
        json.dump({"model": name, "vocab_size": vocab, "cases": answers}, f)
    with open(f"{out}/logits.f32", "wb") as f:
        for row, r in zip(answers, rows):
            f.write(r[row["logits_rows"]].tobytes())
    print(name, "logits of", min(float(r.min()) for r in rows), "to",
          max(float(r.max()) for r in rows))


ROPES = [
    ("default", 8, 10000.0, None, 2048),
    ("linear", 8, 10000.0, {"rope_type": "linear", "factor": 4.0}, 2048),
    ("llama3", 16, 500000.0,
     {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 64}, 512),
    ("llama3 as released", 32, 500000.0,
     {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}, 131072),
    ("yarn", 16, 10000.0,
     {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}, 256),
    ("yarn without original length", 32, 1000000.0, {"rope_type": "yarn", "factor": 4.0}, 32768),
    ("yarn untruncated", 32, 10000.0,
     {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096,
      "truncate": False, "beta_fast": 24.0, "beta_slow": 2.0}, 65536),
    ("yarn with mscale", 16, 10000.0,
     {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096,
      "mscale": 0.8, "mscale_all_dim": 0.5}, 163840),
    ("yarn with attention factor", 16, 10000.0,
     {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16,
      "attention_factor": 0.9}, 128),
    ("dynamic", 16, 10000.0, {"rope_type": "dynamic", "factor": 2.0}, 2048),
]


def print_ropes():
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    print("/* Printed by tests/golden/models/generate.py --rope; do not edit. */")
    for name, d_head, theta, scaling, ctx in ROPES:
        s = scaling or {"rope_type": "default"}
        config = LlamaConfig(hidden_size=4 * d_head, num_attention_heads=4, head_dim=d_head,
                             rope_theta=theta, rope_scaling=scaling, max_position_embeddings=ctx)
        freqs, attention = ROPE_INIT_FUNCTIONS[s["rope_type"]](config, "cpu")
        fields = {"type": "ENG_ROPE_" + s["rope_type"].upper(), "theta": repr(theta),
                  "factor": s.get("factor", 1.0), "low_freq_factor": s.get("low_freq_factor", 0.0),
                  "high_freq_factor": s.get("high_freq_factor", 0.0),
                  "original_ctx": float(s.get("original_max_position_embeddings", ctx)),
                  "beta_fast": s.get("beta_fast", 32.0), "beta_slow": s.get("beta_slow", 1.0),
                  "truncate": "true" if s.get("truncate", True) else "false"}
        text = '{.name = "%s", .d_head = %d, .n_freqs = %d,\n .rope = {%s},\n' % (
            name, d_head, len(freqs), ", ".join(f".{k} = {v}" for k, v in fields.items()))
        text += " .mscale = %s, .mscale_all_dim = %s, .attention_given = %s, .attention = %.9g,\n" % (
            s.get("mscale", 0), s.get("mscale_all_dim", 0),
            "true" if "attention_factor" in s else "false", attention)
        text += " .freqs = {%s}}," % ", ".join("%.9g" % f for f in freqs)
        for line in text.split("\n"):
            print("\n    ".join(textwrap.wrap(line, 92)))


def print_keys():
    """A configuration as each family's class writes it: of what the engine must read, ignore or refuse."""
    from transformers import CONFIG_MAPPING
    for model_type in dict.fromkeys(row[1] for row in MODELS.values()):
        keys = sorted(CONFIG_MAPPING[model_type]().to_dict())
        lines = textwrap.wrap(" ".join(keys), 88)
        print(f'{{"{model_type}",\n' + "\n".join(f' "{l} "' for l in lines) + "},")


def main():
    if sys.argv[1:] == ["--keys"]:
        print_keys()
        return
    if sys.argv[1:] == ["--rope"]:
        print_ropes()
        return
    for index, name in enumerate(MODELS):
        if name in sys.argv[1:] or len(sys.argv) == 1:
            write_model(index, name)


if __name__ == "__main__":
    main()
