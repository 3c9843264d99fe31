#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a model directory with random weights in the shape of a real model, for speed and load tests.

    make_model.py OUT [--shape smollm2-135m] [--dtype bf16|f16|grid|q4_0] [--tokenizer DIR] [--gguf FILE]

The same shape always gives the same bytes. With --tokenizer the tokenizer files of DIR are copied;
otherwise those of the demo model (its ids are the low ones of the vocabulary). --gguf writes the same
weights as one GGUF file (version 3, bf16, no vocabulary) for engines that read that. "grid" are bf16 weights that
4 bits hold exactly: multiples of 1/256 from -8 to 7, each 32 with a -8 among them. "q4_0" writes a mixture of experts as one
GGUF file of that type, OUT, with the embedding in Q6_K. Standard library only.
"""
import argparse
import json
import math
import os
import random
import shutil
import struct
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
import gguf_files  # noqa: E402

# hidden, layers, heads, kv heads, intermediate, vocabulary, rope theta, context
SHAPES = {
    "smollm2-135m": (576, 30, 9, 3, 1536, 49152, 100000.0, 8192),
    "smollm2-360m": (960, 32, 15, 5, 2560, 49152, 100000.0, 8192),
    "smollm2-1.7b": (2048, 24, 32, 32, 8192, 49152, 130000.0, 8192),
    "llama-3.2-1b": (2048, 16, 32, 8, 8192, 128256, 500000.0, 131072),  # without its RoPE scaling
    "narrow": (64, 2, 4, 2, 128, 49152, 10000.0, 2048),
    "small": (192, 4, 6, 2, 512, 4096, 10000.0, 2048),
    "gemma3-270m": (640, 18, 4, 1, 2048, 262144, 1000000.0, 32768),
    "gemma3-1b": (1152, 26, 4, 1, 6912, 262144, 1000000.0, 32768),
    "granite4-350m": (1024, 28, 16, 4, 2048, 100352, 10000000.0, 32768),
    "phi-4-mini": (3072, 32, 24, 8, 8192, 200064, 10000.0, 131072),
    "olmo2-1b": (2048, 16, 16, 16, 8192, 100352, 500000.0, 4096),
    "lfm2-350m": (1024, 16, 16, 8, 4608, 65536, 1000000.0, 128000),
    "lfm2-small": (256, 6, 4, 2, 512, 49152, 1000000.0, 32768),
    "lfm2-8b-a1b": (2048, 24, 32, 8, 7168, 65536, 1000000.0, 128000),
    "qwen3.5-0.8b": (1024, 24, 8, 2, 3584, 248320, 10000000.0, 262144),
    "qwen3.5-small": (256, 4, 4, 2, 512, 49152, 10000000.0, 32768),
    "gemma4-e2b": (1536, 35, 8, 1, 6144, 262144, 1000000.0, 131072),
    "gemma4-small": (256, 10, 4, 1, 512, 49152, 1000000.0, 32768),
}
# What shapes of other families than Llama have of their own: settings of config.json, the size of a head, and of GGUF the
# architecture with its settings.
GEMMA3 = {"head": 256, "config": {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "head_dim": 256,
                                  "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
                                  "sliding_window": 512, "sliding_window_pattern": 6, "rms_norm_eps": 1e-6,
                                  "rope_local_base_freq": 10000.0},
          "gguf": ("gemma3", {"attention.key_length": 256, "attention.value_length": 256,
                              "attention.sliding_window": 512, "attention.layer_norm_rms_epsilon": 1e-6,
                              "rope.dimension_count": 256})}
GRANITE = {"embedding_multiplier": 12.0, "residual_multiplier": 0.263, "attention_multiplier": 0.015625,
           "logits_scaling": 4.0}
FAMILIES = {
    "gemma3-270m": GEMMA3, "gemma3-1b": GEMMA3,
    "granite4-350m": {
        "config": {"architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid",
                   "num_local_experts": 0, "layer_types": ["attention"] * 28, "shared_intermediate_size": 2048,
                   "position_embedding_type": "rope", **GRANITE},
        "gguf": ("granite", {"embedding_scale": 12.0, "residual_scale": 0.263, "attention.scale": 0.015625,
                             "logit_scale": 4.0})},
    "phi-4-mini": {
        "config": {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "partial_rotary_factor": 0.75,
                   "original_max_position_embeddings": 4096, "sliding_window": 262144, "pad_token_id": 0,
                   "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48,
                                    "long_factor": [1 + i / 2 for i in range(48)]}}},
    "olmo2-1b": {"config": {"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "rms_norm_eps": 1e-6,
                            "tie_word_embeddings": False}},
}
for _name, _attention in (("lfm2-350m", (2, 5, 8, 10, 12, 14)), ("lfm2-small", (2, 4))):
    FAMILIES[_name] = {"config": {
        "architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "block_auto_adjust_ff_dim": False,
        "conv_L_cache": 3, "layer_types": ["full_attention" if i in _attention else "conv" for i in range(SHAPES[_name][1])]}}
FAMILIES["lfm2-8b-a1b"] = {"config": {
    "architectures": ["Lfm2MoeForCausalLM"], "model_type": "lfm2_moe", "conv_L_cache": 3, "num_dense_layers": 2,
    "num_experts": 32, "num_experts_per_tok": 4, "moe_intermediate_size": 1792, "norm_topk_prob": True, "use_expert_bias": True,
    "layer_types": ["full_attention" if i in (2, 6, 10, 14, 18, 21) else "conv" for i in range(24)]}}
for _name, _head, _keys, _values in (("qwen3.5-0.8b", 256, 16, 16), ("qwen3.5-small", 64, 2, 4)):
    FAMILIES[_name] = {"head": _head, "config": {
        "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "head_dim": _head, "rms_norm_eps": 1e-6,
        "linear_num_key_heads": _keys, "linear_num_value_heads": _values}}
for _name, _heads, _shared, _inputs in (("gemma4-e2b", (256, 512), 20, 256), ("gemma4-small", (64, 128), 5, 32)):
    FAMILIES[_name] = {"config": {
        "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "head_dim": _heads[0],
        "global_head_dim": _heads[1], "num_kv_shared_layers": _shared, "use_double_wide_mlp": True,
        "hidden_size_per_layer_input": _inputs, "vocab_size_per_layer_input": SHAPES[_name][5], "sliding_window": 512, "final_logit_softcapping": 30.0,
        "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6,
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * (SHAPES[_name][1] // 5)},
        "gguf": ("gemma4", {
            "attention.key_length": _heads[1], "attention.value_length": _heads[1], "attention.key_length_swa": _heads[0],
            "attention.value_length_swa": _heads[0], "attention.shared_kv_layers": _shared,
            "attention.sliding_window": 512, "attention.layer_norm_rms_epsilon": 1e-6,
            "attention.sliding_window_pattern": ([True] * 4 + [False]) * (SHAPES[_name][1] // 5),
            "embedding_length_per_layer_input": _inputs, "final_logit_softcapping": 30.0, "rope.freq_base_swa": 10000.0,
            "rope.dimension_count": _heads[1], "rope.dimension_count_swa": _heads[0],
            "feed_forward_length": [SHAPES[_name][4]] * (SHAPES[_name][1] - _shared) + [2 * SHAPES[_name][4]] * _shared})}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def hybrid_parts(name, config, layer):
    """The i-th layer of a model in which some layers are recurrent."""
    hidden, _, heads, kv_heads, inter, _, _, _ = SHAPES[name]
    head = config.get("head_dim", hidden // heads)
    k, v = (f"self_attn.{x}_proj" for x in "kv")
    if "lfm2" in name:
        attention = [("self_attn.q_proj", heads * head, hidden), (k, kv_heads * head, hidden), (v, kv_heads * head, hidden),
                     ("self_attn.out_proj", hidden, heads * head), ("self_attn.q_layernorm", head),
                     ("self_attn.k_layernorm", head)]
        conv = [("conv.in_proj", 3 * hidden, hidden), ("conv.conv", hidden, 1, 3), ("conv.out_proj", hidden, hidden)]
        ffn = [("", inter)]
        if layer >= config.get("num_dense_layers", layer + 1):
            ffn = [(f"experts.{e}.", config["moe_intermediate_size"]) for e in range(config["num_experts"])]
            conv, attention = ([*m, ("feed_forward.gate", len(ffn), hidden), ("feed_forward.expert_bias", len(ffn))]
                               for m in (conv, attention))
        return [("operator_norm", hidden), *(conv if config["layer_types"][layer] == "conv" else attention), ("ffn_norm", hidden),
                *((f"feed_forward.{e}w{i}", *((n, hidden) if i != 2 else (hidden, n))) for e, n in ffn for i in (1, 3, 2))]
    n_keys, n_values = config["linear_num_key_heads"] * 128, config["linear_num_value_heads"]
    channels = 2 * n_keys + n_values * 128
    attention = [("self_attn.q_proj", 2 * heads * head, hidden), (k, kv_heads * head, hidden), (v, kv_heads * head, hidden),
                 ("self_attn.o_proj", hidden, heads * head), ("self_attn.q_norm", head), ("self_attn.k_norm", head)]
    delta = [("linear_attn.in_proj_qkv", channels, hidden), ("linear_attn.in_proj_z", n_values * 128, hidden),
             ("linear_attn.in_proj_b", n_values, hidden), ("linear_attn.in_proj_a", n_values, hidden),
             ("linear_attn.conv1d", channels, 1, 4), ("linear_attn.A_log", n_values), ("linear_attn.dt_bias", n_values),
             ("linear_attn.norm", 128), ("linear_attn.out_proj", hidden, n_values * 128)]
    return [("input_layernorm", hidden), *(attention if layer % 4 == 3 else delta), ("post_attention_layernorm", hidden),
            ("mlp.gate_proj", inter, hidden), ("mlp.up_proj", inter, hidden), ("mlp.down_proj", hidden, inter)]


def gemma4_parts(name, config, layer):
    hidden, layers, heads, kv_heads, inter, _, _, _ = SHAPES[name]
    full, shared = config["layer_types"][layer] == "full_attention", layer >= layers - config["num_kv_shared_layers"]
    head, inputs = config["global_head_dim" if full else "head_dim"], config["hidden_size_per_layer_input"]
    inter *= 2 if shared else 1
    kv = [] if shared else [*((f"self_attn.{x}_proj", kv_heads * head, hidden) for x in "kv"), ("self_attn.k_norm", head)]
    return [("input_layernorm", hidden), ("self_attn.q_proj", heads * head, hidden), *kv, ("self_attn.q_norm", head),
            ("self_attn.o_proj", hidden, heads * head), ("post_attention_layernorm", hidden),
            ("pre_feedforward_layernorm", hidden), ("mlp.gate_proj", inter, hidden), ("mlp.up_proj", inter, hidden),
            ("mlp.down_proj", hidden, inter), ("post_feedforward_layernorm", hidden),
            ("per_layer_input_gate", inputs, hidden), ("per_layer_projection", hidden, inputs),
            ("post_per_layer_input_norm", hidden), ("layer_scalar", 1)]


def tensor_shapes(name):
    """(name, shape) of the tensors of a shape, in the family's names."""
    hidden, layers, heads, kv_heads, inter, vocab, _, _ = SHAPES[name]
    head = FAMILIES.get(name, {}).get("head", hidden // heads)
    n_q, n_kv = heads * head, kv_heads * head
    q, k, v = ((f"self_attn.{x}_proj", n, hidden) for x, n in (("q", n_q), ("k", n_kv), ("v", n_kv)))
    gate, up = (("mlp.gate_proj", inter, hidden), ("mlp.up_proj", inter, hidden))
    o, down = ("self_attn.o_proj", hidden, n_q), ("mlp.down_proj", hidden, inter)
    before, after = ("input_layernorm", hidden), ("post_attention_layernorm", hidden)
    last = ("post_feedforward_layernorm", hidden)
    parts = {
        "gemma3": [before, q, k, v, ("self_attn.q_norm", head), ("self_attn.k_norm", head), o, after,
                   ("pre_feedforward_layernorm", hidden), gate, up, down, last],
        "granite4": [before, q, k, v, o, after, ("shared_mlp.input_linear", 2 * inter, hidden),
                     ("shared_mlp.output_linear", hidden, inter)],
        "phi": [before, ("self_attn.qkv_proj", n_q + 2 * n_kv, hidden), o, after,
                ("mlp.gate_up_proj", 2 * inter, hidden), down],
        "olmo2": [q, k, v, ("self_attn.q_norm", n_q), ("self_attn.k_norm", n_kv), o, after, gate, up, down, last],
    }.get(name.split("-")[0], [before, q, k, v, o, after, gate, up, down])
    config = FAMILIES.get(name, {}).get("config", {})
    yield "model.embed_tokens.weight", (vocab, hidden)
    if "gemma4" in name:
        inputs = config["hidden_size_per_layer_input"]
        yield "model.embed_tokens_per_layer.weight", (vocab, layers * inputs)
        yield "model.per_layer_model_projection.weight", (layers * inputs, hidden)
        yield "model.per_layer_projection_norm.weight", (inputs,)
    for i in range(layers):
        if "lfm2" in name or "qwen3.5" in name:
            parts = hybrid_parts(name, config, i)
        if "gemma4" in name:
            parts = gemma4_parts(name, config, i)
        for part, *shape in parts:
            bare = part.endswith(("A_log", "dt_bias", "layer_scalar", "expert_bias"))
            yield f"model.layers.{i}.{part}" + ("" if bare else ".weight"), tuple(shape)
    yield "model.embedding_norm.weight" if "lfm2" in name else "model.norm.weight", (hidden,)
    if name.startswith("olmo2"):
        yield "lm_head.weight", (vocab, hidden)


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


PIECE = 1 << 24  # elements drawn at once; a multiple of 4 draws the same bytes as any other
# a byte gives the sign (its high bit) and the 7 bits of mantissa; the exponent is that of 1/64
LOW = bytes((0x79 << 7 & 0x80) | (b & 0x7F) for b in range(256))
HIGH = bytes((b & 0x80) | (0x79 >> 1) for b in range(256))


def f16_matrix_bytes(rng, n):
    """The same as f16, which has three more bits of mantissa."""
    out = bytearray(rng.randbytes(2 * n))
    out[1::2] = out[1::2].translate(HIGH_F16)
    return out


def f16_norm_bytes(rng, n):
    return b"".join(struct.pack("<H", 0x3C00 | rng.getrandbits(9)) for _ in range(n))


def grid_bytes(rng, n):
    out, draws = bytearray(2 * n), bytearray(rng.randbytes(n))
    draws[::32] = bytes(len(draws[::32]))
    out[0::2] = draws.translate(LOW_GRID)
    out[1::2] = draws.translate(HIGH_GRID)
    return out


GRID = [struct.pack("<f", ((b & 15) - 8) / 256) for b in range(256)]
LOW_GRID, HIGH_GRID = (bytes(value[i] for value in GRID) for i in (2, 3))
HIGH_F16 = bytes((b & 0x80) | (15 - 6) << 2 | (b & 3) for b in range(256))
# dtype -> its name in safetensors and config.json, and what makes vectors and matrices
DTYPES = {"bf16": ("BF16", "bfloat16", norm_bytes, matrix_bytes),
          "f16": ("F16", "float16", f16_norm_bytes, f16_matrix_bytes),
          "grid": ("BF16", "bfloat16", norm_bytes, grid_bytes)}


def write_weights(path, shapes, dtype, norm_plus_one=False):
    code, _, vector, matrix = DTYPES[dtype]
    if norm_plus_one:  # norms multiply by 1 + weight
        vector = matrix
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes:
        size = 2 * math.prod(shape)
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    rng = random.Random(1)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, shape in shapes:
            if len(shape) == 1:
                f.write(vector(rng, shape[0]))
                continue
            n = math.prod(shape)
            for at in range(0, n, PIECE):
                f.write(matrix(rng, min(PIECE, n - at)))


# ---- GGUF ---------------------------------------------------------------------------------------------

GGUF_NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
              "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
              "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
              "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "shared_mlp.output_linear": "ffn_down"}
GGUF_GEMMA_NAMES = {**GGUF_NAMES, "post_attention_layernorm": "post_attention_norm",
                    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
                    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
GGUF_GEMMA4_NAMES = {**GGUF_GEMMA_NAMES, "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
                     "post_per_layer_input_norm": "post_norm", "layer_scalar": "layer_output_scale"}
GGUF_OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm",
                "model.embed_tokens_per_layer": "per_layer_token_embd",
                "model.per_layer_model_projection": "per_layer_model_proj",
                "model.per_layer_projection_norm": "per_layer_proj_norm"}
GGUF_U32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY = 4, 6, 7, 8, 9
GGML_F32, GGML_BF16, ALIGNMENT = 0, 30, 32


def gguf_string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_entry(key, value):
    """One pair of the metadata: text, a float, an unsigned number, or a list of truths or unsigned numbers."""
    if isinstance(value, list):
        kind, code = (GGUF_BOOL, "?") if isinstance(value[0], bool) else (GGUF_U32, "I")
        return gguf_string(key) + struct.pack(f"<IIQ{len(value)}{code}", GGUF_ARRAY, kind, len(value), *value)
    if isinstance(value, str):
        return gguf_string(key) + struct.pack("<I", GGUF_STRING) + gguf_string(value)
    if isinstance(value, float):
        return gguf_string(key) + struct.pack("<If", GGUF_F32, value)
    return gguf_string(key) + struct.pack("<II", GGUF_U32, value)


def gguf_name(name, names):
    stem = name.removesuffix(".weight")
    if stem in GGUF_OUTSIDE:
        return GGUF_OUTSIDE[stem] + ".weight"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{names[rest]}.weight"


def interleave_halves(data, n_rows, n_heads):
    """Rows of a query or key matrix as GGUF's rope wants them: within a head, row i of the first half
    and row i of the second one after the other."""
    row, d_head, out = len(data) // n_rows, n_rows // n_heads, bytearray()
    for head in range(0, n_rows, d_head):
        for i in range(head, head + d_head // 2):
            for j in (i, i + d_head // 2):
                out += data[j * row:(j + 1) * row]
    return bytes(out)


def rope_factors(own):
    """Divisors of the frequencies of a head of which a quarter turns."""
    n = own["attention.key_length"] // 2
    return [1.0] * (n // 4) + [1e30] * (n - n // 4)


def gguf_data(name, data, n_rows, heads, kv_heads, gemma, plus_one):
    if name.endswith(("norm.weight", "layer_scalar")):  # f32, whose high half is the bf16
        values = struct.unpack(f"<{len(data) // 2}H", data)
        floats = struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}I", *(v << 16 for v in values)))
        return struct.pack(f"<{len(values)}f", *(x + 1 if plus_one else x for x in floats))
    if name.endswith("q_proj.weight") and not gemma:
        return interleave_halves(data, n_rows, heads)
    if name.endswith("k_proj.weight") and not gemma:
        return interleave_halves(data, n_rows, kv_heads)
    return data


def gguf_tensors(header, names):
    """(name in the file, name in GGUF, shape, first byte, end) of each tensor; a fused gate and up is two."""
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if name.endswith("input_linear.weight"):
            rows, cols = entry["shape"][0] // 2, entry["shape"][1]
            layer, middle = name.split(".")[2], (begin + end) // 2
            yield name, f"blk.{layer}.ffn_gate.weight", [rows, cols], begin, middle
            yield name, f"blk.{layer}.ffn_up.weight", [rows, cols], middle, end
        else:
            yield name, gguf_name(name, names), entry["shape"], begin, end


def write_gguf(path, weights, shape, family=None):
    """The weights of a safetensors file that write_weights made, as a GGUF file."""
    hidden, layers, heads, kv_heads, inter, vocab, theta, ctx = shape
    arch, more = (family or {}).get("gguf", ("llama", {}))
    gemma, gemma4 = arch == "gemma3", arch == "gemma4"
    with open(weights, "rb") as f:
        start = 8 + struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(start - 8))
        header.pop("__metadata__", None)
        own = {"block_count": layers, "context_length": ctx, "embedding_length": hidden,
               "feed_forward_length": inter, "attention.head_count": heads, "attention.head_count_kv": kv_heads,
               "rope.freq_base": theta, "rope.dimension_count": hidden // heads,
               "attention.layer_norm_rms_epsilon": 1e-5, "vocab_size": vocab, **more}
        meta = {"general.architecture": arch, "general.name": "random", "general.file_type": 32,
                "general.alignment": ALIGNMENT, **{f"{arch}.{k}": v for k, v in own.items()},
                "tokenizer.ggml.model": "none"}
        tensors = list(gguf_tensors(header, GGUF_GEMMA4_NAMES if gemma4 else GGUF_GEMMA_NAMES if gemma else GGUF_NAMES))
        infos, offset = b"", 0
        freqs = b"" if not gemma4 else struct.pack(f"<{more['attention.key_length'] // 2}f", *rope_factors(more))
        if freqs:
            infos += gguf_string("rope_freqs.weight") + struct.pack("<IQIQ", 1, len(freqs) // 4, GGML_F32, 0)
            offset = len(freqs)
        for _, name, dims, _, _ in tensors:
            matrix = len(dims) == 2
            size = math.prod(dims) * (2 if matrix else 4)
            infos += gguf_string(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims[::-1])
            infos += struct.pack("<IQ", GGML_BF16 if matrix else GGML_F32, offset)
            offset += size + -size % ALIGNMENT
        head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors) + bool(freqs), len(meta))
        head += b"".join(gguf_entry(k, v) for k, v in meta.items()) + infos
        with open(path, "wb") as out:
            out.write(head + bytes(-len(head) % ALIGNMENT) + freqs)
            for name, _, dims, begin, end in tensors:
                f.seek(start + begin)
                data = gguf_data(name, f.read(end - begin), dims[0], heads, kv_heads, gemma or gemma4, gemma)
                out.write(data)
                out.write(bytes(-len(data) % ALIGNMENT))


def write_q4_0(path, config, shapes, tokenizer):
    """A mixture of experts with random blocks."""
    keys, stacks = gguf_files.mixture_keys(config), {}
    with open(os.path.join(tokenizer, "tokenizer.json"), encoding="utf-8") as f:
        keys += gguf_files.tokenizer_keys(json.load(f), "smollm", config["vocab_size"])
    for name, shape in shapes:
        name, dims = gguf_files.mixture_name(name), [n for n in shape if n > 1][::-1]
        plain = len(dims) == 1 or "ffn_gate_inp" in name or "shortconv.conv" in name
        kind = gguf_files.F32 if plain else gguf_files.Q6_K if name == "token_embd.weight" else gguf_files.Q4_0
        stacks.setdefault(name, (dims + ([0] if "_exps" in name else []), kind))
        if "_exps" in name:
            stacks[name][0][-1] += 1
    rng = random.Random(1)
    with open(path, "wb") as f:
        f.write(gguf_files.header(keys, [(n, dims, kind, block_bytes(kind, math.prod(dims))) for n, (dims, kind) in stacks.items()]))
        for dims, kind in stacks.values():
            for at in range(0, math.prod(dims), PIECE):
                f.write(random_blocks(kind, min(PIECE, math.prod(dims) - at), rng))
            f.write(bytes(-f.tell() % gguf_files.ALIGNMENT))


def block_bytes(kind, n):
    return {gguf_files.F32: n * 4, gguf_files.Q4_0: n // 32 * 18, gguf_files.Q6_K: n // 256 * 210}[kind]


def random_blocks(kind, n, rng):
    """Weights of at most 1/32, as those of the other types; of F32 numbers of at most 1."""
    if kind == gguf_files.F32:
        return struct.pack(f"<{n}f", *(rng.random() for _ in range(n)))
    size, at, scale = (18, 0, 2.0 ** -8) if kind == gguf_files.Q4_0 else (210, 208, 2.0 ** -17)
    out = bytearray(rng.randbytes(block_bytes(kind, n)))
    for i, byte in enumerate(struct.pack("<e", scale)):
        out[at + i::size] = bytes([byte]) * (len(out) // size)
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--shape", choices=sorted(SHAPES), default="smollm2-135m")
    p.add_argument("--tokenizer", default=os.path.join(ROOT, "deploy", "demo"))
    p.add_argument("--dtype", choices=[*sorted(DTYPES), "q4_0"], default="bf16")
    p.add_argument("--gguf", help="of bf16 weights")
    p.add_argument("--layers", type=int, help="the first of a shape's")
    a = p.parse_args()
    if a.gguf and (a.dtype == "f16" or "gguf" not in FAMILIES.get(a.shape, {"gguf": ()})):
        p.error("--gguf writes bf16 weights only, and not every shape")
    config = FAMILIES.get(a.shape, {}).get("config", {})
    if a.layers:
        SHAPES[a.shape] = (SHAPES[a.shape][0], a.layers, *SHAPES[a.shape][2:])
        if "layer_types" in config:
            config["layer_types"] = config["layer_types"][:a.layers]
    hidden, layers, heads, kv_heads, inter, vocab, theta, ctx = SHAPES[a.shape]
    if a.dtype != "q4_0":
        os.makedirs(a.out, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
              "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
              "intermediate_size": inter, "vocab_size": vocab, "rope_theta": theta, "rms_norm_eps": 1e-5,
              "max_position_embeddings": ctx, "tie_word_embeddings": True, "hidden_act": "silu",
              "torch_dtype": DTYPES.get(a.dtype, "  ")[1], "bos_token_id": 0, "eos_token_id": 0,
              **config}
    if a.dtype == "q4_0":
        write_q4_0(a.out, config, tensor_shapes(a.shape), a.tokenizer)
        return
    with open(os.path.join(a.out, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)
    with open(os.path.join(a.out, "generation_config.json"), "w", encoding="utf-8") as f:
        json.dump({"bos_token_id": 0, "eos_token_id": 0}, f)
    for name in TOKENIZER_FILES:
        source = os.path.join(a.tokenizer, name)
        if os.path.exists(source):
            shutil.copyfile(source, os.path.join(a.out, name))
    weights = os.path.join(a.out, "model.safetensors")
    write_weights(weights, list(tensor_shapes(a.shape)), a.dtype, a.shape.startswith(("gemma3", "qwen3.5")))
    if a.gguf:
        write_gguf(a.gguf, weights, SHAPES[a.shape], FAMILIES.get(a.shape))


if __name__ == "__main__":
    main()
