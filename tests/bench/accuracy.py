#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How far each numeric path is from the reference, on any model directory.

    accuracy.py DIR ... [--text FILE] [--path exact --path bf16 --path "bf16 --kv-dtype int8" ...]
    accuracy.py DIR=DUMP ...            against recorded logits instead of Hearth's own path `exact`
    accuracy.py --goldens BASE          all models of a folder of reference data (HEARTH_REFERENCE)
    accuracy.py DIR --make-dump DUMP    records the logits of transformers (pip install transformers torch)
    accuracy.py DIR --libraries FOLDER --path int4 --path "llama.cpp q4_0"
                                        also llama.cpp's library (peer_llama.py) on the same weights, which
                                        must be BF16 with a tied head, quantised by itself to q4_0 or q8_0

Each path scores the same token sequences with `hearth-filter score`; the rows of logits are compared with those of
the reference: largest and mean difference of a logit, mean and largest KL divergence of the distribution
after a position from the reference's (in nats), how often the best token is the same, and the perplexity
of the sequences. Without a dump the sequences are windows of the text, or random ids where the model has no
tokenizer. A DUMP is a folder with golden.json: `cases` of `ids`, `logits_file` (raw little-endian f32) and
`logits_rows` (the positions recorded). Needs numpy.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

import numpy as np

from make_model import write_gguf

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PATHS = ["exact", "bf16", "int8", "int4"]
COLUMNS = ("max_diff", "mean_diff", "kl_mean", "kl_max", "top1", "perplexity")


def hearth(a, command, directory, requests, options=()):
    """One answer for each request, by a filter of the hearth binary."""
    p = subprocess.run([a.filter, command, "--model", directory, *options], text=True,
                       input="".join(json.dumps(r) + "\n" for r in requests),
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if p.returncode != 0:
        raise RuntimeError(f"hearth {command} {directory}: {p.stderr.strip()}")
    answers = [json.loads(line) for line in p.stdout.split("\n") if line]
    for answer in answers:
        if "error" in answer:
            raise RuntimeError(f"hearth {command} {directory}: {answer['error']}")
    return answers


def vocabulary(directory):
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as f:
        return json.load(f)["vocab_size"]


class Tally:
    """Sums over rows of logits; `figures` gives the columns."""

    def __init__(self):
        self.max_diff = self.diff = self.kl = self.kl_max = self.nll = self.reference_nll = 0.0
        self.n_logits = self.n_rows = self.same = self.n_scored = 0

    def add_rows(self, got, want):
        off = np.abs(got - want)
        self.max_diff = max(self.max_diff, float(off.max()))
        self.diff += float(off.sum())
        self.n_logits += off.size
        p, q = log_softmax(want), log_softmax(got)
        kl = np.maximum((np.exp(p) * (p - q)).sum(axis=1), 0)
        self.kl += float(kl.sum())
        self.kl_max = max(self.kl_max, float(kl.max()))
        self.same += int((got.argmax(axis=1) == want.argmax(axis=1)).sum())
        self.n_rows += len(got)

    def add_logprobs(self, logprobs):
        self.nll -= sum(logprobs)
        self.n_scored += len(logprobs)

    def figures(self):
        return {"max_diff": self.max_diff, "mean_diff": self.diff / self.n_logits,
                "kl_mean": self.kl / self.n_rows, "kl_max": self.kl_max, "top1": self.same / self.n_rows,
                "perplexity": float(np.exp(self.nll / max(self.n_scored, 1))), "rows": self.n_rows}


def log_softmax(rows):
    rows = rows.astype(np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))


class Case:
    """A token sequence, and the reference's rows at some of its positions."""

    def __init__(self, ids, rows, load):
        self.ids, self.rows, self.load = ids, rows, load


def windows(a, directory):
    """Token sequences to compare on: the text cut into windows, or random ids."""
    try:
        with open(a.text, encoding="utf-8") as f:
            answer = hearth(a, "tokenize", directory, [{"text": f.read(), "add_special": True}])
        ids = answer[0]["ids"]
    except RuntimeError:
        ids = []
    if len(ids) < 2:
        rng, n = random.Random(5), vocabulary(directory)
        ids = [rng.randrange(n) for _ in range(a.tokens)]
    ids = ids[:a.tokens]
    return [ids[i:i + a.window] for i in range(0, len(ids), a.window) if len(ids) - i > 1]


def read_rows(path, vocab, skip=0, n=-1):
    return np.fromfile(path, "<f4", count=n * vocab if n >= 0 else -1, offset=4 * skip * vocab) \
        .reshape(-1, vocab)


def recorded_cases(directory, dump):
    """The cases of golden.json; without logits_file they lie one after the other in logits.f32."""
    with open(os.path.join(dump, "golden.json"), encoding="utf-8") as f:
        golden = json.load(f)
    vocab, cases, at = vocabulary(directory), [], 0
    for c in golden["cases"]:
        n = len(c["logits_rows"])
        if "logits_file" in c:
            load = lambda p=os.path.join(dump, c["logits_file"]): read_rows(p, vocab)
        else:
            load = lambda p=os.path.join(dump, "logits.f32"), s=at, n=n: read_rows(p, vocab, s, n)
        cases.append(Case(c["ids"], c["logits_rows"], load))
        at += n
    return cases


def exact_cases(a, directory, tmp):
    sequences = windows(a, directory)
    files = [os.path.join(tmp, f"reference{i}") for i in range(len(sequences))]
    hearth(a, "score", directory, [{"ids": s, "logits": f} for s, f in zip(sequences, files)],
           ["--numerics", "exact"])
    vocab = vocabulary(directory)
    return [Case(s, range(len(s)), lambda f=f: read_rows(f, vocab)) for s, f in zip(sequences, files)]


def measure(a, directory, cases, path, tmp, tally):
    """Scores the cases by one path (its name and further options) into the tally."""
    vocab = vocabulary(directory)
    files = [os.path.join(tmp, f"got{i}") for i in range(len(cases))]
    answers = hearth(a, "score", directory, [{"ids": c.ids, "logits": f} for c, f in zip(cases, files)],
                     ["--numerics", *path.split(), *a.options.split()])
    for case, file, answer in zip(cases, files, answers):
        got = read_rows(file, vocab)[list(case.rows)]
        tally.add_rows(got, case.load())
        tally.add_logprobs(answer["logprobs"])
        os.remove(file)


def make_gguf(a, directory, kind, tmp):
    """The model as llama.cpp quantises it."""
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as f:
        c = json.load(f)
    shape = (c["hidden_size"], c["num_hidden_layers"], c["num_attention_heads"], c["num_key_value_heads"],
             c["intermediate_size"], c["vocab_size"], float(c["rope_theta"]), c["max_position_embeddings"])
    plain, out = os.path.join(tmp, "bf16.gguf"), os.path.join(tmp, kind + ".gguf")
    write_gguf(plain, os.path.join(directory, "model.safetensors"), shape)
    ask_peer(a, "quantize", plain, kind, out)
    return out


def ask_peer(a, *command):
    p = subprocess.run([sys.executable, os.path.join(HERE, "peer_llama.py"), a.libraries, *command],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if p.returncode != 0:
        raise RuntimeError(f"llama.cpp {command[0]}: {p.stderr.decode(errors='replace').strip()}")
    return p.stdout


def measure_peer(a, directory, cases, kind, tmp, tally):
    gguf, vocab = make_gguf(a, directory, kind, tmp), vocabulary(directory)
    for case in cases:
        raw = ask_peer(a, "logits", gguf, ",".join(map(str, case.ids)))
        got = np.frombuffer(raw, "<f4").reshape(-1, vocab)
        tally.add_rows(got[list(case.rows)], case.load())
        scores = log_softmax(got[:-1])
        tally.add_logprobs([float(scores[i, t]) for i, t in enumerate(case.ids[1:])])


def measure_path(a, directory, dump, cases, path, tmp, tally):
    if path == "exact" and not dump:
        for c in cases:  # its own reference: only the perplexity is news
            tally.add_rows(c.load(), c.load())
        for answer in hearth(a, "score", directory, [{"ids": c.ids} for c in cases], ["--numerics", "exact"]):
            tally.add_logprobs(answer["logprobs"])
    elif path.startswith("llama.cpp "):
        measure_peer(a, directory, cases, path.split()[1], tmp, tally)
    else:
        measure(a, directory, cases, path, tmp, tally)


def measure_group(a, label, models):
    """All paths on a group of models, (directory, dump or None) each: yields a path's row once it is done on all of
    them, or has been refused."""
    tallies, refused = {path: Tally() for path in a.paths}, {}
    for i, (directory, dump) in enumerate(models):
        with tempfile.TemporaryDirectory(dir=a.tmp) as tmp:
            cases = recorded_cases(directory, dump) if dump else exact_cases(a, directory, tmp)
            for path in a.paths:
                row = {"model": label, "reference": "recorded" if models[0][1] else "exact", "path": path}
                try:
                    if path not in refused:
                        measure_path(a, directory, dump, cases, path, tmp, tallies[path])
                except RuntimeError as e:
                    refused[path] = str(e)
                    yield {**row, "refused": str(e)}
                if i == len(models) - 1 and path not in refused:
                    yield {**row, **tallies[path].figures()}


def golden_groups(base):
    """label -> [(directory, dump)]: the tiny random models together, trained ones each alone."""
    groups = {}
    logits = os.path.join(base, "goldens", "logits")
    for name in sorted(os.listdir(logits)):
        if not os.path.exists(os.path.join(logits, name, "golden.json")):
            continue
        inside = os.path.join(base, "goldens", "models", name)
        trained = not os.path.isdir(inside)
        directory = os.path.join(base, "models", name) if trained else inside
        label = name if trained else "tiny random models"
        groups.setdefault(label, []).append((directory, os.path.join(logits, name)))
    return groups


def make_dump(a, directory):
    """The logits of transformers, in float32 with its plain attention, of the windows of the text."""
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_grad_enabled(False)
    model = AutoModelForCausalLM.from_pretrained(directory, torch_dtype=torch.float32,
                                                 attn_implementation="eager").eval()
    os.makedirs(a.make_dump, exist_ok=True)
    cases = []
    for i, ids in enumerate(windows(a, directory)):
        rows = model(torch.tensor([ids])).logits[0].float().numpy()
        rows.astype("<f4").tofile(os.path.join(a.make_dump, f"{i}.f32"))
        cases.append({"name": str(i), "ids": ids, "logits_file": f"{i}.f32",
                      "logits_rows": list(range(len(ids)))})
    with open(os.path.join(a.make_dump, "golden.json"), "w", encoding="utf-8") as f:
        json.dump({"cases": cases}, f)
    print(f"{len(cases)} cases in {a.make_dump}")


def show(r):
    if "refused" in r:
        print(f"| {r['model']} | {r['path']} | refused: {r['refused']} | | | | | | {r['reference']} |", flush=True)
    else:
        print(f"| {r['model']} | {r['path']} | {r['max_diff']:.2g} | {r['mean_diff']:.2g} | {r['kl_mean']:.2g} | "
              f"{r['kl_max']:.2g} | {r['top1']:.2%} | {r['perplexity']:.5g} | {r['reference']} |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", metavar="DIR[=DUMP]")
    p.add_argument("--goldens", help="folder of reference data")
    p.add_argument("--filter", default=os.path.join(os.environ.get("HEARTH_BUILD_ROOT", os.path.join(ROOT, "build")), "tests", "hearth-filter"))
    p.add_argument("--path", dest="paths", action="append", help="numeric path, with further options")
    p.add_argument("--options", default="", help="for every run, such as '--kernels avx2'")
    p.add_argument("--text", default=os.path.join(HERE, "story.txt"))
    p.add_argument("--tokens", type=int, default=512, help="of the text, or of random ids")
    p.add_argument("--window", type=int, default=256, help="tokens a sequence")
    p.add_argument("--libraries", help="folder of libllama.so")
    p.add_argument("--make-dump")
    p.add_argument("--tmp", help="folder for logits: tokens x vocabulary x 8 bytes")
    p.add_argument("--json")
    a = p.parse_args()
    a.paths = a.paths or PATHS
    if a.make_dump:
        return make_dump(a, a.models[0])
    groups = golden_groups(a.goldens) if a.goldens else {}
    for m in a.models:
        directory, _, dump = m.partition("=")
        groups[os.path.basename(os.path.normpath(directory))] = [(directory, dump or None)]
    print("| model | path | largest difference | mean difference | KL mean | KL largest | same best token | "
          "perplexity | reference |\n|---|---|---|---|---|---|---|---|---|")
    rows = []
    for label, models in groups.items():
        for row in measure_group(a, label, models):
            show(row)
            rows.append(row)
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"kind": "accuracy", "rows": rows}, f, indent=1)
    return 1 if any("refused" in r for r in rows) else None


if __name__ == "__main__":
    sys.exit(main())
