#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A Hugging Face directory of a quantised GGUF file: its weights as numbers, in BF16, with config and tokenizer.

    from_gguf.py FILE.gguf DIR [--dtype bf16|f32] [--dither SEED] [--tokenizer DIR]

For whatever needs the weights of a trained model in safetensors where only a file is at hand: the accuracy of numeric paths, and
what `int4` makes of weights that lie on no grid. --dither adds to every quantised weight a uniform random number of at most
half a step of its block's grid to either side, from that seed, so that the weights do not lie on the file's own grid.
Architectures llama (without scaled RoPE) and gemma3; tokenizers smollm and SentencePiece without a blank in front, another is
copied from the --tokenizer. Needs numpy and gguf (pip).
"""
import argparse
import json
import os
import shutil
import struct

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

# Of a block's bytes: where the lowest bits of its quantised numbers are, and the mask that turns each of them.
LOWEST_BITS = {"Q4_0": (2, 18, 0x11), "Q4_1": (4, 20, 0x11), "Q5_0": (6, 22, 0x11), "Q5_1": (8, 24, 0x11), "Q8_0": (2, 34, 1),
               "Q3_K": (32, 96, 0x55), "Q4_K": (16, 144, 0x11), "Q5_K": (48, 176, 0x11), "Q6_K": (0, 128, 0x11)}
BLOCK_BYTES = {"Q3_K": 110, "Q6_K": 210}
NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
         "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "attn_norm": "input_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
NORMS = {"llama": {"ffn_norm": "post_attention_layernorm"},
         "gemma3": {"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
                    "post_ffw_norm": "post_feedforward_layernorm"}}
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
MARK = "\u2581"
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


class File:
    """A file's keys and tensors."""

    def __init__(self, path):
        self.reader = GGUFReader(path)
        self.architecture = self.key("general.architecture")
        if self.architecture not in NORMS:
            raise SystemExit(f"{path}: architecture {self.architecture} is not one of {', '.join(NORMS)}")

    def key(self, name, default=None):
        field = self.reader.fields.get(name)
        return default if field is None else field.contents()

    def size(self, name, default=None):
        return self.key(f"{self.architecture}.{name}", default)

    def reference_name(self, name):
        names = {**NAMES, **NORMS[self.architecture]}
        if not name.startswith("blk."):
            return names[name.removesuffix(".weight")] + ".weight"
        _, layer, part, _ = name.split(".")
        return f"model.layers.{layer}.{names[part]}.weight"

    def in_halves(self, name, rows):
        """Rows of queries and keys of a llama lie in pairs; the reference has the first of all pairs, then the second."""
        part = name.split(".")[-2]
        if self.architecture != "llama" or part not in ("attn_q", "attn_k"):
            return rows
        n_heads = self.size("attention.head_count" if part == "attn_q" else "attention.head_count_kv")
        return rows.reshape(n_heads, -1, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)

    def values(self, tensor, rng):
        kind = tensor.tensor_type
        rows = dequantize(tensor.data, kind).astype(np.float32)
        if rng is not None and kind.name not in ("F32", "F16", "BF16"):
            rows += steps(tensor.data, kind, rows) * (rng.random(rows.shape, np.float32) - np.float32(0.5))
        if self.architecture == "gemma3" and rows.ndim == 1:
            rows -= 1  # the format has norms as they are multiplied, the reference less one
        return self.in_halves(tensor.name, rows)


def steps(data, kind, rows):
    """How far two neighbouring values of each weight's block are from each other."""
    first, last, mask = LOWEST_BITS[kind.name]
    blocks = np.array(data).reshape(-1, BLOCK_BYTES.get(kind.name, last))
    blocks[:, first:last] ^= mask
    return np.abs(dequantize(blocks.reshape(data.shape), kind) - rows)


def config(f):
    width, n_heads = f.size("embedding_length"), f.size("attention.head_count")
    n_layers = f.size("block_count")
    c = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": width,
         "num_hidden_layers": n_layers, "num_attention_heads": n_heads,
         "num_key_value_heads": f.size("attention.head_count_kv"), "head_dim": f.size("attention.key_length", width // n_heads),
         "intermediate_size": f.size("feed_forward_length"), "max_position_embeddings": f.size("context_length"),
         "rms_norm_eps": round(f.size("attention.layer_norm_rms_epsilon"), 9), "rope_theta": f.size("rope.freq_base"),
         "vocab_size": len(f.key("tokenizer.ggml.tokens")), "tie_word_embeddings": not any(
             t.name == "output.weight" for t in f.reader.tensors),
         "bos_token_id": f.key("tokenizer.ggml.bos_token_id"), "eos_token_id": f.key("tokenizer.ggml.eos_token_id")}
    if f.architecture == "gemma3":
        c |= {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh",
              "query_pre_attn_scalar": c["head_dim"], "sliding_window": f.size("attention.sliding_window"),
              "rope_local_base_freq": 10000.0, "attn_logit_softcapping": None, "final_logit_softcapping": None,
              "layer_types": ["sliding_attention" if (i + 1) % 6 else "full_attention" for i in range(n_layers)]}
    return c


def sentencepiece(tokens, types, scores):
    """Vocabulary and merges: every split of a token into two, by the whole's score, then the longer left half."""
    vocab = {t: i for i, t in enumerate(tokens) if types[i] != UNUSED}
    merges = []
    for i, whole in enumerate(tokens):
        if types[i] in (NORMAL, USER_DEFINED):
            score = 0.0 if types[i] == USER_DEFINED else float(scores[i])
            parts = [(whole[:n], whole[n:]) for n in range(1, len(whole))]
            merges += [(score, a, b) for a, b in parts if a in vocab and b in vocab]
    merges.sort(key=lambda m: (-m[0], -len(m[1]), -len(m[2]), vocab[m[1]], vocab[m[2]]))
    return vocab, [[a, b] for _, a, b in merges]


def tokenizer(f):
    """The text of a tokenizer.json, or None if the file does not say how text is split."""
    tokens, types = f.key("tokenizer.ggml.tokens"), f.key("tokenizer.ggml.token_type")
    model, pre = f.key("tokenizer.ggml.model"), f.key("tokenizer.ggml.pre")
    t = {"version": "1.0", "truncation": None, "padding": None}
    if model == "gpt2" and pre == "smollm":
        vocab = {text: i for i, text in enumerate(tokens) if types[i] != UNUSED}
        merges = [m.split(" ") for m in f.key("tokenizer.ggml.merges")]
        t |= {"normalizer": None, "decoder": BYTE_LEVEL, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, BYTE_LEVEL]}}
    elif model == "llama" and not f.key("tokenizer.ggml.add_space_prefix", True):
        tokens = [text.replace(" ", MARK) if types[i] == USER_DEFINED else text for i, text in enumerate(tokens)]
        vocab, merges = sentencepiece(tokens, types, f.key("tokenizer.ggml.scores"))
        t |= {"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": MARK},
              "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
              "decoder": {"type": "Sequence", "decoders": [
                  {"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]}}
    else:
        return None
    if f.key("tokenizer.ggml.add_bos_token", model == "llama"):
        bos = tokens[f.key("tokenizer.ggml.bos_token_id")]
        piece = {"SpecialToken": {"id": bos, "type_id": 0}}
        t["post_processor"] = {"type": "TemplateProcessing", "single": [piece, {"Sequence": {"id": "A", "type_id": 0}}],
                               "pair": [piece, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                               "special_tokens": {bos: {"id": bos, "ids": [vocab[bos]], "tokens": [bos]}}}
    unknown = tokens[f.key("tokenizer.ggml.unknown_token_id")] if model == "llama" else None
    t["model"] = {"type": "BPE", "dropout": None, "unk_token": unknown, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": model == "llama", "byte_fallback": model == "llama",
                  "ignore_merges": False, "vocab": vocab, "merges": merges}
    t["added_tokens"] = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": kind == CONTROL}
                         for i, kind in enumerate(types) if kind in (CONTROL, USER_DEFINED)]
    return t


def tokenizer_config(f):
    tokens = f.key("tokenizer.ggml.tokens")
    ids = {name: f.key(f"tokenizer.ggml.{key}_token_id") for name, key in (
        ("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding"))}
    c = {name: tokens[i] for name, i in ids.items() if i is not None}
    template = f.key("tokenizer.chat_template")
    return {**c, "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
            **({"chat_template": template} if template else {})}


def bf16(values):
    """Rounded to the nearest, to the even one of two."""
    bits = values.view(np.uint32)
    return ((bits + (0x7fff + ((bits >> 16) & 1))) >> 16).astype("<u2")


def write_weights(path, f, dtype, seed):
    rng = None if seed is None else np.random.default_rng(seed)
    header, at, size = {}, 0, {"bf16": 2, "f32": 4}[dtype]
    for t in f.reader.tensors:
        shape = [int(n) for n in reversed(t.shape)]
        n_bytes = size * int(np.prod(shape))
        header[f.reference_name(t.name)] = {"dtype": dtype.upper(), "shape": shape, "data_offsets": [at, at + n_bytes]}
        at += n_bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for t in f.reader.tensors:
            values = np.ascontiguousarray(f.values(t, rng))
            out.write((bf16(values) if dtype == "bf16" else values).tobytes())


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
        json.dump(value, out, ensure_ascii=False)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file")
    p.add_argument("directory")
    p.add_argument("--dtype", choices=["bf16", "f32"], default="bf16")
    p.add_argument("--dither", type=int, metavar="SEED")
    p.add_argument("--tokenizer", metavar="DIR")
    a = p.parse_args()
    os.makedirs(a.directory, exist_ok=True)
    f = File(a.file)
    text = tokenizer(f)
    if a.tokenizer:
        shutil.copy(os.path.join(a.tokenizer, "tokenizer.json"), a.directory)
    elif text:
        write_json(a.directory, "tokenizer.json", text)
    else:
        raise SystemExit(f"{a.file}: its tokenizer is not built here; give --tokenizer")
    write_json(a.directory, "config.json", config(f) | {"torch_dtype": {"bf16": "bfloat16", "f32": "float32"}[a.dtype]})
    write_json(a.directory, "tokenizer_config.json", tokenizer_config(f))
    write_json(a.directory, "generation_config.json", {"eos_token_id": f.key("tokenizer.ggml.eos_token_id")})
    write_weights(os.path.join(a.directory, "model.safetensors"), f, a.dtype, a.dither)


if __name__ == "__main__":
    main()
