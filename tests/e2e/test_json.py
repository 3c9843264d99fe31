#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Bodies that are not the JSON they should be, on every route that takes one: status 400 with the error object,
soon, nothing of the body repeated, and the next request is served. Names carry the row of the catalogue of
faults: 30 no object, 31 broken text, 32 bad UTF-8, 33 control characters, 34 numbers, 35 nesting."""
import os
import time

from hearth_server import Hearth, run_cases

ROUTES = ("/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/v1/responses", "/v1/messages",
          "/tokenize", "/detokenize", "/apply-template")
SERVER = None
SOON = 1.0 if not os.environ.get("HEARTH_SLOW") else 10.0


def served():
    status, _, body = SERVER.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
    assert status == 200, body


def refuse(body, route="/v1/completions", within=5 * SOON):
    start = time.monotonic()
    status, _, answer = SERVER.post(route, body)
    took = time.monotonic() - start
    assert status == 400, f"{route} {body[:60]!r}: {status} {answer}"
    error = answer["error"]
    assert error["message"] and error["type"] == "invalid_request_error", answer
    assert len(str(answer)) < 500 and b"\x1b" not in str(answer).encode(), answer
    assert took < within, f"{route} {body[:60]!r}: {took:.1f} s"
    return error


def refuse_everywhere(*bodies):
    for body in bodies:
        for route in ROUTES:
            refuse(body, route)
    served()


def test_30_no_object():
    refuse_everywhere(b"", b"   \n\t ", b"null", b"[]", b"[{}]", b'"text"', b"5", b"true")


def test_31_broken_text():
    good = '{"prompt":"a","max_tokens":1}'
    refuse_everywhere(good[:-1].encode(), good[:9].encode(), good.encode() + b"x", good.encode() * 2,
                      b"// note\n" + good.encode(), good.encode() + b"/* note */", b"{'prompt':'a'}",
                      b'{"prompt":"a",}', b'{prompt:"a"}', good.encode("utf-16"), good.encode("utf-16-le"),
                      good.encode("utf-32"), b"\xef\xbb\xbf" + good.encode(), b'{"prompt":"a" "n":1}',
                      b'{"prompt":"a","prompt":"b"}')


def test_32_bad_utf8():
    for bad in (b"\xff", b"\xfe\xfe", b"\xc0\x80", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xed\xa0\x80",
                b"\xed\xbf\xbf", b"\xe2\x82", b"\xf0\x9f\x98", b"\x80", b"\xf4\x90\x80\x80"):
        refuse(b'{"prompt":"' + bad + b'"}')
        refuse(b'{"messages":[{"role":"user","content":"a' + bad + b'z"}]}', "/v1/chat/completions")
        refuse(b'{"' + bad + b'":1,"prompt":"a"}')
    served()


def test_32_surrogates_that_stand_alone():
    for bad in (rb"\ud800", rb"\udc00", rb"\ud800\u0041", rb"\udc00\ud800"):
        refuse(b'{"prompt":"' + bad + b'"}')
    served()


def test_33_control_characters():
    for code in list(range(1, 0x20)) + [0]:
        refuse(b'{"prompt":"a' + bytes([code]) + b'b"}')
        refuse(b'{"a' + bytes([code]) + b'b":1,"prompt":"a"}')
    refuse_everywhere(b'{"prompt":"a\nb"}', b'{"messages":"\x1b[31m"}')


def test_34_numbers():
    for number in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "01", "1.", ".5", "+1", "0x10", "1e",
                   "9223372036854775808", "1" * 200000, "0." + "1" * 20 + "e" + "9" * 20):
        for field in ("max_tokens", "temperature", "seed", "unknown"):
            refuse(f'{{"prompt":"a","{field}":{number}}}'.encode())
    served()


def test_34_a_long_fraction_is_a_number():
    status, _, body = SERVER.post("/v1/completions", b'{"prompt":"a","max_tokens":1,"temperature":0.'
                                  + b"1" * 200000 + b"}")
    assert status == 200, body


def test_35_nesting():
    """Refused before a tree is built, closed or not, wherever it stands, within a second."""
    n = 100000
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        for inner in (opening * n, opening * n + b"1" + closing * n):
            refuse(inner, within=SOON)
            refuse(b'{"prompt":' + inner + b"}", within=SOON)
            refuse(b'{"messages":[{"role":"user","content":' + inner + b"}]}", "/v1/chat/completions", within=SOON)
            refuse(b'{"messages":' + inner + b"}", "/apply-template", within=SOON)
    served()


def test_35_many_values():
    for inner in (b"{}," * 300000 + b"{}", b"1," * 1000000 + b"1"):
        refuse(b'{"prompt":[' + inner + b"]}", within=SOON)
        refuse(b'{"messages":[' + inner + b"]}", "/v1/chat/completions", within=SOON)
    served()


if __name__ == "__main__":
    with Hearth() as SERVER:
        run_cases(globals())
