#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares `hearth-filter tokenize` with the published tokenizers library on random text, layout by layout.

    compare.py [--seed N] [--texts N] [--only NAME] [--random N | --patterns N] [--model DIR ...]

HEARTH_BUILD_ROOT names the build folder. With --model the tokenizer.json of those directories is compared instead
of the layouts, with --random N layouts whose components are drawn at random (what the program refuses
is counted), with --patterns N a Split by random regular expressions. Needs the PyPI package tokenizers. Exit status 1 and the first differences when something
differs.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer, decoders  # noqa: E402

import bases  # noqa: E402
from layouts import LAYOUTS  # noqa: E402

FILTER = os.path.join(os.environ.get("HEARTH_BUILD_ROOT", "build"), "tests", "hearth-filter")

CHARS = ["a", "e", "x", "T", "Q", "s", "ſ", "K", "ß", "İ", "é", "e\u0301", "\u0301", "\u0316\u0301", "ä", "Ǆ", "ǅ", "ʰ", "ﬁ", "½",
         "²", "Ⅷ", "٣", "0", "1", "7", "12345", " ", "  ", "\t", "\n", "\r\n", "\r", "\u0085", "\u00a0", "\u180e", "\u200b", "\u200d",
         "\u2028", "\u3000", "\ufeff", "\x00", "\x1f", "\x0b", "'", "'s", "'LL", "'Re", "'ſ", "’", "!", "?!", "...", "_", "-", "$", "€",
         "+", "水", "河", "が", "か\u3099", "カ", "ー", "한", "\u1112\u1161\u11ab", "\u1112\u1161", "ก็", "नि", "ا", "Ж", "ж", "👩‍👩‍👧",
         "\U0001f1e9", "\U000e0041", "\U00010400", "\ue000", "\uffff", "\ufffd", "▁", "▁▁", "<0x41>", "\u0378", "\ua7cb", "\U00010d50",
         "\U00010d40", "\u0897", "\U000323af", "\U0001ccf0", "\u1b4e", "\U00011f43", "\uab69", "\u32ff", "\U0001fbf3", "\u0344", "\u0958",
         "\u2126", "\ufb1d", "\u1e9b\u0323", "\u0f73", "\u09c7\u09be", "{", "}", "/", "a1x", "{x}"]
TOKENS = ["<|s|>", "<|e|>", "<|s|><|e|>", "<|s", "<s>", "</s>", "<unk>", "[L]", "[R]", "[LR]", "word", "Plain", "été", "the end", "[N]", " word ",
          "plain", "▁<s>", "the", "mill", "The river", "count(boats)"]


def random_text(rng):
    parts = []
    for _ in range(rng.randrange(1, 25)):
        kind = rng.random()
        if kind < 0.45:
            parts.append(rng.choice(CHARS))
        elif kind < 0.6:
            parts.append(rng.choice(TOKENS))
        elif kind < 0.9:
            words = rng.choice(bases.TEXT).split(" ")
            begin = rng.randrange(len(words))
            parts.append(" ".join(words[begin:begin + rng.randrange(1, 5)]))
        else:
            parts.append(rng.choice(CHARS) * rng.randrange(2, 12))
    return "".join(parts)


def random_cp_text(rng):
    out = []
    for _ in range(rng.randrange(1, 30)):
        c = rng.choice([rng.randrange(0x80), rng.randrange(0x3000), rng.randrange(0x20000), rng.randrange(0x110000)])
        out.append(" " if 0xD800 <= c <= 0xDFFF else chr(c))
    return "".join(out)


SCRIPTS = [(0x20, 0x7e), (0xa0, 0x24f), (0x370, 0x3ff), (0x400, 0x4ff), (0x5d0, 0x5ea), (0x600, 0x6ff), (0x900, 0x97f), (0xe00, 0xe5b),
           (0x1100, 0x11ff), (0x1e00, 0x1fff), (0x2000, 0x206f), (0x20a0, 0x214f), (0x3040, 0x30ff), (0x4e00, 0x4fff), (0xac00, 0xacff),
           (0xfb00, 0xfdff), (0xfe00, 0xffef), (0x1f300, 0x1f6ff), (0x1d400, 0x1d7ff), (0xf900, 0xfaff)]
JOINERS = ["\u0301", "\u0308", "\u0323", "\u0327", "\u0483", "\u05b7", "\u064b", "\u093c", "\u094d", "\u0e31", "\u200d", "\ufe0f", "\u3099",
           "\uff9e", "\u20e3", "\U0001f3fd", "\U0001f1eb", "\u00a9", "\u00ae", "\u0600", "\u1161", "\u11a8", "\r\n", "\u200c", "\u00ad"]


def random_cluster_text(rng):
    """Characters of one script or two, many of them with marks and joiners behind them."""
    scripts, out = rng.sample(SCRIPTS, 2), []
    for _ in range(rng.choice([5, 20, 150])):
        out.append(chr(rng.randint(*rng.choice(scripts))))
        while rng.random() < 0.3:
            out.append(rng.choice(JOINERS))
        if rng.random() < 0.1:
            out.append(rng.choice([" ", "  ", "\t", "\u3000", "\u2009", "\n"]))
    return "".join(out)


def ask(model, requests):
    text = "".join(json.dumps(r) + "\n" for r in requests)
    done = subprocess.run([FILTER, "tokenize", "--model", model], input=text.encode(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
    if done.returncode:
        return [{"error": done.stderr.decode().strip()}] * len(requests)
    return [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]


def spells_special(t, request):
    """Whether the reference's Unigram reads a special token out of plain text, which the program never does."""
    if type(t.model).__name__ != "Unigram":
        return False
    text = request["text"]
    normalized = t.normalizer.normalize_str(text) if t.normalizer else text
    contents = [a.content for a in t.get_added_tokens_decoder().values() if a.special]
    return any(c in normalized and not (request["parse_special"] and c in text) for c in contents)


def reference_encode(t, request):
    """The reference's ids, or None where it panics, as it does on some texts, or spells a special token."""
    if spells_special(t, request):
        return None
    t.encode_special_tokens = not request["parse_special"]
    try:
        return t.encode(request["text"], add_special_tokens=request["add_special"]).ids
    except BaseException as e:  # its panics are no Exception
        if type(e).__name__ != "PanicException":
            raise
        return None


def reference_decode(t, request):
    """The reference's text, or None where it panics."""
    try:
        return t.decode(request["ids"], skip_special_tokens=request["skip_special"])
    except BaseException as e:
        if type(e).__name__ != "PanicException":
            raise
        return None


def compare(name, model, t, rng, n_texts):
    makers = rng.choices([random_text, random_cp_text, random_cluster_text], [0.6, 0.2, 0.2], k=n_texts)
    texts = [make(rng) for make in makers]
    requests = [{"text": x, "add_special": rng.random() < 0.3, "parse_special": rng.random() < 0.8} for x in texts]
    failures = []
    wanted = [reference_encode(t, r) for r in requests]
    for r, w, a in zip(requests, wanted, ask(model, requests)):
        if w is not None and a.get("ids") != w and "takes too long" not in a.get("error", ""):
            failures.append(("encode", r, w, a))
    size = t.get_vocab_size()
    ids = [w for w in wanted if w is not None] + [[rng.randrange(size + 3) for _ in range(rng.randrange(12))] for _ in range(n_texts // 3)]
    requests = [{"ids": x, "skip_special": rng.random() < 0.5} for x in ids]
    lossy_is_advice = "ByteFallback" in t.to_str().split('"decoder"')[1][:1000]
    for r, a in zip(requests, ask(model, requests)):
        w = reference_decode(t, r)
        if w is None:
            continue
        joined = "".join(p or "" for p in a.get("pieces", [])) + a.get("tail", "")
        if joined != a.get("text") or (a["text"] != w and not (lossy_is_advice and "\ufffd" in w)):
            failures.append(("decode", r, w, a))
    for kind, r, w, a in failures[:3]:
        print(f"{name}: {kind}\n  {json.dumps(r)}\n  wanted {json.dumps(w)[:600]}\n  got    {json.dumps(a)[:600]}")
        if kind == "encode" and "ids" in a:
            print("  ", [t.id_to_token(i) for i in w][:60], "\n  ", [t.id_to_token(i) for i in a["ids"]][:60])
    panics = wanted.count(None)
    if panics:
        print(f"{name}: the reference panics on {panics} of {len(texts)} texts, or reads a special token in them")
    return len(failures), len(texts) - panics + len(ids)


def random_layout(rng):
    """A base and an overlay whose components are taken from the layouts and put in sequence."""
    def parts(member, key):
        out = []
        for _, overlay in LAYOUTS.values():
            part = overlay.get(member)
            out += part[key] if part and part["type"] == "Sequence" else [part] if part else []
        # inserted before the first character, the reference panics on most that follows
        return [p for p in out if p.get("pattern") != {"Regex": "^"}]

    base = rng.choice(["bytes", "marks"])
    overlay = {}
    for member, key, default in (("normalizer", "normalizers", 0.5), ("pre_tokenizer", "pretokenizers", 0.2),
                                 ("decoder", "decoders", 0.5)):
        if rng.random() < default:
            continue
        some = [rng.choice(parts(member, key)) for _ in range(rng.randrange(1, 4))]
        if member == "pre_tokenizer" and base == "bytes" and rng.random() < 0.8:
            some.append(bases.BYTE_LEVEL)
        overlay[member] = {"type": "Sequence", key: some}
    overlay["model"] = {"ignore_merges": rng.random() < 0.3, "fuse_unk": rng.random() < 0.5}
    if base == "marks":
        overlay["model"]["byte_fallback"] = rng.random() < 0.6
    else:
        overlay["more_tokens"] = rng.choice([[], LAYOUTS["odd-added"][1]["more_tokens"]])
    return base, overlay


ATOMS = ["a", "e", "t", "1", " ", r"\s", r"\S", r"\w", r"\W", r"\d", r"\D", r"\h", r"\p{L}", r"\p{N}", r"\P{L}", r"\p{Lu}",
         r"\p{Ll}", r"\p{P}", r"\p{S}", r"\p{M}", r"\p{Han}", r"\p{Z}", r"[^\s\p{L}]", r"[a-z\d]", r"[^\r\n]", r"[\S\n]",
         r"[^\W\d]", r"[\p{L}\p{M}\p{N}_]", ".", r"\n", r"\u00e9", r"\x{6c34}", "'", "the", "[er]", r"[^\p{L}\p{N}]",
         r"\p{Cyrillic}", "-", r"\.", r"[\-\.]", "[+-]"]
REPEATS = ["", "", "", "", "*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "+?", "??", "++", "*+", "?+", "{2,3}+", "{,2}", "{1,2}?"]


def random_pattern(rng, depth=0):
    """A regular expression, mostly one that both sides accept."""
    def term():
        kind = rng.random()
        if kind < 0.72 or depth > 2:
            return rng.choice(ATOMS) + rng.choice(REPEATS)
        if kind < 0.84:
            return rng.choice(["(", "(?:", "(?>", "(?m:", "(?i:"]) + random_pattern(rng, depth + 1) + ")" + rng.choice(REPEATS)
        if kind < 0.93:
            return rng.choice(["(?=", "(?!"]) + random_pattern(rng, depth + 1) + ")"
        if kind < 0.96:
            return rng.choice(["(?<=", "(?<!"]) + rng.choice(["a", r"\s", "[er]", r"\d", "th"]) + ")"
        return rng.choice(["^", "$", r"\b", r"\B", r"\A", r"\z", r"\Z"])

    return "|".join("".join(term() for _ in range(rng.choice([1, 1, 2, 3]))) for _ in range(rng.choice([1, 1, 1, 2, 3])))


def random_split(rng):
    split = bases.regex(random_pattern(rng), rng.choice(bases.BEHAVIORS), rng.random() < 0.3)
    return "bytes", {"pre_tokenizer": bases.pre(split, {**bases.BYTE_LEVEL, "use_regex": False}), "model": {"ignore_merges": True}}


def compare_random(args, trained):
    """Differences, comparisons; prints what was refused. Patterns that explode count as refused."""
    failed = total = refused = 0
    for i in range(args.random or args.patterns):
        rng = random.Random(f"{args.seed}.{i}")
        base, overlay = random_layout(rng) if args.random else random_split(rng)
        text = json.dumps(bases.make(trained, base, overlay))
        try:
            t = Tokenizer.from_str(text)
        except BaseException:
            continue
        with tempfile.TemporaryDirectory() as d:
            with open(f"{d}/tokenizer.json", "w", encoding="utf-8") as out:
                out.write(text)
            error = ask(d, [{"text": ""}])[0].get("error")
            if error:
                refused += 1
                print(f"random {i}: {error.split(': ', 2)[-1]}")
                continue
            f, n = compare(f"random {i} {json.dumps(overlay)[:1500]}", d, t, rng, args.texts)
        failed, total = failed + f, total + n
    print(f"{refused} of {args.random or args.patterns} refused")
    return failed, total


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--only")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--patterns", type=int, default=0)
    parser.add_argument("--model", nargs="*", default=[])
    args = parser.parse_args()
    failed = total = 0
    for d in args.model:
        with open(f"{d}/tokenizer.json", encoding="utf-8") as f:
            t = Tokenizer.from_str(f.read())
        f, n = compare(d, d, t, random.Random(args.seed), args.texts)
        print(f"{d}: {f} of {n} differ")
        failed, total = failed + f, total + n
    trained = {} if args.model else {kind: bases.train(kind) for kind in bases.KINDS}
    if args.random or args.patterns:
        failed, total = compare_random(args, trained)
    for name, (base, overlay) in LAYOUTS.items() if not (args.model or args.random or args.patterns) else ():
        if args.only and args.only != name:
            continue
        text = json.dumps(bases.make(trained, base, overlay))
        with tempfile.TemporaryDirectory() as d:
            with open(f"{d}/tokenizer.json", "w", encoding="utf-8") as out:
                out.write(text)
            f, n = compare(name, d, Tokenizer.from_str(text), random.Random(args.seed), args.texts)
        failed, total = failed + f, total + n
        if f:
            print(f"{name}: {f} of {n} differ")
    print(f"{total} comparisons, {failed} differ (seed {args.seed})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
