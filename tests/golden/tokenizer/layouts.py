# SPDX-License-Identifier: MIT
"""The layouts of the fixtures: name -> (base, overlay). Each component occurs, with all its settings."""
from bases import *  # noqa: F403  (the vocabulary of this table)

ODD = [special(520, "[L]", lstrip=True), special(521, "[R]", rstrip=True),
       special(522, "[LR]", lstrip=True, rstrip=True),
       special(523, "word", single_word=True, special=False),
       special(524, "Plain", normalized=True, special=False),
       special(525, "été", normalized=True, special=False),
       special(526, "the end", special=False, rstrip=True),
       special(527, "<|s"), special(528, "<|s|><|e|>"), special(529, "[N]", normalized=True)]
WORDS = dict(decoder=None, pre_tokenizer=pre({"type": "Whitespace"}, BYTE_LEVEL))

LAYOUTS = {
    "gpt2": ("bytes", {}),
    "gpt2-prefix": ("bytes", {"pre_tokenizer": {**BYTE_LEVEL, "add_prefix_space": True}}),
    "gpt2-no-regex": ("bytes", {"pre_tokenizer": {**BYTE_LEVEL, "use_regex": False}}),
    "smollm": ("bytes", {"pre_tokenizer": pre({"type": "Digits", "individual_digits": True}, BYTE_LEVEL)}),
    "digits-runs": ("bytes", {"pre_tokenizer": pre({"type": "Digits", "individual_digits": False}, BYTE_LEVEL)}),
    "llama3": ("bytes", {"pre_tokenizer": pre(regex(LLAMA3), {**BYTE_LEVEL, "use_regex": False}),
                         "model": {"ignore_merges": True}, "pair_merges": True,
                         "post_processor": {"type": "Sequence", "processors": [BYTE_LEVEL, template(["<|s|>"])]}}),
    "qwen2": ("bytes", {"pre_tokenizer": pre(regex(QWEN2), {**BYTE_LEVEL, "use_regex": False}),
                        "normalizer": {"type": "NFC"}, "string_merges": True,
                        "model": {"continuing_subword_prefix": "", "end_of_word_suffix": ""},
                        "post_processor": BYTE_LEVEL}),
    "gpt2-as-split": ("bytes", {"pre_tokenizer": pre(regex(GPT2, "Removed", True), {**BYTE_LEVEL, "use_regex": False})}),
    "tekken": ("bytes", {"pre_tokenizer": pre(regex(TEKKEN), {**BYTE_LEVEL, "use_regex": False}),
                         "model": {"ignore_merges": True}}),
    "bytes-then-digits": ("bytes", {"pre_tokenizer": pre({**BYTE_LEVEL, "add_prefix_space": True},
                                                         {"type": "Digits", "individual_digits": True})}),
    "template-around-2": ("bytes", {"post_processor": template([], ["<|s|>"])}),
    "no-splitter": ("bytes", {"pre_tokenizer": None}),
    "words": ("bytes", WORDS),
    "white-split": ("bytes", {"pre_tokenizer": pre({"type": "WhitespaceSplit"}, BYTE_LEVEL)}),
    "missing-bytes": ("bytes", {"without": ["Ģ", "x", "Ċ"]}),
    "missing-bytes-unk": ("bytes", {"without": ["Ģ", "x"], "model": {"unk_token": "<|e|>"}}),
    "missing-bytes-fused": ("bytes", {"without": ["Ģ", "x"], "model": {"unk_token": "<|e|>", "fuse_unk": True}}),
    "odd-added": ("bytes", {"more_tokens": ODD}),
    "odd-added-lower": ("bytes", {"more_tokens": ODD, "normalizer": norm({"type": "NFD"}, {"type": "Lowercase"})}),
    "odd-added-strip": ("bytes", {"more_tokens": ODD,
                                  "normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}}),
    "template-around": ("bytes", {"post_processor": {"type": "Sequence", "processors": [
        BYTE_LEVEL, template(["<|s|>"], ["<|e|>", "<|s|>"])]}}),
    "nfd": ("bytes", {"normalizer": {"type": "NFD"}}),
    "nfkc": ("bytes", {"normalizer": {"type": "NFKC"}}),
    "nfkd-lower": ("bytes", {"normalizer": norm({"type": "NFKD"}, {"type": "Lowercase"})}),
    "lower": ("bytes", {"normalizer": {"type": "Lowercase"}}),
    "strip-left": ("bytes", {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": False}}),
    "strip-right": ("bytes", {"normalizer": {"type": "Strip", "strip_left": False, "strip_right": True}}),
    "replace-regex": ("bytes", {"normalizer": norm(replace(r"\s+", " ", "Regex"), replace("ae", "ä"),
                                                   replace(r"(?<=\d),(?=\d)", "", "Regex"))}),
    "replace-empty": ("marks", {"normalizer": norm(replace("^", "▁", "Regex"), replace(" ", "▁"))}),
    "llama2": ("marks", {"post_processor": template(["<unk>", "<s>"])}),
    "llama2-normalized-special": ("marks", {"added_tokens": [
        special(0, "<unk>", normalized=True), special(1, "<s>", normalized=True), special(2, "</s>", normalized=True)]}),
    "metaspace-always": ("marks", {"normalizer": None, "pre_tokenizer": metaspace("always"),
                                   "decoder": metaspace("always")}),
    "metaspace-first": ("marks", {"normalizer": None, "pre_tokenizer": metaspace("first"),
                                  "decoder": metaspace("first")}),
    "metaspace-never": ("marks", {"normalizer": None, "pre_tokenizer": metaspace("never", False),
                                  "decoder": metaspace("never")}),
    "metaspace-stripped": ("marks", {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": False},
                                     "pre_tokenizer": metaspace("first", False)}),
    "metaspace-after-split": ("marks", {"normalizer": None,
                                        "pre_tokenizer": pre(regex(r"\d"), metaspace("first"))}),
    "metaspace-legacy": ("marks", {"normalizer": None, "pre_tokenizer": {
        "type": "Metaspace", "replacement": "▁", "add_prefix_space": True, "str_rep": "▁"}}),
    "no-fallback": ("marks", {"model": {"byte_fallback": False}}),
    "no-fallback-no-fuse": ("marks", {"model": {"byte_fallback": False, "fuse_unk": False}}),
    "no-fallback-no-unk": ("marks", {"model": {"byte_fallback": False, "unk_token": None}}),
    "some-fallback": ("marks", {"without": ["<0xE3>", "<0xD0>"]}),
    "some-fallback-no-fuse": ("marks", {"without": ["<0xE3>", "<0xD0>"], "model": {"fuse_unk": False}}),
    "whole-marks": ("marks", {"model": {"ignore_merges": True}, "pre_tokenizer": metaspace("always", False)}),
    "decode-plain": ("marks", {"decoder": dec(replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"})}),
    "decode-none": ("marks", {"decoder": None}),
    "decode-text-ops": ("marks", {"decoder": dec({"type": "ByteFallback"}, {"type": "Fuse"}, replace("▁▁", "="),
                                                 replace("▁", " "),
                                                 {"type": "Strip", "content": " ", "start": 2, "stop": 1})}),
    "decode-token-ops": ("marks", {"decoder": dec({"type": "Strip", "content": "▁", "start": 1, "stop": 1},
                                                  replace(r"[aeiou]+", "*", "Regex"), {"type": "ByteFallback"},
                                                  replace("n", "N"))}),
    "decode-bytes-strip": ("bytes", {"decoder": dec(BYTE_LEVEL, {"type": "Strip", "content": " ", "start": 1, "stop": 1})}),
    "decode-bytes-null": ("bytes", {"decoder": None}),
}
for _b in BEHAVIORS:
    LAYOUTS[f"split-{_b}"] = ("bytes", {"pre_tokenizer": pre(regex(r"\s|\d", _b), {**BYTE_LEVEL, "use_regex": False})})
    LAYOUTS[f"split-invert-{_b}"] = ("bytes", {"pre_tokenizer": pre(regex(r"\p{L}+", _b, True), {**BYTE_LEVEL, "use_regex": False})})
    LAYOUTS[f"split-empty-{_b}"] = ("bytes", {"pre_tokenizer": pre(regex(r"a*", _b), {**BYTE_LEVEL, "use_regex": False})})
    LAYOUTS[f"split-string-{_b}"] = ("bytes", {"pre_tokenizer": pre(literal("the", _b), {**BYTE_LEVEL, "use_regex": False})})
    LAYOUTS[f"punctuation-{_b}"] = ("bytes", {"pre_tokenizer": pre({"type": "Punctuation", "behavior": _b}, BYTE_LEVEL)})

# Patterns whose translation is worth a case: the meaning of Ruby syntax, not of Perl's.
PATTERNS = {
    "hex": r"\h+", "not-white-class": r"[^\S\n]+", "mark-class": r"[\p{L}\p{M}']+", "not-letter-class": r"[\P{L}\n]+",
    "han": r"\p{Han}+", "scripts": r"[\p{Hiragana}\p{Katakana}ー]+|\p{Cyrillic}+", "word": r"\w+", "not-word": r"\W+",
    "boundary": r"\b", "no-boundary": r"\B", "vertical": r"\v|\t", "line": r"^.*$", "multi": r"(?m:a.b)",
    "possessive": r"\p{L}++\d|\p{L}*+", "interval-plus": r"\d{2}+", "from-zero": r"\d{,2}x", "lazy": r"a.+?e|o{1,2}?",
    "brace": r"a{x}|{", "atomic": r"(?>the|then)x|th", "behind": r"(?<=\s)\w|(?<!\w)\d", "unicode": r"\u00e9|\x{6cb3}|\x41",
    "caseless": r"(?i:the|k|[a-c]x)", "caseless-all": r"(?i)RIVER|m?ill", "digit": r"\d+", "category": r"\p{Lu}\p{Ll}*|\p{Sc}|\p{^L}",
    "anchors": r"\AThe|\.\z|go\.\Z", "end-of-line": r"[,.;]$", "alternatives": r"a|ab|abc|(?:b|c)+d?", "dot": r".", "group": r"(a(b)?)+",
    "word-class": r"[\w-]+|[^\W\d]",
}
for _n, _p in PATTERNS.items():
    LAYOUTS[f"pattern-{_n}"] = ("bytes", {"pre_tokenizer": pre(regex(_p), {**BYTE_LEVEL, "use_regex": False}),
                                          "model": {"ignore_merges": True}})

# Models of encoders.
BERT = dict(zip(["clean_text", "handle_chinese_chars", "strip_accents", "lowercase"], [False] * 4), type="BertNormalizer")
BERT_PROCESSING = {"sep": ["[SEP]", 3], "cls": ["[CLS]", 2], "type": "BertProcessing"}
ROBERTA_PROCESSING = {"sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True, "add_prefix_space": False,
                      "type": "RobertaProcessing"}
LAYOUTS["bert"] = ("wordpiece", {})
LAYOUTS["bert-plain"] = ("wordpiece", {"normalizer": None, "pre_tokenizer": None, "decoder": None,
                                       "post_processor": BERT_PROCESSING})
for _n in ["clean_text", "handle_chinese_chars", "strip_accents", "lowercase"]:
    LAYOUTS[f"bert-{_n}"] = ("wordpiece", {"normalizer": {**BERT, _n: True}})
LAYOUTS["bert-short-words"] = ("wordpiece", {"model": {"max_input_chars_per_word": 5},
                                             "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False}})
LAYOUTS["bert-no-prefix"] = ("wordpiece", {"model": {"continuing_subword_prefix": ""}, "post_processor": ROBERTA_PROCESSING})
LAYOUTS["xlmr"] = ("unigram", {})
LAYOUTS["xlmr-replace"] = ("unigram", {"normalizer": norm(PRECOMPILED, replace(" {2,}", " ", "Regex")),
                                       "pre_tokenizer": metaspace("always"), "post_processor": ROBERTA_PROCESSING})
LAYOUTS["unigram-plain"] = ("unigram", {"normalizer": None, "pre_tokenizer": None, "decoder": None, "post_processor": None})
LAYOUTS["unigram-first"] = ("unigram", {"pre_tokenizer": metaspace("first", False)})
LAYOUTS["unigram-bytes"] = ("unigram", {"more_scores": [[f"<0x{i:02X}>", -20.0] for i in range(256)], "model": {"byte_fallback": True}})
LAYOUTS["unigram-some-bytes"] = ("unigram", {"more_scores": [[f"<0x{i:02X}>", 0] for i in range(0xC0)], "model": {"byte_fallback": True}})
LAYOUTS["unigram-ties"] = ("unigram", {"model": {"vocab": [["<s>", 0.0], ["<pad>", 0], ["</s>", 0], ["<unk>", -1e1]] + [
    [a, -float(len(a))] for a in ["▁", "a", "e", "t", "h", "r", "he", "th", "the", "er", "re", "▁t", "▁th", "e▁", "r▁", "ea", "at"]]}})
LAYOUTS["unigram-high"] = ("unigram", {"model": {"vocab": [["<unk>", 500.0]] + [
    [a, 100.0 + i / 3] for i, a in enumerate(["▁", "a", "e", "t", "th", "the", "水車", "xé", "é12345"])], "unk_id": 0},
    "added_tokens": [], "post_processor": None})

# Layouts whose fixtures hold pairs too.
PAIRED = {"bert", "bert-plain", "bert-no-prefix", "xlmr", "xlmr-replace", "unigram-plain"}
