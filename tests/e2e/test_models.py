#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Several models in one process: who answers, what is listed, what is refused, and their memory. Standard library only."""
import json
import re
import os
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hearth_server import DEMO, ROOT, Hearth, chunks, run, run_cases, start_request  # noqa: E402
from test_swap import PROMPT, Other, refused, text_of  # noqa: E402

EMBED = os.path.join(ROOT, "deploy", "demo-embed")
TWO = ["--model", f"chat={DEMO}", "--model", f"embed={EMBED}", "--threads", "2"]
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "temperature": 0}


def content(answer):
    assert answer[0] == 200, answer
    return answer[2]["choices"][0]["message"]["content"]


def vector(answer):
    assert answer[0] == 200, answer
    return answer[2]["data"][0]["embedding"]


def test_each_answers_as_if_alone():
    with Hearth("--threads", "2") as h:
        text, print_of_chat = content(h.post("/v1/chat/completions", CHAT)), text_of(h)[0]
    with Hearth("--model", EMBED, "--threads", "2") as h:
        numbers = vector(h.post("/v1/embeddings", {"input": "a cat"}))
    with Hearth(*TWO) as h:
        models = h.get("/v1/models")[2]["data"]
        assert [(m["id"], m["root"], m["meta"]["architecture"]) for m in models] == [
            ("chat", "chat", "LlamaForCausalLM"), ("embed", "embed", "BertModel")], models
        for name in ("chat", "embed"):
            assert h.get(f"/v1/models/{name}")[2]["id"] == name
        assert vector(h.post("/v1/embeddings", {"model": "embed", "input": "a cat"})) == numbers
        for model in ("chat", "default", None):
            answer = h.post("/v1/chat/completions", {**CHAT, "model": model})
            assert content(answer) == text and answer[2]["model"] == "chat", answer
            assert answer[2]["system_fingerprint"] == print_of_chat
        assert h.get("/props")[2]["model"] == "chat" and h.get("/props?model=embed")[2]["model"] == "embed"
        assert h.get("/slots?model=embed")[2]["model"] == h.get("/slots?model=em%62ed")[2]["model"] == "embed"
        # The body's name comes before the query's.
        ids = h.post("/tokenize?model=embed", {"content": "a cat"})[2]["tokens"]
        assert ids != h.post("/tokenize?model=embed", {"model": "chat", "content": "a cat"})[2]["tokens"]
        metrics = h.metrics()
        assert metrics["hearth_models_loaded"] == 2
        assert {k for k in metrics if k.startswith("hearth_model_info")} == {
            'hearth_model_info{model="%s",fingerprint="%s"}' % (m["id"], m["meta"]["fingerprint"]) for m in models}
        plans = [h.get("/props?model=" + m)[2]["memory"] for m in ("chat", "embed")]
        planned = sum(v for p in plans for k, v in p.items() if k not in ("limit_bytes", "twin_bytes"))
        assert metrics["hearth_memory_plan_bytes"] == planned, (metrics["hearth_memory_plan_bytes"], planned)
        line = h.wait_log("memory: 2 models take ")
        in_use = sum(p["answer_bytes"] + p["request_bytes"] for p in plans)
        taken, more = re.search(r"take (\d+) MiB together, requests and answers up to (\d+) MiB more", line).groups()
        # Packed weights may take less than was planned.
        assert 0 <= int(taken) - (planned - in_use) // 2**20 < 4 and int(more) == round(in_use / 2**20), (line, plans)


def test_numbers_while_a_model_drains():
    """/slots of one model is an object, that of several a list; each key and each series of /metrics is there once."""
    def once(pairs):
        assert len({k for k, _ in pairs}) == len(pairs), pairs
        return dict(pairs)

    def slots(h, query=""):
        return json.loads(h.request("GET", "/slots" + query)[2], object_pairs_hook=once)

    def check_metrics(h):
        lines = h.request("GET", "/metrics")[2].decode().splitlines()
        series = [line.rsplit(" ", 1)[0] for line in lines if line[0] != "#"]
        assert len(set(series)) == len(series), sorted(s for s in series if series.count(s) > 1)

    keys = ["model", "total", "running", "waiting", "waiting_tokens", "pages", "slots"]
    with Hearth(*TWO, "--swap", "on", "--debug-hooks", "on") as h:
        chat, embed = slots(h)
        assert list(chat) == list(embed) == keys and (chat["model"], embed["model"]) == ("chat", "embed")
        assert slots(h, "?model=embed") == embed and slots(h, "?model=chat") == chat
        h.pause_engine()
        reader = start_request(h, "/v1/completions", {**PROMPT, "max_tokens": 4})
        h.wait_until(lambda: slots(h)[0]["waiting"] == 1, 10, "a request")
        assert h.post("/models/unload", {"model": "chat"})[2]["draining"] == 1
        alone = slots(h, "?model=chat")
        assert list(alone) == ["draining"] and list(alone["draining"]) == keys and alone["draining"]["waiting"] == 1, alone
        assert slots(h) == [{"model": "chat", **alone}, embed], slots(h)
        check_metrics(h)
        assert h.post("/models/load", {"model": "chat"})[0] == 200
        assert slots(h) == [{**chat, **alone}, embed], slots(h)
        check_metrics(h)
        h.resume_engine()
        assert b"200 OK" in reader.recv(4096)
        reader.close()
    with Hearth("--threads", "2") as h:
        assert list(slots(h)) == list(slots(h, "?model=hearth-demo")) == keys


def test_hostile_names():
    with Hearth(*TWO) as h:
        def ask(name):
            return h.post("/v1/embeddings", {"model": name, "input": "a"})
        for name in ("nope", "embed/../chat", "EMBED", "embed ", "e" * 1000):
            message = refused(ask(name), 404, "model_not_found")
            assert message.endswith("this server serves 'chat', 'embed'."), message
        for name in (5, [], ["embed"], {"model": "embed"}, True):
            refused(ask(name), 400, "invalid_type")
        for raw in ('{"model": "embed", "input": "a", "model": "chat"}', '{"model": "embed", "input": "a"', '["embed"]',
                    '{"model": "embed" "input": "a"}', '{"model": "em\\ud800bed", "input": "a"}'):
            status, _, body = h.request("POST", "/v1/embeddings", raw, {"Content-Type": "application/json"})
            assert status == 400 and json.loads(body)["error"]["code"] == "invalid_json", (raw, status, body)
        assert h.post("/v1/embeddings", {"input": ["a"], "user": {"model": "chat"}, "model": "em\u0062ed"})[0] == 200
        refused(h.get("/v1/models/nope"), 404, "model_not_found")
        # A model that cannot do what is asked for says so; the other one is not taken.
        refused(h.post("/v1/chat/completions", {**CHAT, "model": "embed"}), 400, "unsupported_model_task")


def test_both_at_once():
    """Streams of one next to a flood of vectors of the other: each gets its own."""
    with Hearth(*TWO, "--alias", "gpt") as h:
        want = vector(h.post("/v1/embeddings", {"model": "embed", "input": "a cat"}))
        alone = text_of(h, 64)[1]
        errors, stopping = [], threading.Event()

        def flood():
            while not stopping.is_set():
                got = vector(h.post("/v1/embeddings", {"model": "embed", "input": ["a cat"] * 16}))
                if got != want:
                    errors.append(got)
        threads = [threading.Thread(target=flood) for _ in range(3)]
        for t in threads:
            t.start()
        for _ in range(5):
            events = chunks(h.stream("/v1/completions", {**PROMPT, "model": "gpt", "max_tokens": 64, "stream": True}))
            assert "".join(c["text"] for e in events for c in e["choices"]) == alone
        stopping.set()
        for t in threads:
            t.join(60)
        assert not errors, errors[0]


def test_replacing_one():
    with Other() as other, Hearth(*TWO, "--swap", "on") as h:
        first, numbers = text_of(h), vector(h.post("/v1/embeddings", {"model": "embed", "input": "a cat"}))
        message = refused(h.post("/models/load", {"model": other.dir}), 400, "invalid_value")
        assert "2 models" in message and "'replace'" in message, message
        refused(h.post("/models/load", {"model": other.dir, "replace": "nope"}), 404, "model_not_found")
        message = refused(h.post("/models/load", {"model": other.dir, "replace": "chat", "alias": "embed"}), 400,
                          "model_invalid")
        assert "another model answers to the name 'embed'" in message, message
        status, _, body = h.post("/models/load", {"model": other.dir, "replace": "chat", "wait": "drained"})
        assert status == 200 and (body["model"], body["previous"]) == ("chat", "chat"), body
        assert text_of(h)[1] != first[1]
        assert vector(h.post("/v1/embeddings", {"model": "embed", "input": "a cat"})) == numbers
        assert [m["id"] for m in h.get("/v1/models")[2]["data"]] == ["chat", "embed"]
        for replace, same in (("chat", False), ("embed", True)):
            body = h.post("/models/load", {"replace": replace, "wait": "drained"})[2]
            assert body["success"] and body.get("unchanged", False) == same, body
        assert text_of(h) == first


def test_file_and_check():
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as f:
        f.write(f"[compute]\nthreads = 2\nnumerics = exact\n[model chat]\nmodel = {DEMO}\nalias = gpt\n"
                f"[model embed]\nmodel = {EMBED}\nnumerics = bf16\n")
        f.flush()
        with Hearth("--config", f.name) as h:
            assert [m["id"] for m in h.get("/v1/models")[2]["data"]] == ["chat", "gpt", "embed"]
            numerics = [h.get("/props?model=" + m)[2]["numerics"] for m in ("gpt", "embed")]
            assert numerics == ["exact", "bf16"], numerics
        status, out, err = run("serve", "--config", f.name, "--check-config")
        assert status == 0, (out, err)
        status, out, err = run("serve", "--config", f.name, "--check-config", "--model", "embed=/nonexistent")
        assert status == 1 and "/nonexistent" in err, err
    for args, says in ((["--alias", "embed"], "both answer to the name 'embed'"),
                       (["--memory", "70M"], "but the limit is"), (["--ctx-size", "100000"], "model chat: ")):
        for check in ([], ["--check-config"]):
            status, out, err = run("serve", *TWO, "--port", "0", *args, *check)
            assert status == 1 and says in err, (args, status, err)


if __name__ == "__main__":
    run_cases(globals())
