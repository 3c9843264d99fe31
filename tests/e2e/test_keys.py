#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Words after the keys of a key file: names, the models that a key may use, its slots, and what is counted.

$CUT_STREAMS is the number of streams that are cut (40). Standard library only.
"""
import json
import os
import random
import signal
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hearth_server import DEMO, Hearth, leave, run, run_cases, start_request  # noqa: E402
from test_models import EMBED  # noqa: E402

ALL, NARROW, EMBEDS, WIDE = "all-0123456789", "narrow-0123456789", "embeds-0123456789", "wide-0123456789"
FILE = (f"{ALL}\n{NARROW} name=kitchen models=chat,gone slots=1\n{EMBEDS}\tmodels=vectors  slots=1\n"
        f"{WIDE} name=hall slots=2\n")
MODELS = ["--model", f"embed={EMBED}", "--alias", "vectors", "--model", f"chat={DEMO}"]
SERVER = PATH = None
SHORT = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
LONG = dict(SHORT, max_tokens=1500, ignore_eos=True, stream=True)


def key(name):
    return {"Authorization": "Bearer " + name}


def write(text):
    with open(PATH, "w", encoding="latin-1") as f:
        f.write(text)


def counted(h, name, label="kitchen", **labels):
    more = "".join(f',{k}="{v}"' for k, v in labels.items())
    return h.metrics().get(f'hearth_key_{name}{{key="{label}"{more}}}')


def test_another_model_does_not_exist():
    """A hidden model's names give on every route what a name gives that is of no model; nothing loads it."""
    paths = SERVER.get("/openapi.json", key(ALL))[2]["paths"]
    fields = {"messages": SHORT["messages"], "prompt": "a", "input": "a", "query": "a", "documents": ["a"], "content": "a",
              "tokens": [1], "max_tokens": 1, "inputs": "a", "choices": ["a", "b"], "input_prefix": "a", "input_suffix": "b"}
    with Hearth(*MODELS, "--models-max", "1", "--api-key-file", PATH) as h:
        h.headers = key(ALL)
        def ask(method, path, name):
            mark, no = ("%s", name) if "%s" in path else ("", "")
            head = {"x-request-id": "one", **({"anthropic-version": "2023-06-01"} if "after_id" in path else {})}
            body = {"model": name, "name": name, **fields} if method == "POST" and not mark else None
            status, _, data = h.request(method, path.replace("%s", no), json.dumps(body) if body else None, {**head, **key(NARROW)})
            return status, data.decode().replace(name, "NAME")
        routes = [("POST", p) for p in paths if "post" in paths[p] and "{" not in p]
        routes += [("GET", p) for p in ("/v1/models/%s", "/models/%s", "/props?model=%s", "/slots?model=%s", "/v1/models?after_id=%s")]
        assert h.post("/v1/chat/completions", SHORT, key(ALL))[0] == 200  # the other one has left
        n_refused = 0
        for hidden, none in (("embed", "nosuc"), ("vectors", "nothing"), ("embed:latest", "nosuc:latest")):
            for method, path in routes:
                ours, other = ask(method, path, hidden), ask(method, path, none)
                assert ours == other, (method, path, ours, other)
                n_refused += ours[0] == 404
        assert n_refused > 60, n_refused
        for path in ("/v1/models", "/models", "/api/tags", "/api/ps", "/props", "/slots", "/props?model=chat"):
            status, _, data = h.request("GET", path, headers=key(NARROW))
            assert status == 200 and b"embed" not in data and b"vectors" not in data, (path, data)
        assert [m["id"] for m in h.get("/v1/models", key(NARROW))[2]["data"]] == ["chat"]
        assert len(h.get("/v1/models", key(ALL))[2]["data"]) == 3
        status, _, body = h.post("/v1/embeddings", {"model": "embed", "input": "a"}, key(NARROW))
        assert (status, body["error"]["code"]) == (404, "model_not_found"), body
        assert "'embed'" in body["error"]["message"] and "serves 'chat'." in body["error"]["message"], body
        threads = [threading.Thread(target=ask, args=("POST", "/v1/embeddings", "embed")) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert h.metrics()['hearth_model_loads_total{model="embed",result="ok"}'] == 1


def test_the_first_model_is_the_default():
    for name in ({}, {"model": ""}, {"model": "default"}, {"model": "vectors"}):
        status, _, body = SERVER.post("/v1/embeddings", {"input": "a", **name}, key(EMBEDS))
        assert status == 200 and body["model"] in ("embed", "vectors"), body
    status, _, body = SERVER.post("/v1/chat/completions", {"messages": SHORT["messages"]}, key(EMBEDS))
    assert status == 400 and "chat" not in body["error"]["message"].replace("/v1/chat", ""), body
    assert SERVER.post("/v1/chat/completions", SHORT, key(NARROW))[0] == 200


def test_slots_keep_others_out_of_no_slot():
    """Five long answers of a key with one slot: one runs, four wait, a sixth is refused, and another key's short answer comes
    while the first is being made."""
    long = dict(LONG, n=16)  # one after the other
    streams = [start_request(SERVER, "/v1/chat/completions", long, headers=key(NARROW)) for _ in range(5)]
    SERVER.wait_until(lambda: (counted(SERVER, "running"), counted(SERVER, "waiting")) == (1, 4), 20)
    status, head, body = SERVER.post("/v1/chat/completions", SHORT, key(NARROW))
    assert status == 429 and body["error"]["code"] == "queue_full" and int(head["retry-after"]) >= 1, (status, body)
    assert "its slots" in body["error"]["message"], body
    status, _, body = SERVER.request("POST", "/api/chat", json.dumps({"messages": SHORT["messages"]}), key(NARROW))
    assert status == 429 and json.loads(body)["code"] == "queue_full", body
    for other in (ALL, WIDE):
        assert SERVER.post("/v1/chat/completions", SHORT, key(other))[0] == 200
    assert (counted(SERVER, "running"), counted(SERVER, "waiting")) == (1, 4)
    SERVER.wait_until(lambda: counted(SERVER, "refused_total") >= 2, 10)
    for s in streams:
        leave(s, True)
    SERVER.wait_until(lambda: (counted(SERVER, "running"), counted(SERVER, "waiting")) == (0, 0), 20)


def test_slots_change_no_answer():
    texts = ["text %d " % i * (1 + i) for i in range(12)]
    want = [SERVER.post("/v1/embeddings", {"model": "embed", "input": texts}, key(k))[2]["data"] for k in (ALL, EMBEDS)]
    assert want[0] == want[1]
    for body in ({"n": 4, "temperature": 1, "seed": 5}, {"prompt": ["a", "b", "c"], "n": 2, "seed": 1}):
        path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
        answers = [SERVER.post(path, {**SHORT, "max_tokens": 12, **body}, key(k))[2]["choices"] for k in (ALL, NARROW, WIDE)]
        assert len(answers[0]) >= 4 and answers[0] == answers[1] == answers[2], answers


def test_tokens_and_requests_are_counted():
    before = {n: counted(SERVER, "tokens_total", kind=n) for n in ("prompt", "cached", "generated")}
    requests = counted(SERVER, "requests_total")
    usage = SERVER.post("/v1/chat/completions", SHORT, key(NARROW))[2]["usage"]
    SERVER.wait_until(lambda: counted(SERVER, "requests_total") == requests + 1, 5)
    assert counted(SERVER, "tokens_total", kind="prompt") == before["prompt"] + usage["prompt_tokens"]
    assert counted(SERVER, "tokens_total", kind="generated") == before["generated"] + usage["completion_tokens"]
    assert '"key":"kitchen"' in "".join(SERVER.log).replace('": "', '":"')
    assert not any(k in line for line in SERVER.log for k in (ALL, NARROW, EMBEDS, WIDE))


def test_streams_that_are_cut_leave_nothing():
    rng = random.Random(7)
    n = int(os.environ.get("CUT_STREAMS", "40"))
    for i in range(n):
        body = dict(LONG, max_tokens=rng.choice([1, 8, 300]), n=rng.choice([1, 3]))
        s = start_request(SERVER, "/v1/chat/completions", body, headers=key(rng.choice([NARROW, WIDE])))
        if i % 3:
            s.recv(rng.choice([1, 400, 4000]))
        leave(s, rng.random() < 0.5)
    for label in ("kitchen", "hall"):
        SERVER.wait_until(lambda l=label: (counted(SERVER, "running", l), counted(SERVER, "waiting", l)) == (0, 0), 30)
    assert SERVER.post("/v1/chat/completions", SHORT, key(NARROW))[0] == 200


def test_words_are_read_again():
    """A file with a fault changes nothing; a model that is not there is a warning; a key without words is free again."""
    def reload(text, says):
        lines = len(SERVER.log)
        write(text)
        SERVER.process.send_signal(signal.SIGHUP)
        SERVER.wait_until(lambda: any(says in line for line in SERVER.log[lines:]), 10)
    warnings = [line for line in SERVER.log if "there is no model" in line]
    assert len(warnings) == 1 and "line 2: there is no model 'gone' now" in warnings[0], warnings
    try:
        reload(FILE.replace("slots=1", "slots=0", 1), ":2: slots= takes")
        assert SERVER.post("/v1/embeddings", {"model": "embed", "input": "a"}, key(NARROW))[0] == 404
        streams = [start_request(SERVER, "/v1/chat/completions", dict(LONG, n=16), headers=key(NARROW)) for _ in range(3)]
        SERVER.wait_until(lambda: counted(SERVER, "waiting") == 2, 20)
        reload(f"{ALL}\n{NARROW} name=cellar\n", "read the API keys again")
        assert SERVER.post("/v1/embeddings", {"model": "embed", "input": "a"}, key(NARROW))[0] == 200
        assert SERVER.post("/v1/models", {}, key(WIDE))[0] in (401, 405)
        SERVER.wait_until(lambda: counted(SERVER, "requests_total", "cellar") >= 1, 10)
        for s in streams:
            leave(s, True)
        SERVER.wait_until(lambda: (counted(SERVER, "running"), counted(SERVER, "waiting")) == (0, 0), 20)
    finally:
        reload(FILE, "read the API keys again")


def test_words_that_are_refused_at_the_start():
    with tempfile.TemporaryDirectory() as d:
        file = os.path.join(d, "keys")
        for text, says in (("secret name=\"x\"", ":1: name="), ("a\nsecret other", ":2: only name="),
                           ("secret models=" + "m" * 1000000, ":1: a word is too long"), ("secret slots=2147483648", ":1: slots=")):
            with open(file, "w", encoding="ascii") as f:
                f.write(text + "\n")
            status, _, err = run("serve", "--check-config", "--api-key-file", file)
            assert status and says in err and "secret" not in err and "other" not in err, err
        with open(file, "w", encoding="ascii") as f:
            f.write("secret slots=1\n")
        status, _, err = run("serve", "--check-config", "--operator-key-file", file)
        assert status and ":1: a key holds a blank" in err, err
        status, _, err = run("serve", "--check-config", HEARTH_API_KEY="secret slots=1")
        assert status and "a key holds a blank" in err and "secret" not in err, err


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        PATH = os.path.join(directory, "keys")
        write(FILE)
        with Hearth(*MODELS, "--parallel", "2", "--api-key-file", PATH, "--log-format", "json") as SERVER:
            SERVER.headers = key(ALL)
            run_cases(globals())
