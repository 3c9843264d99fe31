# SPDX-License-Identifier: MIT
"""GGUF files for tests: written from keys and tensors, and the keys of a tokenizer.json as converters write them."""
import json
import os
import re
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


def header(keys, tensors):
    """All before the data. keys: [(name, kind, value or list)]; tensors: [(name, dims, type, bytes of data)], the fastest
    dimension first; each tensor's data is filled up to the alignment."""
    out, at = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(key(*k) for k in keys), 0
    for name, dims, kind, size in tensors:
        out += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, at)
        at += size + -size % ALIGNMENT
    return out + b"\0" * (-len(out) % ALIGNMENT)


def gguf(keys, tensors=()):
    """The bytes of a file whose tensors are with their data."""
    return header(keys, [(*t[:3], len(t[3])) for t in tensors]) + b"".join(
        data + b"\0" * (-len(data) % ALIGNMENT) for _, _, _, data in tensors)


def tokenizer_keys(tokenizer, pre, n_rows=0):
    """Of a tokenizer.json with BPE over bytes, or Gemma's with `pre` "gemma4"; ids that it lacks, up to n_rows, are
    unused."""
    model = tokenizer["model"]
    texts = {i: t for t, i in model["vocab"].items()}
    gemma4 = pre == "gemma4"
    types = {i: BYTE if gemma4 and re.fullmatch("<0x[0-9A-F]{2}>", t) else NORMAL for i, t in texts.items()}
    for token in tokenizer["added_tokens"]:
        texts[token["id"]] = token["content"]
        types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    n = max(n_rows, max(texts) + 1)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    rule = [("tokenizer.ggml.model", "str", "gpt2"), ("tokenizer.ggml.pre", "str", pre)]
    if gemma4:
        rule = [("tokenizer.ggml.model", "str", pre), ("tokenizer.ggml.add_space_prefix", "bool", False),
                ("tokenizer.ggml.unknown_token_id", "u32", model["vocab"][model["unk_token"]])]
    return [*rule,
            ("tokenizer.ggml.tokens", "str", [texts.get(i, f"[PAD{i}]") for i in range(n)]),
            ("tokenizer.ggml.token_type", "i32", [types.get(i, UNUSED) for i in range(n)]),
            ("tokenizer.ggml.merges", "str", merges)]


# ---- the demo model -----------------------------------------------------------------------------------------

F32, Q8_0, BF16 = 0, 8, 30
NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def name_of(reference):
    if not reference.startswith("model.layers."):
        return {"lm_head.weight": "output.weight", "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}[reference]
    layer, part = reference.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
    return f"blk.{layer}.{NAMES[part]}.weight"


def floats(bf16):
    values = struct.unpack(f"<{len(bf16) // 2}H", bf16)
    return struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}I", *(v << 16 for v in values)))


def in_pairs(data, n_rows, n_heads):
    """Rows of queries or keys as the format has them: within a head, row i of the first half, then of the second."""
    row, d_head = len(data) // n_rows, n_rows // n_heads
    order = [h + i + j for h in range(0, n_rows, d_head) for i in range(d_head // 2) for j in (0, d_head // 2)]
    return b"".join(data[r * row:(r + 1) * row] for r in order)


def q8_0(values):
    out = b""
    for at in range(0, len(values), 32):
        block = values[at:at + 32]
        scale = max(map(abs, block)) / 127
        half = struct.pack("<e", scale)
        d = struct.unpack("<e", half)[0] or 1
        out += half + struct.pack("<32b", *(max(-127, min(127, round(v / d))) for v in block))
    return out


def demo(folder, quantised=True, keys=()):
    """(keys, tensors) of the demo model in `folder`, for gguf()."""
    def load(name):
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            return json.load(f)
    c, tensors = load("config.json"), []
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        start = f.tell()
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            f.seek(start + begin)
            data, shape = f.read(end - begin), entry["shape"]
            for part, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
                if part in name:
                    data = in_pairs(data, shape[0], c[heads])
            kind = F32 if len(shape) == 1 else Q8_0 if quantised else BF16
            if kind != BF16:
                values = floats(data)
                data = q8_0(values) if kind == Q8_0 else struct.pack(f"<{len(values)}f", *values)
            tensors.append((name_of(name), shape[::-1], kind, data))
    sizes = {"block_count": "num_hidden_layers", "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
             "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads",
             "attention.head_count_kv": "num_key_value_heads"}
    return ([("general.architecture", "str", "llama"), ("general.type", "str", "model"),
             *((f"llama.{k}", "u32", c[v]) for k, v in sizes.items()), ("llama.rope.freq_base", "f32", c["rope_theta"]),
             ("llama.attention.layer_norm_rms_epsilon", "f32", c["rms_norm_eps"]),
             *tokenizer_keys(load("tokenizer.json"), "smollm"), ("tokenizer.ggml.bos_token_id", "u32", c["bos_token_id"]),
             ("tokenizer.ggml.eos_token_id", "u32", c["eos_token_id"]), ("tokenizer.ggml.add_bos_token", "bool", False),
             ("tokenizer.chat_template", "str", load("tokenizer_config.json")["chat_template"]), *keys], tensors)


def splits(keys, tensors, n):
    """The files of a set: [bytes]. The keys are in the first."""
    size = -(-len(tensors) // n)
    return [gguf([*(keys if i == 0 else ()), ("split.no", "u32", i), ("split.count", "u32", n),
                  ("split.tensors.count", "i32", len(tensors))], tensors[i * size:(i + 1) * size]) for i in range(n)]


# ---- mixtures of experts ------------------------------------------------------------------------------------

Q4_0, Q4_K, Q6_K = 2, 12, 14
# model_type -> general.architecture, settings of the architecture's own keys
MIXTURES = {
    "lfm2_moe": ("lfm2moe", {"expert_feed_forward_length": "moe_intermediate_size", "shortconv.l_cache": "conv_L_cache",
                             "leading_dense_block_count": "num_dense_layers"}),
    "qwen3_moe": ("qwen3moe", {"expert_feed_forward_length": "moe_intermediate_size"}),
    "olmoe": ("olmoe", {}),
}
MIXTURE_NAMES = {
    **NAMES, "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps", "mlp.experts.up_proj": "ffn_up_exps", "mlp.experts.down_proj": "ffn_down_exps",
    "operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm", "conv.in_proj": "shortconv.in_proj",
    "conv.conv": "shortconv.conv", "conv.out_proj": "shortconv.out_proj", "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down", "feed_forward.gate": "ffn_gate_inp",
    "feed_forward.experts.w1": "ffn_gate_exps", "feed_forward.experts.w3": "ffn_up_exps",
    "feed_forward.experts.w2": "ffn_down_exps"}
OUTER_NAMES = {"model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight",
               "model.norm.weight": "output_norm.weight", "model.embedding_norm.weight": "token_embd_norm.weight"}


def mixture_name(reference):
    """The file's name of a tensor; of all experts those of one matrix have the same."""
    if reference in OUTER_NAMES:
        return OUTER_NAMES[reference]
    layer, part = reference.removeprefix("model.layers.").split(".", 1)
    if part == "feed_forward.expert_bias":
        return f"blk.{layer}.exp_probs_b.bias"
    part = ".".join(p for p in part.removesuffix(".weight").split(".") if not p.isdigit())
    return f"blk.{layer}.{MIXTURE_NAMES[part]}.weight"


def read_directory(folder):
    """(config, {name: (shape, floats)}) of a directory with one file of BF16 and F32."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data, out = f.read(), {}
    for name, entry in header.items():
        if name != "__metadata__":
            content = data[slice(*entry["data_offsets"])]
            values = floats(content) if entry["dtype"] == "BF16" else struct.unpack(f"<{len(content) // 4}f", content)
            out[name] = (entry["shape"], values)
    return config, out


def write_directory(folder, config, tensors):
    """The same, all in F32."""
    header, at = {}, 0
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * len(values)]}
        at += 4 * len(values)
    text_of_header = json.dumps(header).encode()
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text_of_header)) + text_of_header)
        for _, values in tensors.values():
            f.write(struct.pack(f"<{len(values)}f", *values))


def q4_0(values):
    out = b""
    for at in range(0, len(values), 32):
        block = values[at:at + 32]
        half = struct.pack("<e", max(block, key=abs) / -8)
        d = struct.unpack("<e", half)[0] or 1
        q = [max(0, min(15, round(v / d) + 8)) for v in block]
        out += half + bytes(q[i] | q[i + 16] << 4 for i in range(16))
    return out


def values_of(kind, data):
    """What blocks of Q8_0, Q4_0, Q4_K and Q6_K say; no product or sum here is rounded in a double."""
    out, halves = [], lambda at, n: struct.unpack_from(f"<{n}e", data, at)
    for at in range(0, len(data), {Q8_0: 34, Q4_0: 18, Q4_K: 144, Q6_K: 210}[kind]):
        if kind == Q8_0:
            d, = halves(at, 1)
            out += (d * q for q in struct.unpack_from("<32b", data, at + 2))
        elif kind == Q4_0:
            (d,), q = halves(at, 1), data[at + 2:at + 18]
            out += (d * ((x & 15) - 8) for x in q)
            out += (d * ((x >> 4) - 8) for x in q)
        elif kind == Q4_K:
            (d, low), b, qs = halves(at, 2), data[at + 4:at + 16], data[at + 16:at + 144]
            for j in range(8):
                s, m = ((b[j] & 63, b[j + 4] & 63) if j < 4 else
                        (b[j + 4] & 15 | b[j - 4] >> 6 << 4, b[j + 4] >> 4 | b[j] >> 6 << 4))
                out += (d * s * (x >> 4 * (j & 1) & 15) - low * m for x in qs[32 * (j // 2):32 * (j // 2) + 32])
        else:
            (d,), s = halves(at + 208, 1), struct.unpack_from("<16b", data, at + 192)
            for k in range(256):
                half, group, i = k // 128, k % 128 // 32, k % 32
                q = (data[at + 64 * half + 32 * (group & 1) + i] >> 4 * (group >> 1) & 15 |
                     (data[at + 128 + 32 * half + i] >> 2 * group & 3) << 4)
                out.append(d * s[k // 16] * (q - 32))
    return out


def random_blocks(kind, n_weights, rng):
    """Blocks of Q4_K or Q6_K with weights of about 1/16."""
    if kind == Q4_K:
        return b"".join(struct.pack("<2e", 2.0 ** -12, 2.0 ** -9) + rng.randbytes(140) for _ in range(n_weights // 256))
    return b"".join(rng.randbytes(208) + struct.pack("<e", 2.0 ** -15) for _ in range(n_weights // 256))


def encode(kind, values, rng):
    """(bytes, the numbers that they say); K types take numbers of their own."""
    if kind == F32:
        return struct.pack(f"<{len(values)}f", *values), values
    if kind == BF16:
        return b"".join(struct.pack("<f", v)[2:] for v in values), values
    data = q8_0(values) if kind == Q8_0 else q4_0(values) if kind == Q4_0 else random_blocks(kind, len(values), rng)
    return data, values_of(kind, data)


def mixture_keys(config):
    """Those of a config.json with experts; of no tokenizer."""
    arch, own = MIXTURES[config["model_type"]]
    sizes = {"block_count": "num_hidden_layers", "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
             "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads",
             "expert_count": "num_experts", "expert_used_count": "num_experts_per_tok", "vocab_size": "vocab_size", **own}
    keys = [("general.architecture", "str", arch), *((f"{arch}.{k}", "u32", config[v]) for k, v in sizes.items()),
            (f"{arch}.rope.freq_base", "f32", config["rope_theta"]),
            (f"{arch}.attention.layer_norm_rms_epsilon", "f32", config.get("rms_norm_eps") or config["norm_eps"])]
    n_kv = config["num_key_value_heads"]
    if "layer_types" in config:
        keys += [(f"{arch}.expert_gating_func", "u32", 2), (f"{arch}.attention.head_count_kv", "i32",
                                                            [n_kv * (t != "conv") for t in config["layer_types"]])]
    else:
        keys.append((f"{arch}.attention.head_count_kv", "u32", n_kv))
    if "head_dim" in config:
        keys += [(f"{arch}.attention.{x}_length", "u32", config["head_dim"]) for x in ("key", "value")]
    if config.get("routed_scaling_factor", 1) != 1:
        keys.append((f"{arch}.expert_weights_scale", "f32", config["routed_scaling_factor"]))
    return keys


def mixture(config, reference, kind_of=lambda name: F32, rng=None, fused=False):
    """(keys, tensors, {reference name: (shape, numbers)}) of a directory's tensors; kind_of says the type of matrices by the
    file's name. fused: gate and up of all experts are one tensor."""
    stacks, numbers = {}, {}
    for name, (shape, values) in reference.items():
        file_name = mixture_name(name)
        if fused:
            file_name = file_name.replace("ffn_gate_exps", "ffn_gate_up_exps").replace("ffn_up_exps", "ffn_gate_up_exps")
        matrix = len(shape) == 2 and "ffn_gate_inp" not in file_name
        kind = kind_of(file_name) if matrix else F32
        data, said = encode(kind, values, rng)
        numbers[name] = (shape, said)
        stacks.setdefault(file_name, (kind, shape, {}))[2][name] = data
    order = lambda name: [int(p) if p.isdigit() else {"w1": 0, "w3": 1, "gate_proj": 0, "up_proj": 1}.get(p, 9)
                          for p in name.split(".")]
    tensors = []
    for file_name, (kind, shape, parts) in stacks.items():
        dims = [s for s in shape if s != 1 or len(shape) < 3][::-1]
        if "_exps" in file_name:
            n = config["num_experts"]
            dims = [shape[1], shape[0] * len(parts) // n, n]
        tensors.append((file_name, dims, kind, b"".join(parts[p] for p in sorted(parts, key=order))))
    return [*mixture_keys(config), ("tokenizer.ggml.model", "str", "none")], tensors, numbers


# ---- Gemma 4 ------------------------------------------------------------------------------------------------

GEMMA4_NAMES = {**NAMES, "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
                "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                "post_feedforward_layernorm": "post_ffw_norm", "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
                "post_per_layer_input_norm": "post_norm", "layer_scalar": "layer_output_scale", "router.proj": "ffn_gate_inp",
                "router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale",
                "experts.gate_up_proj": "ffn_gate_up_exps", "experts.down_proj": "ffn_down_exps",
                "pre_feedforward_layernorm_2": "pre_ffw_norm_2", "post_feedforward_layernorm_1": "post_ffw_norm_1",
                "post_feedforward_layernorm_2": "post_ffw_norm_2"}
GEMMA4_OUTER = {"embed_tokens": "token_embd", "norm": "output_norm", "embed_tokens_per_layer": "per_layer_token_embd",
                "per_layer_model_projection": "per_layer_model_proj", "per_layer_projection_norm": "per_layer_proj_norm"}


def gemma4(config, reference, kind_of=lambda name: F32):
    """As mixture(), of a directory of Gemma 4, or of its text part."""
    config = config.get("text_config", config)
    n, shared = config["num_hidden_layers"], config.get("num_kv_shared_layers", 0)
    windowed = [t == "sliding_attention" for t in config["layer_types"]]
    kv, inter, wide = config["num_key_value_heads"], config["intermediate_size"], config.get("use_double_wide_mlp", False)
    full_kv = config["num_global_key_value_heads"] if config.get("attention_k_eq_v") else kv
    ropes = config.get("rope_parameters") or {"full_attention": {"rope_theta": 1e6, "partial_rotary_factor": 0.25},
                                              "sliding_attention": {"rope_theta": 1e4}}
    pairs = config["global_head_dim"] // 2
    turned = int(pairs * ropes["full_attention"]["partial_rotary_factor"])
    sizes = {"block_count": n, "context_length": config["max_position_embeddings"], "embedding_length": config["hidden_size"],
             "attention.head_count": config["num_attention_heads"], "attention.sliding_window": config["sliding_window"],
             "vocab_size": config["vocab_size"], "attention.shared_kv_layers": shared,
             "attention.key_length": 2 * pairs, "attention.value_length": 2 * pairs,
             "attention.key_length_swa": config["head_dim"], "attention.value_length_swa": config["head_dim"],
             "rope.dimension_count": 2 * pairs, "rope.dimension_count_swa": config["head_dim"],
             "embedding_length_per_layer_input": config.get("hidden_size_per_layer_input", 0)}
    if config.get("enable_moe_block"):
        sizes |= {"expert_count": config["num_experts"], "expert_used_count": config["top_k_experts"],
                  "expert_feed_forward_length": config["moe_intermediate_size"]}
    numbers = {"attention.layer_norm_rms_epsilon": config["rms_norm_eps"], "rope.freq_base": ropes["full_attention"]["rope_theta"],
               "rope.freq_base_swa": ropes["sliding_attention"]["rope_theta"]}
    if config.get("final_logit_softcapping"):
        numbers["final_logit_softcapping"] = config["final_logit_softcapping"]
    keys = [("general.architecture", "str", "gemma4"), ("tokenizer.ggml.model", "str", "none"),
            *(("gemma4." + k, "u32", v) for k, v in sizes.items()), *(("gemma4." + k, "f32", v) for k, v in numbers.items()),
            ("gemma4.feed_forward_length", "i32", [inter * (2 if wide and i >= n - shared else 1) for i in range(n)]),
            ("gemma4.attention.head_count_kv", "i32", [kv if w else full_kv for w in windowed]),
            ("gemma4.attention.sliding_window_pattern", "bool", windowed)]
    freqs = struct.pack(f"<{pairs}f", *[1.0] * turned, *[1e30] * (pairs - turned))
    tensors, numbers = [("rope_freqs.weight", [pairs], F32, freqs)], {}
    for name, (shape, values) in reference.items():
        stem = name.removeprefix("model.").removeprefix("language_model.").removesuffix(".weight")
        if re.match("(embed_)?(vision|audio)", stem):  # not served
            continue
        if stem.startswith("layers."):
            _, layer, part = stem.split(".", 2)
            file_name = f"blk.{layer}.{GEMMA4_NAMES[part]}" + ("" if GEMMA4_NAMES[part].endswith(".scale") else ".weight")
        else:
            file_name = GEMMA4_OUTER[stem] + ".weight"
        kind = kind_of(file_name) if len(shape) > 1 and "ffn_gate_inp" not in file_name else F32
        data, said = encode(kind, values, None)
        numbers[name] = (shape, said)
        tensors.append((file_name, shape[::-1], kind, data))
    return keys, tensors, numbers
