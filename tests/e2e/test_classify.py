#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""/classify with models of one and three labels, and the error shapes of other servers."""
import json
import math
import os
import struct

from hearth_server import Hearth, run_cases
from tiny_models import DEMO, DemoCopy, pack, read_weights

HTML = '<b onclick="x">\u2028</b>'
LABELS = {"0": "good", "1": HTML, "2": "bad"}
SERVER = None


def classifier(model, n, **config):
    """The demo with a head of n labels in place of its own."""
    header, data = read_weights()
    rows = [math.sin(i * 0.7) for i in range(n * 128)]
    head = struct.pack(f"<{len(rows)}f", *rows)
    header.pop("lm_head.weight", None)
    header["score.weight"] = {"dtype": "F32", "shape": [n, 128], "data_offsets": [len(data), len(data) + len(head)]}
    with open(os.path.join(DEMO, "config.json"), encoding="utf-8") as f:
        base = json.load(f)
    model.put("config.json", {**base, "architectures": ["LlamaForSequenceClassification"], "num_labels": n, **config})
    model.put("model.safetensors", pack(header, data + head))
    return model.dir


def post(path, h=None, **body):
    status, _, answer = (h or SERVER).post(path, body)
    assert status == 200, (status, answer)
    return answer


def softmax(row):
    e = [math.exp(v - max(row)) for v in row]
    return [v / sum(e) for v in e]


def near(got, want):
    assert len(got) == len(want) and all(abs(a - b) < 1e-6 for a, b in zip(got, want)), (got, want)


def test_classify():
    texts = ["Once upon a time", "a", "the end"]
    logits = [d["probs"] for d in post("/classify", input=texts, use_activation=False)["data"]]
    answer = post("/v1/classify", input=texts)
    assert answer["object"] == "list" and answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 3
    for i, (d, row) in enumerate(zip(answer["data"], logits)):
        near(d["probs"], softmax(row))
        assert d["index"] == i and d["num_classes"] == 3 and d["label"] == LABELS[str(row.index(max(row)))], d
    ids = SERVER.post("/tokenize", {"content": "a"})[2]["tokens"]
    assert post("/classify", input=ids)["data"][0]["probs"] == post("/classify", input="a")["data"][0]["probs"]
    many = post("/classify", input=[f"text {i}" for i in range(2048)])["data"]
    assert many[2000]["probs"] == post("/classify", input="text 2000")["data"][0]["probs"]


def test_refused():
    def refused(word, **body):
        status, _, answer = SERVER.post("/classify", body)
        assert status == 400 and word in answer["error"]["message"], answer
    refused("required")
    refused("0 inputs", input=[])
    refused("2049", input=["a"] * 2049)
    refused("empty", input="")
    refused("'input'", input={"a": 1})
    refused("maximum context length", input=" word" * 3000)
    refused("labels", input="a", labels=["x", "y"])
    assert post("/classify", input=" word" * 3000, truncate_prompt_tokens=-1)


def test_one_label():
    """Its own activation: the sigmoid, or what the files name."""
    for config, activation in (({}, lambda v: 1 / (1 + math.exp(-v))), ({"problem_type": "regression"}, lambda v: v)):
        with DemoCopy() as model, Hearth("--model", classifier(model, 1, **config)) as h:
            logit = post("/classify", h, input="a", use_activation=False)["data"][0]["probs"]
            near(post("/classify", h, input="a")["data"][0]["probs"], [activation(logit[0])])
            assert post("/classify", h, input="a")["data"][0]["label"] == "LABEL_0"
            for path, body in (("/v1/rerank", {"query": "", "documents": ["a", ""]}), ("/rerank", {"query": "", "texts": ["a", ""]}),
                               ("/v2/rerank", {"query": "", "documents": ["a", ""], "max_tokens_per_doc": 1}),
                               ("/v1/score", {"text_1": ["a", ""], "text_2": ["b", ""]})):
                status, _, answer = h.post(path, body)
                assert status == 400 and "[1]' has no tokens" in json.dumps(answer), (path, status, answer)


def test_other_models():
    with Hearth() as h:
        status, _, answer = h.post("/classify", {"input": "a"})
        assert (status, answer["error"]["code"]) == (400, "unsupported_model_task") and "/v1/choose" in answer["error"]["message"]


def test_shapes_of_errors():
    """Each dialect has its own body; statuses are this server's."""
    with Hearth(env={"HEARTH_API_KEY": "secret"}) as h:
        key = {"Authorization": "Bearer secret"}
        tei = {"/embed": {}, "/rerank": {"query": "a", "texts": ["b"]}}
        for path, body in tei.items():
            status, _, answer = h.post(path, body, key)
            assert status == 400 and set(answer) == {"error", "error_type"} and answer["error_type"] == "Validation", answer
            assert isinstance(answer["error"], str), answer
        for path in ("/v2/embed", "/v2/rerank"):
            status, _, answer = h.post(path, {}, key)
            assert status == 400 and list(answer) == ["message"], answer
        status, _, answer = h.post("/v1/rerank", {"query": "a", "documents": ["b"]}, key)
        assert status == 400 and answer["detail"] == answer["error"]["message"], answer
        assert h.post("/embed", {"inputs": "a"})[::2] == (401, {"error": h.post("/v2/embed", {})[2]["message"], "error_type": "Validation"})
        assert set(h.post("/v1/embeddings", {}, key)[2]) == {"error"}


if __name__ == "__main__":
    with DemoCopy() as copy, Hearth("--model", classifier(copy, 3, id2label=LABELS)) as SERVER:
        run_cases(globals())
