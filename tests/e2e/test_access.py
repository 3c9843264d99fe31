#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Keys, browsers, exposure, logs: who may ask, and what never comes out."""
import json
import os
import re
import signal
import time

from hearth_server import Hearth, read_all, roomy_folder, run_cases

KEYS = ("sk-first-0123456789abcdef", "sk-second-0123456789abcde")
BODY = {"prompt": "Once upon a time", "max_tokens": 2, "temperature": 0}
SERVER = None


def bearer(key):
    return {"Authorization": "Bearer " + key}


def test_55_keys_that_are_refused():
    key = KEYS[0]
    bad = [{}, bearer("wrong"), bearer(key[:-1]), bearer(key + "x"), bearer(key.upper()), bearer(""),
           {"Authorization": "Basic " + key}, {"Authorization": key}, bearer(key + " " + key),
           bearer("x" * 12000), {"x-api-key": "wrong"}, {"api-key": "wrong"}, bearer(key + "," + key)]
    for headers in bad:
        for path in ("/v1/completions", "/completions", "/v1/chat/completions"):
            status, head, body = SERVER.post(path, BODY, headers)
            assert status == 401, (headers, status, body)
            assert body["error"]["code"] == "invalid_api_key" and body["error"]["type"] == "authentication_error"
            assert head["www-authenticate"] == "Bearer"
            assert key not in json.dumps(body) and "xxxx" not in json.dumps(body)


def test_55_keys_that_are_good():
    for headers in [bearer(k) for k in KEYS] + [{"x-api-key": KEYS[0]}, {"api-key": KEYS[0]}, {"authorization": "bearer " + KEYS[1]}]:
        assert SERVER.post("/v1/completions", BODY, headers)[0] == 200, headers


def test_55_every_route_is_guarded_unless_listed():
    listed = {"/health", "/healthz", "/livez", "/readyz", "/version", "/ping", "/v1/health"}
    closed = {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"}  # an operator's, and this server has none
    _, _, api = SERVER.get("/openapi.json", bearer(KEYS[0]))
    paths = set(api["paths"]) | {"/v1/models", "/models", "/props", "/slots", "/metrics", "/tokenize", "/openapi.json"}
    assert len(paths) > 10
    for path in paths - listed:
        for spelling in (path, path + "/"):
            concrete = re.sub(r"\{[^}]*\}", "x", spelling)
            seen = {SERVER.request("GET", concrete)[0], SERVER.request("POST", concrete, "{}")[0]}
            assert seen <= {401, 405, 404} and (401 in seen) != (path in closed), (concrete, seen)
    for path in listed:
        assert SERVER.get(path)[0] == 200, path


def test_56_time_of_the_comparison():
    """A key wrong at its first byte and one wrong at its last take the same time."""
    first, last = bearer("X" + KEYS[0][1:]), bearer(KEYS[0][:-1] + "X")
    times = {0: [], 1: []}
    c = SERVER.connect()
    for i in range(400):
        start = time.perf_counter()
        c.request("GET", "/v1/models", headers=(first, last)[i % 2])
        r = c.getresponse()
        r.read()
        assert r.status == 401
        times[i % 2].append(time.perf_counter() - start)
    a, b = map(min, times.values())  # what the machine's other work does is in the rest
    assert abs(a - b) < 0.5 * max(a, b), (a, b)


def test_57_foreign_origins():
    evil = {"Origin": "https://evil.example", **bearer(KEYS[0])}
    status, head, answer = SERVER.post("/v1/completions", BODY, evil)
    assert status == 403 and "--cors-origins" in answer["error"]["message"], (status, answer)
    assert not [k for k in head if k.startswith("access-control")], head
    assert SERVER.get("/v1/models", evil)[0] == 200  # a page of a foreign origin cannot read it
    status, head, _ = SERVER.request("OPTIONS", "/v1/completions", headers={
        "Origin": "https://evil.example", "Access-Control-Request-Method": "POST"})
    assert status in (200, 204) and not [k for k in head if k.startswith("access-control")], head


def test_57_listed_origins():
    with Hearth("--cors-origins", "https://good.example,https://other.example") as h:
        status, head, _ = h.request("OPTIONS", "/v1/completions", headers={
            "Origin": "https://good.example", "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, content-type"})
        assert status == 204 and head["access-control-allow-origin"] == "https://good.example"
        assert "POST" in head["access-control-allow-methods"] and "authorization" in head["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in head
        _, head, _ = h.post("/v1/completions", BODY, {"Origin": "https://good.example"})
        assert head["access-control-allow-origin"] == "https://good.example" and head["vary"] == "Origin"
        shown = head["access-control-expose-headers"].split(", ")
        assert not set(shown) - {k.lower() for k in shown} and "x-schema-relaxed" in shown, shown
        assert not {k for k in head if k.startswith("x-") or "-ms" in k or k == "server-timing"} - set(shown), head
        assert h.post("/v1/completions", BODY, {"Origin": h.url})[0] == 200


def test_57_no_post_route_runs_for_a_foreign_page():
    routes = [path for path, item in SERVER.get("/openapi.json", bearer(KEYS[0]))[2]["paths"].items() if "post" in item]
    assert len(routes) > 10, routes
    with roomy_folder() as d, Hearth("--cors-origins", "https://good.example", "--swap", "on", "--batch-dir", d) as h:
        for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
            for route in routes:
                for kind in ({}, {"Content-Type": "application/json"}, {"Content-Type": "text/plain"}):
                    status, head, answer = h.request("POST", route, "{}", {"Origin": origin, **kind})
                    assert status == 403 and "access-control-allow-origin" not in head, (route, origin, kind, status, answer)
        h.stop()
        lines = [line for line in h.log if "cors-origins" in line]
        assert len(lines) == 1 and "https://evil.example" in lines[0], lines


def test_58_foreign_hosts_on_loopback():
    with Hearth() as h:
        for host in ("evil.example", "evil.example:8080", "localhost.evil.example", ""):
            status, _, body = h.get("/v1/models", {"Host": host})
            assert status in (400, 403, 421), (host, status)
        for host in ("localhost", "127.0.0.1:1234", "[::1]:9", "LOCALHOST:8080"):
            assert h.get("/v1/models", {"Host": host})[0] == 200, host
    with Hearth("--allowed-hosts", "my.example") as h:
        assert h.get("/v1/models", {"Host": "my.example:80"})[0] == 200
        assert h.get("/v1/models", {"Host": "localhost"})[0] == 403
    with Hearth("--allowed-hosts", "*") as h:
        assert h.get("/v1/models", {"Host": "anything"})[0] == 200
    assert SERVER.get("/v1/models", {"Host": "evil.example", **bearer(KEYS[0])})[0] == 200  # a key protects


def test_58_probes_ask_by_any_host():
    """Proxies and container managers put the name they know into Host; health tells nothing worth protecting."""
    foreign = {"Host": "hearth:8080"}
    with Hearth() as h:
        for path in ("/health", "/v1/health", "/readyz", "/healthz", "/livez", "/ping"):
            assert h.get(path, foreign)[0] == 200, path
        for path in ("/version", "/metrics", "/v1/models", "/nothing"):
            assert h.get(path, foreign)[0] == 403, path
        assert h.request("OPTIONS", "/readyz", headers=foreign)[0] == 403


def test_58_hosts_of_the_metrics_listener():
    """It is judged by its own address, not by the names that the API answers to."""
    for args, wanted in ((("--metrics-host", "0.0.0.0"), 200), ((), 403), (("--allowed-hosts", "api.example"), 403),
                         (("--metrics-host", "0.0.0.0", "--allowed-hosts", "api.example"), 200)):
        with Hearth("--metrics-port", "0", *args) as h:
            admin = h.admin()
            assert admin.get("/metrics", {"Host": "hearth:9090"})[0] == wanted, args
            assert admin.get("/readyz", {"Host": "hearth:9090"})[0] == 200, args
            assert admin.get("/metrics")[0] == 200, args


def test_60_no_prompts_or_keys_where_operators_look():
    secret = "xylophonequartz"
    SERVER.post("/v1/completions", dict(BODY, prompt=secret, user=secret), bearer(KEYS[0]))
    SERVER.post("/v1/completions?key=" + secret, dict(BODY, prompt=secret), bearer(KEYS[0]))
    for path in ("/metrics", "/slots", "/props", "/v1/models"):
        text = SERVER.request("GET", path, headers=bearer(KEYS[0]))[2].decode()
        assert secret not in text and KEYS[0] not in text, path
    assert SERVER.get("/health")[0] == 200
    log = "".join(SERVER.log)
    assert secret not in log and not any(k in log for k in KEYS)


def test_60_label_values_are_fixed():
    def series():
        text = SERVER.request("GET", "/metrics", headers=bearer(KEYS[0]))[2].decode()
        return {l.rsplit(" ", 1)[0] for l in text.splitlines() if l and l[0] != "#"}
    before = series()
    for i in range(30):
        SERVER.post(f"/nowhere/{i}", dict(BODY, model=f"m{i}"), bearer(KEYS[0]))
        SERVER.post("/v1/completions", dict(BODY, model=f"m{i}"), bearer(KEYS[0]))
    assert series() == before


def test_61_log_lines_cannot_be_forged():
    with Hearth() as h:
        h.get("/version")
        # the lines of the start, of which the last is the notice, and this request's
        h.wait_until(lambda: all(any(w in line for line in h.log) for w in ("demo model", '"event"')), 5)
        lines = len(h.log)
        odd = "%0d%0a{%22level%22:%22error%22}%1b[31m%e2%80%ae"
        h.get("/v1/models/" + odd, {"X-Request-Id": "a b", "traceparent": "\x1b[0m" + "t" * 5000})
        h.get("/" + "n" * 7000, {"X-Session-Id": "s" * 2000})
        h.post("/v1/completions", dict(BODY, model="m\r\nforged\x1b" + "x" * 5000))
        h.wait_until(lambda: len(h.log) >= lines + 3, 5)
        for line in h.log[lines:]:
            row = json.loads(line)
            assert row["event"] == "request" and len(line) < 4096, line[:200]
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", line)
    with Hearth("--log-format", "text") as h:
        h.get("/version")
        h.wait_until(lambda: all(any(w in line for line in h.log) for w in ("demo model", "path=/version")), 5)
        lines = len(h.log)
        h.get("/v1/models/" + odd)
        h.get("/healthz-is-not-a-path")  # its line comes after all of that request's
        h.wait_log("path=/healthz-is-not-a-path")
        assert len(h.log) == lines + 2 and "\x1b" not in h.log[lines] and "\\x0d\\x0a" in h.log[lines], h.log[lines:]


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_trace_parent_is_in_the_log_and_in_errors():
    """A valid traceparent is repeated; any other is treated as absent."""
    malformed = [TRACE + "-x", TRACE.upper(), "00-" + "0" * 32 + TRACE[35:], "x"]
    with Hearth("--log-format", "json") as h:
        for i, value in enumerate((TRACE, *malformed)):
            named = {"traceparent": value, "x-request-id": f"trace-{i}"}
            wanted = TRACE if value == TRACE else None
            answer = h.post("/v1/completions", {"prompt": 5}, named)[2]
            assert answer["error"].get("traceparent") == wanted, answer
            answer = h.post("/v1/messages", {}, named)[2]
            assert answer.get("traceparent") == wanted, answer
            row = json.loads(h.wait_log(f'"trace-{i}"'))
            assert row.get("traceparent") == wanted, row


def begin_stream(h, path, body):
    """Sends a request with a trace and returns its socket and what came until the first event."""
    data = json.dumps(dict(body, stream=True, ignore_eos=True)).encode()
    s = h.open_socket(60)
    s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nTraceparent: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
              % (path.encode(), TRACE.encode(), len(data)) + data)
    seen = b""
    while b"data:" not in seen:
        piece = s.recv(4096)
        assert piece, seen
        seen += piece
    return s


def test_trace_parent_is_in_the_errors_of_streams():
    talk = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1500}
    bodies = {"/v1/chat/completions": talk, "/v1/messages": talk, "/v1/responses": {"input": "Hi", "max_output_tokens": 1500}}
    with Hearth("--drain-timeout-ms", "1") as h:
        sockets = {path: begin_stream(h, path, body) for path, body in bodies.items()}
        h.process.send_signal(signal.SIGTERM)
        for path, s in sockets.items():
            with s:
                rest = read_all(s)
            assert TRACE.encode() in rest, (path, rest[-400:])


def test_62_addresses_are_never_fetched():
    for url in ("http://127.0.0.1:9/x.png", "file:///etc/passwd", "http://169.254.169.254/latest/meta-data"):
        content = [{"type": "image_url", "image_url": {"url": url}}]
        status, _, body = SERVER.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}]},
                                      bearer(KEYS[0]))
        assert status == 400 and "root:" not in json.dumps(body), (url, status)


if __name__ == "__main__":
    with roomy_folder() as directory:
        file = os.path.join(directory, "keys")
        with open(file, "w", encoding="ascii") as f:
            f.write(f"# keys\n{KEYS[0]}\r\n\n")
        with Hearth("--api-key-file", file, "--log-format", "json", "--batch-dir", os.path.join(directory, "batches"), env={"HEARTH_API_KEY": KEYS[1]}) as SERVER:
            run_cases(globals())
