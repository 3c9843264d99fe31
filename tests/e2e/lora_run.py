#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Adapters under load, not part of the suite: many in turn through memory for some of them, what opening one costs and a stream
feels of it, and streams whose adapter is replaced and removed.

    lora_run.py [MODEL_DIRECTORY [ADAPTERS [RANK]]]    (the demo model, 1000, 16); random adapters of all seven matrices

Standard library only.
"""
import concurrent.futures
import json
import os
import random
import re
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hearth_server import DEMO, Hearth  # noqa: E402
from tiny_models import pack, write_file  # noqa: E402

MODEL = sys.argv[1] if len(sys.argv) > 1 else DEMO
N_ADAPTERS, RANK = [int(a) for a in (sys.argv[2:4] + ["1000", "16"][len(sys.argv[2:4]):])]
N_FILES, N_CLIENTS, N_STREAMS = min(50, N_ADAPTERS), 8, 100
PROMPT = list(range(100, 140))


def write_adapter(directory, seed):
    """Random numbers for every matrix; returns the bytes of its tensors."""
    with open(os.path.join(MODEL, "config.json"), encoding="utf-8") as f:
        c = json.load(f)
    d, ffn, head = c["hidden_size"], c["intermediate_size"], c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    q, kv = head * c["num_attention_heads"], head * c["num_key_value_heads"]
    widths = {"self_attn.q_proj": (d, q), "self_attn.k_proj": (d, kv), "self_attn.v_proj": (d, kv), "self_attn.o_proj": (q, d),
              "mlp.gate_proj": (d, ffn), "mlp.up_proj": (d, ffn), "mlp.down_proj": (ffn, d)}
    rng, header, data = random.Random(seed), {}, bytearray()
    for layer in range(c["num_hidden_layers"]):
        for module, (n_in, n_out) in widths.items():
            for part, shape in (("A", [RANK, n_in]), ("B", [n_out, RANK])):
                n = shape[0] * shape[1]
                raw = bytearray(2 * n)
                raw[0::2] = rng.randbytes(n)
                raw[1::2] = rng.randbytes(n).translate(bytes(0xbc if i & 1 else 0x3c for i in range(256)))
                header[f"base_model.model.model.layers.{layer}.{module}.lora_{part}.weight"] = {
                    "dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + 2 * n]}
                data += raw
    os.makedirs(directory)
    write_file(os.path.join(directory, "adapter_model.safetensors"), pack(header, bytes(data)))
    write_file(os.path.join(directory, "adapter_config.json"), {"peft_type": "LORA", "r": RANK, "lora_alpha": 40 * RANK, "target_modules": "all-linear"})
    return len(data)


def body(model, **fields):
    return {"model": model, "prompt": PROMPT, "max_tokens": 8, "temperature": 0, "ignore_eos": True, "return_token_ids": True, **fields}


def ids(h, model):
    status, _, answer = h.post("/v1/completions", body(model))
    assert status == 200, answer
    return answer["choices"][0]["token_ids"]


def gaps(h, loads):
    """Times between the chunks of a stream of 300 tokens, in ms; loads: names that are asked for meanwhile."""
    stream = h.stream("/v1/completions", body(None, max_tokens=300, stream=True))
    next(stream)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        done = pool.submit(lambda: [h.post("/v1/completions", body(n, max_tokens=1)) for n in loads])
        times = [time.monotonic() for _ in stream]
        done.result()
    return sorted((b - a) * 1000 for a, b in zip(times, times[1:]))


def turns(h, names):
    first = {}
    for name in names[:N_FILES]:  # alone
        first[name] = ids(h, name)
    assert len({tuple(v) for v in first.values()}) > N_FILES // 2
    random.Random(1).shuffle(names)
    with concurrent.futures.ThreadPoolExecutor(N_CLIENTS) as pool:
        wrong = sum(got != first[f"n{int(n[1:]) % N_FILES}"] for n, got in zip(names, pool.map(lambda n: ids(h, n), names)))
    m = h.metrics()
    rss, plan = m["process_resident_memory_bytes"] / 2**20, m["hearth_memory_plan_bytes"] / 2**20
    print(f"{len(names)} adapters in turn, {N_CLIENTS} clients: {wrong} wrong answers; RSS {rss:.0f} MiB, plan {plan:.0f} MiB")
    return wrong == 0 and rss <= plan


def replaced(h, folder):
    old, new = ids(h, "n0"), ids(h, "n1")
    load = lambda route, **f: h.post(route, f)[0]
    assert load("/v1/load_lora_adapter", lora_name="x", lora_path=os.path.join(folder, "n0")) == 200
    with concurrent.futures.ThreadPoolExecutor(N_STREAMS) as pool:
        def read(_):
            events = list(h.stream("/v1/completions", body("x", max_tokens=400 if MODEL == DEMO else 60, stream=True)))
            return [t for _, e in events if e != "[DONE]" for t in json.loads(e)["choices"][0].get("token_ids") or []]
        streams = [pool.submit(read, i) for i in range(N_STREAMS)]
        h.wait_until(lambda: h.get("/v1/models/x")[2]["in_flight"] == N_STREAMS, 60, "all streams run")
        assert load("/v1/load_lora_adapter", lora_name="x", lora_path=os.path.join(folder, "n1"), load_inplace=True) == 200
        assert ids(h, "x") == new and load("/v1/unload_lora_adapter", lora_name="x") == 200
        wrong = sum(s.result()[:8] != old for s in streams)
    print(f"{N_STREAMS} streams whose adapter was replaced and removed: {wrong} others than they began with")
    return wrong == 0


def main():
    with tempfile.TemporaryDirectory() as folder:
        size = max(write_adapter(os.path.join(folder, f"n{i}"), i) for i in range(N_FILES))
        for i in range(N_FILES, N_ADAPTERS):
            os.symlink(os.path.join(folder, f"n{i % N_FILES}"), os.path.join(folder, f"n{i}"))
        memory = size * 25 // 2**20 + 2
        with Hearth("--model", MODEL, "--lora-dir", folder, "--lora-memory", f"{memory}M", "--threads", "2", "--swap", "on", "--parallel", str(N_STREAMS),
                    "--max-queue", "1000", "--queue-timeout-ms", "600000", "--ctx-size", "512", "--numerics", "bf16") as h:
            names = [f"n{i}" for i in range(N_ADAPTERS)]
            good = turns(h, names)
            opened = sorted(float(re.search(r"is open, ([\d.]+) ms", line)[1]) for line in h.log if "is open" in line)
            print(f"opening {size / 2**20:.1f} MiB: least {opened[0]:.1f} ms, median {opened[len(opened) // 2]:.1f} ms, most {opened[-1]:.1f} ms, {len(opened)} times")
            for what, loads in (("alone", []), ("beside 20 that are opened", names[:20])):
                g = gaps(h, loads)
                print(f"a stream {what}: median gap {g[len(g) // 2]:.1f} ms, most {g[-1]:.1f} ms")
            good = replaced(h, folder) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
