#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Adapters of the reference data ($HEARTH_REFERENCE/goldens/families/lora) over their bases, as PEFT gives
them: on path `exact` logits within 3e-4, over a GGUF file of the Llama base too. A scale of 0 must give the base's logits. Files that are changed to
hold what is not supported must be refused by its name.

    test_lora.py [PATH TOLERANCE]    another numeric path, to its own tolerance
"""
import json
import os
import shutil
import struct
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import gguf_files
from logits_check import Tally, check_cases, check_model, path_options, read_floats, score

SKIPPED = 77
REFUSED = {
    "peft_type": "LOHA", "bias": "all", "use_dora": True, "fan_in_fan_out": True, "lora_bias": True,
    "modules_to_save": ["lm_head"], "layer_replication": [[0, 1]], "trainable_token_indices": [1],
    "target_parameters": ["x"], "use_qalora": True, "alora_invocation_tokens": [1], "r": 65,
    "target_modules": ["k_proj"], "layers_to_transform": [1], "lora_alpha": "8",
    "rank_pattern": {"q_proj": 5}, "alpha_pattern": {"(?=q)": 5},
}
# Python's alone, as trainers write it; it is not evaluated
PATTERN = r"(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|mlp)\.(?:(?:q_proj|v_proj)))"
SAID = {"r": "rank 65", "rank_pattern": "rank", "alpha_pattern": "POSIX"}


def read_tensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    header.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[slice(*v["data_offsets"])]) for k, v in header.items()}


def write_tensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def changed_tensors(tensors):
    """(what is said of it, tensors) for files that must be refused."""
    name = next(k for k in tensors if "q_proj.lora_A" in k)
    dtype, shape, raw = tensors[name]
    module = name.replace(".lora_A.weight", "")
    yield "lora_magnitude_vector", {**tensors, module + ".lora_magnitude_vector": ("F32", [64], bytes(256))}
    yield "embed_tokens", {**tensors, "base_model.model.model.embed_tokens.lora_embedding_A": ("F32", [4, 1], bytes(16))}
    yield "lm_head", {**tensors, "base_model.model.lm_head.weight": ("F32", [2, 2], bytes(16))}
    yield "base_layer.bias", {**tensors, module + ".base_layer.bias": ("F32", [64], bytes(256))}
    yield name, {**tensors, name: (dtype, [shape[1], shape[0]], raw)}
    yield name, {**tensors, name: (dtype, shape, struct.pack("<f", float("nan")) + raw[4:])}
    yield name, {k: v for k, v in tensors.items() if k != name.replace("lora_A", "lora_B")}
    yield "layers.7", {**tensors, name.replace("layers.0", "layers.7"): tensors[name]}


def refusals(base, adapter):
    """Problems of what must be refused by name, and of a pattern that must not."""
    problems = []
    with tempfile.TemporaryDirectory() as tmp:
        said = []
        with open(os.path.join(adapter, "adapter_config.json"), encoding="utf-8") as f:
            config = json.load(f)
        tensors = read_tensors(os.path.join(adapter, "adapter_model.safetensors"))
        said.append(("alpha_pattern of q_proj", {**config, "alpha_pattern": {"q_proj": "8"}}, tensors))
        said.append(("POSIX", {**config, "alpha_pattern": {"((q{9}){9}){9}": 5}}, tensors))
        said.append(("", {**config, "target_modules": PATTERN}, tensors))
        for key, value in REFUSED.items():
            said.append((SAID.get(key, key), {**config, key: value}, tensors))
        said += [(text, config, changed) for text, changed in changed_tensors(tensors)]
        for i, (_, changed, weights) in enumerate(said):
            os.mkdir(os.path.join(tmp, str(i)))
            with open(os.path.join(tmp, str(i), "adapter_config.json"), "w", encoding="utf-8") as f:
                json.dump(changed, f)
            write_tensors(os.path.join(tmp, str(i), "adapter_model.safetensors"), weights)
        pickled = os.path.join(tmp, "bin")
        os.mkdir(pickled)
        shutil.copy(os.path.join(adapter, "adapter_config.json"), pickled)
        open(os.path.join(pickled, "adapter_model.bin"), "wb").close()
        directories = [os.path.join(tmp, str(i)) for i in range(len(said))] + [pickled, os.path.join(tmp, "none")]
        texts = [s[0] for s in said] + ["adapter_model.bin", "adapter_config.json"]
        answers = score(base, [{"ids": [1], "lora": {d: 1}} for d in directories])
        for text, answer in zip(texts, answers):
            if text not in answer.get("error", "") or bool(text) != ("error" in answer):
                problems.append(f"not refused for {text}: {answer}")
    return problems


def over_gguf(root, name, golden, options, tolerance):
    """(worst, problems) over a file of the base, in which rows of queries and keys lie as pairs."""
    with tempfile.TemporaryDirectory() as tmp:
        base = os.path.join(tmp, "base.gguf")
        with open(base, "wb") as f:
            f.write(gguf_files.gguf(*gguf_files.demo(os.path.join(root, golden["base"]), quantised=False)))
        return check_cases(base, golden["cases"][0]["logits_shape"][1], golden["cases"],
                           lambda c: read_floats(os.path.join(root, "logits", name, c["logits_file"])),
                           lambda c: tolerance, options, lora={os.path.join(root, name): 1})


def main():
    root = os.path.join(os.environ.get("HEARTH_REFERENCE", ""), "goldens", "families", "lora")
    if not os.path.isdir(root):
        print("HEARTH_REFERENCE does not name reference data with goldens/families/lora")
        return SKIPPED
    options, tolerance = path_options(sys.argv[1:])
    tally = Tally()
    for name in sorted(os.listdir(os.path.join(root, "logits"))):
        folder = os.path.join(root, "logits", name)
        with open(os.path.join(folder, "golden.json"), encoding="utf-8") as f:
            golden = json.load(f)
        adapters = {os.path.join(root, name): 1} if "base" in golden else {os.path.join(root, "lora-r4-qv"): 0}
        if name == "base-qwen2-f32":
            adapters = {}
        worst, problems = check_model(os.path.join(root, golden.get("base", name)), golden,
                                      lambda c: read_floats(os.path.join(folder, c["logits_file"])),
                                      lambda c: tolerance or 3e-4, options, lora=adapters)
        tally.add(name, worst, problems)
        if golden.get("base") == "base-llama-bf16":
            tally.add(name + " over GGUF", *over_gguf(root, name, golden, options, tolerance or 3e-4))
    tally.add("refusals", 0.0, refusals(os.path.join(root, "base-llama-bf16"), os.path.join(root, "lora-r4-qv")))
    return tally.end()


if __name__ == "__main__":
    sys.exit(main())
