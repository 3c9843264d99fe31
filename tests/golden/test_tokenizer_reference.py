#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every tokenizer case of the reference data, through `hearth-filter tokenize`.

Needs HEARTH_REFERENCE (else exit 77) and HEARTH_BUILD_ROOT. Compares encodings, decodings, streamed
decodings, the 100 KB texts, and the models' golden_*.json. Byte-fallback decodings of bad bytes are
counted but not judged: the reference contradicts itself there.
"""
import glob
import hashlib
import json
import os
import struct
import subprocess
import sys

FILTER = os.path.join(os.environ.get("HEARTH_BUILD_ROOT", "build"), "tests", "hearth-filter")

MODELS = {"smollm2": "smollm2-135m", "gpt2": "gpt2-tokenizer", "qwen2.5": "qwen2.5-tokenizer",
          "llama2": "llama2-tokenizer", "llama3": "llama3-tokenizer"}
FALLBACK = ("llama2", "made-llama2", "made-metaspace")


def lines(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def ask(model, requests):
    """All requests in one run of the filter; its answers."""
    text = "".join(json.dumps(r) + "\n" for r in requests)
    done = subprocess.run([FILTER, "tokenize", "--model", model], input=text.encode(),
                          stdout=subprocess.PIPE, timeout=300, check=True)
    answers = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
    assert len(answers) == len(requests), "one answer a line"
    return answers


class Score:
    def __init__(self):
        self.passed, self.failed, self.advice = 0, 0, 0

    def case(self, ok, name, wanted, got):
        self.passed += bool(ok)
        self.failed += not ok
        if not ok and self.failed <= 20:
            print(f"{name}\n  wanted {str(wanted)[:300]}\n  got    {str(got)[:300]}")


def check_encode(score, folder, name, model, corpus):
    cases = lines(f"{folder}/{name}.encode.jsonl")
    texts = [c.get("text", corpus.get(c["id"])) for c in cases]
    requests = [{"text": t, "add_special": c.get("add_special", False),
                 "parse_special": not c.get("literal", False)} for c, t in zip(cases, texts)]
    answers = ask(model, requests)
    for c, a in zip(cases, answers):
        score.case(a.get("ids") == c["ids"], f"{name} encode {c['id']}", c["ids"], a)
    back = ask(model, [{"ids": c["ids"]} for c in cases])
    for c, t, a in zip(cases, texts, back):
        wanted = c.get("decoded", t)
        if c.get("add_special") and "decoded" not in c:
            continue
        if name in FALLBACK and "\ufffd" in wanted:
            score.advice += a.get("text") != wanted
            continue
        score.case(a.get("text") == wanted, f"{name} decoded {c['id']}", wanted, a)


def check_decode(score, folder, name, model):
    cases = lines(f"{folder}/{name}.decode.jsonl")
    answers = ask(model, [{"ids": c["ids"], "skip_special": c.get("skip_special", False)} for c in cases])
    for c, a in zip(cases, answers):
        if c.get("lossy") and name in FALLBACK:
            score.advice += a.get("text") != c["text"]
            continue
        score.case(a.get("text") == c["text"], f"{name} decode {c['id']}", c["text"], a)


def held_back(wanted, got):
    """Whether some piece came later than the reference gave it."""
    n = 0
    for i, piece in enumerate(wanted):
        n += len(piece or "")
        if sum(len(p or "") for p in got[:i + 1]) < n:
            return True
    return False


def check_stream(score, folder, name, model):
    cases = lines(f"{folder}/{name}.stream.jsonl")
    answers = ask(model, [{"ids": c["ids"], "skip_special": c["skip_special"]} for c in cases])
    for c, a in zip(cases, answers):
        joined = "".join(p or "" for p in a["pieces"]) + a["tail"]
        score.case(joined == a["text"], f"{name} stream = plain {c['id']}", a["text"], joined)
        if c.get("reference_inconsistent") or (c.get("lossy") and name in FALLBACK):
            score.advice += joined != c["text"]
            continue
        ok = joined == c["text"] and not held_back(c["pieces"], a["pieces"])
        score.case(ok, f"{name} stream {c['id']}", (c["text"], c["pieces"]), a)


def check_big(score, folder, name, model):
    for path in sorted(glob.glob(f"{folder}/{name}.big-*.json")):
        with open(path, encoding="utf-8") as f:
            big = json.load(f)
        with open(f"{folder}/{big['id']}.txt", encoding="utf-8", newline="") as f:
            ids = ask(model, [{"text": f.read()}])[0]["ids"]
        digest = hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()
        ok = len(ids) == big["n"] and digest == big["sha256_u32le"] and big.get("ids", ids) == ids
        score.case(ok, f"{name} {big['id']}", big["n"], len(ids))


def check_model_files(score, root):
    for path in sorted(glob.glob(f"{root}/models/*/golden_tokens*.json") + glob.glob(f"{root}/models/*/golden_edge.json")):
        with open(path, encoding="utf-8") as f:
            cases = json.load(f)
        answers = ask(os.path.dirname(path), [{"text": c["text"]} for c in cases])
        for c, a in zip(cases, answers):
            score.case(a.get("ids") == c["ids"], f"{path} {c['text'][:40]!r}", c["ids"], a)


def check_logits_texts(score, root):
    for path in sorted(glob.glob(f"{root}/goldens/logits/*/golden.json")):
        name = os.path.basename(os.path.dirname(path))
        model = next((d for d in (f"{root}/goldens/models/{name}", f"{root}/models/{name}") if os.path.isdir(d)), None)
        with open(path, encoding="utf-8") as f:
            cases = [c for c in json.load(f)["cases"] if c.get("text")]
        if not model or not cases:
            continue
        answers = ask(model, [{"text": c["text"], "add_special": True} for c in cases])
        for c, a in zip(cases, answers):
            score.case(a.get("ids") == c["ids"], f"{name} text", c["ids"], a)


def main():
    root = os.environ.get("HEARTH_REFERENCE")
    if not root:
        print("HEARTH_REFERENCE is not set; it names the directory of the reference data")
        return 77
    folder = f"{root}/goldens/tokenizers"
    corpus = {c["id"]: c["text"] for c in lines(f"{folder}/corpus.jsonl")}
    names = dict((n, f"{root}/models/{d}") for n, d in MODELS.items())
    names.update((f"made-{d}", f"{folder}/made/{d}") for d in sorted(os.listdir(f"{folder}/made")))
    failed = 0
    for name, model in names.items():
        score = Score()
        check_encode(score, folder, name, model, corpus)
        check_decode(score, folder, name, model)
        check_stream(score, folder, name, model)
        check_big(score, folder, name, model)
        print(f"{name}: {score.passed} passed, {score.failed} failed, {score.advice} differ where only advice is given")
        failed += score.failed
    score = Score()
    check_model_files(score, root)
    check_logits_texts(score, root)
    print(f"model files: {score.passed} passed, {score.failed} failed")
    return 1 if failed + score.failed else 0


if __name__ == "__main__":
    sys.exit(main())
