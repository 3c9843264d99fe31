#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures the demo model with a forward pass of its own (numpy, float32), apart from train.py and
from the server, and writes the goldens the tests compare with.

    check.py                     every figure of the model card
    check.py --golden DIR        also writes DIR/greedy.json and DIR/sums.jsonl
    check.py --ask "What is 2+2?" / --continue "Once upon a time"

`weights` may be rounded to int8 or int4 (symmetric, groups of 32 along the inputs; embeddings and
head too), and `activations` to bf16 before every matrix product: what coarser arithmetic does.
"""

import argparse
import hashlib
import json
import os
import random
import re

import numpy as np
from tokenizers import Tokenizer

import make_text

HERE = os.path.dirname(os.path.abspath(__file__))


# ---------------------------------------------------------------- model


def load_safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    out = {}
    for name, t in header.items():
        if name != "__metadata__":
            assert t["dtype"] == "BF16"
            bits = np.frombuffer(data[slice(*t["data_offsets"])], "<u2").astype(np.uint32) << 16
            out[name] = bits.view(np.float32).reshape(t["shape"])
    return out


def round_bf16(x):
    """Nearest bf16, ties to even, as float32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def round_groups(w, levels):
    groups = w.reshape(-1, 32)
    step = np.maximum(np.abs(groups).max(1, keepdims=True) / levels, 1e-12)
    return (np.rint(groups / step) * step).astype(np.float32).reshape(w.shape)


class Model:
    def __init__(self, path, weights="bf16", activations="f32"):
        with open(os.path.join(path, "config.json")) as f:
            self.c = json.load(f)
        with open(os.path.join(path, "generation_config.json")) as f:
            self.eos = json.load(f)["eos_token_id"]
        self.tok = Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
        self.w = load_safetensors(os.path.join(path, "model.safetensors"))
        levels = {"bf16": 0, "int8": 127, "int4": 7}[weights]
        if levels:
            self.w = {n: round_groups(t, levels) if t.ndim == 2 else t for n, t in self.w.items()}
        self.act = round_bf16 if activations == "bf16" else lambda x: x

    def norm(self, x, name):
        scale = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(self.c["rms_norm_eps"]))
        return x * scale * self.w[name]

    def product(self, x, name):
        return self.act(x) @ self.w[name].T

    def rotate(self, x, first):  # x: [rows, heads, t, d_head]
        half = x.shape[-1] // 2
        freq = self.c["rope_theta"] ** (-np.arange(half) / half)
        angle = np.outer(np.arange(first, first + x.shape[2]), freq)
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def attend(self, x, p, past):
        rows, t, d = x.shape
        heads, kv_heads = self.c["num_attention_heads"], self.c["num_key_value_heads"]
        split = lambda y, h: y.reshape(rows, t, h, d // heads).transpose(0, 2, 1, 3)
        first = past[0].shape[2] if past else 0
        q = self.rotate(split(self.product(x, p + "q_proj.weight"), heads), first)
        k = self.rotate(split(self.product(x, p + "k_proj.weight"), kv_heads), first)
        v = split(self.product(x, p + "v_proj.weight"), kv_heads)
        if past:
            k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
        kk, vv = (np.repeat(y, heads // kv_heads, 1) for y in (k, v))
        score = q @ kk.transpose(0, 1, 3, 2) / np.float32(np.sqrt(d // heads))
        score = np.where(
            np.arange(first + t) > np.arange(first, first + t)[:, None], np.float32(-np.inf), score
        )
        e = np.exp(score - score.max(-1, keepdims=True))
        y = (e / e.sum(-1, keepdims=True)) @ vv
        return self.product(y.transpose(0, 2, 1, 3).reshape(rows, t, d), p + "o_proj.weight"), (
            k,
            v,
        )

    def forward(self, ids, past=None, every=False):
        """ids [rows, t] -> logits of the last position (of every one: `every`), and the cache."""
        x, kept = self.w["model.embed_tokens.weight"][ids], []
        for i in range(self.c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            y, kv = self.attend(
                self.norm(x, p + "input_layernorm.weight"),
                p + "self_attn.",
                past[i] if past else None,
            )
            kept.append(kv)
            x = x + y
            h = self.norm(x, p + "post_attention_layernorm.weight")
            g = self.product(h, p + "mlp.gate_proj.weight")
            h = g / (1 + np.exp(-g)) * self.product(h, p + "mlp.up_proj.weight")
            x = x + self.product(h, p + "mlp.down_proj.weight")
        x = self.norm(x if every else x[:, -1:], "model.norm.weight")
        return self.product(x, "model.embed_tokens.weight"), kept

    def greedy(self, rows, n, past_eos=False):
        """Continues rows of equal length; returns per row the ids and the margin of each step."""
        ids, past = np.array(rows), None
        out, margins, done = [], [], np.zeros(len(rows), bool)
        for _ in range(n):
            logits, past = self.forward(ids, past)
            best = np.sort(logits[:, -1], -1)[:, -2:]
            pick = logits[:, -1].argmax(-1)
            out.append(pick)
            margins.append(best[:, 1] - best[:, 0])
            done |= np.isin(pick, self.eos)
            if done.all() and not past_eos:
                break
            ids = pick[:, None]
        return np.array(out).T.tolist(), np.array(margins).T.tolist()

    def until_eos(self, ids):
        stop = next((i for i, t in enumerate(ids) if t in self.eos), None)
        return ids if stop is None else ids[:stop], stop

    def continue_all(self, texts, n):
        """Greedy text per prompt, and whether it ended by itself; equal lengths go together."""
        encoded = [self.tok.encode(t).ids for t in texts]
        groups = {}
        for i, ids in enumerate(encoded):
            groups.setdefault(len(ids), []).append(i)
        answers = [None] * len(texts)
        for members in groups.values():
            for at in range(0, len(members), 256):
                some = members[at : at + 256]
                for i, ids in zip(some, self.greedy([encoded[j] for j in some], n)[0]):
                    kept, stop = self.until_eos(ids)
                    answers[i] = (self.tok.decode(kept), stop is not None)
        return answers


def chat_text(messages):
    """What the chat template makes of the messages, ready for the assistant's turn."""
    turns = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in messages)
    return turns + "<|im_start|>assistant\n"


# ---------------------------------------------------------------- figures


def last_integer(text):
    found = re.findall(r"\d+", text)
    return int(found[-1]) if found else None


def held_out_pairs():
    return [(a, b) for a in range(100) for b in range(100) if make_text.pair_held_out(a, b)]


def sum_chat(a, b, form="What is {a}+{b}?", before=()):
    return chat_text([*before, ("user", form.format(a=a, b=b))])


def score_sums(model, pairs, prompts, label):
    """Prints how many answers end in the right integer, and the first few that do not."""
    answers = [text for text, _ in model.continue_all(prompts, 80)]
    wrong = [(p, t) for p, t in zip(pairs, answers) if last_integer(t) != sum(p)]
    print(f"held-out sums, {label}: {percent(len(pairs) - len(wrong), len(pairs))}")
    for (a, b), text in wrong[:2]:
        print(f"    {a}+{b}: {text!r}")


def percent(right, total):
    return f"{right} of {total} ({100 * right / total:.2f} %)"


FORMATS = [("bf16", "f32"), ("bf16", "bf16"), ("int8", "f32"), ("int8", "bf16"), ("int4", "f32"),
           ("int4", "bf16")]
WORDINGS = make_text.listed("""
What is {a} + {b}? // {a}+{b}= // Can you add {a} and {b}? // what is {a} plus {b} // {a} + {b} //
Hello! What is {a}+{b}?
""")
NEW_WORDINGS = make_text.listed("""
Could you please tell me what {a}+{b} is? // How many are {a} and {b} together?
""")                                        # training never asks like this


def report_formats(path, pairs):
    for weights, activations in FORMATS:
        score_sums(Model(path, weights, activations), pairs, [sum_chat(a, b) for a, b in pairs],
                   f"{weights} weights, {activations} activations")


def report_wordings(model, sample):
    for form in WORDINGS + NEW_WORDINGS:
        new = " (not a wording of the training)" if form in NEW_WORDINGS else ""
        score_sums(model, sample, [sum_chat(a, b, form) for a, b in sample], repr(form) + new)
    system = [("system", "You are a helpful assistant.")]
    score_sums(model, sample, [sum_chat(a, b, before=system) for a, b in sample],
               "after a system message")
    told = [("user", "Tell me a story."), ("assistant", make_text.story(random.Random(1))),
            ("user", "Hello"), ("assistant", "Hello! How can I help you today?")]
    score_sums(model, sample, [sum_chat(a, b, before=told) for a, b in sample],
               "after a story and a greeting in the same chat")
    r = random.Random(8)
    stories = "".join(make_text.story(r) + make_text.END_TEXT for _ in range(9))
    prompts = [stories + sum_chat(a, b) for a, b in sample[:20]]
    score_sums(model, sample[:20], prompts, f"at position {len(model.tok.encode(prompts[0]).ids)}")


def report_names(model):
    """Names that training never saw: kept through a story, greeted, remembered."""
    names, listed = make_text.HELD_OUT_NAMES, set(make_text.GIRLS + make_text.BOYS)
    heroes = [(n, adj) for n in names for adj in ("little", "brave", "kind")]
    prompts = [f"Once upon a time there was a {adj} {'girl' if n in make_text.GIRLS else 'boy'} "
               f"named {n}." for n, adj in heroes]
    kept = ended = 0
    for (name, _), (text, stopped) in zip(heroes, model.continue_all(prompts, 300)):
        named = re.findall(r"[A-Z][a-z]+", text)
        kept += named.count(name) >= 2 and not listed & set(named) - {name}
        ended += stopped
    print("stories that keep a held-out name:", percent(kept, len(heroes)))
    print("of these ended by themselves within 300 tokens:", percent(ended, len(heroes)))

    def score(label, chats):
        answers = model.continue_all([chat_text(c) for c in chats], 40)
        right = sum(name in text for name, (text, _) in zip(names, answers))
        print(f"{label}:", percent(right, len(names)))

    score("greets a held-out name", [[("user", f"My name is {n}.")] for n in names])
    between = [("user", "What is 3+4?"), ("assistant", make_text.worked_sum(3, 4))]
    score("remembers a held-out name over a turn", [
        [("user", f"My name is {n}."), ("assistant", f"Nice to meet you, {n}!"), *between,
         ("user", "What is my name?")] for n in names])


def report_facts(model):
    r, known = random.Random(11), {}
    while len(known) < 500:
        ask, answer = make_text.fact_turn(r)
        known[ask] = answer
    answers = model.continue_all([chat_text([("user", q)]) for q in known], 80)
    right = sum(text == want for (text, _), want in zip(answers, known.values()))
    print("simple facts (of the training), exact answer:", percent(right, len(known)))


def report_samples(model):
    ((text, ended),) = model.continue_all(["Once upon a time"], 300)
    n = len(model.tok.encode(text).ids)
    print(f"'Once upon a time' goes on for {n} tokens, ends by itself: {ended}\n    {text}")
    asks = ["Hello", "What is 2+2?", "Tell me a story about an owl.", "Who are you?",
            "What is the capital of France?", "What is 700+800?"]
    answers = model.continue_all([chat_text([("user", q)]) for q in asks], 300)
    for ask, (text, _) in zip(asks, answers):
        print(f"{ask!r} -> {text!r}")


# ---------------------------------------------------------------- goldens

PLAIN_CASES = {
    "once": "Once upon a time",
    "fox": "Once upon a time there lived a little fox named Nora.",
    "hugo": "One day, Hugo lost his red kite in the forest.",
    "facts": "The capital of Italy is",
    "question": "Question: What is 34+57?\nAnswer:",
    "bytes": "Gr\u00fc\u00dfe, \u4e16\u754c! \U0001f600 \x01\x7f",
}
CHAT_CASES = {
    "hello": [("user", "Hello")],
    "sum": [("user", "What is 2+2?")],
    "sum-carry": [("user", "Can you add 87 and 46?")],
    "system": [("system", "You are a helpful assistant."),
               ("user", "What is the capital of France?")],
    "turns": [("user", "Hello"), ("assistant", "Hello! How can I help you today?"),
              ("user", "My name is Nora."), ("assistant", "Nice to meet you, Nora!"),
              ("user", "What is my name?")],
    "story-chat": [("user", "Tell me a story about a fox.")],
}


def golden_cases(model):
    cases = [dict(name=n, text=t) for n, t in PLAIN_CASES.items()]
    for name, messages in CHAT_CASES.items():
        as_json = [{"role": role, "content": content} for role, content in messages]
        cases.append(dict(name=name, messages=as_json, text=chat_text(messages)))
    for case in cases:
        ids = model.tok.encode(case["text"]).ids
        n = 256 if case["name"] in ("once", "fox", "story-chat") else 96
        (greedy,), (margins,) = model.greedy([ids], n, past_eos=True)
        kept, stop = model.until_eos(greedy)
        case.update(ids=ids, greedy_ids=greedy, greedy_margins=[round(m, 6) for m in margins],
                    greedy_stop_index=stop, greedy_text=model.tok.decode(kept))
    return cases


def write_goldens(model, path, out):
    with open(os.path.join(path, "model.safetensors"), "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()
    golden = {"model_sha256": digest, "eos_ids": model.eos, "arithmetic": "float32, numpy"}
    with open(os.path.join(out, "greedy.json"), "w") as f:
        cases = ",\n".join(json.dumps(c) for c in golden_cases(model))
        f.write(json.dumps(golden)[:-1] + ', "cases": [\n' + cases + "\n]}\n")
    with open(os.path.join(out, "sums.jsonl"), "w") as f:
        for a, b in held_out_pairs():
            f.write(json.dumps({"question": f"What is {a}+{b}?", "answer": a + b}) + "\n")


def main():
    p = argparse.ArgumentParser(description="measure the demo model")
    p.add_argument("--model", default=HERE)
    p.add_argument("--golden", metavar="DIR", help="write greedy.json and sums.jsonl there too")
    p.add_argument("--ask", metavar="TEXT", help="print the answer to one chat message")
    p.add_argument("--continue", dest="go_on", metavar="TEXT", help="continue one plain text")
    p.add_argument("--quick", action="store_true", help="samples and one figure for the sums")
    args = p.parse_args()
    model, pairs = Model(args.model), held_out_pairs()
    if args.ask or args.go_on:
        prompt = args.go_on or chat_text([("user", args.ask)])
        print(model.continue_all([prompt], 300)[0][0])
        return
    report_samples(model)
    if args.quick:
        score_sums(model, pairs, [sum_chat(a, b) for a, b in pairs], "bf16 weights")
        return
    report_formats(args.model, pairs)
    report_wordings(model, random.Random(7).sample(pairs, 400))
    report_names(model)
    report_facts(model)
    if args.golden:
        write_goldens(model, args.model, args.golden)


if __name__ == "__main__":
    main()
