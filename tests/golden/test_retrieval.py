#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Vectors and scores over HTTP against those of sentence-transformers and transformers, from the texts on."""
import array
import json
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from hearth_server import Hearth, reference, run_cases  # noqa: E402

VECTOR, SCORE = 1e-5, 3e-5  # what the reference data asks for


def folder(kind, name):
    return reference("goldens", "families", kind, name)


def golden(kind, name, file):
    with open(os.path.join(folder(kind, name), "golden.json"), encoding="utf-8") as f:
        cases = json.load(f)
    rows = array.array("f")
    with open(os.path.join(folder(kind, name), file), "rb") as f:
        rows.frombytes(f.read())
    width = len(rows) // len(cases["cases"])
    return cases, [list(rows[i * width:(i + 1) * width]) for i in range(len(cases["cases"]))]


def near(got, want, tolerance, what):
    worst = max(abs(a - b) for a, b in zip(got, want))
    assert len(got) == len(want) and worst <= tolerance, (what, worst, got[:4], want[:4])


def serve(name, *more):
    return Hearth("--model", folder("encoders", name), "--numerics", "exact", *more)


def check_vectors(name):
    cases, rows = golden("vectors", name, "vectors.f32")
    with serve(name) as h:
        for case, row in zip(cases["cases"], rows):
            body = {"input": case["text"] or case["ids"], "truncate_prompt_tokens": -1}
            if case["prompt_name"] is not None and case["text"]:
                body["prompt_name"] = case["prompt_name"]
            status, _, answer = h.post("/v1/embeddings", body)
            assert status == 200, answer
            assert answer["usage"]["prompt_tokens"] == len(case["ids"]), case
            near(answer["data"][0]["embedding"], row, VECTOR, case["text"])
        many = [c["text"] for c in cases["cases"] if c["text"] and c["prompt_name"] is None]
        rows = [r for c, r in zip(cases["cases"], rows) if c["text"] and c["prompt_name"] is None]
        _, _, answer = h.post("/embed", {"inputs": many, "truncate": True, "normalize": name != "st-distil-sqrtlen"})
        for got, row in zip(answer, rows):
            near(got, row, VECTOR, "many")


def test_vectors():
    for name in ("st-qwen3-embedding-like-bf16", "st-qwen3-embedding-nopfx-bf16", "st-minilm-like", "st-bge-cls-f16", "st-e5-multi-like",
                 "st-bgem3-cls-long", "st-mpnet-like", "st-modernbert-cls", "st-nomic-like", "st-distil-sqrtlen", "st-roberta-dense"):
        check_vectors(name)


def test_yes_and_no():
    name = "yesno-qwen3-reranker-bf16"
    with open(os.path.join(folder("scores", name), "golden.json"), encoding="utf-8") as f:
        cases = json.load(f)
    with serve(name, "--rerank-tokens", "yes,no", "--rerank-template", "qwen3") as h:
        for case in cases["cases"]:
            body = {"query": case["query"], "documents": [case["document"]], "truncate_prompt_tokens": cases["max_length"]}
            status, _, answer = h.post("/v1/rerank", body)
            assert status == 200, (case, answer)
            assert answer["usage"]["prompt_tokens"] == len(case["ids"]), (case, answer)
            near([answer["results"][0]["relevance_score"]], [case["score"]], SCORE, case["query"])
            raw = h.post("/v1/rerank", dict(body, raw_scores=True))[2]["results"][0]["relevance_score"]
            near([raw], [case["yes_logit"] - case["no_logit"]], SCORE, case["query"])


def test_head_of_one_label():
    name = "ce-qwen3-seqcls-bf16"
    cases, rows = golden("scores", name, "logits.f32")
    template = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"pair-{os.getpid()}.txt")
    with open(template, "w", encoding="utf-8") as f:
        f.write("<Query>: {query}\n<Document>: {document}")
    try:
        with serve(name, "--rerank-template", template) as h:
            for case, row in zip(cases["cases"], rows):
                body = {"text_1": case["query"], "text_2": case["document"], "truncate_prompt_tokens": cases["max_length"]}
                status, _, answer = h.post("/v1/score", dict(body, raw_scores=True))
                assert status == 200 and answer["usage"]["prompt_tokens"] == len(case["ids"]), (case, answer)
                near([answer["data"][0]["score"]], row, SCORE, case["query"])
                score = h.post("/v1/score", body)[2]["data"][0]["score"]
                near([score], [1 / (1 + math.exp(-row[0]))], SCORE, case["query"])
    finally:
        os.unlink(template)


def test_cross_encoders():
    for name in ("ce-minilm", "ce-bge-reranker-xlmr", "ce-modernbert-mean"):
        cases, rows = golden("scores", name, "logits.f32")
        with serve(name) as h:
            for case, row in zip(cases["cases"], rows):
                body = {"text_1": case["query"], "text_2": case["document"], "truncate_prompt_tokens": cases["max_length"]}
                status, _, answer = h.post("/v1/score", dict(body, raw_scores=True))
                assert status == 200 and answer["usage"]["prompt_tokens"] == len(case["ids"]), (name, case, answer)
                near([answer["data"][0]["score"]], row, SCORE, (name, case["query"]))
                near([h.post("/v1/score", body)[2]["data"][0]["score"]], [case["score"]], SCORE, (name, case["query"]))


def test_labels():
    for name in ("cls-distil-3", "cls-roberta-3"):
        cases, rows = golden("scores", name, "logits.f32")
        with serve(name) as h:
            for case, row in zip(cases["cases"], rows):
                body = {"input": case["document"] or case["ids"], "truncate_prompt_tokens": cases["max_length"]}
                status, _, answer = h.post("/classify", dict(body, use_activation=False))
                assert status == 200 and answer["usage"]["prompt_tokens"] == len(case["ids"]), (name, case, answer)
                near(answer["data"][0]["probs"], row, SCORE, (name, case["document"]))
                best = ("negative", "neutral", "positive")[row.index(max(row))]
                assert answer["data"][0]["label"] == best, answer
                if not case["document"] or len(case["ids"]) == cases["max_length"]:
                    continue  # it may have been cut
                shares = [math.exp(v) / sum(map(math.exp, row)) for v in row]
                near(h.post("/classify", {"input": [case["document"]]})[2]["data"][0]["probs"], shares, SCORE, (name, case["document"]))


def main():
    reference()
    run_cases(globals())


if __name__ == "__main__":
    main()
