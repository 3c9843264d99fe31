#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The chat page as it is served: headers, hashes, copies, conditional requests, and what its text may not hold.
What it does in a browser: test_page_browser.py and page_run.py."""
import base64
import gzip
import hashlib
import os
import re

from hearth_server import ROOT, Hearth, run_cases

SERVER = None
POLICY = ("default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
          "trusted-types 'none'")
HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-cache",
    "vary": "Accept, Accept-Encoding",
}


def page_file():
    with open(os.path.join(ROOT, "server", "api", "page.html"), "rb") as f:
        return f.read()


def get(headers=None, method="GET", server=None):
    return (server or SERVER).request(method, "/", headers={"Accept": "text/html,*/*;q=0.8", **(headers or {})})


def policy_hash(page, tag):
    text, = re.findall(rf"<{tag}>(.*?)</{tag}>", page.decode(), re.S)
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def test_headers_are_exact():
    status, head, body = get()
    assert status == 200 and body == page_file()
    for name, value in HEADERS.items():
        assert head.get(name) == value, (name, head.get(name))
    policy = POLICY.format(script=policy_hash(body, "script"), style=policy_hash(body, "style"))
    assert head["content-security-policy"] == policy, head["content-security-policy"]
    assert re.fullmatch(r'"[0-9a-f]{32}"', head["etag"])
    assert "set-cookie" not in head and "content-encoding" not in head


def test_head_is_get_without_the_body():
    (status, head, body), (_, of_get, _) = get(method="HEAD"), get()
    volatile = ("date", "x-request-id", "openai-processing-ms")
    assert status == 200 and body == b""
    assert {k: v for k, v in head.items() if k not in volatile and "time" not in k} == \
        {k: v for k, v in of_get.items() if k not in volatile and "time" not in k}


def test_gzip_copy():
    _, plain, page = get()
    for accepted in ("gzip", "br, gzip", "deflate, GZIP;q=0.5", "gzip ;q=1.0, *;q=0"):
        status, head, body = get({"Accept-Encoding": accepted})
        assert status == 200 and head.get("content-encoding") == "gzip", accepted
        assert gzip.decompress(body) == page and head["etag"] != plain["etag"]
        assert head["content-security-policy"] == plain["content-security-policy"]
    for accepted in ("", "identity", "br", "gzip;q=0", "gzip; q=0.000", "br, gzip;q=0.0", "xgzip"):
        status, head, body = get({"Accept-Encoding": accepted})
        assert status == 200 and "content-encoding" not in head and body == page, accepted


def test_conditional_requests():
    for encoding in ({}, {"Accept-Encoding": "gzip"}):
        etag = get(encoding)[1]["etag"]
        for known in (etag, "W/" + etag, '"x", ' + etag, "*"):
            status, head, body = get({**encoding, "If-None-Match": known})
            assert status == 304 and body == b"" and head["etag"] == etag, (known, status)
            assert "content-type" not in head and "content-encoding" not in head
        for other in ('"x"', etag[:-2] + '"', etag.strip('"'), "W/"):
            assert get({**encoding, "If-None-Match": other})[0] == 200, other
    gzip_etag = get({"Accept-Encoding": "gzip"})[1]["etag"]
    assert get({"If-None-Match": gzip_etag})[0] == 200, "the other copy's tag"


def test_other_methods():
    """POST is a route of its own, as text-embeddings-inference has it."""
    for method in ("PUT", "DELETE"):
        status, head, _ = get(method=method)
        assert status == 405 and "GET" in head["allow"] and "POST" in head["allow"], (method, status)


def test_open_without_a_key_but_not_for_any_host():
    with Hearth(env={"HEARTH_API_KEY": "sk-page-0123456789"}) as h:
        assert get(server=h)[0] == 200
        assert h.get("/v1/models")[0] == 401
    assert get({"Host": "evil.example"})[0] == 403


def test_served_while_loading():
    h = Hearth("--debug-hold-load", "on", wait_ready=False)
    h.start()
    try:
        assert h.get("/readyz")[0] == 503
        status, head, body = get(server=h)
        assert status == 200 and body == page_file() and head["cache-control"] == "no-cache"
    finally:
        h.stop()


def test_page_off():
    with Hearth("--page", "off", "--metrics-port", "0") as h:
        status, _, answer = h.get("/", {"Accept": "text/html"})
        assert status == 404 and answer["error"]["code"] == "unknown_url", answer
        assert answer["error"]["message"] == "The chat page is off (option page)."
        assert h.admin().get("/")[0] == 404
    assert SERVER.get("/v1/models")[0] == 200


def test_size_and_text():
    page = page_file()
    assert len(page) <= 64 << 10, len(page)
    assert len(get({"Accept-Encoding": "gzip"})[2]) <= 24 << 10
    text = page.decode()
    for banned in (r"innerHTML", r"outerHTML\s*=", r"insertAdjacentHTML", r"document\.write", r"\beval\(", r"new Function",
                   r"document\.cookie", r"serviceWorker", r"\ssrc=", r"@import", r"url\(", r"\sstyle=", r"\son\w+="):
        assert not re.search(banned, text), banned
    # The only addresses: a namespace inside the icon.
    assert set(re.findall(r"https?://[\w.]+", text)) <= {"http://www.w3.org"}


with Hearth() as SERVER:
    run_cases(globals())
