# SPDX-License-Identifier: MIT
"""A model that writes a given text: its weights say for each token which one comes next. Standard library only.

The attention and the MLP are zero, so the logits depend on the last token alone; a token that is not of the text
leads to its beginning. So no piece may occur twice, and each has two bytes or more, or is a marker. A prompt that
ends with a cue, a marker that the template writes, is answered with the text of that cue.
"""
import json
import os
import random
import re
import struct
import tempfile

from tiny_models import pack, write_file

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
EOS = 2


def byte_alphabet():
    """byte -> the character that spells it in a byte-level vocabulary"""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


ALPHABET = byte_alphabet()


def cut(text, seed, markers=()):
    """Unique pieces of a text, cut at random anywhere, inside characters too; markers are pieces of their own."""
    rng, pieces = random.Random(seed), []
    for part in re.split("(" + "|".join(map(re.escape, markers)) + ")", text) if markers else [text]:
        data, at = part.encode(), 0
        while at < len(data):
            n = len(data) if part in markers else rng.randint(2, 9)
            while at + n < len(data) and (len(data) - at - n == 1 or data[at:at + n] in pieces):
                n += 1
            if data[at:at + n] in pieces:  # the rest is one that came before
                n += len(pieces[-1])
                at -= len(pieces.pop())
            pieces.append(data[at:at + n])
            at += n
    return pieces


def bf16(x):
    return struct.pack("<H", struct.unpack("<I", struct.pack("<f", x))[0] >> 16)


def matrix(rows, columns, ones, value=1.0):
    """rows x columns of zeros but for the places (row, column)."""
    data = bytearray(2 * rows * columns)
    for row, column in ones:
        at = 2 * (row * columns + column)
        data[at:at + 2] = bf16(value)
    return bytes(data)


class ScriptedModel:
    """The directory of a model that answers every prompt with these pieces; markers are tokens that are added.

    cues: for each marker of them that ends a prompt, the pieces of the answer.
    """

    def __init__(self, pieces, template, markers=(), context=4096, cues=None):
        self.texts = {None: pieces, **(cues or {})}
        self.pieces = sum(self.texts.values(), [])
        assert len(set(self.pieces)) == len(self.pieces), "a piece occurs twice"
        self.template, self.markers, self.context = template, [*markers, *(cues or {})], context

    def __enter__(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.dir = self.tmp.name
        self.write_tokenizer()
        self.write_weights()
        write_file(self.path("chat_template.jinja"), self.template)
        return self

    def __exit__(self, *_):
        self.tmp.cleanup()

    def path(self, name):
        return os.path.join(self.dir, name)

    def write_tokenizer(self):
        added = SPECIAL + self.markers
        self.id_of = {name.encode(): i for i, name in enumerate(added)}
        vocab = {name: i for i, name in enumerate(added)}
        spelled = [bytes([b]) for b in range(256)] + [p for p in self.pieces if p not in self.id_of]
        for piece in spelled:
            name = "".join(ALPHABET[b] for b in piece)
            self.id_of[piece] = vocab[name] = len(vocab)
        self.n_ids = len(vocab)
        tokens = [{"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
                   "normalized": False, "special": name in SPECIAL} for i, name in enumerate(added)]
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        write_file(self.path("tokenizer.json"), {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                      "ignore_merges": False, "vocab": vocab, "merges": []}})
        write_file(self.path("tokenizer_config.json"), {"eos_token": SPECIAL[EOS], "bos_token": SPECIAL[1]})

    def write_weights(self):
        state, following = {}, []  # a token's state is a column of its own; 0: the beginning of the first text
        for cue, pieces in self.texts.items():
            if cue:
                state[self.id_of[cue.encode()]] = len(following)
            for piece in pieces:
                following.append((self.id_of[piece], len(following)))
                state[self.id_of[piece]] = len(following)
            following.append((EOS, len(following)))
        n = (len(following) + 63) // 64 * 64
        embed = [(token, state.get(token, 0)) for token in range(self.n_ids)]
        square, vector = (n, n), b"".join(bf16(1.0) for _ in range(n))
        layer = "model.layers.0."
        parts = {"model.embed_tokens.weight": ((self.n_ids, n), matrix(self.n_ids, n, embed)),
                 "lm_head.weight": ((self.n_ids, n), matrix(self.n_ids, n, following, 16.0)),
                 "model.norm.weight": ((n,), vector), layer + "input_layernorm.weight": ((n,), vector),
                 layer + "post_attention_layernorm.weight": ((n,), vector)}
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                     "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
            parts[f"{layer}{name}.weight"] = (square, matrix(n, n, []))
        header, data = {}, b""
        for name, (shape, bytes_) in parts.items():
            header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [len(data), len(data) + len(bytes_)]}
            data += bytes_
        write_file(self.path("model.safetensors"), pack(header, data))
        write_file(self.path("config.json"), {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": n, "intermediate_size": n,
            "num_hidden_layers": 1, "num_attention_heads": n // 32, "num_key_value_heads": n // 32,
            "vocab_size": self.n_ids, "max_position_embeddings": self.context, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": 1,
            "eos_token_id": EOS, "torch_dtype": "bfloat16"})


# A tool loop: a call in the form of Hermes, then a text behind the result.
LOOP_TEMPLATE = """{% if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or '' }}{% for c in m.tool_calls %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if messages[-1].role == 'tool' %}<|answer|>{% endif %}{% endif %}"""
LOOP_TEXT = "Together that is five."


def loop_model(name="add", arguments='{"a": 2, "b": 3}'):
    """A model that calls a tool, and answers LOOP_TEXT if a result ends the prompt."""
    markers = ["<tool_call>", "</tool_call>"]
    call = cut(f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>', 1, markers)
    return ScriptedModel(call, LOOP_TEMPLATE, markers, 16384, {"<|answer|>": cut(LOOP_TEXT, 1)})
