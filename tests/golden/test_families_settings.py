#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""No setting of a model is read and then not used: each number of config.json, changed a little, changes
the logits of a tiny model of every family beyond the tolerance of its golden, or is refused.

Reals change by 1 %, eps tenfold, integers by one; flags are flipped. WITHOUT_EFFECT lists the rest.
"""
import copy
import json
import os
import sys
import tempfile

from logits_check import largest_difference, read_floats, score

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")
TOLERANCE = 2e-4
LENGTH = 61

BOUND = "a bound between frequencies that none of these few is near; the unit test of rope.c holds it"
# setting, models (as their names begin) -> why logits do not depend on it. What the engine ignores on
# purpose is listed in tests/unit/engine_model/test_config.c.
WITHOUT_EFFECT = [
    ("bos_token_id", "", "an id that the tokenizer uses"),
    ("eos_token_id", "", "an id that ends an answer"),
    ("pad_token_id", "", "an id that is not used"),
    ("max_position_embeddings", "", "a limit"),
    ("mamba_n_heads", "granite4", "of layers that are refused"),
    ("num_experts_per_tok", "granite4", "of layers that are refused"),
    ("intermediate_size", "granite4", "shared_intermediate_size is read"),
    ("max_window_layers", "qwen3", "layer_types is read"),
    ("factor", "hunyuan", "alpha counts alone"),
    ("factor", "llama-dynamic", "counts beyond the original context, which is the limit"),
    ("original_max_position_embeddings", "", BOUND),
    ("low_freq_factor", "llama-llama3", BOUND),
    ("high_freq_factor", "llama-llama3", BOUND),
    ("mrope_interleaved", "qwen3_5", "text has one position, the same in each section"),
    ("mtp_num_hidden_layers", "qwen3_5", "its layers are not read"),
]


def fields(config, path=()):
    for key, value in config.items():
        if isinstance(value, dict):
            yield from fields(value, (*path, key))
        elif isinstance(value, (bool, int, float)):
            yield (*path, key), value


def changed(key, value):
    if isinstance(value, bool):
        return not value
    if key.endswith("eps"):
        return value * 10
    if isinstance(value, float):
        return value * 1.01 if key != "partial_rotary_factor" else value - 0.25
    return value + 1


def logits(directory, ids, options=()):
    with tempfile.NamedTemporaryFile() as f:
        answer = score(directory, [{"ids": ids, "logits": f.name}], ["--numerics", "exact", *options])[0]
        return None if "error" in answer else read_floats(f.name)


def difference(source, config, ids, vocab, plain):
    """The largest change of a logit; None: the configuration is refused."""
    with tempfile.TemporaryDirectory() as d:
        for name in os.listdir(source):
            if name.endswith((".safetensors", ".index.json")):
                os.symlink(os.path.join(source, name), os.path.join(d, name))
        with open(os.path.join(d, "config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        try:
            got = logits(d, ids)
        except AssertionError:
            return None
    return None if got is None else largest_difference(got, vocab, plain, range(len(ids)))


def is_excused(key, model):
    return any(key == k and model.startswith(m) for k, m, _ in WITHOUT_EFFECT)


def check(name):
    directory = os.path.join(MODELS, name)
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    vocab, n, failed = config.get("text_config", config)["vocab_size"], 0, 0
    ids = [(37 * i * i + 11 * i + 3) % vocab for i in range(LENGTH)]
    plain = logits(directory, ids)
    for path, value in fields(config):
        if is_excused(path[-1], name):
            continue
        other = copy.deepcopy(config)
        place = other
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = changed(path[-1], value)
        off = difference(directory, other, ids, vocab, plain)
        n += 1
        if off is not None and not off > TOLERANCE:
            failed += 1
            print(f"{name}: {'.'.join(path)} {value} -> {place[path[-1]]} changes logits by {off:.2g} only")
    print(f"{name}: {n} settings, {failed} without effect")
    return failed


def main():
    names = sorted(n for n in os.listdir(MODELS) if os.path.exists(os.path.join(MODELS, n, "config.json")))
    return 1 if sum(check(n) for n in names) else 0


if __name__ == "__main__":
    sys.exit(main())
