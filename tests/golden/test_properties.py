#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Properties over drawn inputs, seeds fixed and named where one fails: decoding gives the text back, streamed
pieces joined are the plain decoding, and a prompt computed in chunks of any size gives the same bits.

Over the layouts of tests/golden/tokenizer and the demo model; with HEARTH_REFERENCE over its tokenizers too,
where a megabyte without a break must also take no more than linear time.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
DEMO = os.path.join(ROOT, "deploy", "demo")
sys.path.insert(0, os.path.join(HERE, "tokenizer"))
import bases  # noqa: E402
from layouts import LAYOUTS  # noqa: E402

FILTER = os.path.join(os.environ.get("HEARTH_BUILD_ROOT", "build"), "tests", "hearth-filter")
SLOW = bool(os.environ.get("HEARTH_SLOW"))
ALPHABETS = ("abcdefghijklmnopqrstuvwxyz ETAOIN", "0123456789.,-", " \t\n\r\u00a0\u3000", "éüßñÅøабвгאבג",
             "水日本語한국어", "🙂👍🏽\u200d👩\ufe0f", "e\u0301\u0323a\u0308", "'s're!?#$%()[]{}<|>", "\u0001\u007f\ufeff\u2028")
REFERENCE = ("smollm2-135m", "gpt2-tokenizer", "qwen2.5-tokenizer", "llama2-tokenizer", "llama3-tokenizer")
LOSSLESS = ("gpt2-tokenizer", "llama3-tokenizer")
RUNS = ("a", " ", "\n", "7", "!", "水", "e\u0301", "ab", "👩\u200d")
problems = []


def ask(command, model, requests, *options):
    p = subprocess.run([FILTER, command, "--model", model, *options], stdout=subprocess.PIPE, timeout=600, check=True,
                       input="".join(json.dumps(r) + "\n" for r in requests).encode())
    answers = [json.loads(line) for line in p.stdout.decode().split("\n")[:-1]]
    assert len(answers) == len(requests), f"{len(answers)} answers to {len(requests)} requests"
    return answers


def expect(ok, what):
    if not ok:
        problems.append(what)


def drawn_text(seed):
    rng = random.Random(seed)
    return "".join(rng.choice(rng.choice(ALPHABETS)) * rng.choice((1, 1, 1, 1, 2, 9))
                   for _ in range(rng.randrange(60)))


def decoded_is_encoded(name, model, n):
    """Only of tokenizers that keep every text."""
    texts = [drawn_text(seed) for seed in range(n)]
    encoded = ask("tokenize", model, [{"text": t, "parse_special": False} for t in texts])
    decoded = ask("tokenize", model, [{"ids": a["ids"]} for a in encoded])
    for seed, (text, answer) in enumerate(zip(texts, decoded)):
        expect(answer["text"] == text, f"{name}, seed {seed}: {text!r} comes back as {answer['text']!r}")


def streamed_is_plain(name, model, n):
    """Of ids drawn from all there are, and of ids that make up a text."""
    with open(os.path.join(model, "tokenizer.json"), encoding="utf-8") as f:
        vocab = json.load(f)["model"]["vocab"]  # of Unigram a list
        top = (max(vocab.values()) if isinstance(vocab, dict) else len(vocab)) + 5
    texts = ask("tokenize", model, [{"text": drawn_text(seed)} for seed in range(n)])
    requests = [{"ids": [rng.randrange(top) for _ in range(rng.randrange(40))], "skip_special": bool(seed % 2)}
                for seed in range(n) for rng in (random.Random(seed),)]
    requests += [{"ids": a["ids"], "skip_special": bool(i % 2)} for i, a in enumerate(texts) if "ids" in a]
    for i, (request, answer) in enumerate(zip(requests, ask("tokenize", model, requests))):
        joined = "".join(p or "" for p in answer["pieces"]) + answer["tail"]
        expect(joined == answer["text"], f"{name}, case {i}: {request}: {joined!r} is not {answer['text']!r}")


def chunked_is_whole(n):
    """Answers of `hearth-filter score`, log-probabilities and all, to the last digit they are written with."""
    rng = random.Random(5)
    requests = [{"ids": [rng.randrange(900) for _ in range(rng.randrange(2, 400))], "greedy": 4} for _ in range(n)]
    for numerics in ("exact", "int8"):
        whole = ask("score", DEMO, requests, "--numerics", numerics, "--chunk", "512", "--threads", "1")
        for chunk in [1, 128] + [rng.randrange(2, 200) for _ in range(2)]:
            threads = str(rng.choice((1, 2)))
            parts = ask("score", DEMO, requests, "--numerics", numerics, "--chunk", str(chunk), "--threads", threads)
            for request, a, b in zip(requests, whole, parts):
                expect("error" not in a and a == b, f"{numerics}: {len(request['ids'])} tokens in chunks of {chunk}")


class Filter:
    """A running `hearth-filter tokenize` that takes one text after the other."""

    def __init__(self, model):
        self.process = subprocess.Popen([FILTER, "tokenize", "--model", model], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/schedstat", encoding="ascii") as f:
            return int(f.read().split()[0]) / 1e9

    def seconds_of(self, text):
        """Processor seconds from the request to the end of its answer."""
        before = self.cpu_seconds()
        self.process.stdin.write(json.dumps({"text": text}).encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer.startswith(b'{"ids"'), answer[:200]
        return self.cpu_seconds() - before

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(60) == 0


def linear(name, model):
    """A run of 1 MB takes about 8 times the time of an 8th of one; quadratic work would take 64 times."""
    f = Filter(model)
    f.seconds_of("a")  # is answered when loading is done
    for unit in RUNS:
        n = 125000 // len(unit.encode())
        part = max(f.seconds_of(unit * n), 0.005)
        ratio = f.seconds_of(unit * 8 * n) / part
        if ratio >= 20:  # again, in case something else disturbed it
            ratio = f.seconds_of(unit * 8 * n) / part
        expect(ratio < 20, f"{name}: 8 times as many {unit!r} take {ratio:.1f} times as long")
    f.close()


def main():
    n = 40 if SLOW else 300
    with open(f"{HERE}/tokenizer/bases.json", encoding="ascii") as f:
        trained = json.load(f)
    for name, layout in LAYOUTS.items():
        with tempfile.TemporaryDirectory() as model:
            with open(f"{model}/tokenizer.json", "w", encoding="utf-8") as f:
                json.dump(bases.make(trained, *layout), f)
            streamed_is_plain(name, model, n)
    decoded_is_encoded("demo", DEMO, n)
    chunked_is_whole(4 if SLOW else 12)
    base = os.environ.get("HEARTH_REFERENCE")
    for name in REFERENCE if base and not SLOW else ():
        model = os.path.join(base, "models", name)
        streamed_is_plain(name, model, n)
        if name in LOSSLESS:
            decoded_is_encoded(name, model, n)
        linear(name, model)
    print("\n".join(problems[:20]))
    print(f"{len(problems)} properties broken")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
