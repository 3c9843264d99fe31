#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Keys, browsers, exposure: robustness rows about who may ask what, and what gets into the log."""
import json
import os
import signal
import subprocess
import tempfile

from hearth_server import BIN, Hearth, run_cases

BODY = {"prompt": "Hello", "max_tokens": 2}
GUARDED_GET = ("/v1/models", "/props", "/slots", "/metrics", "/openapi.json")
OPEN_GET = ("/health", "/healthz", "/livez", "/readyz", "/version")


def key_file(directory, text):
    path = os.path.join(directory, "keys")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def with_key(text="# keys\r\nalpha-key-1\r\n\nbeta-key-2\n"):
    d = tempfile.TemporaryDirectory()
    h = Hearth("--api-key-file", key_file(d.name, text))
    h.scratch = d
    return h


def test_keys():
    with with_key() as h:
        for key in ("alpha-key-1", "beta-key-2"):
            assert h.post("/v1/completions", BODY, {"Authorization": f"Bearer {key}"})[0] == 200
            assert h.post("/v1/completions", BODY, {"x-api-key": key})[0] == 200
        wrong = [None, "Bearer alpha-key", "Bearer alpha-key-12", "Bearer ALPHA-KEY-1", "Bearer ",
                 "Bearer", "Basic YWxwaGEta2V5LTE=", "Bearer alpha-key-1 beta-key-2", "Bearer # keys",
                 "Bearer " + "x" * 12000]
        for value in wrong:
            status, head, answer = h.post("/v1/completions", BODY,
                                          {"Authorization": value} if value is not None else {})
            assert status == 401, (value, status)
            assert answer["error"]["code"] == "invalid_api_key" and head["www-authenticate"]
            assert "alpha" not in json.dumps(answer)


def test_every_route_is_guarded():
    with with_key() as h:
        for path in GUARDED_GET:
            assert h.request("GET", path)[0] == 401, path
            assert h.request("GET", path + "/")[0] == 401, path
            assert h.request("HEAD", path)[0] == 401, path
        for path in ("/v1/completions", "/completions", "/v1/chat/completions", "/tokenize", "/v1/embeddings",
                     "/v1/responses", "/v1/messages", "/apply-template"):
            assert h.post(path, {})[0] == 401, path
        for path in OPEN_GET:
            assert h.request("GET", path)[0] == 200, path


def test_reload():
    with with_key() as h:
        key_file(h.scratch.name, "gamma-key-3\n")
        h.process.send_signal(signal.SIGHUP)

        def status(key):
            return h.post("/v1/completions", BODY, {"Authorization": f"Bearer {key}"})[0]
        h.wait_until(lambda: status("gamma-key-3") == 200, 10, "new key works")
        assert status("alpha-key-1") == 401


def test_key_from_environment():
    with Hearth(env={"HEARTH_API_KEY": "from-the-env"}) as h:
        assert h.post("/v1/completions", BODY)[0] == 401
        assert h.post("/v1/completions", BODY, {"Authorization": "Bearer from-the-env"})[0] == 200


def test_public_bind_without_key():
    r = subprocess.run([BIN, "serve", "--host", "0.0.0.0", "--port", "0"], capture_output=True, text=True,
                       check=False, timeout=20)
    assert r.returncode != 0 and "key" in r.stderr, r
    h = Hearth("--host", "0.0.0.0", "--allow-public-without-key")
    with h:
        h.host = "127.0.0.1"
        assert h.post("/v1/completions", BODY)[0] == 200


def test_foreign_host():
    with Hearth() as h:
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example"):
            assert h.post("/v1/completions", BODY, {"Host": host})[0] in (403, 421), host
        for host in ("localhost", "127.0.0.1:1234", "[::1]"):
            assert h.post("/v1/completions", BODY, {"Host": host})[0] == 200, host
    with Hearth("--allowed-hosts", "*") as h:
        assert h.post("/v1/completions", BODY, {"Host": "evil.example"})[0] == 200


def test_cors():
    with Hearth() as h:
        status, head, _ = h.post("/v1/completions", BODY, {"Origin": "https://evil.example"})
        assert status == 403 and "access-control-allow-origin" not in head
    with Hearth("--cors-origins", "https://good.example") as h:
        _, head, _ = h.post("/v1/completions", BODY, {"Origin": "https://good.example"})
        assert head["access-control-allow-origin"] == "https://good.example"
        status, head, _ = h.post("/v1/completions", BODY, {"Origin": "https://evil.example"})
        assert status == 403 and "access-control-allow-origin" not in head
        status, head, _ = h.request("OPTIONS", "/v1/completions", headers={
            "Origin": "https://good.example", "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type"})
        assert status in (200, 204) and "POST" in head["access-control-allow-methods"]


def test_log_is_one_escaped_line():
    with Hearth("--log-format", "json", "--accept-any-model") as h:
        evil = "a\r\nFORGED \x1b[31m" + "x" * 5000
        h.post("/v1/completions", dict(BODY, model=evil))
        h.request("GET", "/nothing%0d%0aFORGED", headers={"User-Agent": "x" * 3000})
        h.post("/v1/completions", BODY, {"x-request-id": "id\tFORGED"})
    for line in h.log:
        assert not line.startswith("FORGED") and "\x1b" not in line and len(line) < 8192, line
        if line.startswith("{"):
            json.loads(line)


def test_prompts_are_not_logged():
    with Hearth("--log-level", "debug") as h:
        h.post("/v1/completions", dict(BODY, prompt="zebra-secret-prompt"))
        h.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "zebra-secret"}], "max_tokens": 2})
        h.post("/v1/completions", '{"prompt": "zebra-secret", "max_tokens": "x"}')
    assert "zebra" not in "".join(h.log)


def test_metrics_have_no_content():
    with Hearth() as h:
        h.post("/v1/completions", dict(BODY, prompt="zebra", user="zebra", model=None))
        _, _, text = h.request("GET", "/metrics")
        assert b"zebra" not in text


def test_caches_are_not_shared_across_keys():
    text = "one-key\ntwo-key\n"
    prompt = [5 + i % 200 for i in range(200)]
    with with_key(text) as h:
        def cached(key, salt=None):
            a = h.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "cache_salt": salt},
                       {"Authorization": f"Bearer {key}"})[2]
            return a["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached("one-key") == 0 and cached("one-key") > 0
        assert cached("two-key") == 0 and cached("two-key") > 0
        assert cached("one-key", "salt") == 0 and cached("one-key", "salt") > 0


if __name__ == "__main__":
    run_cases(globals())
