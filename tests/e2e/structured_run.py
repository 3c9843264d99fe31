#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run by hand: answers bound to many schemas, by a model of random weights, judged by python-jsonschema.

    structured_run.py [--model DIR] [--schemas 500] [--seeds 4] [--clients 16] [--max-tokens 1024] [--open]

Schemas are those of $HEARTH_REFERENCE/goldens/schema/maskbench.jsonl.xz, every n-th one that the server compiles.
Needs jsonschema with its format checks (PyPI: jsonschema[format-nongpl]). DIR: by default random weights, 64 wide, with
the tokenizer of $HEARTH_REFERENCE/models/smollm2-135m. Quote, comma and brackets are favoured by logit_bias, so that
many answers end. Every answer that ended or was closed must be valid, where nothing is relaxed; every other one must
be the beginning of a text of the language; none may be longer than needed by white space or digits; none is a 5xx.
Objects are closed; --open: with --schema-objects open.
test_structured_answers.py has a small case.
"""
import argparse
import concurrent.futures
import json
import lzma
import os
import re
import subprocess
import sys
import tempfile

from accept_filter import Accept
from hearth_server import ROOT, Hearth, reference

import jsonschema

STRING = re.compile(r'"(?:[^"\\]|\\.)*("|$)')
WIDE_SPACE = re.compile(r"[ \t]{21}|\n[ \t]*\n[ \t]*\n")
DIGITS = re.compile(r"\d{40}")
CLOSERS = ['"', '",', '":', '"}', '"]', ",", "}", "]", "]}", "}}", "},", '"},', " ,", ":"]


# ---- what is asked -------------------------------------------------------------------------------

def real_schemas(n):
    """All schemas of the file, the first n spread over the whole of it."""
    with lzma.open(reference("goldens", "schema", "maskbench.jsonl.xz"), "rt", encoding="utf-8") as f:
        rows = [json.loads(line)["schema"] for line in f]
    step = max(1, len(rows) // n)
    return [schema for first in range(step) for schema in rows[first::step]]


def bias_of(model, strength):
    """logit_bias towards the tokens that are one of CLOSERS."""
    with open(os.path.join(model, "tokenizer.json"), encoding="utf-8") as f:
        vocab = json.load(f)["model"]["vocab"]
    spelled = {t.replace("\u0120", " ").replace("\u2581", " "): i for t, i in vocab.items()}
    return {str(spelled[t]): strength for t in CLOSERS if t in spelled}


# ---- what is judged ------------------------------------------------------------------------------

class Judge:
    def __init__(self, server, accept):
        self.server, self.accept = server, accept
        self.count = dict.fromkeys(("answers", "finished", "valid", "relaxed", "unjudged", "cut", "errors"), 0)
        self.wrong = []

    def note(self, schema, seed, why, text):
        self.wrong.append(why)
        print(f"WRONG: {why}: seed {seed}: {json.dumps(schema)[:2000]}: {text[-400:]!r}", flush=True)

    def answer(self, schema, seed, status, head, answer):
        self.count["answers"] += 1
        if status != 200:
            self.count["errors"] += 1
            self.note(schema, seed, f"status {status}", str(answer))
            return
        choice = answer["choices"][0]
        text, outside = choice["text"], STRING.sub('""', choice["text"])
        if WIDE_SPACE.search(outside) or DIGITS.search(outside):
            self.note(schema, seed, "more white space or digits than needed", text)
        if choice["finish_reason"] == "stop" or "completion_tokens_details" in answer["usage"]:
            self.finished(schema, seed, text, "x-schema-relaxed" in head)
        else:
            self.unfinished(schema, seed, text)

    def finished(self, schema, seed, text, relaxed):
        self.count["finished"] += 1
        if not self.accept.ask(schema=schema, texts=[text])["accepted"][0]:
            self.note(schema, seed, "finished, and not accepted", text)
        verdict, why = judge(schema, json.loads(text))
        if relaxed and verdict != "valid":
            verdict = "relaxed"
        if verdict == "invalid":
            self.note(schema, seed, why, text)
        else:
            self.count[verdict] += 1

    def unfinished(self, schema, seed, text):
        """A text cut inside a character ends with a replacement character. There is a mask for each id that was
        taken, and one more."""
        self.count["cut"] += 1
        text = text.rstrip("\ufffd")
        ids = self.server.post("/tokenize", {"content": text, "add_special": False})[2]["tokens"]
        n_masks = self.accept.ask(schema=schema, texts=[text])["masks"]["n"]
        if n_masks != len(ids) + 1:
            self.note(schema, seed, f"cut, and {len(ids)} ids are not the beginning of a text, {n_masks} masks", text)


def judge(schema, value):
    """("valid" | "invalid" | "unjudged", why) by jsonschema."""
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    errors = kind(schema, format_checker=kind.FORMAT_CHECKER).iter_errors(value)
    try:
        why = next((f"{e.json_path}: {e.message[:200]}" for e in errors), None)
    except Exception as e:  # a pattern that Python's re does not know, a reference that it cannot follow
        return "unjudged", f"{type(e).__name__}: {str(e)[:200]}"
    return ("invalid", why) if why else ("valid", None)


# ---- running -------------------------------------------------------------------------------------

def ask(server, schema, seed, a, bias):
    body = {"prompt": "Once", "max_tokens": a.max_tokens, "temperature": 1, "seed": seed, "json_schema": schema,
            "logit_bias": bias}
    return (schema, seed, *server.post("/v1/completions", body, timeout=600))


def run(server, accept, model, schemas, a):
    """Asks every schema with every seed; the judge with its counts."""
    bias = bias_of(model, a.bias)
    judge_all = Judge(server, accept)
    work = [(schema, seed) for schema in schemas for seed in range(a.seeds)]
    with concurrent.futures.ThreadPoolExecutor(a.clients) as pool:
        for result in pool.map(lambda w: ask(server, *w, a, bias), work):
            judge_all.answer(*result)
    return judge_all


def compiled(accept, schemas, n):
    """The first n that compile, and how many before them did not."""
    found, refused = [], 0
    for schema in schemas:
        if len(found) == n:
            break
        if "error" in accept.ask(schema=schema, texts=[]):
            refused += 1
        else:
            found.append(schema)
    return found, refused


def random_model(directory, tokenizer="smollm2-135m"):
    subprocess.run([sys.executable, os.path.join(ROOT, "tests", "bench", "make_model.py"), directory, "--shape", "narrow",
                    "--tokenizer", reference("models", tokenizer)], check=True)
    return directory


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model")
    p.add_argument("--schemas", type=int, default=500)
    p.add_argument("--seeds", type=int, default=4)
    p.add_argument("--clients", type=int, default=16)
    p.add_argument("--max-tokens", type=int, default=1024)
    p.add_argument("--bias", type=float, default=6)
    p.add_argument("--open", action="store_true")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model = a.model or random_model(os.path.join(scratch, "model"))
        objects = "open" if a.open else "closed"
        with (Hearth("--model", model, "--parallel", str(a.clients), "--schema-objects", objects) as server,
              Accept(model) as accept):
            schemas, refused = compiled(accept, real_schemas(a.schemas), a.schemas)
            found = run(server, accept, model, schemas, a)
    n = found.count["answers"]
    print(f"{len(schemas)} schemas ({refused} others refused), {n} answers, {100 * found.count['finished'] / n:.1f} % finished: "
          f"{found.count}; {len(found.wrong)} wrong")
    sys.exit(1 if found.wrong else 0)


if __name__ == "__main__":
    main()
