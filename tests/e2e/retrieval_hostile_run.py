#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run by hand, best with a binary of the sanitizers: requests for vectors, scores, labels, choices and infill that mean harm.

    HEARTH_BIN=build-asan/hearth tests/e2e/retrieval_hostile_run.py [CASE...]

Each is answered or refused with a sentence that names what is wrong; the next request is served as ever, and the server ends
with status 0, which a report of a sanitizer would change.
"""
import json
import multiprocessing
import os
import statistics
import struct
import threading
import time

from hearth_server import DEMO, Hearth, leave, run, run_cases, start_request
from tiny_models import DemoCopy, pack, read_weights

ROUTES = {
    "/v1/embeddings": {"input": "a", "dimensions": 8, "encoding_format": "float"},
    "/v1/rerank": {"query": "a", "documents": ["a", "b"], "top_n": 1},
    "/score": {"text_1": "a", "text_2": ["b", "c"]},
    "/classify": {"input": "a"},
    "/embed": {"inputs": ["a"], "normalize": True},
    "/api/embed": {"input": "a", "truncate": True},
    "/v1/choose": {"prompt": "a", "choices": ["b", "c"]},
    "/infill": {"input_prefix": "a", "input_suffix": "b", "n_predict": 1, "input_extra": [{"text": "x", "filename": "y"}]},
    "/v1/fim/completions": {"prompt": "a", "suffix": "b", "max_tokens": 1},
}
MODELS = ("demo", "demo-embed", "demo-rerank")
LONE = "\ud800"
BIG = "a " * (5 << 20)


def values():
    """What stands where a text, a list or a number is expected."""
    yield from (None, True, 0, -1, 2 ** 31, 2 ** 63, 1e308, 0.5, "", "a", LONE, "\0", [], {}, [[]], [[[1]]], [None], [{}], [LONE])
    yield from ([-1], [2 ** 31], [1.5], [[1, 2], "a"], [[-1]], [[2 ** 31]], [["a", "b"], ["c"]], [[["a"]]])
    yield ["a"] * 2049
    yield [["a", "b"]] * 2049
    yield "word " * 100000
    yield ["word " * 100000]


def spoiled(usual):
    for key in [*usual, "model", "unknown_field"]:
        for value in values():
            yield {**usual, key: value}


def check_answer(status, body, what):
    assert status in (200, 400, 404, 413, 422, 503), (what, status, body)
    if status != 200:
        message = body.decode() if isinstance(body, bytes) else json.dumps(body)
        assert len(message) > 40 and len(message) < 4000, (what, status, message[:300])


def test_values_of_every_field():
    """Every route with each of its fields spoiled, on a model that makes text, one of vectors and one of scores."""
    for name in MODELS:
        with Hearth("--model", name) as h:
            served = {route: h.post(route, usual)[0] for route, usual in ROUTES.items()}
            seen = {}
            for route, usual in ROUTES.items():
                for n, body in enumerate(spoiled(usual)):
                    status, _, answer = h.post(route, body)
                    check_answer(status, answer, (name, route, n))
                    seen[status] = seen.get(status, 0) + 1
            assert served == {route: h.post(route, usual)[0] for route, usual in ROUTES.items()}
            print(" ", name, served)
        print(f"  {name}: {dict(sorted(seen.items()))}")


def test_large_texts():
    for name in MODELS:
        with Hearth("--model", name, "--max-body-bytes", "64000000") as h:
            for route, body in (("/v1/embeddings", {"input": BIG}), ("/v1/embeddings", {"input": ["word " * 300] * 2048}),
                                ("/v1/rerank", {"query": "a", "documents": [BIG]}),
                                ("/v1/rerank", {"query": BIG, "documents": ["a"]}),
                                ("/v1/rerank", {"query": "a", "documents": [None, "a"]}),
                                ("/score", {"text_1": "a", "text_2": ["b"] * 2049}), ("/classify", {"input": [BIG, "a"]}),
                                ("/v1/choose", {"prompt": "a", "choices": ["a" * i for i in range(1, 1001)]}),
                                ("/v1/choose", {"prompt": BIG, "choices": ["a", "b"]}),
                                ("/infill", {"input_prefix": "a", "input_suffix": "a " * (2 << 20), "n_predict": 1}),
                                ("/infill", {"input_prefix": "a", "input_suffix": "b", "n_predict": 1,
                                             "input_extra": [{"text": "x", "filename": str(i)} for i in range(10000)]})):
                status, _, answer = h.post(route, body, timeout=600)
                check_answer(status, answer, (name, route))
            assert h.get("/health")[0] == 200


def test_client_gone_in_the_middle():
    """What was asked for is given up, and the next request does not wait for it."""
    for name in MODELS[:2]:
        texts = [f"{i} " + "some words " * 40 for i in range(2048)]
        with Hearth("--model", name) as h:
            for reset in (False, True) * 5:
                s = start_request(h, "/v1/embeddings", {"input": texts})
                h.wait_until(lambda: h.metrics()["hearth_sequences_waiting"] > 0, 60, "the request to be read")
                leave(s, reset)
                h.wait_until(lambda: h.metrics()["hearth_sequences_waiting"] + h.metrics()["hearth_sequences_running"] == 0, 60, "the texts to be given up")
                assert h.post("/v1/embeddings", {"input": "a"})[0] == 200


def spoiled_head(m, value):
    header, data = read_weights()
    head = struct.pack("<f", value) * (2 * 128)
    header.pop("lm_head.weight", None)
    header["score.weight"] = {"dtype": "F32", "shape": [2, 128], "data_offsets": [len(data), len(data) + len(head)]}
    with open(os.path.join(DEMO, "config.json"), encoding="utf-8") as f:
        m.put("config.json", {**json.load(f), "architectures": ["LlamaForSequenceClassification"], "num_labels": 2})
    m.put("model.safetensors", pack(header, data + head))


def test_heads_without_numbers():
    """Refused when it is loaded."""
    for value in (float("nan"), float("inf"), 3e38):
        with DemoCopy() as m:
            spoiled_head(m, value)
            status, _, err = run("serve", "--port", "0", "--model", m.dir)
            assert status == 1 and "not finite" in err, (value, status, err)


def test_labels():
    """A million labels in config.json for a head of two, and labels of HTML and no text."""
    for labels in ({str(i): f"label {i}" for i in range(10 ** 6)}, {"0": "<script>", "1": LONE}, {"-1": "a"}, ["a"], {"0": 5}):
        with DemoCopy() as m:
            spoiled_head(m, 0.5)
            with open(m.path("config.json"), encoding="utf-8") as f:
                config = json.load(f)
            m.put("config.json", {**config, "id2label": labels})
            status, _, err = run("serve", "--check-config", "--model", m.dir)
            assert status in (0, 1) and (status == 0 or len(err) > 40), (status, err)


def ask_for_vectors(h, n_threads, counts):
    """The clients are a process of their own, so that they do not delay the one that reads the stream."""
    def work(n):
        while True:
            status = h.post("/v1/embeddings", {"input": f"{n} " + "some words " * 20})[0]
            counts[status] += 1
            time.sleep(0.1 if status != 200 else 0)

    for i in range(n_threads):
        threading.Thread(target=work, args=(i,), daemon=True).start()
    time.sleep(3600)


def test_a_stream_beside_64_requests():
    """The stream is there before they come; those that find no room in the queue are told so."""
    with Hearth("--model", os.environ.get("HEARTH_RUN_MODEL", "demo"), "--ctx-size", "2048") as h:
        counts = multiprocessing.Array("q", 600)
        clients = multiprocessing.get_context("fork").Process(target=ask_for_vectors, args=(h, 64, counts))
        times, n_alone = [], 0
        body = {"prompt": "a", "max_tokens": 1500, "stream": True, "ignore_eos": True}
        for _ in h.stream("/v1/completions", body):
            times.append(time.monotonic())
            if not n_alone and len(times) == 100:
                clients.start()
            if not n_alone and sum(counts):
                n_alone = len(times)
        clients.kill()
        clients.join()
        alone, beside = (statistics.quantiles([b - a for a, b in zip(part, part[1:])], n=20)[18]
                         for part in (times[:100], times[n_alone:]))
        print(f"  p95 of a gap {1000 * alone:.2f} ms alone, {1000 * beside:.2f} ms beside 64 requests: {beside / alone:.2f} x; "
              f"answers by status: { {i: n for i, n in enumerate(counts) if n} }")
        assert not sum(n for i, n in enumerate(counts) if i not in (200, 429, 503)) and h.get("/health")[0] == 200


if __name__ == "__main__":
    run_cases(globals())
