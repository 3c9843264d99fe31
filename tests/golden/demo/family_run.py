#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains a tiny model of a family on the sums of the demo's text and lets Hearth answer unseen ones: at
least 90 % must be right, and fewer than 50 % once a norm or a factor is left out. By hand; needs torch,
transformers 5.23 and tokenizers. A family takes some minutes of one core.

    family_run.py [--steps N] [--keep DIR] gemma3|granite ...
"""
import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
DEMO = os.path.join(HERE, "..", "..", "..", "deploy", "demo")
sys.path.insert(0, DEMO)
import make_text  # noqa: E402

BIN = os.environ.get("HEARTH_BIN", "build/hearth")
SIZES = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 1024, "max_position_embeddings": 512, "bos_token_id": 1,
         "eos_token_id": 2, "pad_token_id": 0, "torch_dtype": "bfloat16"}
FAMILIES = {
    "gemma3": {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "head_dim": 32,
               "query_pre_attn_scalar": 32, "sliding_window": 16, "sliding_window_pattern": 2,
               "hidden_activation": "gelu_pytorch_tanh", "rope_theta": 1000000.0,
               "rope_local_base_freq": 10000.0, "tie_word_embeddings": True},
    "granite": {"architectures": ["GraniteForCausalLM"], "model_type": "granite", "hidden_act": "silu",
                "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.03125,
                "logits_scaling": 4.0, "rope_theta": 10000.0, "tie_word_embeddings": True},
}
# What is left out for the counter-test: the 1 of (1 + weight) of a norm, or a setting.
LEFT_OUT = {
    "gemma3": ("norm", "post_attention_layernorm.weight"),
    "granite": ("setting", "residual_multiplier"),
}


def prompt(a, b):
    return f"{make_text.TURN}user\nWhat is {a}+{b}?{make_text.END_TURN}\n{make_text.TURN}assistant\n"


def batch(tok, r, rows, length):
    """Packed rows of sums that training may see; the question does not count."""
    ids, learn = [], []
    for _ in range(rows):
        row, mask = [], []
        while len(row) < length + 1:
            a, b = make_text.train_pair(r)
            for text, counts in ((prompt(a, b), False),
                                 (make_text.worked_sum(a, b) + make_text.END_TURN, True), ("\n", False)):
                part = tok.encode(text).ids
                row += part
                mask += [counts] * len(part)
        ids.append(row[:length + 1])
        learn.append(mask[:length + 1])
    ids, learn = torch.tensor(ids), torch.tensor(learn)
    return ids[:, :-1], ids[:, 1:].masked_fill(~learn[:, 1:], -100)


def train(directory, steps, seed=7):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    tok, r = Tokenizer.from_file(os.path.join(DEMO, "tokenizer.json")), random.Random(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory), dtype=torch.float32)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01)
    begin = time.time()
    for step in range(steps):
        for group in opt.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 50) * max(0.03, 1 - step / steps)
        ids, targets = batch(tok, r, 16, 160)
        logits = model(ids).logits
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-100)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} {time.time() - begin:.0f} s", flush=True)
    model.to(torch.bfloat16).save_pretrained(os.path.join(directory, "saved"))
    shutil.move(os.path.join(directory, "saved", "model.safetensors"), directory)


def write_files(directory, config):
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(os.path.join(DEMO, name), directory)


def share_right(directory, questions):
    """Of 50 unseen sums, those whose last number is right, by greedy answers of `hearth generate`."""
    right = 0
    for a, b in questions:
        p = subprocess.run([BIN, "generate", "--model", directory, "--prompt", prompt(a, b), "-n", "60",
                            "--temperature", "0"], text=True, capture_output=True, check=True)
        numbers = re.findall(r"\d+", p.stdout)
        right += bool(numbers) and int(numbers[-1]) == a + b
    return right / len(questions)


def leave_out(directory, family):
    """The same model without one norm or factor, in a directory of its own."""
    from safetensors.torch import load_file, save_file
    kind, name = LEFT_OUT[family]
    other = directory + "-without"
    shutil.copytree(directory, other, dirs_exist_ok=True)
    if kind == "setting":
        with open(os.path.join(other, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        del config[name]
        with open(os.path.join(other, "config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
    else:
        path = os.path.join(other, "model.safetensors")
        tensors = load_file(path)
        for key in tensors:
            if key.endswith(name):
                tensors[key] = tensors[key] - 1
        save_file(tensors, path, metadata={"format": "pt"})
    return other


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--keep", help="where the models stay")
    parser.add_argument("family", nargs="+", choices=sorted(FAMILIES))
    args = parser.parse_args()
    r, failed = random.Random(3), 0
    unseen = [(a, b) for a in range(10, 100) for b in range(10, 100) if make_text.pair_held_out(a, b)]
    questions = r.sample(unseen, 50)
    with tempfile.TemporaryDirectory() as tmp:
        for family in args.family:
            directory = os.path.join(args.keep or tmp, family)
            if not os.path.exists(os.path.join(directory, "model.safetensors")):
                os.makedirs(directory, exist_ok=True)
                write_files(directory, {**SIZES, **FAMILIES[family]})
                train(directory, args.steps)
            whole = share_right(directory, questions)
            without = share_right(leave_out(directory, family), questions)
            ok = whole >= 0.9 and without < 0.5
            failed += not ok
            print(f"{family}: {whole:.0%} of 50 unseen sums right, {without:.0%} without "
                  f"{LEFT_OUT[family][1]}: {'ok' if ok else 'FAILED'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
