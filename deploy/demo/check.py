#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures the demo model with a forward pass of its own (numpy, float32), apart from train.py and
from the server, and writes the goldens the tests compare with.

    check.py                     every figure of the model card
    check.py --golden DIR        also writes DIR/greedy.json and DIR/sums.jsonl
    check.py --ask "What is 2+2?" / --continue "Once upon a time"

`weights` may be rounded to int8 or int4 (symmetric, groups of 32 along the inputs; embeddings and
head too), and `activations` to bf16 before every matrix product, to see what coarser arithmetic does.
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

    def rotate(self, x, first):                            # x: [rows, heads, t, d_head]
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
        score = np.where(np.arange(first + t) > np.arange(first, first + t)[:, None], np.float32(-np.inf), score)
        e = np.exp(score - score.max(-1, keepdims=True))
        y = (e / e.sum(-1, keepdims=True)) @ vv
        return self.product(y.transpose(0, 2, 1, 3).reshape(rows, t, d), p + "o_proj.weight"), (k, v)

    def forward(self, ids, past=None, every=False):
        """ids [rows, t] -> logits of the last position (of every one: `every`), and the cache."""
        x, kept = self.w["model.embed_tokens.weight"][ids], []
        for i in range(self.c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            y, kv = self.attend(self.norm(x, p + "input_layernorm.weight"), p + "self_attn.", past[i] if past else None)
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
        """Greedy text for every prompt, and whether it ended by itself; equal lengths go together."""
        encoded = [self.tok.encode(t).ids for t in texts]
        groups = {}
        for i, ids in enumerate(encoded):
            groups.setdefault(len(ids), []).append(i)
        answers = [None] * len(texts)
        for members in groups.values():
            for at in range(0, len(members), 256):
                some = members[at:at + 256]
                for i, ids in zip(some, self.greedy([encoded[j] for j in some], n)[0]):
                    kept, stop = self.until_eos(ids)
                    answers[i] = (self.tok.decode(kept), stop is not None)
        return answers


def chat_text(messages):
    """What the chat template makes of the messages, ready for the assistant's turn."""
    turns = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in messages)
    return turns + "<|im_start|>assistant\n"


def ask_all(model, questions, n=80):
    return [text for text, _ in model.continue_all([chat_text([("user", q)]) for q in questions], n)]


# ---------------------------------------------------------------- figures

def last_integer(text):
    found = re.findall(r"\d+", text)
    return int(found[-1]) if found else None


def held_out_pairs():
    return [(a, b) for a in range(100) for b in range(100) if make_text.pair_held_out(a, b)]


def sums_right(model, pairs, form="What is {a}+{b}?"):
    answers = ask_all(model, [form.format(a=a, b=b) for a, b in pairs])
    wrong = [(a, b, t) for (a, b), t in zip(pairs, answers) if last_integer(t) != a + b]
    return len(pairs) - len(wrong), wrong


def percent(right, total):
    return f"{right} of {total} ({100 * right / total:.2f} %)"


def report_sums(path, model):
    pairs = held_out_pairs()
    sample = random.Random(7).sample(pairs, 400)
    for label, kw in [("bf16 weights, float32 arithmetic", {}), ("bf16 activations", {"activations": "bf16"}),
                      ("int8 weights", {"weights": "int8"}), ("int4 weights", {"weights": "int4"}),
                      ("int4 weights, bf16 activations", {"weights": "int4", "activations": "bf16"})]:
        right, wrong = sums_right(Model(path, **kw) if kw else model, pairs)
        print(f"held-out sums, {label}: {percent(right, len(pairs))}")
        for a, b, text in wrong[:3]:
            print(f"    {a}+{b}: {text!r}")
    for form in ["What is {a} + {b}?", "{a}+{b}=", "Can you add {a} and {b}?", "what is {a} plus {b}", "{a} + {b}",
                 "Hello! What is {a}+{b}?", "Could you please tell me what {a}+{b} is?", "How many are {a} and {b} together?"]:
        seen = "" if form in make_text.ADD_ASKS else " (wording not in training)"
        print(f"held-out sums asked as {form!r}{seen}: {percent(sums_right(model, sample, form)[0], len(sample))}")
    system = [chat_text([("system", "You are a helpful assistant."), ("user", f"What is {a}+{b}?")]) for a, b in sample]
    right = sum(last_integer(t) == a + b for (a, b), (t, _) in zip(sample, model.continue_all(system, 80)))
    print(f"held-out sums after a system message: {percent(right, len(sample))}")
    late = [chat_text([("user", "Tell me a story."), ("assistant", make_text.story(random.Random(i))), ("user", "Hello"),
                       ("assistant", "Hello! How can I help you today?"), ("user", f"What is {a}+{b}?")]) for i, (a, b) in enumerate(sample[:100])]
    right = sum(last_integer(t) == a + b for (a, b), (t, _) in zip(sample, model.continue_all(late, 80)))
    print(f"held-out sums after a story in the same chat: {percent(right, len(late))}")
    r, long = random.Random(8), []
    for a, b in sample[:20]:                               # far positions: about 1,500 tokens of stories before
        text = "".join(make_text.story(r) + make_text.END_TEXT for _ in range(9))
        long.append(text + chat_text([("user", f"What is {a}+{b}?")]))
    right = sum(last_integer(t) == a + b for (a, b), (t, _) in zip(sample, model.continue_all(long, 80)))
    print(f"held-out sums at position {len(model.tok.encode(long[0]).ids)}: {percent(right, len(long))}")


def report_names(model):
    names = make_text.HELD_OUT_NAMES
    prompts = [f"Once upon a time there was a {adj} {'girl' if n in make_text.GIRLS else 'boy'} named {n}."
               for n in names for adj in ("little", "brave", "kind")]
    others = set(make_text.GIRLS + make_text.BOYS)
    good = ended = 0
    for i, (text, stopped) in enumerate(model.continue_all(prompts, 300)):
        hero = names[i // 3]
        ended += stopped
        good += len(re.findall(rf"\b{hero}\b", text)) >= 2 and not (set(re.findall(r"[A-Z][a-z]+", text)) & (others - {hero}))
    print(f"stories about held-out names that keep the name: {percent(good, len(prompts))}; ended by themselves: {percent(ended, len(prompts))}")
    answers = ask_all(model, [f"My name is {n}." for n in names])
    print("greets a held-out name:", percent(sum(n in t for n, t in zip(names, answers)), len(names)))
    memory = [chat_text([("user", f"My name is {n}."), ("assistant", f"Nice to meet you, {n}!"), ("user", "What is 3+4?"),
                         ("assistant", make_text.worked_sum(3, 4)), ("user", "What is my name?")]) for n in names]
    right = sum(n in t for n, (t, _) in zip(names, model.continue_all(memory, 40)))
    print("remembers a held-out name over a turn:", percent(right, len(names)))


def report_facts(model):
    r, known = random.Random(11), {}
    while len(known) < 500:
        ask, answer = make_text.fact_turn(r)
        known[ask] = answer
    answers = ask_all(model, list(known))
    right = sum(t == want for t, want in zip(answers, known.values()))
    print("simple facts (seen in training), exact answer:", percent(right, len(known)))


def report_story(model):
    (text, ended), = model.continue_all(["Once upon a time"], 300)
    print(f"\"Once upon a time\" goes on for {len(model.tok.encode(text).ids)} tokens, ends by itself: {ended}\n    {text}")
    for q in ["Hello", "What is 2+2?", "Tell me a story about an owl.", "What is the capital of France?", "Who are you?", "What is 700+800?"]:
        print(f"{q!r} -> {ask_all(model, [q], 300)[0]!r}")


# ---------------------------------------------------------------- goldens

def golden_cases(model):
    hello = [("user", "Hello")]
    chats = {"hello": hello, "sum": [("user", "What is 2+2?")], "sum-carry": [("user", "Can you add 87 and 46?")],
             "system": [("system", "You are a helpful assistant."), ("user", "What is the capital of France?")],
             "turns": hello + [("assistant", "Hello! How can I help you today?"), ("user", "My name is Nora."),
                               ("assistant", "Nice to meet you, Nora!"), ("user", "What is my name?")],
             "story-chat": [("user", "Tell me a story about a fox.")]}
    plains = {"once": "Once upon a time", "hugo": "One day, Hugo lost his red kite in the forest.", "facts": "The capital of Italy is",
              "question": "Question: What is 34+57?\nAnswer:", "bytes": "Grüße, 世界! \U0001f600 \x00\x7f"}
    cases = [dict(name=n, text=t) for n, t in plains.items()]
    cases += [dict(name=n, messages=[{"role": r, "content": c} for r, c in m], text=chat_text(m)) for n, m in chats.items()]
    for case in cases:
        ids = model.tok.encode(case["text"]).ids
        n = 256 if case["name"] in ("once", "story-chat") else 96
        (greedy,), (margins,) = model.greedy([ids], n, past_eos=True)
        kept, stop = model.until_eos(greedy)
        case.update(ids=ids, greedy_ids=greedy, greedy_margins=[round(m, 4) for m in margins],
                    greedy_stop_index=stop, greedy_text=model.tok.decode(kept))
    return cases


def write_goldens(model, path, out):
    with open(os.path.join(path, "model.safetensors"), "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()
    with open(os.path.join(out, "greedy.json"), "w") as f:
        head = json.dumps({"model_sha256": digest, "eos_ids": model.eos, "arithmetic": "float32, numpy"})[:-1]
        f.write(head + ', "cases": [\n' + ",\n".join(json.dumps(c) for c in golden_cases(model)) + "\n]}\n")
    with open(os.path.join(out, "sums.jsonl"), "w") as f:
        for a, b in held_out_pairs():
            f.write(json.dumps({"question": f"What is {a}+{b}?", "answer": a + b}) + "\n")


def main():
    p = argparse.ArgumentParser(description="measure the demo model")
    p.add_argument("--model", default=HERE)
    p.add_argument("--golden", metavar="DIR")
    p.add_argument("--ask", metavar="TEXT")
    p.add_argument("--continue", dest="go_on", metavar="TEXT")
    p.add_argument("--quick", action="store_true", help="the sums once, nothing else")
    args = p.parse_args()
    model = Model(args.model)
    if args.ask or args.go_on:
        prompt = args.go_on or chat_text([("user", args.ask)])
        print(model.continue_all([prompt], 300)[0][0])
        return
    pairs = held_out_pairs()
    if args.quick:
        right, wrong = sums_right(model, pairs)
        print(f"held-out sums: {percent(right, len(pairs))}", *wrong[:8], sep="\n    ")
        report_story(model)
        return
    report_story(model)
    report_sums(args.model, model)
    report_names(model)
    report_facts(model)
    if args.golden:
        write_goldens(model, args.model, args.golden)


if __name__ == "__main__":
    main()
