#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run by hand: lm-evaluation-harness (a published package) scores a local task over /v1/completions.

    lm_eval_run.py [--model DIR] [--python PYTHON-WITH-lm_eval]

Its model local-completions sends the ids of Hugging Face's tokenizer; the log-likelihood it finds for each
sample must agree to 1e-3 with `hearth-filter score` of the ids of our tokenizer, both on path `exact`.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

from hearth_server import DEMO, FILTER, Hearth

TASKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lm_eval")
LIMIT = 1e-3


def run_harness(python, url, model, scratch):
    """{(start, rest): log-likelihood}"""
    where = f"base_url={url}/v1/completions,tokenizer_backend=huggingface,tokenized_requests=True"
    subprocess.run([
        python, "-m", "lm_eval", "--model", "local-completions", "--model_args",
        f"model={os.path.basename(model)},tokenizer={model},{where}", "--include_path", TASKS, "--tasks", "sentences",
        "--log_samples", "--output_path", scratch], cwd=TASKS, check=True, timeout=600, env=dict(
            os.environ, HF_HOME=scratch, HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TRANSFORMERS_OFFLINE="1"))
    found = {}
    [path] = glob.glob(os.path.join(scratch, "**", "samples_sentences_*.jsonl"), recursive=True)
    with open(path, encoding="utf-8") as f:
        for sample in map(json.loads, f):
            found[sample["doc"]["start"], sample["doc"]["rest"]] = float(sample["resps"][0][0][0])
    return found


def score(h, model, pairs):
    """The same pairs by `hearth-filter score`: the rest is what follows the start's ids."""
    def ids(text):
        return h.post("/tokenize", {"prompt": text, "add_special_tokens": False})[2]["tokens"]
    whole = [ids(start + rest) for start, rest in pairs]
    p = subprocess.run([FILTER, "score", "--model", model, "--numerics", "exact"], check=True, text=True,
                       input="".join(json.dumps({"ids": i}) + "\n" for i in whole), stdout=subprocess.PIPE)
    rows = [json.loads(line)["logprobs"] for line in p.stdout.splitlines()]
    return {pair: sum(row[len(ids(pair[0])) - 1:]) for pair, row in zip(pairs, rows, strict=True)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default=DEMO)
    p.add_argument("--python", default=sys.executable)
    a = p.parse_args()
    model = os.path.abspath(a.model)
    with tempfile.TemporaryDirectory() as scratch, Hearth("--model", model, "--numerics", "exact") as h:
        found = run_harness(a.python, h.url, model, scratch)
        wanted = score(h, model, list(found))
    with open(os.path.join(TASKS, "sentences.jsonl"), encoding="utf-8") as f:
        assert len(found) == len(f.readlines()), len(found)
    worst = max(abs(found[pair] - wanted[pair]) for pair in found)
    print(f"{len(found)} samples, log-likelihood {sum(found.values()):.3f} in all, largest difference of a sample {worst:.2e} (limit {LIMIT:g})")
    sys.exit(1 if worst > LIMIT else 0)


if __name__ == "__main__":
    main()
