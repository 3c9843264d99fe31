#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the tiny random models of this folder, which give vectors and logits of labels, and what the reference makes of
them: config.json, weights, the files of modules, golden.json, rows.f32.

Needs PyTorch and transformers 5.23 from PyPI. Hidden states and logits are the reference's, in float32 with its plain
attention; pooling and what follows are the formulas of sentence-transformers, in double.

The embedding of the last id of a model with `poison` is so large that no number of its text is finite: tests see that it
spoils no other text.
"""
import importlib.util
import json
import os
import shutil

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
_spec = importlib.util.spec_from_file_location("models", os.path.join(HERE, "../models/generate.py"))
models = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(models)

SIZES = {"hidden_size": 24, "intermediate_size": 28, "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 48}
BERT = {**SIZES, "hidden_act": "gelu", "max_position_embeddings": 160, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
        "pad_token_id": 0}
ROBERTA = {**BERT, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1}
DISTIL = {"dim": 24, "hidden_dim": 28, "n_layers": 2, "n_heads": 3, "vocab_size": 48, "activation": "gelu",
          "max_position_embeddings": 160, "pad_token_id": 0}
MODERN = {**SIZES, "num_hidden_layers": 4, "global_attn_every_n_layers": 3, "local_attention": 12, "norm_eps": 1e-5,
          "hidden_activation": "gelu", "max_position_embeddings": 160, "global_rope_theta": 160000.0,
          "local_rope_theta": 10000.0, "pad_token_id": 0, "classifier_pooling": "mean"}
QWEN3 = {**SIZES, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 256,
         "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False}
LABELS = {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}

# name: (architecture, model_type, config, modules: pooling and what follows, or None for labels, poison)
MODELS = {
    "bert-mean": ("BertModel", "bert", BERT, ["mean_tokens", "Normalize"], True),
    "bert-labels": ("BertForSequenceClassification", "bert", {**BERT, **LABELS}, None, False),
    "roberta-max-dense": ("RobertaModel", "roberta", ROBERTA, ["max_tokens", "Dense"], False),
    "mpnet-labels": ("MPNetForSequenceClassification", "mpnet",
                     {**ROBERTA, "relative_attention_num_buckets": 32, **LABELS}, None, True),
    "distilbert-labels": ("DistilBertForSequenceClassification", "distilbert", {**DISTIL, **LABELS}, None, False),
    "modernbert-labels": ("ModernBertForSequenceClassification", "modernbert", {**MODERN, **LABELS}, None, False),
    "qwen3-last-dense": ("Qwen3Model", "qwen3", QWEN3, ["lasttoken", "Dense", "Dense", "Normalize"], False),
    "qwen3-labels": ("Qwen3ForSequenceClassification", "qwen3", {**QWEN3, "pad_token_id": 3, **LABELS}, None, False),
}
ACTIVATIONS = {"Tanh": np.tanh, "Identity": lambda x: x}
LENGTHS = (1, 2, 7, 31, 32, 33, 64, 65, 100)


def tensors_of(path, labels, rng):
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification
    make = AutoModelForSequenceClassification if labels else AutoModel
    for name, t in make.from_config(AutoConfig.from_pretrained(path)).state_dict().items():
        if t.dtype.is_floating_point:
            x = rng.standard_normal(tuple(t.shape))
            if t.dim() == 2:
                yield name, x * (1 if "embed" in name or "bias" in name else 1.6 / np.sqrt(t.shape[1]))
            else:
                yield name, 1 + 0.3 * x if "norm" in name.lower() and name.endswith("weight") else 0.5 * x


def as_stored(x):
    """What a bf16 tensor holds."""
    return (np.frombuffer(models.to_bytes(x, "BF16"), "<u2").astype("<u4") << 16).view("<f4").reshape(x.shape)


def write_modules(out, steps, width, rng):
    """The files of the modules; returns the steps as functions of the final hidden states [n, width] in double."""
    def pool(h):
        n = len(h)
        weights = np.arange(1, n + 1)[:, None]
        return {"mean_tokens": h.mean(0), "max_tokens": h.max(0), "lasttoken": h[-1], "cls_token": h[0],
                "weightedmean_tokens": (h * weights).sum(0) / weights.sum()}[steps[0]]

    def dense(w, b, act):
        return lambda x: ACTIVATIONS[act](w @ x + b)

    todo, listed = [pool], ["Transformer", "Pooling", *steps[1:]]
    os.makedirs(f"{out}/1_Pooling")
    with open(f"{out}/1_Pooling/config.json", "w") as f:
        json.dump({"word_embedding_dimension": width, f"pooling_mode_{steps[0]}": True}, f)
    for i, step in enumerate(steps[1:], 2):
        if step == "Normalize":
            todo.append(lambda x: x / np.sqrt((x * x).sum()))
            continue
        act, n_out = ("Tanh", 40) if i == 2 else ("Identity", 5)
        os.makedirs(f"{out}/{i}_Dense")
        with open(f"{out}/{i}_Dense/config.json", "w") as f:
            json.dump({"in_features": width, "out_features": n_out, "bias": True,
                       "activation_function": "torch.nn.modules." + ("activation.Tanh" if i == 2 else "linear.Identity")}, f)
        w, b = rng.standard_normal((n_out, width)) / np.sqrt(width), rng.standard_normal(n_out) * 0.5
        models.write_safetensors(f"{out}/{i}_Dense/model.safetensors",
                                 [("linear.weight", w, "BF16"), ("linear.bias", b, "BF16")])
        todo.append(dense(as_stored(w).astype(float), as_stored(b).astype(float), act))
        width = n_out
    with open(f"{out}/modules.json", "w") as f:
        json.dump([{"idx": i, "name": str(i), "path": f"{i}_{t}" if i else "",
                    "type": f"sentence_transformers.models.{t}"} for i, t in enumerate(listed)], f)
    return todo


def rows_of(out, labels, steps, cases, typed):
    import torch
    from transformers import AutoModel, AutoModelForSequenceClassification
    make = AutoModelForSequenceClassification if labels else AutoModel
    model = make.from_pretrained(out, dtype=torch.float32, attn_implementation="eager").eval()
    for case in cases:
        more = {"token_type_ids": torch.tensor([case["type_ids"]])} if typed else {}
        with torch.no_grad():
            answer = model(torch.tensor([case["ids"]]), **more)
        x = answer.logits[0].numpy() if labels else answer.last_hidden_state[0].numpy().astype(float)
        for step in steps:
            x = step(x)
        yield np.asarray(x, dtype="<f4")


def write_model(index, name):
    architecture, model_type, config, modules, poison = MODELS[name]
    rng = np.random.default_rng(2000 + index)
    out, labels = os.path.join(HERE, name), modules is None
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    with open(f"{out}/config.json", "w") as f:
        json.dump({"architectures": [architecture], "model_type": model_type, **config}, f, indent=1, sort_keys=True)
    tensors = list(tensors_of(out, labels, rng))
    for tensor, x in tensors:
        if poison and tensor.endswith("word_embeddings.weight"):
            x[-1] = 3e38
    models.write_safetensors(f"{out}/model.safetensors", [(n, x, "BF16") for n, x in tensors])
    steps = [] if labels else write_modules(out, modules, config.get("hidden_size", 24), rng)
    typed, cases = config.get("type_vocab_size", 1) > 1, []
    for n in LENGTHS:
        cases.append({"ids": [int(i) for i in rng.integers(4, 47, n)]})
        if typed:
            cases[-1]["type_ids"] = [int(k >= (n + 1) // 2) for k in range(n)]
    rows = list(rows_of(out, labels, steps, cases, typed))
    with open(f"{out}/golden.json", "w") as f:
        json.dump({"vectors_file": "rows.f32", **({"poison_id": 47} if poison else {}), "cases": cases}, f)
    with open(f"{out}/rows.f32", "wb") as f:
        for r in rows:
            f.write(r.tobytes())
    print(name, len(rows[0]), "numbers from", min(float(r.min()) for r in rows), "to", max(float(r.max()) for r in rows))


if __name__ == "__main__":
    for at, each in enumerate(MODELS):
        write_model(at, each)
