#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`hearth-filter score` as a filter: one answer a line, in order, whatever stands in the line; `hearth inspect`."""
import json
import math
import os
import subprocess
import tempfile

from hearth_server import BIN, DEMO, FILTER, run_cases


def filter_lines(lines, *options, model=DEMO):
    text = "".join((l if isinstance(l, str) else json.dumps(l)) + "\n" for l in lines)
    p = subprocess.run([FILTER, "score", "--model", model, "--numerics", "exact", *options], input=text,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
                       check=False)
    assert p.returncode == 0, p.stderr
    answers = [json.loads(l) for l in p.stdout.split("\n") if l]
    assert len(answers) == len(lines), f"{len(answers)} answers to {len(lines)} lines"
    return answers


def test_fields():
    ids = [5, 9, 40, 41, 7, 3]
    plain, greedy = filter_lines([{"ids": ids}, {"ids": ids, "greedy": 4}])
    assert set(plain) == {"ids", "logprobs", "argmax", "perplexity"}, plain
    assert plain["ids"] == ids and len(plain["argmax"]) == 6 and len(plain["logprobs"]) == 5
    assert all(x <= 0 for x in plain["logprobs"]), plain
    mean = sum(plain["logprobs"]) / 5
    assert abs(plain["perplexity"] / math.exp(-mean) - 1) < 1e-6, plain
    assert {k: greedy[k] for k in plain} == plain, "greedy changes the rest"
    assert len(greedy["greedy_ids"]) == len(greedy["greedy_margins"]) == 4
    assert greedy["greedy_ids"][0] == plain["argmax"][-1]
    assert all(m >= 0 for m in greedy["greedy_margins"])


def test_one_token():
    answer, = filter_lines([{"ids": [5]}])
    assert answer["logprobs"] == [] and answer["perplexity"] is None and len(answer["argmax"]) == 1


def test_greedy_is_the_argmax_of_the_longer_text():
    """A prefix answers like the whole, and every greedy token is the argmax where it stands."""
    ids = [5, 9, 40]
    first, = filter_lines([{"ids": ids, "greedy": 20}])
    whole, = filter_lines([{"ids": ids + first["greedy_ids"]}])
    assert whole["argmax"][2:-1] == first["greedy_ids"]
    assert whole["logprobs"][:2] == first["logprobs"]


def test_text():
    by_text, = filter_lines([{"text": "Once upon a time"}])
    by_ids, = filter_lines([{"ids": by_text["ids"]}])
    assert by_text == by_ids and len(by_text["ids"]) > 1


def test_logits_file():
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "rows")
        answer, = filter_lines([{"ids": [5, 9, 40], "logits": path, "greedy": 3}])
        with open(os.path.join(DEMO, "config.json"), encoding="utf-8") as f:
            vocab = json.load(f)["vocab_size"]
        assert os.path.getsize(path) == 3 * vocab * 4, "rows of the prompt, and only those"
        assert "error" not in answer


def test_errors_are_answers():
    wrong = ["", "nonsense", "[1]", "{\"ids\": [1], \"ids\": [2]}", {}, {"ids": []}, {"ids": 5},
             {"ids": [1, "2"]}, {"ids": [-1]}, {"ids": [10 ** 9]}, {"ids": [2 ** 62]}, {"text": 5},
             {"ids": [1.5]}, {"ids": [1], "greedy": -1}, {"ids": [1], "greedy": "x"},
             {"ids": [1], "logits": 7}, {"ids": [1], "logits": "/nonexistent/file"},
             {"ids": [1] * 100000}]
    good = {"ids": [5, 9]}
    answers = filter_lines([x for w in wrong for x in (w, good)])
    want = answers[1]
    for w, a, g in zip(wrong, answers[::2], answers[1::2]):
        assert set(a) == {"error"} and a["error"], f"{w!r}: {a}"
        assert g == want, f"after {w!r}: {g}"


def test_full_disk():
    if not os.path.exists("/dev/full"):
        return
    answer, = filter_lines([{"ids": list(range(5, 60)), "logits": "/dev/full"}])
    assert set(answer) == {"error"}, answer


def test_no_model():
    p = subprocess.run([FILTER, "score", "--model", "/nonexistent/model"], input="", text=True,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
    assert p.returncode != 0 and len(p.stderr.splitlines()) == 1, p.stderr


def test_inspect():
    p = subprocess.run([BIN, "inspect", "--model", DEMO], stdout=subprocess.PIPE, text=True,
                       stderr=subprocess.PIPE, timeout=60, check=False)
    assert p.returncode == 0 and not p.stderr, p.stderr
    lines = p.stdout.splitlines()
    for start in ("architecture: LlamaForCausalLM", "sizes: ", "context: ", "end of sequence: ",
                  "tensor: model.embed_tokens.weight BF16 [", "numerics exact: ", "tokenizer: ",
                  "chat template: ", "verdict: can be served"):
        assert any(l.startswith(start) for l in lines), f"no line {start!r} in {p.stdout}"


if __name__ == "__main__":
    run_cases(globals())
