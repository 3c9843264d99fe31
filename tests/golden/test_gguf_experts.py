#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Mixtures of experts, and Gemma 4, in GGUF files that this test writes: the logits of a file are those of a directory with
the same numbers, bit for bit on path `exact`, whatever the types; and what is wrong with a file is said in a
sentence.

    test_gguf_experts.py [--keep FOLDER]    FOLDER keeps the files, for other programs to read
"""
import copy
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
from gguf_files import BF16, F32, Q4_0, Q4_K, Q6_K, Q8_0, gemma4, gguf, mixture, read_directory, write_directory  # noqa: E402
from logits_check import FILTER, Tally, divergence, read_floats, score  # noqa: E402

IDS = [3, 1, 4, 15, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4]


def logits(path, numerics):
    with tempfile.NamedTemporaryFile() as f:
        score(path, [{"ids": IDS, "logits": f.name}], ["--numerics", numerics])
        return read_floats(f.name)


def rows(values):
    n = len(values) // len(IDS)
    return [values[i:i + n] for i in range(0, len(values), n)]


def random_model(model_type, width, seed, n_experts=4):
    """A model of three layers whose widths are all `width`."""
    rng = random.Random(seed)
    lfm2 = model_type == "lfm2_moe"
    config = {"model_type": model_type, "architectures": [{"lfm2_moe": "Lfm2MoeForCausalLM", "olmoe": "OlmoeForCausalLM",
                                                           "qwen3_moe": "Qwen3MoeForCausalLM"}[model_type]],
              "hidden_size": width, "intermediate_size": width, "moe_intermediate_size": width, "num_hidden_layers": 2 + lfm2,
              "num_attention_heads": 4, "num_key_value_heads": 4 if model_type == "olmoe" else 2, "vocab_size": 64, "max_position_embeddings": 256,
              "rope_theta": 10000.0, "num_experts": n_experts, "num_experts_per_tok": 2, "tie_word_embeddings": lfm2,
              "norm_topk_prob": model_type != "olmoe", "eos_token_id": 2}
    config |= ({"norm_eps": 1e-5, "conv_L_cache": 3, "num_dense_layers": 1, "routed_scaling_factor": 1.0,
                "layer_types": ["conv", "full_attention", "conv"]} if lfm2 else {"rms_norm_eps": 1e-5, "head_dim": width // 4})
    tensors = {}

    def add(name, *shape):
        n = 1
        for s in shape:
            n *= s
        scale, first = (0.25, 1) if len(shape) == 1 else (2.0 ** (1 - width.bit_length() // 2), 0)
        tensors[name] = (list(shape), [first + scale * (x - 8) / 8 for x in rng.choices(range(17), k=n)])  # BF16 holds them
    d, head = width, width // 4
    kv = head * config["num_key_value_heads"]
    add("model.embed_tokens.weight", 64, d)
    add("model.embedding_norm.weight" if lfm2 else "model.norm.weight", d)
    if not lfm2:
        add("lm_head.weight", 64, d)
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for norm in ("operator_norm", "ffn_norm") if lfm2 else ("input_layernorm", "post_attention_layernorm"):
            add(p + norm + ".weight", d)
        if lfm2 and i != 1:
            add(p + "conv.in_proj.weight", 3 * d, d)
            add(p + "conv.conv.weight", d, 1, 3)
            add(p + "conv.out_proj.weight", d, d)
        else:
            a = p + "self_attn."
            for name, n in (("q_proj", d), ("k_proj", kv), ("v_proj", kv), ("out_proj" if lfm2 else "o_proj", d)):
                add(a + name + ".weight", n, d)
            row = model_type == "olmoe"
            for x, n in (("q", d if row else head), ("k", kv if row else head)):
                add(f"{a}{x}_layernorm.weight" if lfm2 else f"{a}{x}_norm.weight", n)
        mlp = p + ("feed_forward." if lfm2 else "mlp.")
        names = ("w1", "w3", "w2") if lfm2 else ("gate_proj", "up_proj", "down_proj")
        if lfm2 and i < 1:
            for name in names:
                add(f"{mlp}{name}.weight", d, d)
            continue
        add(mlp + "gate.weight", n_experts, d)
        if lfm2:
            add(mlp + "expert_bias", n_experts)
        for e in range(n_experts):
            for name in names:
                add(f"{mlp}experts.{e}.{name}.weight", d, d)
    return config, tensors


def write(path, keys, tensors):
    with open(path, "wb") as f:
        f.write(gguf(keys, tensors))
    return path


def k_types(name):
    return Q6_K if "ffn_down_exps" in name else Q4_K if "_exps" in name else BF16


def mixed(name):
    return {"ffn_gate_exps": Q8_0, "ffn_up_exps": Q4_0, "ffn_down_exps": Q8_0, "token_embd": Q8_0}.get(name.split(".")[-2], Q4_0)


# name -> model, type of a matrix by its name, gate and up in one tensor, largest divergence of path `file` (0: it is not for it)
CASES = {
    "lfm2moe F32": ("lfm2_moe", 32, lambda name: F32, False, 0), "lfm2moe BF16": ("lfm2_moe", 32, lambda name: BF16, False, 0),
    "lfm2moe Q8_0": ("lfm2_moe", 64, lambda name: Q8_0, False, 0.1), "lfm2moe mixed": ("lfm2_moe", 64, mixed, False, 0.1),
    "lfm2moe Q4_K": ("lfm2_moe", 256, k_types, False, 0.1),
    "qwen3moe BF16": ("qwen3_moe", 32, lambda name: BF16, False, 0), "qwen3moe fused": ("qwen3_moe", 64, lambda name: Q4_0, True, 0.1),
    "olmoe F32": ("olmoe", 32, lambda name: F32, False, 0), "olmoe Q4_0": ("olmoe", 64, lambda name: Q4_0, False, 0.1),
}


def same_numbers(folder, config, keys, tensors, numbers, bound):
    """(divergence, problems) of a file."""
    problems, path, other = [], write(os.path.join(folder, "model.gguf"), keys, tensors), os.path.join(folder, "same")
    os.makedirs(other, exist_ok=True)
    write_directory(other, config, numbers)
    want = logits(other, "exact")
    if logits(path, "exact") != want:
        problems.append("the logits are not those of the directory with the same numbers")
    if not bound:
        return 0.0, problems
    off = sum(divergence(a, b) for a, b in zip(rows(logits(path, "file")), rows(want))) / len(IDS)
    return off, problems + ([f"mean divergence {off:.3g}"] if not off <= bound else [])


def as_published(folder):
    """A directory of the repository and its file."""
    config, reference = read_directory(os.path.join(HERE, "models", folder))
    return config, *mixture(config, reference)


def router_in_blocks(folder):
    """A router in blocks is computed as numbers, or `file` would choose other experts."""
    config, reference = random_model("qwen3_moe", 64, 5)
    keys, tensors, _ = mixture(config, reference, lambda name: Q8_0)
    found = []
    for kind in (Q8_0, F32):
        parts = []
        for name, dims, old, data in tensors:
            if "ffn_gate_inp" in name:
                data_8, numbers = _encoded(reference, name)
                old, data = kind, data_8 if kind == Q8_0 else numbers
            parts.append((name, dims, old, data))
        found.append(logits(write(os.path.join(folder, "router.gguf"), keys, parts), "file"))
    return 0.0, [] if found[0] == found[1] else ["a router of Q8_0 is not computed as its numbers"]


def _encoded(reference, name):
    from gguf_files import encode
    values = reference[f"model.layers.{name.split('.')[1]}.mlp.gate.weight"][1]
    data, said = encode(Q8_0, values, None)
    return data, encode(F32, said, None)[0]


def refused(folder):
    """Each fault by the words that name it."""
    config, reference = random_model("lfm2_moe", 32, 7)
    keys, tensors, _ = mixture(config, reference)
    qwen = mixture(*random_model("qwen3_moe", 32, 7))[:2]

    def changed(at, **fields):
        ret = copy.deepcopy(tensors)
        i = next(i for i, t in enumerate(ret) if t[0] == at)
        ret[i] = tuple(fields.get(k, v) for k, v in zip(("name", "dims", "kind", "data"), ret[i]))
        return [t for t in ret if t[0]]

    def key(name, kind, value):
        return [k for k in keys if k[0] != "lfm2moe." + name] + ([("lfm2moe." + name, kind, value)] if kind else [])
    up, data = "blk.1.ffn_up_exps.weight", dict((t[0], t[3]) for t in tensors)
    faults = [
        ((keys, changed(up, dims=[32, 32, 3], data=data[up][:3 * 4096])), "tensor blk.1.ffn_up_exps.weight is [3, 32, 32]; its keys require [4, 32, 32]"),
        ((keys, changed(up, dims=[32, 128], data=data[up])), "tensor blk.1.ffn_up_exps.weight is [128, 32]; its keys require [4, 32, 32]"),
        ((keys, changed(up, name="")), "tensor blk.1.ffn_up_exps.weight is missing"),
        ((keys, changed("blk.1.ffn_down_exps.weight", name="")), "tensor blk.1.ffn_down_exps.weight is missing"),
        ((keys, changed("blk.1.ffn_gate_inp.weight", name="")), "tensor blk.1.ffn_gate_inp.weight is missing"),
        ((keys, changed("blk.1.exp_probs_b.bias", name="")), "tensor blk.1.exp_probs_b.bias is missing"),
        ((keys, changed(up, kind=16, dims=[256, 4, 4], data=bytes(16 * 66))), "tensor blk.1.ffn_up_exps.weight is IQ2_XXS; read are F32,"),
        ((key("expert_count", None, 0), tensors), "key lfm2moe.expert_count is missing"),
        ((key("leading_dense_block_count", None, 0), tensors), "key lfm2moe.leading_dense_block_count is missing"),
        ((key("expert_gating_func", "u32", 1), tensors), "key lfm2moe.expert_gating_func is 1; supported: 2 (1: softmax, 2: sigmoid)"),
        ((key("expert_weights_norm", "bool", False), tensors), "key lfm2moe.expert_weights_norm is false; supported: true"),
        ((key("expert_used_count", "u32", 5), tensors), "num_experts_per_tok must be within 1..4, it is 5"),
        ((key("expert_group_count", "u32", 2), tensors), "n_group must be within 1..1, it is 2"),
        ((qwen[0] + [("qwen3moe.expert_weights_scale", "f32", 2.5)], qwen[1]), "key qwen3moe.expert_weights_scale is 2.5; supported: 1"),
        (([("general.architecture", "str", "llama"), ("llama.expert_count", "u32", 8)], []),
         "key llama.expert_count is 8: experts are not supported in this architecture"),
    ]
    path, problems = os.path.join(folder, "faulty.gguf"), []
    for fault, words in faults:
        problems += says(write(path, *fault), words)
    whole = gguf(keys, tensors)
    with open(path, "wb") as f:
        f.write(whole[:whole.index(data[up]) + len(data[up]) // 2])
    return 0.0, problems + says(path, "tensor blk.")


def gemma4_experts():
    """The model with shared keys and per-layer embeddings, and experts beside its dense layers."""
    config, tensors = read_directory(os.path.join(HERE, "models", "gemma4-shared-bf16"))
    rng, d, n, inner = random.Random(6), config["hidden_size"], 5, 20
    config |= {"enable_moe_block": True, "num_experts": n, "top_k_experts": 2, "moe_intermediate_size": inner}
    for i in range(config["num_hidden_layers"]):
        for name, shape in {"router.proj.weight": [n, d], "router.scale": [d], "router.per_expert_scale": [n],
                            "experts.gate_up_proj": [n, 2 * inner, d], "experts.down_proj": [n, d, inner],
                            "pre_feedforward_layernorm_2.weight": [d], "post_feedforward_layernorm_1.weight": [d],
                            "post_feedforward_layernorm_2.weight": [d]}.items():
            first, size = int(len(shape) == 1), 1
            for s in shape:
                size *= s
            tensors[f"model.layers.{i}.{name}"] = (shape, [first + (x - 8) / 32 for x in rng.choices(range(17), k=size)])
    return config, tensors


def gemma4_files(place, tally):
    """Gemma 4 as published, with a table in blocks, and what is refused of it."""
    models = {name: read_directory(os.path.join(HERE, "models", name)) for name in ("gemma4-shared-bf16", "gemma4-values-bf16")}
    for name, (config, reference) in (models | {"gemma4 experts": gemma4_experts()}).items():
        for kind in (F32, BF16):
            tally.add(f"{name} {kind}", *same_numbers(place(name), config, *gemma4(config, reference, lambda _, k=kind: k), 0))
    config, reference = read_directory(os.path.join(HERE, "models", "gemma4-shared-bf16"))
    keys, tensors, _ = gemma4(config, reference, lambda name: Q8_0 if "token_embd" in name and "layer" not in name else BF16)
    path, problems = os.path.join(place("gemma4"), "faulty.gguf"), []

    def key(name, kind, value):
        return [k for k in keys if k[0] != "gemma4." + name] + ([("gemma4." + name, kind, value)] if kind else [])
    freqs = [("rope_freqs.weight", [8], F32, b"\0" * 32), *tensors[1:]]
    for fault, words in [
            ((key("feed_forward_length", "i32", [40, 40, 40, 80, 41, 80]), tensors), "feed_forward_length: 41 of layer 4"),
            ((key("attention.head_count_kv", "i32", [1, 1, 2, 1, 1, 1]), tensors), "head_count_kv: 2 differs"),
            ((key("attention.value_length", "u32", 12), tensors), "attention.value_length is 12, attention.key_length 16"),
            ((key("attention.sliding_window_pattern", None, 0), tensors), "attention.sliding_window_pattern is missing"),
            ((key("attention.shared_kv_layers", "u32", 5), tensors), "feed_forward_length: 40 of layer 1"),
            ((keys, freqs), "tensor rope_freqs.weight: supported are 8 numbers"),
            ((key("embedding_length_per_layer_input", "u32", 0), tensors), "per_layer"),
            ((keys, [t for t in tensors if t[0] != "per_layer_proj_norm.weight"]), "tensor per_layer_proj_norm.weight is missing"),
            ((keys, [t for t in tensors if t[0] != "blk.4.layer_output_scale.weight"]), "tensor blk.4.layer_output_scale.weight is missing")]:
        problems += says(write(path, *fault), words)
    keys, tensors, _ = gemma4(*gemma4_experts())
    for gone in ("blk.1.ffn_gate_inp.scale", "blk.2.ffn_down_exps.scale", "blk.3.post_ffw_norm_1.weight", "blk.4.ffn_down_exps.weight"):
        problems += says(write(path, keys, [t for t in tensors if t[0] != gone]), f"tensor {gone} is missing")
    problems += says(write(path, key("expert_used_count", None, 0), tensors), "key gemma4.expert_used_count is missing")
    problems += says(write(path, key("expert_count", "u32", 0), tensors), "is not part of a Gemma 4 model")
    tally.add("gemma4 refused", 0.0, problems)


def says(path, words):
    p = subprocess.run([FILTER, "score", "--model", path], input="", text=True, capture_output=True, timeout=60, check=False)
    fine = p.returncode == 1 and words in p.stderr and len(p.stderr.strip().split("\n")) == 1
    return [] if fine else [f"status {p.returncode}, {p.stderr.strip()[:300]!r}, wanted {words!r}"]


def main():
    keep = sys.argv[2] if sys.argv[1:2] == ["--keep"] else None
    tally = Tally()
    with tempfile.TemporaryDirectory() as tmp:
        def place(name):
            folder = os.path.join(keep or tmp, name.replace(" ", "-"))
            os.makedirs(folder, exist_ok=True)
            return folder
        for name, (model_type, width, kind_of, fused, bound) in CASES.items():
            config, reference = random_model(model_type, width, 3)
            file = mixture(config, reference, kind_of, random.Random(4), fused)
            tally.add(name, *same_numbers(place(name), config, *file, bound))
        for name in ("lfm2-experts-bf16", "olmoe-bf16"):
            tally.add(name, *same_numbers(place(name), *as_published(name), 0))
        gemma4_files(place, tally)
        tally.add("router", *router_in_blocks(tmp))
        tally.add("refused", *refused(tmp))
    return tally.end()


if __name__ == "__main__":
    sys.exit(main())
