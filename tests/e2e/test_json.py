#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Bodies that are not the JSON they should be, on every route that takes one: status 400 with the error object,
soon, nothing of the body repeated, and the next request is served. Names carry the row of the catalogue of
faults: 30 no object, 31 broken text, 32 bad UTF-8, 33 control characters, 34 numbers, 35 nesting."""
import json
import tempfile
import time

from hearth_server import Hearth, run_cases

ROUTES = ("/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/v1/responses", "/v1/messages",
          "/tokenize", "/detokenize", "/apply-template")
SERVER = None
SOON = 20.0  # seconds, on a machine with other work


def served():
    status, _, body = SERVER.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
    assert status == 200, body


def refuse(body, route="/v1/completions"):
    start = time.monotonic()
    status, _, answer = SERVER.post(route, body)
    took = time.monotonic() - start
    assert status == 400, f"{route} {body[:60]!r}: {status} {answer}"
    error = answer["error"]
    assert error["message"] and error["type"] == "invalid_request_error", answer
    assert len(str(answer)) < 500 and b"\x1b" not in str(answer).encode(), answer
    assert took < SOON, f"{route} {body[:60]!r}: {took:.1f} s"
    return error


def refuse_everywhere(*bodies):
    for body in bodies:
        for route in ROUTES:
            refuse(body, route)
    served()


def test_30_not_an_object():
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


def test_32_lone_surrogates():
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
                   "0." + "1" * 20 + "e" + "9" * 20):
        for field in ("max_tokens", "temperature", "seed", "unknown"):
            refuse(f'{{"prompt":"a","{field}":{number}}}'.encode())
    served()


HUGE = ("9223372036854775808", "-9223372036854775809", "18446744073709551616", "1" * 400, "1" * 200000)


def test_34_integers_beyond_64_bits():
    """Where a field is a number of ours the error names the field and its range."""
    for number in HUGE:
        for field, limit in (("max_tokens", "between 0 and 9007199254740992"), ("temperature", "between 0 and 100"),
                             ("seed", "between -9223372036854775808 and 9223372036854775807"),
                             ("n_predict", "between -1 and"), ("top_k", "between -1 and 2147483647")):
            error = refuse(f'{{"prompt":"a","{field}":{number}}}'.encode())
            assert (error["code"], error["param"]) == ("invalid_value", field) and limit in error["message"], error
        for route, field in (("/v1/completions", "prompt"), ("/v1/embeddings", "input"), ("/detokenize", "tokens"),
                             ("/v1/completions", "stop_token_ids"), ("/v1/completions", "allowed_token_ids")):
            error = refuse(f'{{"prompt":"a","{field}":[5,{number}]}}'.replace(
                '"prompt":"a","prompt"', '"prompt"').encode(), route)
            assert error["code"] == "invalid_value" and error["param"] == field, error
            assert "ids run from 0 to" in error["message"], error
        status, _, body = SERVER.post("/v1/completions", (
            f'{{"prompt":"a","max_tokens":1,"unknown":{number},"user":"u","metadata":{{"a":[{number}]}}}}'))
        assert status == 200, body


def test_34_integers_that_are_passed_through_are_kept():
    """Messages and template variables reach the template with all digits, on every route that takes them."""
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
        f.write("{{ n }} {{ messages[-1].extra | tojson }}{{ messages[0].content }}")  # we write the calls into it
        f.flush()
        with Hearth("--chat-template-file", f.name) as h:
            for n in (2 ** 63, -2 ** 70, 10 ** 60 + 7):
                calls = [{"type": "function", "id": "c", "function": {"name": "f", "arguments": json.dumps({"x": [n]})}}]
                messages = [{"role": "assistant", "content": None, "tool_calls": calls},
                            {"role": "user", "content": "a", "extra": {"k": [n, 1.5, "\u00e9"]}}]
                body = {"messages": messages, "chat_template_kwargs": {"n": n}, "max_tokens": 1}
                status, _, got = h.post("/apply-template", body)
                assert status == 200, got
                assert got["prompt"].startswith(f'{n} {{"k": [{n}, 1.5, "\u00e9"]}}') and f"[{n}]" in got["prompt"], got
                count = h.post("/tokenize", body)[2]["count"]
                status, _, got = h.post("/v1/chat/completions", body)
                assert status == 200 and got["usage"]["prompt_tokens"] == count, (got, count)


def test_34_a_long_fraction_is_a_number():
    status, _, body = SERVER.post("/v1/completions", b'{"prompt":"a","max_tokens":1,"temperature":0.'
                                  + b"1" * 200000 + b"}")
    assert status == 200, body


def test_35_nesting():
    """Refused before a tree is built, closed or not, wherever it stands, and soon."""
    n = 100000
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        for inner in (opening * n, opening * n + b"1" + closing * n):
            refuse(inner)
            refuse(b'{"prompt":' + inner + b"}")
            refuse(b'{"messages":[{"role":"user","content":' + inner + b"}]}", "/v1/chat/completions")
            refuse(b'{"messages":' + inner + b"}", "/apply-template")
    served()


def test_35_many_values():
    for inner in (b"{}," * 300000 + b"{}", b"1," * 1000000 + b"1"):
        refuse(b'{"prompt":[' + inner + b"]}")
        refuse(b'{"messages":[' + inner + b"]}", "/v1/chat/completions")
    served()


if __name__ == "__main__":
    with Hearth() as SERVER:
        run_cases(globals())
