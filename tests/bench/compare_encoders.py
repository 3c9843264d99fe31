#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Vectors of texts: Hearth, ONNX Runtime, OpenVINO and torch on the same random weights, in turns.

    compare_encoders.py [--hearth build/hearth] [--work build/encoders] [--threads 2] [--texts 256] [--tokens 128]
                        [--rounds 5] [--only int8,bf16,ort-int8]

Needs torch, transformers, onnx, onnxscript, onnxruntime and openvino from the registry of Python packages. The model
has the shape of all-MiniLM-L6 (6 layers of 384, random weights); ONNX Runtime runs it fused by its own optimizer, and
in int8 quantized by its own quantizer (dynamic, per channel); OpenVINO compiles the same graph with the hint for
throughput, and in f32. The peers get the texts in batches of 32 as ids and take the mean themselves; Hearth gets them
over HTTP as ids, in one request, and answers in base64. Every round asks each once; a figure is the median of the
rounds' texts per second. Prints the cosine of each to torch's vectors too: who computes something else is not faster.
"""
import argparse
import base64
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BATCH = 32


def make_model(folder):
    import torch
    from transformers import BertConfig, BertModel
    if os.path.exists(os.path.join(folder, "model.safetensors")):
        return
    torch.manual_seed(1)
    config = BertConfig(vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    demo = os.path.join(ROOT, "deploy", "demo-embed")
    shutil.copytree(demo, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "README.md", "model.safetensors"))
    BertModel(config).to(torch.bfloat16).save_pretrained(folder)
    with open(os.path.join(folder, "sentence_bert_config.json"), "w", encoding="utf-8") as f:
        json.dump({"max_seq_length": 512, "do_lower_case": False}, f)


def make_graphs(folder, work):
    """The graph as exported, fused, and fused in int8."""
    import torch
    from onnx import TensorProto
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers import optimizer
    from transformers import BertModel
    paths = [os.path.join(work, name) for name in ("plain.onnx", "fused.onnx", "int8.onnx")]
    if os.path.exists(paths[2]):
        return paths
    model = BertModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()

    class Rows(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, mask, types):
            return self.model(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
    ids = torch.ones(2, 16, dtype=torch.int64)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    torch.onnx.export(Rows(), (ids, torch.ones_like(ids), torch.zeros_like(ids)), paths[0], input_names=names,
                      output_names=["rows"], dynamic_axes={name: {0: "n", 1: "t"} for name in names}, opset_version=17,
                      dynamo=False)
    fused = optimizer.optimize_model(paths[0], model_type="bert", num_heads=12, hidden_size=384)
    print("fused:", {k: v for k, v in fused.get_fused_operator_statistics().items() if v}, flush=True)
    fused.save_model_to_file(paths[1])
    quantize_dynamic(paths[1], paths[2] + ".part", per_channel=True, reduce_range=False, weight_type=QuantType.QInt8,
                     extra_options={"DefaultTensorType": TensorProto.FLOAT})
    os.rename(paths[2] + ".part", paths[2])
    return paths


def mean_of(rows):
    mean = rows.mean(axis=1)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def feeds_of(ids):
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def batches(ids, one):
    return np.concatenate([mean_of(one(feeds_of(ids[i:i + BATCH]))) for i in range(0, len(ids), BATCH)])


def ort(path, threads):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    return lambda ids: batches(ids, lambda f: session.run(None, {k: v for k, v in f.items() if k in wanted})[0])


def openvino(path, threads):
    import openvino as ov
    compiled = ov.Core().compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "THROUGHPUT",
                                                     "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"})
    return lambda ids: batches(ids, lambda f: compiled([f[i.any_name] for i in compiled.inputs])[0])


def torch_f32(folder, threads):
    import torch
    from transformers import BertModel
    torch.set_num_threads(threads)
    model = BertModel.from_pretrained(folder, dtype=torch.float32).eval()

    def one(feeds):
        with torch.inference_mode():
            return model(**{k: torch.from_numpy(v) for k, v in feeds.items()}).last_hidden_state.numpy()
    return lambda ids: batches(ids, one)


class Hearth:
    def __init__(self, a, folder, numerics):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{s.getsockname()[1]}"
        self.process = subprocess.Popen(
            [a.hearth, "serve", "--model", folder, "--port", self.url.rsplit(":", 1)[1], "--numerics", numerics, "--threads",
             str(a.threads)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while True:
            try:
                urllib.request.urlopen(self.url + "/health", timeout=5).read()
                return
            except OSError as e:
                if self.process.poll() is not None:
                    sys.exit(f"{a.hearth} did not start: exit status {self.process.returncode}")
                if not isinstance(e, urllib.error.HTTPError):
                    time.sleep(0.02)

    def __call__(self, ids):
        body = {"model": "default", "input": ids.tolist(), "encoding_format": "base64"}
        request = urllib.request.Request(self.url + "/v1/embeddings", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        data = json.load(urllib.request.urlopen(request, timeout=300))["data"]
        return np.stack([np.frombuffer(base64.b64decode(d["embedding"]), np.float32) for d in data])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hearth", default=os.path.join(ROOT, "build", "hearth"))
    parser.add_argument("--work", default=os.path.join(ROOT, "build", "encoders"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only")
    a = parser.parse_args()
    os.makedirs(a.work, exist_ok=True)
    folder = os.path.join(a.work, "minilm-l6")
    make_model(folder)
    plain, fused, int8 = make_graphs(folder, a.work)
    makers = {"torch-f32": lambda: torch_f32(folder, a.threads), "ort-f32": lambda: ort(fused, a.threads),
              "ort-int8": lambda: ort(int8, a.threads), "openvino-f32": lambda: openvino(plain, a.threads),
              "exact": lambda: Hearth(a, folder, "exact"), "bf16": lambda: Hearth(a, folder, "bf16"),
              "int8": lambda: Hearth(a, folder, "int8")}
    wanted = a.only.split(",") if a.only else list(makers)
    peers = {name: makers[name]() for name in wanted}
    try:
        ids = np.random.default_rng(1).integers(5, 3000, (a.texts, a.tokens))
        vectors = {name: peer(ids[:BATCH]) for name, peer in peers.items()}
        rates = {name: [] for name in peers}
        for k in range(a.rounds):
            for name in wanted if k % 2 else wanted[::-1]:
                start = time.time()
                peers[name](ids)
                rates[name].append(a.texts / (time.time() - start))
    finally:
        for peer in peers.values():
            if isinstance(peer, Hearth):
                peer.process.terminate()
                peer.process.wait()
    first = vectors[wanted[0]]
    print(f"{a.texts} texts of {a.tokens} tokens, {a.threads} threads, {a.rounds} rounds in turns; texts/s")
    for name in wanted:
        r = rates[name]
        print(f"{name:14} {statistics.median(r):8.1f} ({min(r):.1f} to {max(r):.1f})   least cosine to {wanted[0]} "
              f"{(vectors[name] * first).sum(axis=1).min():.5f}", flush=True)


if __name__ == "__main__":
    main()
