#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Embeddings as clients of many texts send them: bounds, answers in pieces, foreign token ids, poolings."""
import base64
import concurrent.futures
import contextlib
import json
import os
import select
import struct
import tempfile

from hearth_server import DEMO, Hearth, leave, read_all, run, run_cases, start_request
from tiny_models import DemoCopy

SERVER = None


def post(body):
    status, _, answer = SERVER.post("/v1/embeddings", body)
    return status, answer


def vectors(body):
    status, answer = post(body)
    assert status == 200, answer
    assert [d["index"] for d in answer["data"]] == list(range(len(answer["data"])))
    return [d["embedding"] for d in answer["data"]]


def refused(body, *words, code="invalid_value"):
    status, answer = post(body)
    assert status == 400 and answer["error"]["code"] == code, answer
    assert all(word in answer["error"]["message"] for word in words), answer


def test_2048_inputs():
    texts = [f"text {i}" for i in range(2048)]
    many = vectors({"input": texts})
    assert len(many) == 2048
    for i in (0, 1, 1000, 2047):
        assert [many[i]] == vectors({"input": texts[i]}), i
    packed = vectors({"input": texts, "encoding_format": "base64", "dimensions": 8})
    for i in (0, 2047):
        short = vectors({"input": texts[i], "dimensions": 8})[0]
        assert struct.unpack("<8f", base64.b64decode(packed[i])) == struct.unpack("<8f", struct.pack("<8f", *short)), i
    refused({"input": texts + ["one more"]}, "2049", "2048")


def test_queries_beside_a_bulk_job():
    """The texts of large requests leave room in the queue: no query is refused."""
    texts = ["a longer text of the bulk job, number " + str(i) + " of many others " * 40 for i in range(512)]
    with Hearth("--model", "demo-embed") as h, concurrent.futures.ThreadPoolExecutor(2) as pool:
        bulk = [pool.submit(h.post, "/v1/embeddings", {"input": texts}) for _ in range(2)]
        n = 0
        while n < 20 or not all(b.done() for b in bulk):
            status, _, answer = h.post("/v1/embeddings", {"input": f"query {n}"})
            assert status == 200, answer
            n += 1
        assert all(b.result()[0] == 200 for b in bulk), [b.result()[2] for b in bulk if b.result()[0] != 200]


HEAVY = {"model": "embed", "prompt": "word " * 3200, "input": ["a"] * 2000, "truncate_prompt_tokens": 4}  # seconds of tokenizing


@contextlib.contextmanager
def heavy_requests(*options):
    """A server with the keys a and b, and eight requests of a's that keep all text workers busy."""
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("key-a\nkey-b\n")
        keys.flush()
        with Hearth("--model", f"chat={DEMO}", "--model", "embed=demo-embed", "--api-key-file", keys.name, "--metrics-port", "0", *options) as h:
            sockets = [start_request(h, "/v1/embeddings", HEAVY, headers={"Authorization": "Bearer key-a"}) for _ in range(8)]
            # One more is that for the metrics.
            h.wait_until(lambda: h.admin().metrics()["hearth_http_requests_open"] >= 9, 60, "the requests to be read")
            yield h, sockets


def test_another_key_between_texts():
    """Many texts with a long prompt in front of each: other keys have their turn, and a client that leaves ends it."""
    with heavy_requests() as (h, sockets):
        for i in range(3):
            status, _, answer = h.post("/v1/completions", {"model": "chat", "prompt": f"{i}", "max_tokens": 1}, {"Authorization": "Bearer key-b"})
            assert status == 200, answer
        assert not select.select(sockets, [], [], 0)[0], "it has waited for a request of another key"
        for s in sockets:
            leave(s, False)


def test_the_end_between_texts():
    with heavy_requests("--drain-timeout-ms", "100") as (h, sockets):
        assert h.stop() == 0
        answers = [read_all(s) for s in sockets]
        assert all(a.startswith(b"HTTP/1.1 503 ") for a in answers), [a[:200] for a in answers]
    with Hearth("--model", "embed=demo-embed", "--request-timeout-ms", "50") as h:
        assert h.post("/v1/embeddings", HEAVY)[0] == 504


def test_texts_in_front():
    """What goes in front of each text is bounded for all of them together."""
    refused({"input": ["a"] * 2048, "prompt": "word " * 4000}, "2048 texts", "40960000 bytes")
    refused({"input": ["a"] * 2048, "instruction": "word " * 4000}, "2048 texts")
    with Hearth("--rerank-tokens", "y,n") as h:
        for path, body in (("/v1/rerank", {"query": "word " * 8000, "documents": ["a"] * 1000}), ("/v1/score", {"text_1": "word " * 8000, "text_2": ["a"] * 1000}),
                           ("/v1/rerank", {"query": "a", "instruction": "word " * 8000, "documents": ["a"] * 1000})):
            status, _, answer = h.post(path, body)
            assert status == 400 and "1000 texts with 40" in answer["error"]["message"], (path, answer)


def test_tokens_of_a_request():
    refused({"input": [[5] * 2001] * 150}, "more than 300000 tokens")
    refused({"input": [[5] * 2001] * 160}, "more than 320000 values", code="invalid_json")
    status, answer = post({"input": [[5, 6]] * 3 + [[7]]})
    assert status == 200 and answer["usage"]["prompt_tokens"] == 7, answer


def test_ids_of_another_vocabulary():
    sentence = "the model has 1024: this client tokenised for another model. LangChain: " \
               "OpenAIEmbeddings(check_embedding_ctx_length=False)"
    refused({"input": [[5, 6, 7, 100257]]}, "input[0][3] is token 100257, " + sentence)
    refused({"input": [[5], [1024]]}, "input[1][0] is token 1024, " + sentence)
    refused({"input": [5, 49000]}, "input[1] is token 49000, " + sentence)
    refused({"input": [[5, -1]]}, "-1", "0 to 1023")


def test_other_spellings():
    """The root is text-embeddings-inference's route, for huggingface_hub; `truncation` is Voyage's `truncate`."""
    status, _, answer = SERVER.post("/", {"inputs": ["a cat", "b"]})
    assert status == 200 and answer == vectors({"input": ["a cat", "b"]}), answer
    status, _, answer = SERVER.post("/", {"inputs": ""})
    assert status == 400 and set(answer) == {"error", "error_type"}, answer
    long = {"input": [[5] * 3000]}
    assert vectors({**long, "truncation": True}) == vectors({"input": [[5] * 2048]})
    refused({**long, "truncation": False}, "3000 tokens", code="context_length_exceeded")


def test_ollama():
    """Ollama's clients print `error` as a text; its documentation's curl sends a form's type."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for path, name in (("/api/embed", "input"), ("/api/embeddings", "prompt")):
        status, _, answer = SERVER.request("POST", path, json.dumps({name: "a cat"}), form)
        assert status == 200, answer
        for body, code, says in (({}, "missing_required_parameter", "'%s' is required" % name),
                                 ({name: "a", "model": "nope"}, "model_not_found", "'nope'")):
            status, _, answer = SERVER.post(path, body)
            assert status in (400, 404) and set(answer) == {"error", "code"}, answer
            assert answer["code"] == code and says in answer["error"], answer
        status, _, answer = SERVER.get(path)
        assert status == 405 and answer["code"] == "method_not_allowed", answer
        status, _, answer = SERVER.request("POST", path, json.dumps({name: "a"}), {**form, "Origin": "https://evil.example"})
        assert status == 403 and json.loads(answer)["code"] == "forbidden", answer
        assert SERVER.request("POST", path, "a", {"Content-Type": "text/plain"})[0] == 415
    for path in ("/v1/embeddings", "/embed"):
        assert SERVER.request("POST", path, json.dumps({"input": "a"}), form)[0] == 415
    with Hearth("--threads", "1", env={"HEARTH_API_KEY": "secret"}) as h:
        status, _, answer = h.post("/api/embed", {"input": "a"})
        assert status == 401 and set(answer) == {"error", "code"}, answer


def test_large_vectors_are_charged():
    """Vectors are kept until all are there, within the budget of all answers."""
    with Hearth("--answer-memory", "1M") as h:
        status, _, answer = h.post("/v1/embeddings", {"input": ["a"] * 2048})  # of 128 numbers, 4 bytes each: 1 MiB
        assert status == 200, answer
    with Hearth("--answer-memory", "512K") as h:
        status, _, answer = h.post("/v1/embeddings", {"input": ["a"] * 2048})
        assert status == 413 and "2048 inputs" in answer["error"]["message"], answer


def test_declared_poolings():
    """What is not known, or not there, would give plausible wrong vectors: no start."""
    def modules(*types):
        return json.dumps([{"idx": i, "name": str(i), "path": f"{i}_{t}" if i else "", "type": f"sentence_transformers.models.{t}"}
                           for i, t in enumerate(types)])

    def pooling(**modes):
        return json.dumps({"word_embedding_dimension": 128, **modes})

    mean, usual = pooling(pooling_mode_cls_token=False, pooling_mode_mean_tokens=True), modules("Transformer", "Pooling", "Normalize")
    cases = ((usual, mean, None), (usual, pooling(pooling_mode="mean"), None), (None, mean, None), (None, None, None),
             (usual, pooling(pooling_mode_lasttoken=True, pooling_mode_mean_tokens=False), None),
             (None, pooling(pooling_mode_cls_token=True), None), (usual, pooling(pooling_mode="attention"), "'attention'"),
             (usual, pooling(pooling_mode_max_tokens=True, pooling_mode_mean_tokens=True), "two poolings joined"),
             (usual, pooling(pooling_mode=["mean"]), "1_Pooling/config.json"), (usual, "{", "1_Pooling/config.json: line 1"),
             (usual, None, "1_Pooling/config.json, which is not there"), ("[", mean, "modules.json: line 1"),
             (modules("Transformer", "Pooling", "Dense"), mean, "2_Dense/config.json, which is not there"),
             (modules("Transformer", "Pooling", "CNN"), mean, "module 2 is CNN"),
             (usual.replace("1_Pooling", "../x"), mean, "must be a folder"))
    for i, (list_of, config, wanted) in enumerate(cases):
        with DemoCopy() as m:
            os.mkdir(m.path("1_Pooling"))
            for name, text in (("modules.json", list_of), ("1_Pooling/config.json", config)):
                if text is not None:
                    m.put(name, text.encode())
            status, _, err = run("serve", "--check-config", "--model", m.dir)
            assert status == (1 if wanted else 0) and (not wanted or wanted in err), (i, status, err)


def test_last_token():
    """The vector of a text is that of its last token where the model's files say so: other than the mean, and its own alone."""
    with DemoCopy() as m:
        os.mkdir(m.path("1_Pooling"))
        m.put("1_Pooling/config.json", json.dumps({"pooling_mode": "lasttoken"}).encode())
        with Hearth("--model", m.dir) as h:
            texts = ["Once upon a time", "a cat sat", "Once upon a time there was"]
            alone = [h.post("/v1/embeddings", {"input": t})[2]["data"][0]["embedding"] for t in texts]
            together = [d["embedding"] for d in h.post("/v1/embeddings", {"input": texts})[2]["data"]]
            assert alone == together
        mean = SERVER.post("/v1/embeddings", {"input": texts[0]})[2]["data"][0]["embedding"]
        assert mean != alone[0] and abs(sum(x * x for x in alone[0]) - 1) < 1e-5


def test_forms_of_pairs():
    """The document comes last: text of a request behind it would be read as the template's own."""
    for text in ("{document} {query}", "{query}", "{query} {document} {instruction}", "{query} {document} {document}"):
        with DemoCopy() as m:
            m.put("pair.txt", text.encode())
            status, _, err = run("serve", "--port", "0", "--model", m.dir, "--rerank-template", m.path("pair.txt"))
            assert status != 0 and "as its last placeholder" in err, (text, status, err)


def test_lower_case():
    """Texts are to be small: a tokenizer that sees to it is fine, another would give other vectors than the model's."""
    with open(os.path.join(DEMO, "tokenizer.json"), encoding="utf-8") as f:
        own = json.load(f)
    for tokenizer, lowers, fine in ((own, False, True), (own, True, False), (dict(own, normalizer={"type": "Lowercase"}), True, True)):
        with DemoCopy() as m:
            m.put("tokenizer.json", tokenizer)
            m.put("sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": lowers})
            if fine:
                with Hearth("--model", m.dir) as h:
                    assert h.post("/v1/embeddings", {"input": "The"})[0] == 200
            else:
                status, _, err = run("serve", "--port", "0", "--model", m.dir)
                assert status != 0 and "do_lower_case" in err, err


def test_score_of_one_token():
    """LogitScore without a token for no: the logit of yes; two of these differ by the score of both."""
    scores = []
    for yes, no in ((5, None), (6, None), (5, 6)):
        with DemoCopy() as m:
            os.mkdir(m.path("1_LogitScore"))
            m.put("modules.json", [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.{kind}"} for i, (path, kind) in
                                   enumerate((("", "models.Transformer"), ("1_LogitScore", "cross_encoder.modules.LogitScore")))])
            m.put("1_LogitScore/config.json", {"true_token_id": yes, "false_token_id": no})
            body = {"query": "a", "documents": ["b", "c d e"], "raw_scores": True}
            with Hearth("--model", m.dir) as h:
                status, _, answer = h.post("/v1/rerank", body)
                assert status == 200, answer
                scores.append([r["relevance_score"] for r in sorted(answer["results"], key=lambda r: r["index"])])
                empty = {"query": "", "documents": [""], "instruction": ""}
                same = [h.post("/v1/rerank", {**empty, **more}) for more in ({}, {"max_tokens_per_doc": 1})]
                assert [a[0] for a in same] == [200, 200] and same[0][2]["results"] == same[1][2]["results"], same
            lines = json.dumps(body) + "\n"
            status, out, err = run("rerank", "--model", m.dir, stdin=lines)
            assert status == 0 and [r["index"] for r in json.loads(out)["results"]] == [r["index"] for r in answer["results"]], (out, err)
    for i in range(2):
        assert abs(scores[0][i] - scores[1][i] - scores[2][i]) < 1e-4 and scores[0][i] != scores[2][i], scores


if __name__ == "__main__":
    with Hearth() as SERVER:
        run_cases(globals())
