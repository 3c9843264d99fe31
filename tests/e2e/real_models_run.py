#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trained models beside other programs that compute them, by hand (real_models.md).

    real_models_run.py record      writes real_models.json: what test_real_models.py compares with, from transformers and
                                   sentence-transformers on the same weights (pip: torch transformers sentence-transformers)

Needs numpy and gguf (pip).
"""
import argparse
import array
import base64
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "bench")]
import test_real_models as real  # noqa: E402


def directory(file, dtype="f32"):
    """The file's numbers as a Hugging Face directory."""
    out = f"{file.removesuffix('.gguf')}-{dtype}"
    if not os.path.exists(os.path.join(out, "model.safetensors")):
        subprocess.run([sys.executable, os.path.join(os.path.dirname(HERE), "bench", "from_gguf.py"), file, out, "--dtype", dtype],
                       check=True)
    return out


# ---- what the test compares with --------------------------------------------------------------------------

def greedy(torch, model, ids, ends):
    """(ids of the answer without its end, whether it ended, the smallest lead of a chosen logit over the second)."""
    out, lead, cache, new = [], float("inf"), None, ids
    while len(out) < real.N_ANSWER:
        step = model(torch.tensor([new]), past_key_values=cache, use_cache=True)
        cache, best = step.past_key_values, torch.topk(step.logits[0, -1], 2)
        lead = min(lead, float(best.values[0] - best.values[1]))
        token = int(best.indices[0])
        if token in ends:
            return out, True, lead
        out.append(token)
        new = [token]
    return out, False, lead


def answers(torch, model, tokenizer):
    for prompt in real.PROMPTS:
        if isinstance(prompt, str):
            ids = tokenizer(prompt)["input_ids"]
        else:
            text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        out, ended, lead = greedy(torch, model, ids, {tokenizer.eos_token_id})
        text = tokenizer.decode(out, skip_special_tokens=True)
        print(f"{len(ids)} tokens, least lead {lead:.4f}, {'ended' if ended else 'cut'}: {text!r}")
        yield {"prompt_ids": ids, "text": text, "ended": ended}


def record(_):
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModelForCausalLM, AutoTokenizer
    torch.set_grad_enabled(False)
    real.fetch()
    folder = directory(real.SMOLLM2.path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    ids = tokenizer(real.prose())["input_ids"][:real.N_PROSE + 1]
    logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
    result = {"prose_ids": ids, "prose_logprobs": [round(float(logprobs[i, t]), 5) for i, t in enumerate(ids[1:])],
              "answers": list(answers(torch, model, tokenizer))}
    vectors = SentenceTransformer(real.MINILM.path).encode(real.TEXTS, convert_to_numpy=True, normalize_embeddings=True)
    result["vectors"] = base64.b64encode(array.array("f", vectors.flatten().tolist()).tobytes()).decode()
    with open(real.RECORDED, "w", encoding="utf-8") as f:
        f.write("{" + ",\n ".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in result.items()) + "}\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["record"])
    a = p.parse_args()
    record(a)


if __name__ == "__main__":
    main()
