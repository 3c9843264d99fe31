#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`hearth embed` and `hearth rerank`: the numbers of the routes, in the order of the lines, as JSON lines or a NumPy file."""
import ast
import json
import os
import random
import struct
import subprocess
import tempfile

from hearth_server import BIN, Hearth, run, run_cases
from tiny_models import DemoCopy

SERVER = MODEL = None
JUDGE = ["--rerank-tokens", "y,n", "--rerank-template"]
DRAW = random.Random(3)
TEXTS = [" ".join(DRAW.choice(("cat", "sat", "Über", "one", "😀", "moon")) for _ in range(DRAW.randrange(1, 60))) for _ in range(300)]


def lines(command, values, *options, status=0):
    """The answers to JSON values, or with --text to plain lines."""
    plain = "--text" in options
    text = "".join((v if plain else json.dumps(v)) + "\n" for v in values)
    got, out, err = run(command, "--model", MODEL, *options, stdin=text)
    assert got == status, err
    return [json.loads(line) for line in out.splitlines()]


def rerank(values, *options):
    return lines("rerank", values, *JUDGE, os.path.join(MODEL, "pair.txt"), *options)


def load_npy(path):
    """(shape, numbers) by the format's own rules."""
    with open(path, "rb") as f:
        assert f.read(8) == b"\x93NUMPY\x01\x00"
        n, = struct.unpack("<H", f.read(2))
        assert (10 + n) % 64 == 0
        head = f.read(n)
        data = f.read()
    head = ast.literal_eval(head.decode())
    assert head["descr"] == "<f4" and head["fortran_order"] is False, head
    return head["shape"], struct.unpack(f"<{len(data) // 4}f", data)


def test_vectors_of_the_route():
    answers = lines("embed", [t if i % 2 else {"text": t} for i, t in enumerate(TEXTS)])
    status, _, body = SERVER.post("/v1/embeddings", {"input": TEXTS})
    assert status == 200 and [a["embedding"] for a in answers] == [d["embedding"] for d in body["data"]]
    assert lines("embed", TEXTS[:9], "--text") == answers[:9]
    short = lines("embed", TEXTS[:3], "--dimensions", "7", "--prompt-name", "search_query")
    body = SERVER.post("/v1/embeddings", {"input": TEXTS[:3], "dimensions": 7, "prompt_name": "query"})[2]
    assert [a["embedding"] for a in short] == [d["embedding"] for d in body["data"]]


def test_scores_of_the_route():
    queries = [{"query": "where is the " + t[:12], "documents": TEXTS[i:i + 2 + i % 40], "top_n": i % 7} for i, t in enumerate(TEXTS[:60])]
    queries[5]["documents"][0] = {"text": "a moon"}
    answers = rerank(queries)
    for query, answer in zip(queries, answers):
        status, _, body = SERVER.post("/v1/rerank", query)
        assert status == 200 and answer["results"] == body["results"], (query, answer, body)
    scores = {r["index"]: r["relevance_score"] for r in SERVER.post("/v1/rerank", {"query": "moon", "documents": TEXTS[:50]})[2]["results"]}
    for given in (TEXTS[:50], [{"text": t} for t in TEXTS[:50]]):
        assert [a["relevance_score"] for a in rerank(given, "--query", "moon")] == [scores[i] for i in range(50)]


def test_scores_as_voyage_has_them():
    usual = SERVER.post("/v1/rerank", {"query": "moon", "documents": TEXTS[:5], "top_n": 2})[2]["results"]
    for more in ({"top_k": 2, "truncation": True}, {"top_k": 2}, {"top_k": 2, "truncation": False, "return_documents": True}):
        status, _, body = SERVER.post("/v1/rerank", {"query": "moon", "documents": TEXTS[:5], **more})
        assert status == 200 and "results" not in body and body["usage"]["total_tokens"] > 0, body
        assert [r.pop("document", TEXTS[r["index"]]) for r in body["data"]] == [TEXTS[r["index"]] for r in usual]
        assert body["data"] == usual
    long = {"query": "moon", "documents": ["cat " * 3000]}
    assert SERVER.post("/v1/rerank", {**long, "truncation": True})[0] == 200
    assert SERVER.post("/v1/rerank", {**long, "truncation": False})[0] == 400


def test_numpy_files():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "x.npy")
        assert lines("embed", TEXTS[:300], "--text", "--npy", path, "--dimensions", "16") == []
        shape, numbers = load_npy(path)
        answers = lines("embed", TEXTS[:300], "--text", "--dimensions", "16")
        assert shape == (300, 16) and numbers == struct.unpack("<4800f", struct.pack("<4800f", *(x for a in answers for x in a["embedding"])))
        assert rerank(TEXTS[:5], "--text", "--query", "moon", "--npy", path) == []
        shape, numbers = load_npy(path)
        assert shape == (5,) and all(0 < x < 1 for x in numbers), (shape, numbers)
        status, out, err = run("embed", "--model", MODEL, "--npy", path, stdin='"a"\n"b"\n""\n"c"\n')
        assert status == 1 and not out and "line 3: 'input' must not be empty" in err, (status, out, err)
        with open(path, "rb") as f:
            assert not f.read(6).startswith(b"\x93"), "half an array can be read"
        for to in ("/dev/full", "/nonexistent/x.npy"):
            status, _, err = run("embed", "--model", MODEL, "--npy", to, stdin='"a"\n')
            assert status == 1 and to in err, (status, err)


def test_faults_are_answers():
    for command, wrong, says in (
            ("embed", ["nonsense", "", "{}", '{"text": 5}', "[1]", '""', '"' + "cat " * 3000 + '"', '{"text": "a", "text": "b"}'],
             ["invalid token", "", "--text", "--text", "--text", "empty", "truncate_prompt_tokens", "duplicate"]),
            ("rerank", ['{"query": "a"}', '"a"', '{"query": "a", "documents": "b"}', '{"query": "a", "documents": []}', '{"query": 5, "documents": ["b"]}',
                        '{"query": "a", "documents": ["b", null]}', '{"query": "a", "documents": ["b"], "top_n": -1}',
                        '{"query": "a", "documents": ["b", "' + "cat " * 3000 + '"]}', json.dumps({"query": "a", "documents": ["b"] * 1001})],
             ["'text'", "'query' is required", "an array", "1 to 1000", "'query' must be a string", "'documents[1]' must be a string", "top_n",
              "truncate_prompt_tokens", "1 to 1000"])):
        options = [*JUDGE, os.path.join(MODEL, "pair.txt")] if command == "rerank" else []
        good = '"a"' if command == "embed" else '{"query": "a", "documents": ["b"]}'
        status, out, err = run(command, "--model", MODEL, *options, stdin="\n".join(x for w in wrong for x in (w, good)))
        answers = [json.loads(line) for line in out.splitlines()]
        assert status == 0 and len(answers) == 2 * len(wrong), err
        for w, said, bad, right in zip(wrong, says, answers[::2], answers[1::2]):
            assert set(bad) == {"error"} and said in bad["error"], (w[:80], bad)
            assert right == answers[1] and "error" not in right, w[:80]


def test_truncate():
    long = "cat " * 3000
    cut = SERVER.post("/v1/embeddings", {"input": long, "truncate_prompt_tokens": -1})[2]["data"][0]["embedding"]
    assert lines("embed", [long], "--truncate")[0]["embedding"] == cut
    cut = SERVER.post("/v1/rerank", {"query": "a", "documents": ["b", long], "truncate_prompt_tokens": -1})[2]["results"]
    assert rerank([{"query": "a", "documents": ["b", long]}], "--truncate")[0]["results"] == cut


def test_an_answer_before_more_input():
    with subprocess.Popen([BIN, "embed", "--model", MODEL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        for text in ("one", "two"):
            p.stdin.write(json.dumps(text) + "\n")
            p.stdin.flush()
            assert len(json.loads(p.stdout.readline())["embedding"]) == 128
        p.stdin.close()
        assert p.wait(30) == 0 and "hearth: 2 texts, " in p.stderr.read()


def test_refusals():
    for command, options, says in (("embed", ["--prompt-name", "x"], "'prompt_name' is 'x', but this model has the prompts 'query', 'document'"),
                                   ("embed", ["--dimensions", "129"], "must be at most 128"), ("rerank", [], "--rerank-tokens yes,no"),
                                   ("rerank", ["--rerank-tokens", "y"], "two tokens"), ("embed", ["--query", "x"], "--query")):
        status, out, err = run(command, "--model", MODEL, *options)
        assert status > 0 and not out and says in err, (command, options, err)


def main():
    global SERVER, MODEL
    with DemoCopy() as m:
        MODEL = m.dir
        m.put("config_sentence_transformers.json", {"prompts": {"query": "search: ", "document": ""}})
        m.put("pair.txt", "Q: {query}\nD: {document}\nA:")
        with Hearth("--model", MODEL, *JUDGE, m.path("pair.txt")) as SERVER:
            run_cases(globals())


if __name__ == "__main__":
    main()
