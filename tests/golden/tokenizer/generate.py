#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the fixtures beside it: bases.json (trained vocabularies) and cases.jsonl (what the published
tokenizers library answers for every layout). Needs: pip install tokenizers==0.22.1

    python3 generate.py
"""
import json
import os
import random

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer  # noqa: E402
from tokenizers.decoders import DecodeStream  # noqa: E402

import bases  # noqa: E402
from compare import random_text, reference_decode, reference_encode  # noqa: E402
from layouts import LAYOUTS, PAIRED  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
FIXED = ["", " ", "The mill", " the river ", "It's 12345 o'clock, they'LL see", "a\n\n  b \t c\r\n", "Über den Fluß",
         "水車小屋 3隻", "e\u0301 \ufb01 \u1112\u1161\u11ab", "<|s|>word<|e|> [L] x [R]  y<s>", "été Plain the end  wordy",
         "x\u0004\u0300\ufeff\u0085\u180e", "👩‍👩‍👧 ½ Ⅷ ٣", "def f(x):\n    return {x}  # twice\n", "\u0897\U00010d50\U000323af\U0001ccf0"]


def compact(value):
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def stream(t, ids, skip):
    """What the reference's incremental decoder gives out after each token, or None where it fails."""
    decoder = DecodeStream(skip_special_tokens=skip)
    try:
        return [decoder.step(t, i) for i in ids]
    except BaseException as e:  # it may refuse, and it may panic, which is no Exception
        if isinstance(e, (KeyboardInterrupt, SystemExit)):
            raise
        return None


def decode_cases(t, encoded, rng):
    out = []
    lists = [ids for ids in encoded if 2 < len(ids) < 40][:2]
    lists.append([rng.randrange(t.get_vocab_size()) for _ in range(8)])
    for i, ids in enumerate(lists):
        skip = i % 2 == 1
        text = reference_decode(t, {"ids": ids, "skip_special": skip})
        if text is None or ("\ufffd" in text and "ByteFallback" in t.to_str()):
            continue
        out.append([ids, skip, text, stream(t, ids, skip)])
    return out


def layout_cases(name, t, rng, texts):
    encode, picked = [], rng.sample(range(len(texts)), 9)
    for k, i in enumerate(picked):
        request = {"text": texts[i], "add_special": k % 3 == 0, "parse_special": k % 4 != 1}
        ids = reference_encode(t, request)
        if ids is not None:
            encode.append([i, request["add_special"], request["parse_special"], ids])
    case = {"name": name, "encode": encode, "decode": decode_cases(t, [e[3] for e in encode], rng)}
    if name in PAIRED:
        t.encode_special_tokens = False
        case["pairs"] = []
        for i, j in [(0, 2), *([rng.randrange(len(texts)) for _ in range(2)] for _ in range(3))]:
            e = t.encode(texts[i], texts[j])
            case["pairs"].append([i, j, e.ids, e.type_ids.count(0)])
    return case


def load_bases():
    """The trained vocabularies; only those that the file lacks are trained (the trainer breaks ties at random)."""
    path, trained = f"{HERE}/bases.json", {}
    if os.path.exists(path):
        with open(path, encoding="ascii") as f:
            trained = json.load(f)
    trained = {kind: trained.get(kind) or bases.train(kind) for kind in bases.KINDS}
    with open(path, "w", encoding="ascii") as f:
        f.write(compact(trained) + "\n")
    return trained


def main():
    rng = random.Random(20)
    trained = load_bases()
    texts = FIXED + [random_text(rng)[:90] for _ in range(45)]
    with open(f"{HERE}/cases.jsonl", "w", encoding="ascii") as f:
        f.write(compact({"texts": texts}) + "\n")
        for name, (base, overlay) in LAYOUTS.items():
            t = Tokenizer.from_str(json.dumps(bases.make(trained, base, overlay)))
            f.write(compact(layout_cases(name, t, rng, texts)) + "\n")


if __name__ == "__main__":
    main()
