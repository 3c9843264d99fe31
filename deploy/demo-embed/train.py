#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains demo-embed and demo-rerank from nothing, on the pairs of make_pairs.py.

    train.py embed     tokenizer and weights of demo-embed: a text -> a vector
    train.py rerank    weights of demo-rerank: a question and a text -> a score; demo-embed must be there
    train.py check     recall on docs/search: training sees its paragraphs, but not its questions

Needs torch, numpy and the PyPI package tokenizers; two CPU cores will do. Both models are BERT: demo-embed is
taught to put a question nearer to its passage than to the other passages of the batch, demo-rerank to score the
passage above others that are near to the question, and to rank them all as words and demo-embed's vectors together do. It
begins with demo-embed's word vectors in fewer directions, and with queries and keys that are alike: each word attends to like
words of the other text from the first step on, and the types differ enough for it to see that it did. The weights that are
written are a running mean of the last steps'.
"""
import argparse
import json
import math
import os
import random
import struct
import time

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

import make_pairs

HERE = os.path.dirname(os.path.abspath(__file__))
VOCABULARY, CONTEXT, PAD, CLS, SEP = 3072, 256, 0, 2, 3
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SHAPES = {"embed": {"hidden_size": 192, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 6},
          "rerank": {"hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 3}}


def folder(kind):
    return os.path.join(HERE, "..", "demo-" + kind)


def config(kind):
    return {"architectures": ["BertModel" if kind == "embed" else "BertForSequenceClassification"], "model_type": "bert",
            **SHAPES[kind], "hidden_act": "gelu", "layer_norm_eps": 1e-12, "max_position_embeddings": CONTEXT,
            "type_vocab_size": 2, "vocab_size": VOCABULARY, "pad_token_id": PAD, "torch_dtype": "bfloat16",
            **({} if kind == "embed" else {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}})}


def write_json(kind, name, value):
    path = os.path.join(folder(kind), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1)
        f.write("\n")


# ---------------------------------------------------------------- tokenizer


def train_tokenizer(pairs):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(lowercase=True)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    drawn = (text for _ in range(15000) for text in pairs.pair())
    tok.train_from_iterator(drawn, trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=SPECIALS,
                                                             continuing_subword_prefix="##", show_progress=False))
    tok.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)])
    for kind in SHAPES:
        os.makedirs(folder(kind), exist_ok=True)
        tok.save(os.path.join(folder(kind), "tokenizer.json"), pretty=False)
        write_json(kind, "tokenizer_config.json", {
            "tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": CONTEXT, "pad_token": "[PAD]",
            "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"})


# ---------------------------------------------------------------- model


def known_words(width):
    """demo-embed's rows in so many directions, those in which they differ most: what it knows to be alike stays alike."""
    rows = read_weights("embed")["embeddings.word_embeddings.weight"]
    rows = rows - rows.mean(0)
    rows = rows @ torch.linalg.svd(rows, full_matrices=False)[2][:width].T
    return rows / rows.norm(dim=1).mean()


def new_weights(kind):
    """Names and shapes of transformers' BertModel."""
    c = config(kind)
    d, ff = c["hidden_size"], c["intermediate_size"]
    w = {"embeddings.word_embeddings.weight": torch.randn(VOCABULARY, d) * d ** -0.5,
         "embeddings.position_embeddings.weight": torch.randn(CONTEXT, d) * 0.01,
         "embeddings.token_type_embeddings.weight": torch.randn(2, d) * (0.02 if kind == "embed" else 0.06)}

    def norm(name):
        w[name + ".weight"], w[name + ".bias"] = torch.ones(d), torch.zeros(d)

    def dense(name, rows, columns, scale=1.0):
        w[name + ".weight"], w[name + ".bias"] = torch.randn(rows, columns) * scale * columns ** -0.5, torch.zeros(rows)

    norm("embeddings.LayerNorm")
    for i in range(c["num_hidden_layers"]):
        p = f"encoder.layer.{i}."
        for part in ("query", "key", "value"):
            dense(f"{p}attention.self.{part}", d, d)
        dense(p + "attention.output.dense", d, d, 0.1 if kind == "embed" else 0.5)
        norm(p + "attention.output.LayerNorm")
        dense(p + "intermediate.dense", ff, d)
        dense(p + "output.dense", d, ff, 0.1 if kind == "embed" else 0.3)
        norm(p + "output.LayerNorm")
        if kind == "rerank":
            w[p + "attention.self.key.weight"] = w[p + "attention.self.query.weight"].clone()
    if kind == "rerank":
        w["embeddings.word_embeddings.weight"] = known_words(d)
        dense("pooler.dense", d, d)
        w = {"bert." + name: value for name, value in w.items()}
        dense("classifier", 1, d, 0.5)
    return {name: value.requires_grad_() for name, value in w.items()}


def encode(w, c, ids, types, prefix=""):
    """Hidden states [texts, longest, hidden] of padded ids."""
    def linear(name, x):
        return F.linear(x, w[prefix + name + ".weight"], w[prefix + name + ".bias"])

    def norm(name, x):
        return F.layer_norm(x, x.shape[-1:], w[prefix + name + ".weight"], w[prefix + name + ".bias"], c["layer_norm_eps"])

    tables = [w[f"{prefix}embeddings.{t}_embeddings.weight"] for t in ("word", "position", "token_type")]
    x = norm("embeddings.LayerNorm", tables[0][ids] + tables[1][:ids.shape[1]] + tables[2][types])
    seen = (ids != PAD)[:, None, None, :]
    for i in range(c["num_hidden_layers"]):
        p = f"encoder.layer.{i}."
        q, k, v = (linear(f"{p}attention.self.{part}", x).unflatten(2, (c["num_attention_heads"], -1)).transpose(1, 2)
                   for part in ("query", "key", "value"))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2)
        x = norm(p + "attention.output.LayerNorm", x + linear(p + "attention.output.dense", mixed))
        x = norm(p + "output.LayerNorm", x + linear(p + "output.dense", F.gelu(linear(p + "intermediate.dense", x))))
    return x


def padded(rows):
    longest = max(len(r.ids) for r in rows)
    return (torch.tensor([r.ids + [PAD] * (longest - len(r.ids)) for r in rows]),
            torch.tensor([r.type_ids + [0] * (longest - len(r.ids)) for r in rows]))


def vectors(w, c, tok, texts, limit=CONTEXT):
    tok.enable_truncation(limit)
    ids, types = padded(tok.encode_batch(texts))
    seen = (ids != PAD).float()[:, :, None]
    mean = (encode(w, c, ids, types) * seen).sum(1) / seen.sum(1)
    return F.normalize(mean, dim=1)


def scores(w, c, tok, pairs, limit=CONTEXT):
    tok.enable_truncation(limit, strategy="longest_first")
    ids, types = padded(tok.encode_batch(pairs))
    first = encode(w, c, ids, types, "bert.")[:, 0]
    pooled = torch.tanh(F.linear(first, w["bert.pooler.dense.weight"], w["bert.pooler.dense.bias"]))
    return F.linear(pooled, w["classifier.weight"], w["classifier.bias"])[:, 0]


# ---------------------------------------------------------------- training


def passage_limit(r):
    """Tokens that a step reads of each passage: short ones are cheap, all positions must be trained."""
    return r.choice([40, 40, 48, 48, 64, 64, 64, 96, 96, 96, 96, CONTEXT])


def embed_loss(w, c, tok, pairs, r, _, batch):
    drawn = [pairs.pair() for _ in range(batch)]
    asked = vectors(w, c, tok, [q for q, _ in drawn], 32)
    told = vectors(w, c, tok, [p for _, p in drawn], passage_limit(r))
    near = asked @ told.T * 20
    same = torch.tensor([[a[1] == b[1] and i != j for j, b in enumerate(drawn)] for i, a in enumerate(drawn)])
    near = near.masked_fill(same, -1e4)
    target = torch.arange(batch)
    return F.cross_entropy(near, target) + 0.5 * F.cross_entropy(near.T, target)


class HardPassages:
    """Other passages for a question: some near to it by rare words or by demo-embed's vectors, some by chance."""

    def __init__(self, pairs, tok, r):
        self.tok = tok
        self.texts = sorted({p for _, p in pairs.paragraphs} | {pairs.from_lists()[1] for _ in range(600)} |
                            {make_pairs.make_text.fact_turn(r)[1] for _ in range(600)})
        bags = self.bags(self.texts)
        self.rarity = torch.log(len(self.texts) / (1 + bags.sum(0)))
        self.rows = F.normalize(bags * self.rarity, dim=1)
        self.weights, self.config = read_weights("embed"), config("embed")
        self.vectors = self.vectors_of(self.texts)

    def vectors_of(self, texts):
        with torch.no_grad():
            return torch.cat([vectors(self.weights, self.config, self.tok, texts[i:i + 64], 96) for i in range(0, len(texts), 64)])

    def bags(self, texts):
        bags = torch.zeros(len(texts), VOCABULARY)
        for i, row in enumerate(self.tok.encode_batch(texts, add_special_tokens=False)):
            bags[i, row.ids] = 1
        return bags

    def draw(self, questions, right, n_near, n_any, r):
        self.tok.no_truncation()
        by_words = (self.bags(questions) * self.rarity @ self.rows.T).topk(12).indices
        by_vectors = (self.vectors_of(questions) @ self.vectors.T).topk(20).indices
        order = torch.cat([by_words, by_vectors], dim=1).tolist()
        found = []
        for best, passage in zip(order, right):
            near = [self.texts[i] for i in dict.fromkeys(best) if self.texts[i] != passage and passage[:40] not in self.texts[i]]
            found.append(r.sample(near, n_near) + r.sample(self.texts, n_any))
        return found

    def judge(self, rows):
        """What words and demo-embed's vectors say of each (question, passage), from about -10 to 10."""
        asked, told = [q for q, _ in rows], [p for _, p in rows]
        self.tok.no_truncation()
        a, b = (F.normalize(self.bags(texts) * self.rarity, dim=1) for texts in (asked, told))
        return 10 * ((a * b).sum(1) + (self.vectors_of(asked) * self.vectors_of(told)).sum(1))


def rerank_loss(w, c, tok, pairs, r, hard, batch):
    drawn = [pairs.pair() for _ in range(batch)]
    others = hard.draw([q for q, _ in drawn], [p for _, p in drawn], 3, 1, r)
    rows = [(q, p) for (q, right), wrong in zip(drawn, others) for p in [right] + wrong]
    taught = F.softmax(hard.judge(rows).view(batch, -1), dim=1)
    logits = scores(w, c, tok, rows, min(passage_limit(r), 96) + 24).view(batch, -1)
    truth = torch.zeros_like(logits)
    truth[:, 0] = 1
    return (F.cross_entropy(logits, torch.zeros(batch, dtype=torch.long)) + F.cross_entropy(logits, taught) +
            F.binary_cross_entropy_with_logits(logits, truth, pos_weight=torch.tensor(3.0)))


def train(kind, args):
    torch.manual_seed(args.seed)
    r, pairs, c = random.Random(args.seed), make_pairs.Pairs(args.seed), config(kind)
    if kind == "embed":
        train_tokenizer(pairs)
    tok = Tokenizer.from_file(os.path.join(folder(kind), "tokenizer.json"))
    w = new_weights(kind)
    if kind == "embed":
        batch, peak, extra = 128, 2e-3, None
    else:
        batch, peak, extra = 16, 2e-3, HardPassages(pairs, tok, r)
    loss_of = embed_loss if kind == "embed" else rerank_loss
    matrices = [v for n, v in w.items() if v.dim() == 2 and "embeddings" not in n]
    rest = [v for n, v in w.items() if v.dim() != 2 or "embeddings" in n]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0}],
                                  lr=peak, betas=(0.9, 0.98))
    begin, mean, kept = time.time(), None, {name: value.detach().clone() for name, value in w.items()}
    for step in range(args.steps):
        rate = peak * min(1, (step + 1) / 100) * 0.5 * (1 + math.cos(math.pi * step / args.steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = loss_of(w, c, tok, pairs, r, extra, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(w.values(), 1.0)
        optimizer.step()
        for name, value in w.items():
            kept[name].lerp_(value.detach(), 1 if kind == "embed" else min(1, 0.005 + 1 / (step + 1)))
        mean = loss.item() if mean is None else 0.98 * mean + 0.02 * loss.item()
        if step % 50 == 49:
            print(f"step {step + 1}, loss {mean:.4f}, {time.time() - begin:.0f} s", flush=True)
    write_weights(kind, kept)
    write_json(kind, "config.json", c)
    if kind == "embed":
        write_json(kind, "modules.json", [
            {"idx": i, "name": str(i), "path": path, "type": "sentence_transformers.models." + name}
            for i, (path, name) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")])])
        write_json(kind, "1_Pooling/config.json", {"word_embedding_dimension": c["hidden_size"], "pooling_mode_mean_tokens": True})
        write_json(kind, "sentence_bert_config.json", {"max_seq_length": CONTEXT, "do_lower_case": False})


# ---------------------------------------------------------------- files


def write_weights(kind, w):
    header, data = {}, b""
    for name in sorted(w):
        raw = w[name].detach().to(torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes()
        header[name] = {"dtype": "BF16", "shape": list(w[name].shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder(kind), "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def read_weights(kind):
    with open(os.path.join(folder(kind), "model.safetensors"), "rb") as f:
        data = f.read()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__")
    found = {}
    for name, t in header.items():
        first, last = t["data_offsets"]
        raw = bytearray(data[begin + first:begin + last])
        found[name] = torch.frombuffer(raw, dtype=torch.bfloat16).float().view(t["shape"])
    return found


def check():
    place = os.path.join(HERE, "..", "..", "docs", "search")
    with open(os.path.join(place, "paragraphs.jsonl"), encoding="utf-8") as f:
        texts = [json.loads(line)["text"] for line in f]
    with open(os.path.join(place, "questions.jsonl"), encoding="utf-8") as f:
        questions = [json.loads(line) for line in f]
    tok = Tokenizer.from_file(os.path.join(folder("embed"), "tokenizer.json"))
    with torch.no_grad():
        w, c = read_weights("embed"), config("embed")
        near = vectors(w, c, tok, [q["question"] for q in questions]) @ vectors(w, c, tok, texts).T
        report("demo-embed", [row.argsort(descending=True).tolist() for row in near], questions)
        if not os.path.exists(os.path.join(folder("rerank"), "model.safetensors")):
            return
        w, c = read_weights("rerank"), config("rerank")
        ranks = []
        for q, row in zip(questions, near):
            best = row.topk(20).indices.tolist()
            s = scores(w, c, tok, [(q["question"], texts[i]) for i in best])
            ranks.append([best[i] for i in s.argsort(descending=True).tolist()])
        report("demo-rerank of its 20 nearest", ranks, questions)


def report(name, ranks, questions):
    places = [r.index(q["paragraph"]) if q["paragraph"] in r else 999 for r, q in zip(ranks, questions)]
    print(f"{name}: " + ", ".join(f"recall at {k} {sum(p < k for p in places) / len(places):.3f}" for k in (1, 5, 20)))


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("what", choices=["embed", "rerank", "check"])
    args.add_argument("--steps", type=int, default=800)
    args.add_argument("--seed", type=int, default=2026)
    args = args.parse_args()
    if args.what == "check":
        check()
    else:
        train(args.what, args)


if __name__ == "__main__":
    main()
