#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Grammars that use up the whole step budget: who waits for them, and what ends them. By hand, with more of them:
compiling_run.py.

What lasts here are many compilations of some hundredths of a second each, not one that is slow.
"""
import concurrent.futures
import contextlib
import os
import tempfile
import time

from hearth_server import Hearth, leave, run_cases, start_request

KEYS = ["a" * 24, "b" * 24]
PLAIN = {"prompt": "Tom has", "max_tokens": 4, "temperature": 0}
SMALL = {"type": "object", "required": ["a"], "properties": {"a": {"enum": [1, 2]}}, "additionalProperties": False}


REFUSED = 'hearth_grammar_refused_total{code="invalid_json_schema"}'


def hostile(i, **more):
    """A request with 300 patterns of a thousand states each: several times the budget of steps."""
    return dict(PLAIN, json_schema={"properties": {f"p{k}": {
        "type": "string", "pattern": "^[ab]*a[ab]{9}x{%d}y{%d}$" % (k + 1, i + 1)} for k in range(300)}}, **more)


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@contextlib.contextmanager
def server_with_keys(*options):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "keys")
        with open(path, "w", encoding="ascii") as f:
            f.write("\n".join(KEYS) + "\n")
        os.chmod(path, 0o600)
        with Hearth("--api-key-file", path, "--metrics-port", "0", *options) as h:
            yield h, h.admin()


def metric(h, name):
    return h.metrics()[name]


def n_asked(h):
    return metric(h, "hearth_grammar_cache_misses_total")


def n_waiting(h):
    return metric(h, "hearth_grammar_waiting")


def test_text_workers_are_free_while_grammars_compile():
    """All hostile requests of one key wait for the compile thread at once; a plain completion and a small grammar of
    another key pass them. Once the clients have left, nothing is compiled for them any longer."""
    n = 40
    with server_with_keys("--text-workers", "2") as (h, admin):
        sockets = [start_request(h, "/v1/completions", hostile(i), headers=bearer(KEYS[0])) for i in range(n)]
        admin.wait_until(lambda: n_asked(admin) == n, 60, "all have asked for their grammar")
        assert n_waiting(admin) > n / 2, "they were compiled one after the other by the text workers"
        assert h.post("/v1/completions", PLAIN, bearer(KEYS[1]))[0] == 200
        assert h.post("/v1/completions", dict(PLAIN, json_schema=SMALL, max_tokens=20), bearer(KEYS[1]))[0] == 200
        assert n_waiting(admin) > n / 4, "the other key waited for them"
        done = metric(admin, REFUSED)
        for i, s in enumerate(sockets):
            leave(s, reset=i % 2 == 1)
        admin.wait_until(lambda: n_waiting(admin) == 0, 20, "no grammar is waited for")
        admin.wait_until(lambda: metric(admin, "hearth_http_requests_open") <= 1, 20, "all requests are over")
        assert metric(admin, REFUSED) - done < n / 4


def test_a_failure_is_remembered():
    with Hearth() as h:
        answers = [h.post("/v1/completions", hostile(0)) for _ in range(3)]
        assert all(status == 400 and a == answers[0][2] for status, _, a in answers), answers
        assert n_asked(h) == 1 and metric(h, "hearth_grammar_cache_hits_total") == 2


def test_deadlines_end_waiting():
    with Hearth() as h, concurrent.futures.ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda i: h.post("/v1/completions", hostile(i, deadline_ms=300)), range(40)))
        codes = [a["error"]["code"] for _, _, a in answers]
        assert set(codes) <= {"invalid_json_schema", "deadline_exceeded"}, codes
        assert codes.count("deadline_exceeded") > 10, codes
        own = h.post("/v1/completions", hostile(99, deadline_ms=1))
        assert own[2]["error"]["code"] == "deadline_exceeded", own
        assert h.post("/v1/completions", PLAIN)[0] == 200


def end_while_compiling(drain_ms, n, kind=0, pause=0):
    """(exit status, seconds it took, status of each answer) of SIGTERM while n grammars compile or wait for that."""
    with Hearth("--drain-timeout-ms", str(drain_ms)) as h, concurrent.futures.ThreadPoolExecutor(n) as pool:
        fields = [{}, {"stream": True}, {"n": 2}][kind % 3]
        answers = [pool.submit(h.post, "/v1/completions", hostile(i, **fields)) for i in range(n)]
        h.wait_until(lambda: n_asked(h) == n, 60, "all have asked for their grammar")
        time.sleep(pause)
        assert n_waiting(h) > 0
        start = time.monotonic()
        status = h.stop()
        return status, time.monotonic() - start, [a.result()[0] for a in answers]


def test_sigterm_while_compiling():
    """What is compiled within the drain time is answered; the rest gets an error when it is over. The status is 0."""
    status, _, answers = end_while_compiling(60000, 4)
    assert status == 0 and answers == [400] * 4, (status, answers)
    status, _, answers = end_while_compiling(50, 40)
    assert status == 0 and set(answers) <= {400, 503} and answers.count(503) > 20, (status, answers)


if __name__ == "__main__":
    run_cases(globals())
