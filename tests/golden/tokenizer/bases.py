# SPDX-License-Identifier: MIT
"""Small vocabularies trained on text of our own, and the components hung around them.

A fixture is a base (vocabulary and merges) plus an overlay: the members of tokenizer.json that make
it one layout or another. make() joins the two.
"""
import copy
import json

from charsmap import RULES, charsmap

TEXT = [
    "The river runs past the old mill, and the miller's daughter counts the boats that come and go.",
    "She writes their numbers in a book: 7 in spring, 12 in summer, 31 in autumn, none in winter.",
    "In winter the water is hard as stone, and the children walk where the boats went before.",
    "It's said that the mill will be sold; they'll miss it, I'm sure, we've all been there.",
    "Über den Fluß führt eine schmale Brücke, die im Frühjahr manchmal unter Wasser steht.",
    "Le meunier répète souvent que l'été prochain sera différent, mais rien ne change jamais.",
    "Мельник считает лодки и пишет числа в книгу, а дети смотрят на воду.",
    "水車小屋のそばを川が流れている。船が来ては去っていく。",
    "河水流过老磨坊,磨坊主的女儿数着来来往往的船。",
    "def count(boats):\n    total = 0\n    for boat in boats:\n        total += boat.size\n    return total\n",
    "if (x >= 10 && y != 3) { return x * y; } // twice\n\n\n",
    "the the the and and of of in in to to a a is is that that it it for for was was on on",
]

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def special(id, content, **flags):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True, **flags}


def regex(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def literal(text, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"String": text}, "behavior": behavior, "invert": invert}


def pre(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def norm(*parts):
    return {"type": "Sequence", "normalizers": list(parts)}


def dec(*parts):
    return {"type": "Sequence", "decoders": list(parts)}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def template(before, behind=()):
    names = list(dict.fromkeys([*before, *behind]))
    piece = [{"SpecialToken": {"id": n, "type_id": 0}} for n in [*before, *behind]]
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    single = piece[:len(before)] + [sequence] + piece[len(before):]
    return {"type": "TemplateProcessing", "single": single,
            "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {n: {"id": n, "ids": [i], "tokens": [n]} for i, n in enumerate(names)}}


def metaspace(scheme, split=True, mark="▁"):
    return {"type": "Metaspace", "replacement": mark, "prepend_scheme": scheme, "split": split}


KINDS = ["bytes", "marks", "wordpiece", "unigram"]


def train(kind):
    """The model member of a small tokenizer: "bytes" (BPE, byte alphabet), "marks" (BPE, space marks, byte
    tokens), "wordpiece" or "unigram"."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
    if kind == "bytes":
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=520, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                      special_tokens=["<|s|>", "<|e|>"], show_progress=False)
    elif kind == "wordpiece":
        t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=420, special_tokens=BERT_SPECIAL, show_progress=False)
    elif kind == "unigram":
        t = Tokenizer(models.Unigram())
        t.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=330, special_tokens=XLMR_SPECIAL, unk_token="<unk>",
                                          show_progress=False)
    else:
        t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        marks = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
        trainer = trainers.BpeTrainer(vocab_size=520, special_tokens=marks, limit_alphabet=70, show_progress=False)
    t.train_from_iterator(TEXT, trainer)
    return json.loads(t.to_str())["model"]


BYTES_ADDED = [special(0, "<|s|>"), special(1, "<|e|>")]
MARKS_ADDED = [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")]
MARKS_DECODER = dec(replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                    {"type": "Strip", "content": " ", "start": 1, "stop": 0})
LLAMA2_NORM = norm({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"))


BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
XLMR_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
BERT_NORM = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
             "lowercase": True}
PRECOMPILED = {"type": "Precompiled", "precompiled_charsmap": charsmap(RULES)}


def pair_template(cls, sep, middle, second):
    """Of two texts: cls A middle B sep, with B and what is behind it of type `second`."""
    def piece(name, kind):
        return {"SpecialToken": {"id": name, "type_id": kind}}

    def sequence(name, kind):
        return {"Sequence": {"id": name, "type_id": kind}}

    ids = {**{n: i for i, n in enumerate(BERT_SPECIAL)}, **{n: i for i, n in enumerate(XLMR_SPECIAL)}}
    return {"type": "TemplateProcessing", "single": [piece(cls, 0), sequence("A", 0), piece(sep, 0)],
            "pair": [piece(cls, 0), sequence("A", 0), *[piece(n, 0) for n in middle], sequence("B", second),
                     piece(sep, second)],
            "special_tokens": {n: {"id": n, "ids": [ids[n]], "tokens": [n]} for n in {cls: 0, sep: 0}}}


def around(base):
    """The members of tokenizer.json that a base has without an overlay."""
    if base == "bytes":
        return {"added_tokens": BYTES_ADDED, "pre_tokenizer": BYTE_LEVEL, "decoder": BYTE_LEVEL}
    if base == "marks":
        return {"added_tokens": MARKS_ADDED, "normalizer": LLAMA2_NORM, "decoder": MARKS_DECODER}
    if base == "wordpiece":
        return {"added_tokens": [special(i, n) for i, n in enumerate(BERT_SPECIAL)], "normalizer": BERT_NORM,
                "pre_tokenizer": {"type": "BertPreTokenizer"},
                "post_processor": pair_template("[CLS]", "[SEP]", ["[SEP]"], 1),
                "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}
    return {"added_tokens": [special(i, n) for i, n in enumerate(XLMR_SPECIAL)], "normalizer": PRECOMPILED,
            "pre_tokenizer": pre({"type": "WhitespaceSplit"}, metaspace("always")),
            "post_processor": pair_template("<s>", "</s>", ["</s>", "</s>"], 0), "decoder": metaspace("always")}


def make(bases, base, overlay):
    """A whole tokenizer.json as a dictionary."""
    model = copy.deepcopy(bases[base])
    out = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None,
           "post_processor": None, **copy.deepcopy(around(base)), "model": model}
    overlay = copy.deepcopy(overlay)
    model.update(overlay.pop("model", {}))
    out["added_tokens"] += overlay.pop("more_tokens", [])
    if "more_scores" in overlay:
        model["vocab"] += overlay.pop("more_scores")
    if overlay.pop("pair_merges", False):
        model["merges"] = [m if isinstance(m, list) else m.split(" ") for m in model["merges"]]
    if overlay.pop("string_merges", False):
        model["merges"] = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    for token in overlay.pop("without", []):
        del model["vocab"][token]
        model["merges"] = [m for m in model["merges"] if token not in m and "".join(m) != token]
    out.update(overlay)
    return out
