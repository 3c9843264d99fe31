# SPDX-License-Identifier: MIT
"""GGUF files for tests: written from keys and tensors, and the keys of a tokenizer.json as converters write them."""
import json
import os
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
