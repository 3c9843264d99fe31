#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Swapping the model of a running server: who may, what is refused, and what requests see meanwhile.

The second model is the demo with two of its layers exchanged: other texts, another fingerprint. Standard library
only.
"""
import json
import os
import resource
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hearth_server import DEMO, Hearth, chunks, run_cases, start_request  # noqa: E402
from tiny_models import DemoCopy, pack  # noqa: E402

SWAP = ["--swap", "on", "--threads", "2"]
HIDDEN = "the server's log says why"  # from any client: paths and sizes
PROMPT = {"prompt": "Once upon a time", "temperature": 0, "ignore_eos": True}


def exchange_layers(header, data):
    for name in [n for n in header if ".layers.0." in n]:
        other = name.replace(".layers.0.", ".layers.1.")
        header[name]["data_offsets"], header[other]["data_offsets"] = (header[other]["data_offsets"],
                                                                       header[name]["data_offsets"])
    return pack(header, data)


class Other(DemoCopy):
    """The second model."""

    def __enter__(self):
        super().__enter__()
        self.weights(exchange_layers)
        return self


def load(h, model=DEMO, headers=None, **fields):
    return h.post("/models/load", {"model": model, **fields}, headers)


def load_ok(h, *args, **fields):
    status, _, body = load(h, *args, **fields)
    assert status == 200 and body["success"] is True, (status, body)
    return body


def refused(answer, status, code):
    assert answer[0] == status and answer[2]["error"]["code"] == code, answer
    return answer[2]["error"]["message"]


def swap_state(h):
    return h.get("/props")[2]["swap"]


def wait_idle(h, seconds=30):
    h.wait_until(lambda: swap_state(h)["state"] == "idle", seconds, "an idle swap")


def text_of(h, n=24):
    """(fingerprint, text) of a fixed prompt"""
    status, _, body = h.post("/v1/completions", {**PROMPT, "max_tokens": n})
    assert status == 200, body
    return body["system_fingerprint"], body["choices"][0]["text"]


# ---- one swap -----------------------------------------------------------------------------------------

def test_there_and_back():
    with Other() as other, Hearth(*SWAP) as h:
        first = text_of(h)
        props = h.get("/props")[2]
        assert props["swap"] == {"state": "idle", "model": None, "previous": None, "since": None, "n_draining": 0,
                                 "last_error": None}, props["swap"]
        body = load_ok(h, other.dir, alias=["second", "two"])
        assert (body["model"], body["previous"], body["draining"]) == ("second", "hearth-demo", 0), body
        second = text_of(h)
        assert second[0] == body["system_fingerprint"] != first[0] and second[1] != first[1], (first, second)
        wait_idle(h)
        swap = swap_state(h)
        assert (swap["model"], swap["previous"], swap["last_error"]) == ("second", "hearth-demo", None), swap
        names = [m["id"] for m in h.get("/v1/models")[2]["data"]]
        assert names == ["second", "two"], names
        assert h.get("/v1/models")[2]["data"][0]["status"] == {"value": "loaded"}
        message = refused(h.post("/v1/completions", {**PROMPT, "model": "hearth-demo"}), 404, "model_not_found")
        assert message.endswith("this server serves 'second', 'two'."), message
        assert h.post("/v1/completions", {**PROMPT, "model": "two", "max_tokens": 1})[2]["model"] == "two"
        assert h.get("/readyz")[0] == h.get("/healthz")[0] == 200
        line = h.wait_log("swap: hearth-demo")
        assert f"{first[0]} -> second {second[0]}: loaded " in line and "0 requests drain" in line, line
        # Back by no name at all: the model of the start; a cache of its own begins empty.
        body = h.post("/models/load", {"wait": "drained"})[2]
        assert body["success"] and body["previous"] == "second", body
        assert text_of(h) == first
        h.wait_until(lambda: h.metrics()["hearth_generated_tokens_total"] == 3 * 24 + 1, 10, "counters that go on")
        metrics = h.metrics()
        assert metrics['hearth_swaps_total{result="ok"}'] == 2 and metrics["hearth_models_loaded"] == 1, metrics
        assert metrics["hearth_swap_load_seconds_count"] == 2
        assert metrics['hearth_model_info{model="hearth-demo",fingerprint="%s"}' % first[0]] == 1


def test_prefix_cache_belongs_to_its_model():
    prompt = {**PROMPT, "prompt": "Tom has a red ball. " * 12, "max_tokens": 1}
    with Other() as other, Hearth(*SWAP) as h:
        def cached():
            return h.post("/v1/completions", prompt)[2]["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached() == 0 and cached() > 0
        load_ok(h, other.dir)
        assert cached() == 0 and cached() > 0


def test_unchanged():
    with Hearth(*SWAP) as h:
        before = h.get("/v1/models")[2]["data"][0]["created"]
        for body in ({}, {"model": None}, {"model": DEMO, "alias": "hearth-demo"}):
            status, _, answer = h.post("/models/load", body)
            assert status == 200 and answer["unchanged"] is True and answer["load_ms"] == 0, answer
        assert h.get("/v1/models")[2]["data"][0]["created"] == before
        assert h.metrics()['hearth_swaps_total{result="unchanged"}'] == 3


def test_aliases_of_the_server_stay():
    with Other() as other, Hearth(*SWAP, "--alias", "chat,gpt") as h:
        first = text_of(h)
        assert load_ok(h, other.dir)["model"] == "chat"
        status, _, body = h.post("/v1/completions", {**PROMPT, "model": "gpt", "max_tokens": 24})
        assert status == 200 and body["choices"][0]["text"] != first[1], body


# ---- refusals -----------------------------------------------------------------------------------------

def test_wrong_requests():
    with Hearth(*SWAP) as h:
        for body, code in (({"model": 5}, "invalid_type"), ({"model": ""}, "invalid_value"),
                           ({"alias": 1}, "invalid_type"), ({"alias": []}, "invalid_value"),
                           ({"alias": ["a"] * 17}, "invalid_value"), ({"alias": "x" * 129}, "invalid_value"),
                           ({"alias": "a\nb"}, "invalid_value"), ({"wait": True}, "invalid_type"),
                           ({"wait": "soon"}, "invalid_value"), ([], "invalid_json")):
            refused(h.post("/models/load", body), 400, code)
        for path in ("/models/load", "/v1/models/load"):
            message = refused(h.post(path, {"model": "acme/no-such"}), 404, "model_not_found")
            assert message.endswith("; hearth pull acme/no-such fetches it"), message
        refused(load(h, "/nonexistent/model"), 404, "model_not_found")
        refused(h.post("/models/load", {}, {"Content-Type": "text/plain"}), 415, "unsupported_media_type")
        status, _, _ = h.request("POST", "/models/load", "{}")
        assert status == 415, status
        assert swap_state(h)["state"] == "idle" and swap_state(h)["last_error"] == HIDDEN


def broken_models():
    def cut(header, data):
        return pack(header, data)[:-1000]

    def not_numbers(header, data):
        begin, end = next(v["data_offsets"] for k, v in header.items() if k.endswith("layers.1.mlp.down_proj.weight"))
        return pack(header, data[:begin] + b"\xff" * (end - begin) + data[end:])

    def fewer_ids(model):
        with open(os.path.join(DEMO, "tokenizer.json"), encoding="utf-8") as f:
            tokenizer = json.load(f)
        ids = sorted(tokenizer["model"]["vocab"].values())
        shift = ids[-1]
        tokenizer["model"]["vocab"] = {k: v + shift for k, v in tokenizer["model"]["vocab"].items()}
        model.put("tokenizer.json", tokenizer)

    yield "config.json", lambda m: m.remove("config.json"), "config.json"
    yield "tokenizer.json", lambda m: m.remove("tokenizer.json"), "tokenizer"
    yield "truncated", lambda m: m.weights(cut), "model.safetensors"
    yield "NaN", lambda m: m.weights(not_numbers), "not finite"
    yield "another vocabulary", fewer_ids, "tokenizer"
    yield "template", lambda m: m.template("{{ raise_exception('no') }}"), "chat template"


def test_models_that_cannot_be_served():
    with Hearth(*SWAP) as h:
        first = text_of(h)
        for what, spoil, says in broken_models():
            with DemoCopy() as m:
                spoil(m)
                message = refused(load(h, m.dir), 400, "model_invalid")
                assert says in message, (what, message)
                assert swap_state(h)["last_error"] == (HIDDEN if m.dir in message else message), message
                assert swap_state(h)["state"] == "idle"
            assert text_of(h) == first, what
        metrics = h.metrics()
        failed = metrics['hearth_swaps_total{result="invalid"}'] + metrics['hearth_swaps_total{result="self_test"}']
        assert failed == 6 and metrics['hearth_swaps_total{result="self_test"}'] >= 1, metrics


def test_a_model_without_template():
    with DemoCopy("chat_template.jinja", "tokenizer_config.json") as m, Hearth(*SWAP) as h:
        load_ok(h, m.dir)
        chat = {"messages": [{"role": "user", "content": "Hi"}]}
        refused(h.post("/v1/chat/completions", chat), 400, "unsupported_parameter")


def test_a_model_without_optional_files():
    """A file whose absence is fine leaves no sentence that is taken for a failure."""
    with DemoCopy("generation_config.json", "special_tokens_map.json") as m, Hearth(*SWAP, "--generation-config") as h:
        load_ok(h, m.dir)
        assert [x["id"] for x in h.get("/v1/models")[2]["data"]] == [os.path.basename(m.dir)]


def test_memory_is_planned_first():
    with Other() as other, Hearth(*SWAP, "--ctx-size", "256", "--memory", "140M") as h:
        first, before = text_of(h), h.memory_kib()
        status, _, body = load(h, other.dir)
        error = body["error"]
        assert status == 409 and error["code"] == "insufficient_memory", body
        assert error["needed_bytes"] > error["available_bytes"], error
        assert error["limit_bytes"] == 140 << 20 and "--memory" in error["message"], error
        assert os.environ.get("HEARTH_SLOW") or h.memory_kib() - before <= 1024, (before, h.memory_kib())
        assert text_of(h) == first
        assert h.metrics()['hearth_swaps_total{result="insufficient_memory"}'] == 1


def test_memory_left_free():
    """The value that a refusal names is enough."""
    limit = ["--numerics", "exact", "--memory", "330M", "--parallel", "16", "--ctx-size", "2048"]
    with Other() as other:
        with Hearth(*SWAP, *limit) as h:
            status, _, body = load(h, other.dir)
            assert status == 409, body
            words = body["error"]["message"].split()
            value = words[words.index("--swap-memory") + 1]
        with Hearth(*SWAP, *limit, "--swap-memory", value) as h:
            load_ok(h, other.dir)


def test_a_lack_of_threads_is_not_the_models_fault():
    """Stacks of threads need address space; with less of it some thread or other of the swap cannot be started."""
    if os.environ.get("HEARTH_SLOW"):
        print("  (not with a sanitizer, which needs its own address space)")
        return
    messages = []
    with Other() as other, Hearth("--swap", "on", "--threads", "8") as h:
        for mib in range(4, 200, 12):
            size = (h.memory_kib("VmSize") << 10) + (mib << 20)
            resource.prlimit(h.process.pid, resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
            status, _, body = load(h, other.dir)
            if status == 200:
                break
            assert status == 503 and body["error"]["code"] == "server_overloaded", (mib, status, body)
            messages.append(body["error"]["message"])
        assert status == 200 and any("compute thread" in m and "raise the limit" in m for m in messages), messages


# ---- who may ------------------------------------------------------------------------------------------

def test_closed_by_default():
    with Hearth() as h:
        refused(load(h), 404, "unknown_url")
    with Hearth("--swap", "off", env={"HEARTH_OPERATOR_KEY": "secret"}) as h:
        refused(load(h, headers={"Authorization": "Bearer secret"}), 404, "unknown_url")


def test_without_a_key_only_this_machine():
    with Hearth(*SWAP) as h:
        for header in ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"):
            message = refused(load(h, headers={header: "10.0.0.1"}), 403, "forbidden")
            assert "--operator-key-file" in message, message
        refused(load(h, headers={"Origin": "https://evil.example"}), 403, "forbidden")
        assert load(h, headers={"Origin": h.url})[0] == 200
    with Hearth(*SWAP, env={"HEARTH_API_KEY": "user"}) as h:
        refused(load(h, headers={"Authorization": "Bearer user"}), 403, "forbidden")


def test_operator_key():
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("# the operator\nsecret\n")
        f.flush()
        os.chmod(f.name, 0o600)
        with Hearth("--operator-key-file", f.name, env={"HEARTH_API_KEY": "user"}) as h:
            refused(load(h), 401, "invalid_api_key")
            refused(load(h, headers={"Authorization": "Bearer user"}), 401, "invalid_api_key")
            for headers in ({"Authorization": "Bearer secret"}, {"x-api-key": "secret", "X-Forwarded-For": "10.0.0.1"}):
                assert load(h, headers=headers, wait="drained")[0] == 200
            refused(h.post("/v1/completions", PROMPT, {"Authorization": "Bearer secret"}), 401, "invalid_api_key")


# ---- while requests run -------------------------------------------------------------------------------

class Client(threading.Thread):
    """Streams one answer after another and keeps (fingerprint, text) of each, or the error."""

    def __init__(self, h, n_tokens):
        super().__init__()
        self.h, self.n_tokens, self.answers, self.error = h, n_tokens, [], None
        self.stopping = threading.Event()
        self.start()

    def run(self):
        while not self.stopping.is_set():
            try:
                events = chunks(self.h.stream("/v1/completions", {**PROMPT, "max_tokens": self.n_tokens,
                                                                  "stream": True}))
                prints = {e["system_fingerprint"] for e in events}
                assert len(prints) == 1, prints
                self.answers.append((prints.pop(), "".join(c["text"] for e in events for c in e["choices"])))
            except Exception as e:  # pylint: disable=broad-except
                self.error = e
                return

    def end(self):
        self.stopping.set()
        self.join(60)
        assert not self.error, self.error
        return self.answers


def test_streams_go_on():
    n = 48
    with Other() as other, Hearth(*SWAP, "--parallel", "4") as h:
        alone = dict([text_of(h, n)])
        load_ok(h, other.dir, wait="drained")
        alone.update([text_of(h, n)])
        assert len(alone) == 2
        clients = [Client(h, n) for _ in range(4)]
        for i in range(8):
            body = load_ok(h, other.dir if i % 2 else DEMO, wait="drained" if i % 4 else "switched")
            wait_idle(h)
            if i in (2, 3):  # otherwise the next swap comes when it comes
                h.wait_until(lambda: any(a[0] == body["system_fingerprint"] for c in clients for a in c.answers) or
                             any(c.error for c in clients), what="an answer of each model")
        answers = [a for c in clients for a in c.end()]
        wrong = [a for a in answers if alone[a[0]] != a[1]]
        assert not wrong and {a[0] for a in answers} == set(alone), wrong
        assert h.metrics()["hearth_models_loaded"] == 1


def test_the_old_model_ends_what_it_began():
    """With the old engine held, a switch happens; its requests end afterwards, new ones on the new model."""
    with Other() as other, Hearth(*SWAP, "--debug-hooks", "on") as h:
        n = 200
        first = text_of(h, n)
        answers = {}
        bodies = {"n": {**PROMPT, "max_tokens": 8, "n": 16}, "echo": {**PROMPT, "max_tokens": 1, "echo": True, "logprobs": 1},
                  "long": {**PROMPT, "max_tokens": n}}
        h.pause_engine()
        threads = [threading.Thread(target=lambda k=k, b=b: answers.update({k: h.post("/v1/completions", b)}))
                   for k, b in bodies.items()]
        for t in threads:
            t.start()
        reader = start_request(h, "/v1/completions", {**PROMPT, "max_tokens": n, "stream": True})
        h.wait_until(lambda: h.slots()["waiting"] >= 19, 10, "all requests queued")
        body = load_ok(h, other.dir)
        assert body["draining"] >= 4, body  # a question for /slots may just end
        slots = h.slots()
        assert slots["waiting"] == 0 and slots["draining"]["waiting"] >= 19, slots
        h.wait_until(lambda: swap_state(h)["n_draining"] == 4, 10, "four requests that drain")
        assert swap_state(h)["state"] == "draining"
        assert h.metrics()["hearth_models_loaded"] == 2 and h.metrics()["hearth_swap_draining_requests"] == 4
        status, head, answer = load(h)
        assert status == 409 and answer["error"]["code"] == "swap_in_progress" and head["retry-after"], answer
        assert text_of(h)[0] == body["system_fingerprint"], "the new model answers meanwhile"
        h.resume_engine()
        for t in threads:
            t.join(60)
        assert all(a[0] == 200 and a[2]["system_fingerprint"] == first[0] for a in answers.values()), answers
        assert answers["long"][2]["choices"][0]["text"] == first[1]
        assert len({c["text"] for c in answers["n"][2]["choices"]}) == 1
        data = b""
        while part := reader.recv(65536):
            data += part
        reader.close()
        assert b"[DONE]" in data
        wait_idle(h)
        assert "draining" not in h.slots()


def test_time_to_drain():
    """A stream that has begun ends with an error event, a request that waits with a status."""
    with Other() as other, Hearth(*SWAP, "--debug-hooks", "on", "--swap-drain-ms", "200") as h:
        answers = []
        def begin():
            begun = [h.stream("/v1/completions", {**PROMPT, "max_tokens": 2000, "stream": True})]
            next(begun[0])
            return begun
        events, = h.hold_running(begin, 1)
        whole = threading.Thread(target=lambda: answers.append(h.post("/v1/completions", {**PROMPT, "max_tokens": 500})))
        whole.start()
        h.wait_until(lambda: h.slots()["waiting"] == 1, 10, "a request in the queue")
        load_ok(h, other.dir, wait="drained")
        rest = [data for _, data in events]
        whole.join()
        assert "model_unloaded" in rest[-2] and rest[-1] == "[DONE]", rest[-2:]
        refused(answers[0], 503, "model_unloaded")
        h.resume_engine()
        assert text_of(h)


def test_many_at_once():
    """One swaps, and waits for a request of the model before; the others hear that, whenever they come."""
    with Other() as other, Hearth(*SWAP, "--debug-hooks", "on") as h:
        answers = []
        h.pause_engine()
        reader = start_request(h, "/v1/completions", {**PROMPT, "max_tokens": 4})
        h.wait_until(lambda: h.slots()["waiting"] == 1, what="a request in the queue")
        threads = [threading.Thread(target=lambda: answers.append(load(h, other.dir, wait="drained")))
                   for _ in range(16)]
        for t in threads:
            t.start()
        h.wait_until(lambda: len(answers) == 15, what="the answers of all but one")
        assert all(a[0] == 409 and a[2]["error"]["code"] == "swap_in_progress" for a in answers), answers
        h.resume_engine()
        for t in threads:
            t.join()
        assert answers[15][0] == 200 and "unchanged" not in answers[15][2], answers[15]
        assert h.metrics()['hearth_swaps_total{result="busy"}'] == 15 and b"200 OK" in reader.recv(4096)
        reader.close()


def test_not_waiting():
    with Other() as other, Hearth(*SWAP) as h:
        first = text_of(h)
        status, _, body = load(h, other.dir, wait=False)
        assert status == 202 and body["success"], body
        wait_idle(h)
        assert text_of(h)[0] != first[0]


def test_a_client_that_leaves():
    with Other() as other, Hearth(*SWAP) as h:
        first = text_of(h)
        s = start_request(h, "/models/load", {"model": other.dir, "wait": "drained"})
        h.wait_until(lambda: swap_state(h)["model"], 30, "its begin")
        s.close()
        h.wait_until(lambda: text_of(h, 1)[0] != first[0], 30, "the swap")


# ---- the end ------------------------------------------------------------------------------------------

def test_shutdown_while_a_model_drains():
    """Who waits for its end is told at once; its request ends as in any drain."""
    with Other() as other, Hearth(*SWAP, "--debug-hooks", "on") as h:
        answers, ended = [], []
        body = {**PROMPT, "max_tokens": 200, "stream": True}
        h.pause_engine()
        stream = threading.Thread(target=lambda: ended.extend(data for _, data in h.stream("/v1/completions", body)))
        stream.start()
        h.wait_until(lambda: h.slots()["waiting"] == 1, 20, "a stream that waits for the engine")
        t = threading.Thread(target=lambda: answers.append(load(h, other.dir, wait="drained")))
        t.start()
        h.wait_until(lambda: swap_state(h)["state"] == "draining", 20, "a model that drains")
        h.process.send_signal(signal.SIGTERM)
        t.join()
        # Questions for /props that were being answered at that moment count as well.
        assert answers[0][0] == 200 and answers[0][2]["draining"] >= 1, answers
        h.resume_engine()
        stream.join()
        assert ended[-1] == "[DONE]" and h.process.wait(60) == 0, ended[-2:]


if __name__ == "__main__":
    run_cases(globals())
