#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The error object on every 4xx and 5xx that our code sends: one table of requests that provoke them all.

The table's last column is the code; test_every_code_is_provoked compares the codes seen with those that the
server knows (server/http/api_error.c), so that a new kind of error cannot go without its row.
"""
import json
import os
import re
import signal
import socket
import threading
import time

from hearth_server import ROOT, Hearth, roomy_folder, run_cases, start_request
from tiny_models import DemoCopy, pack

SERVER = None
SEEN = set()
BODY = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}
CHAT = {"messages": [{"role": "user", "content": "x"}]}
JSON = {"Content-Type": "application/json"}
KEY = {"Authorization": "Bearer k"}
TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "invalid_request_error",
         404: "invalid_request_error", 409: "invalid_request_error", 405: "invalid_request_error", 408: "invalid_request_error",
         413: "invalid_request_error", 415: "invalid_request_error", 431: "invalid_request_error",
         429: "rate_limit_error", 500: "server_error", 503: "service_unavailable", 504: "timeout_error"}
LONG = "a" * 300000


def check(status, head, body, wanted, code, param=None, direct=False):
    """direct: written by the watcher on the bare socket, without a request's id."""
    assert status == wanted, (status, wanted, body[:200])
    assert head["content-type"] == "application/json", head
    assert direct or re.fullmatch(r"[!-~]{1,128}", head["x-request-id"]), head
    assert len(body) < 1024, len(body)
    error = json.loads(body)["error"]
    assert {"message", "type", "param", "code"} <= set(error), error
    assert isinstance(error["message"], str) and 0 < len(error["message"]) <= 320, error
    assert error["type"] == TYPES[status] and error["code"] == code, error
    assert error["param"] is None or isinstance(error["param"], str), error
    assert param is None or error["param"] == param, error
    assert LONG[:200] not in body.decode() and ROOT not in body.decode() and "/home" not in body.decode()
    if status in (429, 503):
        assert 1 <= int(head["retry-after"]) <= 60 and 1000 <= int(head["retry-after-ms"]) <= 60000, head
    if status == 401:
        assert head["www-authenticate"] == "Bearer", head
    if status == 405:
        assert head["allow"], head
    SEEN.add(code)


def ask(method, path, data, headers, *wanted, server=None, **kw):
    data = json.dumps(data) if isinstance(data, dict) else data
    status, head, body = (server or SERVER).request(method, path, data, {**KEY, **headers})
    check(status, head, body, *wanted, **kw)


def raw(h, data, *wanted, library=False, **kw):
    """library: newer versions of libmicrohttpd refuse this themselves, by a 400 without an error object."""
    answer = h.raw(data)
    top, _, body = answer.partition(b"\r\n\r\n")
    lines = top.decode().split("\r\n")
    head = {k.lower(): v.strip() for k, _, v in (l.partition(":") for l in lines[1:])}
    if library and "content-type" not in head:
        assert " 400 " in lines[0] and head["connection"].lower() == "close", answer[:300]
        SEEN.add(wanted[1])
        return
    check(int(lines[0].split()[1]), head, body, *wanted, **kw)


POSTS = [  # path, body, status, code, param
    ("/v1/completions", b"", 400, "invalid_json", None),
    ("/v1/completions", b"[]", 400, "invalid_json", None),
    ("/v1/completions", b'{"prompt":"' + b"\xff" + b'"}', 400, "invalid_json", None),
    ("/v1/completions", b'{"prompt":"a","prompt":"b"}', 400, "invalid_json", None),
    ("/v1/completions", b'{"prompt":' + b"[" * 100000, 400, "invalid_json", None),
    ("/v1/completions", b"{}", 400, "missing_required_parameter", "prompt"),
    ("/v1/completions", {"prompt": {LONG: LONG}}, 400, "invalid_type", "prompt"),
    ("/v1/completions", dict(BODY, max_tokens="1"), 400, "invalid_type", "max_tokens"),
    ("/v1/completions", dict(BODY, n=99), 400, "invalid_value", "n"),
    ("/v1/rerank", {"query": "x", "documents": ["y"]}, 400, "unsupported_model_task", "model"),
    ("/v1/completions", dict(BODY, suffix="x"), 400, "unsupported_parameter", "suffix"),
    ("/v1/completions", dict(BODY, json_schema={"type": 5}), 400, "invalid_json_schema", "json_schema"),
    ("/v1/completions", dict(BODY, guided_regex="("), 400, "invalid_grammar", "guided_regex"),
    ("/v1/completions", dict(BODY, guided_choice=["a"], allowed_token_ids=[5]), 400, "no_token_left", None),
    ("/v1/completions", dict(BODY, prompt="a " * 5000), 400, "context_length_exceeded", "prompt"),
    ("/v1/completions", dict(BODY, model=LONG), 404, "model_not_found", "model"),
    ("/v1/completions", dict(BODY, logit_bias={LONG: 1}), 400, "invalid_value", "logit_bias"),
    ("/v1/completions", dict(BODY, stop=LONG), 400, "invalid_value", "stop"),
    ("/v1/chat/completions", b"{}", 400, "missing_required_parameter", "messages"),
    ("/v1/chat/completions", {"messages": [{"role": LONG, "content": ""}]}, 400, "invalid_value", "messages[0].role"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": LONG}]}]}, 400,
     "unsupported_parameter", "messages[0].content[0]"),
    ("/v1/chat/completions", dict(CHAT, tools=[{"x": LONG}]), 400, "missing_required_parameter", "tools[0].type"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a " * 9000}]}, 400,
     "context_length_exceeded", "messages"),
    ("/v1/responses", {"input": 5}, 400, "invalid_type", "input"),
    ("/v1/responses", {"input": [{"type": "item_reference"}]}, 400, "unsupported_parameter", "input[0]"),
    ("/v1/responses", {"input": [{"type": LONG}]}, 400, "invalid_value", "input"),
    ("/v1/embeddings", {"input": 5}, 400, "invalid_type", "input"),
    ("/v1/embeddings", {"input": [10 ** 7]}, 400, "invalid_value", "input"),
    ("/v1/embeddings", {"input": "a", "model": "x"}, 404, "model_not_found", "model"),
    ("/tokenize", {}, 400, "missing_required_parameter", "content"),
    ("/tokenize", {"content": 5}, 400, "invalid_type", "content"),
    ("/detokenize", {"tokens": [-1]}, 400, "invalid_value", "tokens"),
    ("/apply-template", {"messages": 5}, 400, "invalid_type", "messages"),
    ("/apply-template", {"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": False}, 400,
     "invalid_type", "chat_template_kwargs"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": False}, 400,
     "invalid_type", "chat_template_kwargs"),
    ("/v1/" + "n" * 5000, {}, 404, "unknown_url", None),
]


def test_parameters():
    for path, body, *wanted in POSTS:
        ask("POST", path, body, JSON, *wanted[:2], param=wanted[2])


def test_heads():
    get, post = "GET", "POST"
    ask(get, "/v1/nothing", None, {}, 404, "unknown_url")
    ask(get, "/v1/models/" + "m" * 3000, None, {}, 404, "model_not_found", param="model")
    ask(get, "/v1/completions", None, {}, 405, "method_not_allowed")
    ask("DELETE", "/v1/models/x", None, {}, 405, "method_not_allowed")
    ask(post, "/v1/completions", BODY, {"Content-Type": "text/plain"}, 415, "unsupported_media_type")
    ask(post, "/v1/completions", BODY, {**JSON, "Content-Encoding": "gzip"}, 415, "unsupported_media_type")
    ask(post, "/v1/completions", BODY, {**JSON, "Authorization": "Bearer " + LONG[:3000]}, 401, "invalid_api_key")
    ask(post, "/v1/completions", BODY, {**JSON, "x-request-deadline-ms": LONG[:1000]}, 400, "invalid_value",
        param="x-request-deadline-ms")
    ask(post, "/v1/completions", BODY, {**JSON, "Host": "a/b"}, 400, "bad_request")
    line = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\n"
    raw(SERVER, line + b"Content-Length: 99999999999\r\n\r\n", 413, "request_too_large")
    raw(SERVER, line + b"".join(b"X-%d: 1\r\n" % i for i in range(200)) + b"\r\n", 431, "headers_too_large")
    raw(SERVER, line + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "bad_request", library=True)
    with Hearth("--body-timeout-ms", "300") as h:
        raw(h, line + b"Content-Length: 10\r\n\r\n{", 408, "request_timeout", direct=True)
        ask(get, "/v1/models", None, {"Host": "evil.example"}, 403, "forbidden", server=h)


def test_anthropic_dialect():
    """The same errors in that dialect's shape."""
    for body, status, kind in ((b"{", 400, "invalid_request_error"), (dict(CHAT), 400, "invalid_request_error"),
                               (dict(CHAT, max_tokens=1, model="x"), 404, "not_found_error")):
        got, head, a = SERVER.post("/v1/messages", body, KEY)
        assert got == status and set(a) == {"type", "error", "request_id"} and a["type"] == "error", (got, a)
        assert a["error"]["type"] == kind and 0 < len(a["error"]["message"]) <= 320 and head["x-request-id"]
    for thread in ({"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}):
        got, _, a = SERVER.post("/v1/messages", dict(CHAT, max_tokens=1, thread=thread), KEY)
        code = a["error"].pop("details")["error_code"]
        assert got == 400 and set(a["error"]) == {"type", "message"} and code == "thread_unsupported_request", (got, a)
        SEEN.add(code)
    assert SERVER.post("/v1/messages", dict(CHAT, max_tokens=1, thread=None), KEY)[0] == 200
    got, _, a = SERVER.post("/v1/messages", dict(CHAT, max_tokens=1), {"x-api-key": "wrong"})
    assert got == 401 and a["error"]["type"] == "authentication_error", a


def wait_for_waiting(h, n):
    h.wait_until(lambda: h.metrics()["hearth_sequences_waiting"] >= n, 20)


def hold(h, n):
    """n requests that wait in the stopped engine."""
    threads = [threading.Thread(target=h.post, args=("/v1/completions", BODY)) for _ in range(n)]
    for t in threads:
        t.start()
    wait_for_waiting(h, n)
    return threads


def test_queue():
    """429 when the queue is full, 503 when a request waited too long there, 504 at its own deadline."""
    with Hearth("--parallel", "1", "--max-queue", "1", "--debug-hooks", "on", "--queue-timeout-ms", "0") as h:
        h.pause_engine()
        threads = hold(h, 2)
        ask("POST", "/v1/completions", BODY, JSON, 429, "queue_full", server=h)
        h.resume_engine()
        for t in threads:
            t.join()
    with Hearth("--parallel", "1", "--debug-hooks", "on", "--queue-timeout-ms", "300", "--watchdog-ms", "200") as h:
        h.pause_engine()
        held = []
        for headers in ({}, {"x-request-deadline-ms": "200"}):
            held.append(threading.Thread(target=lambda hd=headers: got.append(h.request(
                "POST", "/v1/completions", json.dumps(BODY), {**JSON, **hd}))))
        got = []
        for t in held:
            t.start()
        wait_for_waiting(h, 2)
        over = time.monotonic() + 0.4
        h.wait_until(lambda: h.get("/healthz")[0] == 503, 10, "the watchdog's word")
        ask("GET", "/healthz", None, {}, 503, "server_overloaded", server=h)
        h.wait_until(lambda: time.monotonic() > over, what="the deadlines to pass")
        h.resume_engine()
        for t in held:
            t.join()
        for status, head, body in got:
            code = json.loads(body)["error"]["code"]
            check(status, head, body, 504 if code == "deadline_exceeded" else 503, code)
        assert {json.loads(b)["error"]["code"] for _, _, b in got} == {"queue_timeout", "deadline_exceeded"}, got


def test_loading_and_draining():
    h = Hearth("--debug-hold-load", "on", wait_ready=False)
    h.start()
    ask("POST", "/v1/completions", BODY, JSON, 503, "model_loading", server=h)
    ask("GET", "/readyz", None, {}, 503, "model_loading", server=h)
    h.stop()
    h = Hearth("--drain-delay-ms", "3600000")
    h.start()
    h.process.send_signal(signal.SIGTERM)
    h.wait_log("draining")
    ask("GET", "/readyz", None, {}, 503, "shutting_down", server=h)
    assert h.stop() == 128 + signal.SIGTERM  # a second signal waits for nothing


POISON = 700  # a token whose embedding is not a number


def poison(header, data):
    """Weights with a head of their own and one row of the embedding spoilt."""
    spoilt, info = dict(header), header["model.embed_tokens.weight"]
    begin, end = info["data_offsets"]
    table = data[begin:end]
    row = len(table) // info["shape"][0]
    spoilt["lm_head.weight"] = dict(info, data_offsets=[len(data), len(data) + len(table)])
    bad = b"\xff" * row  # a NaN in every format
    at = begin + POISON * row
    return pack(spoilt, data[:at] + bad + data[at + row:] + table)


def test_83_internal_error_of_one_request():
    """What the engine cannot compute is that request's 500; the others go on, with the answers they have alone."""
    with DemoCopy() as m:
        m.weights(poison)
        m.config(tie_word_embeddings=False)
        with Hearth("--model", m.dir, "--parallel", "4") as h:
            mine = dict(BODY, max_tokens=200, ignore_eos=True)
            alone = h.post("/v1/completions", mine)[2]["choices"][0]["text"]
            bad = {"prompt": [5, 6, POISON, 7], "max_tokens": 4}
            got = []
            threads = [threading.Thread(target=lambda: got.append(h.post("/v1/completions", mine))) for _ in range(3)]
            for t in threads:
                t.start()
            for _ in range(6):
                ask("POST", "/v1/completions", bad, JSON, 500, "internal_error", server=h)
            events = [data for _, data in h.stream("/v1/completions", dict(bad, stream=True))]
            assert events[-1] == "[DONE]", events
            assert json.loads(events[-2])["error"]["code"] == "internal_error", events
            for t in threads:
                t.join()
            assert [(a[0], a[2]["choices"][0]["text"]) for a in got] == [(200, alone)] * 3
            h.wait_until(lambda: h.slots()["pages"]["used"] == 0, 5, "all pages free")


def test_too_many_connections():
    with Hearth("--max-connections", "2") as h:
        held = [socket.create_connection((h.host, h.port)) for _ in range(2)]
        for s in held:
            s.sendall(b"GET /version HTTP/1.1\r\nHost: l")  # at work on a head: not idle
        h.wait_until(lambda: h.request("GET", "/version")[0] == 503, 10, "the limit")
        ask("GET", "/version", None, {}, 503, "server_overloaded", server=h)
        for s in held:
            s.close()


def test_swaps_of_the_model():
    """More of them: test_swap.py."""
    options = ["--swap", "on", "--ctx-size", "256", "--debug-hooks", "on"]
    with DemoCopy("tokenizer.json") as bad, DemoCopy() as good:
        good.template("{{ messages[0].content }}")
        with Hearth(*options, "--memory", "140M") as h:
            ask("POST", "/models/load", {"model": bad.dir}, JSON, 409, "insufficient_memory", "model", server=h)
        with Hearth(*options) as h:
            ask("POST", "/models/load", {"model": bad.dir}, JSON, 400, "model_invalid", "model", server=h)
            h.pause_engine()
            s = start_request(h, "/v1/completions", BODY)
            h.wait_until(lambda: h.slots()["waiting"] == 1, what="a request in the queue")
            assert h.post("/models/load", {"model": good.dir})[0] == 200
            ask("POST", "/models/load", {}, JSON, 409, "swap_in_progress", server=h)
            h.resume_engine()
            assert b" 200 OK" in s.recv(100)
            s.close()
        with Hearth(*options, "--swap-drain-ms", "100") as h:
            h.pause_engine()
            held = threading.Thread(target=ask, args=("POST", "/v1/completions", BODY, JSON, 503, "model_unloaded"), kwargs={"server": h})
            held.start()
            h.wait_until(lambda: h.slots()["waiting"] == 1, what="a request in the queue")
            assert h.post("/models/load", {"model": good.dir})[0] == 200
            held.join()
            h.resume_engine()


def test_models_that_are_not_loaded():
    """More of them: test_on_demand.py."""
    with DemoCopy("tokenizer.json") as bad:
        options = ["--model", f"chat={bad.dir}", "--load", "demand", "--model", f"embed={ROOT}/deploy/demo-embed", "--swap", "on"]
        with Hearth(*options) as h:
            ask("POST", "/v1/completions", dict(BODY, model="chat"), JSON, 503, "model_failed", "model", server=h)
            ask("POST", "/models/unload", {"model": "chat"}, JSON, 400, "model_not_loaded", "model", server=h)
    with Hearth("--pin", "on", "--swap", "on") as h:
        ask("POST", "/models/unload", {}, JSON, 409, "model_pinned", "model", server=h)


def test_files_and_batches():
    def form(data):
        return b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\nContent-Disposition: form-data; name="file"; ' \
               b'filename="x"\r\n\r\n' + data + b"\r\n--b--\r\n"
    head = {"Content-Type": "multipart/form-data; boundary=b"}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 300, "ignore_eos": True, "n": 8}}
    with roomy_folder() as d, Hearth("--batch-dir", d, "--batch-bytes", "5K") as h:
        ask("GET", "/v1/files/none", None, {}, 404, "not_found", server=h)
        ask("POST", "/v1/files", form(b"x" * 2000), head, 403, "quota_exceeded", server=h)
        file = json.loads(h.request("POST", "/v1/files", form(json.dumps(line).encode()), head)[2])["id"]
        h.post("/v1/batches", {"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h"})
        ask("DELETE", f"/v1/files/{file}", None, {}, 409, "file_in_use", server=h)


def test_every_code_is_provoked():
    with open(os.path.join(ROOT, "server", "http", "api_error.c"), encoding="ascii") as f:
        known = set(re.findall(r"ROW\(\w+, \d+, [^,]+, \"(\w+)\"", f.read()))
    assert len(known) > 20 and known == SEEN, sorted(known - SEEN)


if __name__ == "__main__":
    with Hearth(env={"HEARTH_API_KEY": "k"}) as SERVER:
        run_cases(globals())
