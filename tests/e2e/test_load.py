#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Bursts, queues, deadlines, priorities and memory: every request gets an answer it can act on."""
import concurrent.futures
import json
import os
import socket
import tempfile
import threading
import time

from hearth_server import Hearth, chunks, leave, run_cases, start_request

SLOW = bool(os.environ.get("HEARTH_SLOW"))
BODY = {"prompt": "Once upon a time", "max_tokens": 60, "ignore_eos": True, "temperature": 0}


def many(h, bodies, workers):
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda b: h.post("/v1/completions", b), bodies))


def test_63_burst():
    with Hearth("--parallel", "4") as h:
        answers = many(h, [BODY] * 40, 40)
        statuses = [a[0] for a in answers]
        assert set(statuses) <= {200, 429, 503}, statuses
        assert statuses.count(200) >= 20, statuses
        assert len({a[2]["choices"][0]["text"] for a in answers if a[0] == 200}) == 1
        for status, head, answer in answers:
            if status != 200:
                assert 1 <= int(head["retry-after"]) <= 60 and int(head["retry-after-ms"]) >= 1000
                assert answer["error"]["code"] in ("queue_full", "server_overloaded")
        h.wait_until(lambda: h.slots()["pages"]["used"] == 0, what="all pages free")


def test_the_refused_get_in_when_they_come_back_and_newcomers_do_not_overtake():
    with Hearth("--parallel", "1", "--max-queue", "1", "--queue-timeout-ms", "0", "--ctx-size", "2048", "--threads", "1") as h:
        def hold():
            """A request of many times a retry time, which takes its place until its connection is closed."""
            body = dict(BODY, prompt=[[7] * 1000] * 8, max_tokens=1000, n=16, speculate=False)
            c = h.connect()
            c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            return c

        def wait_for(n_requests, what):
            h.wait_until(lambda: h.metrics()["hearth_http_requests_open"] == n_requests + 1, 10, what)

        def ask(name):
            return h.post("/v1/completions", dict(BODY, prompt=name, max_tokens=1))
        first = hold()
        h.wait_until(lambda: h.slots()["running"] == 1, 10, "one runs")
        second = hold()
        h.wait_until(lambda: h.slots()["waiting_tokens"] >= 1000, 10, "one waits")
        status, head, _ = ask("refused")
        assert status == 429, status
        due = time.monotonic() + int(head["retry-after-ms"]) / 1000
        first.close()
        wait_for(1, "the second runs")
        status, head, answer = ask("newcomer")
        assert status == 429 and "1 slots are reserved" in answer["error"]["message"], (status, answer)
        time.sleep(max(0, due - time.monotonic()))
        answers = []
        returned = threading.Thread(target=lambda: answers.append(ask("refused")[0]))
        returned.start()
        wait_for(2, "the one that came back waits")
        second.close()
        returned.join()
        assert answers == [200], answers
        assert ask("a third")[0] == 200, "a free slot is refused for the sake of a promise"
        counted = h.metrics()
        assert counted["hearth_requests_returned_total"] == 1, counted
        assert counted["hearth_requests_returned_refused_total"] == 0, counted


def test_64_queue_deadline():
    with Hearth("--parallel", "1", "--queue-timeout-ms", "200", "--max-queue", "8") as h:
        blocker = threading.Thread(target=h.post, args=("/v1/completions", dict(BODY, max_tokens=900)))
        blocker.start()
        h.wait_until(lambda: h.slots()["running"] == 1 or not blocker.is_alive(), 10, "running, or over")
        status, head, answer = h.post("/v1/completions", BODY)
        if status != 200:
            assert status == 503 and answer["error"]["code"] == "queue_timeout" and head["retry-after"]
        blocker.join()


def test_64_prompts_of_an_array_do_not_time_out():
    """The queue deadline is for the request: once it is in, its later prompts may take any time."""
    def last_longer(h, deadline_ms, path, field, result):
        """False: the request did not get in in time. More prompts until they last longer than the deadline."""
        n, took_ms = 6, 0
        while took_ms <= deadline_ms:
            n *= 2
            body = {field: [[5 + i] * 500 for i in range(n)], **({} if field == "input" else {"max_tokens": 1, "cache_prompt": False})}
            start = time.monotonic()
            status, _, answer = h.post(path, body)
            took_ms = (time.monotonic() - start) * 1000
            if status == 503 and answer["error"]["code"] == "queue_timeout":
                return False
            assert status == 200 and len(answer[result]) == n, (path, status, answer)
        return True

    for kind in (("/v1/completions", "prompt", "choices"), ("/v1/embeddings", "input", "data")):
        for deadline_ms in (200 if SLOW else 20, 300, 600):
            with Hearth("--parallel", "1", "--queue-timeout-ms", str(deadline_ms)) as h:
                if last_longer(h, deadline_ms, *kind):
                    break
        else:
            raise AssertionError(f"{kind[0]}: prompts of a request time out")


def test_65_request_deadline():
    """A request has what was computed by its deadline, with finish reason length; without a token it is 504."""
    # Plain C on one thread is slow enough for a deadline to pass in the middle.
    with Hearth("--numerics", "exact", "--kernels", "c", "--threads", "1", "--gemm", "native") as h:
        body = dict(BODY, max_tokens=900, ignore_eos=True, n=4, prompt=[7] * 1000)
        status, _, answer = h.post("/v1/completions", body, {"x-request-deadline-ms": "1"})
        assert status == 504 and answer["error"]["code"] == "deadline_exceeded", (status, answer)
        body["prompt"] = [7] * 20
        status, ms = 504, 150
        while status == 504:  # until one has a first token in time
            ms *= 2
            status, _, answer = h.post("/v1/completions", dict(body, deadline_ms=ms))
        assert status == 200 and {c["finish_reason"] for c in answer["choices"]} == {"length"}, answer
        assert 0 < answer["usage"]["completion_tokens"] < 3600, answer["usage"]
        events = chunks(h.stream("/v1/completions", dict(body, stream=True, deadline_ms=ms)))
        reasons = [e["choices"][0]["finish_reason"] for e in events if e.get("choices")]
        assert reasons.count("length") == 4 and len(events) < 3600 or "error" in events[-1], events[-4:]
        assert h.post("/v1/completions", body, {"x-request-deadline-ms": "soon"})[0] == 400


def test_74_health_under_load():
    """Health and the list of models wait for no request, whether some run or none gets on."""
    with Hearth("--parallel", "4", "--max-queue", "64", "--debug-hooks", "on", "--watchdog-ms", "0") as h:
        threads = [threading.Thread(target=h.post, args=("/v1/completions", BODY)) for _ in range(24)]
        h.pause_engine()
        for t in threads:
            t.start()
        h.wait_until(lambda: h.slots()["waiting"] == 24, what="all wait")
        assert h.get("/healthz")[0] == h.get("/v1/models")[0] == 200
        h.resume_engine()
        while any(t.is_alive() for t in threads):
            assert h.get("/healthz")[0] == h.get("/v1/models")[0] == 200


def test_74_large_texts_do_not_hold_up_small_requests():
    """Eight bodies of 3 MB are to be tokenized when a completion of one token comes: it is over before most of them."""
    with Hearth("--log-format", "json") as h:
        body = json.dumps({"content": "Once upon a time there was a cat. " * 90000}).encode()
        head = (f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n").encode()
        ended, sockets = [], []
        for _ in range(8):
            s = socket.create_connection((h.host, h.port), timeout=120)
            s.sendall(head + body[:-1])
            sockets.append(s)
        small = json.dumps(dict(BODY, max_tokens=1)).encode()
        quick = socket.create_connection((h.host, h.port), timeout=120)
        quick.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                      b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(small) + small[:-1])

        def read(s):
            data = b""
            while chunk := s.recv(1 << 20):
                data += chunk
            ended.append(data[:15])
        threads = [threading.Thread(target=read, args=(s,)) for s in sockets]
        for t in threads:
            t.start()
        for s in (*sockets, quick):  # all are complete at the same time
            s.sendall(body[-1:])
        with quick:
            assert quick.recv(100).startswith(b"HTTP/1.1 200 ")
        for t in threads:
            t.join()
        assert ended == [b"HTTP/1.1 200 OK"] * 8, ended
    paths = [row["path"] for row in map(json.loads, h.log) if row.get("event") == "request"]
    assert paths.count("/tokenize") == 8 and paths.index("/v1/completions") < 4, paths


def test_75_different_prompts_at_once():
    prompts = [f"Tom has {i} red apples and Anna has {i + 3}" for i in range(8)]
    bodies = [dict(BODY, prompt=p, max_tokens=30) for p in prompts]
    with Hearth("--parallel", "8") as h:
        alone = [h.post("/v1/completions", b)[2] for b in bodies]
        together = [a[2] for a in many(h, bodies, 8)]
    for a, b in zip(alone, together):
        assert a["choices"][0]["text"] == b["choices"][0]["text"]
        assert a["usage"]["completion_tokens"] == b["usage"]["completion_tokens"]


def test_76_worst_legal_load():
    slow = ["--ctx-size", "512"] if os.environ.get("HEARTH_SLOW") else []
    with Hearth("--parallel", "8", "--max-queue", "64", "--queue-timeout-ms", "0", *slow) as h:
        ctx = h.get("/props")[2]["n_ctx"]
        before = h.get("/props")[2]["memory"]
        planned = sum(before[k] for k in ("weights_bytes", "kv_bytes", "scratch_bytes", "logits_bytes"))
        bodies = [dict(BODY, prompt=[5 + (i + k) % 200 for k in range(ctx - 20)], max_tokens=1000,
                       logprobs=20) for i in range(16)]
        for status, _, answer in many(h, bodies, 16):
            assert status == 200 and answer["choices"][0]["finish_reason"] == "length", answer
        rss = h.memory_kib("VmHWM") * 1024
        print(f"    planned {planned >> 20} MiB, peak resident {rss >> 20} MiB")
        if not os.environ.get("HEARTH_SLOW"):
            assert rss < planned + (96 << 20)


def serve_in_order(policy, jobs):
    """The order in which requests (name, key, priority) of two keys are served by one slot."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "keys")
        with open(path, "w", encoding="ascii") as f:
            f.write("alpha\nbeta\n")
        os.chmod(path, 0o600)
        with Hearth("--parallel", "1", "--max-queue", "32", "--api-key-file", path, "--priority-policy", policy,
                    "--debug-hooks", "on", "--log-format", "json") as h:
            def slots():
                return h.get("/slots", {"Authorization": "Bearer alpha"})[2]
            statuses = []

            def ask(name, key, **more):
                statuses.append(h.post("/v1/completions", dict(BODY, max_tokens=200 if SLOW else 400, **more),
                                       {"Authorization": f"Bearer {key}", "x-request-id": name})[0])
            h.pause_engine()
            threads = []
            for name, key, priority in jobs:
                threads.append(threading.Thread(target=ask, args=(name, key), kwargs={"priority": priority}))
                threads[-1].start()
                h.wait_until(lambda: slots()["waiting"] == len(threads), 10, "queued")
            h.resume_engine()
            for t in threads:
                t.join()
            assert statuses == [200] * len(jobs), statuses
        ended = [json.loads(line) for line in h.log if '"/v1/completions"' in line]  # in the order of their ends
        return [row["id"] for row in ended]


def test_priority():
    """The urgent one that came last is served first, equal ones in their order."""
    jobs = [("low0", "alpha", 5), ("low1", "alpha", 5), ("low2", "alpha", 5), ("high", "alpha", -5)]
    assert serve_in_order("key", jobs) == ["high", "low0", "low1", "low2"]


def test_priority_of_another_key():
    """Whatever priority a key asks for, another one has its turn; unless the operator says otherwise."""
    jobs = [("a1", "alpha", 0), ("a2", "alpha", -1000000), ("a3", "alpha", -1000000), ("b1", "beta", 1000000)]
    order = serve_in_order("key", jobs)
    assert order.index("b1") <= 1 and order.index("a2") < order.index("a3") < order.index("a1"), order
    order = serve_in_order("global", jobs)
    assert order == ["a2", "a3", "a1", "b1"], order


def test_prefix_cache():
    with Hearth("--parallel", "8") as h:
        prefix = [5 + i * 3 % 200 for i in range(320)]
        def body(i, **kw):
            return dict(BODY, prompt=prefix + [10 + i], max_tokens=8, return_token_ids=True, **kw)
        cold = [h.post("/v1/completions", body(i, cache_prompt=False))[2] for i in range(4)]
        assert all(a["usage"]["prompt_tokens_details"]["cached_tokens"] == 0 for a in cold)
        warm = [a[2] for a in many(h, [body(i % 4) for i in range(8)], 8)]
        again = [a[2] for a in many(h, [body(i % 4) for i in range(8)], 8)]
        for i, a in enumerate(warm + again):
            assert a["choices"][0]["token_ids"] == cold[i % 4]["choices"][0]["token_ids"]
        cached = [a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in again]
        assert all(c == 320 for c in cached), cached
    with Hearth("--prefix-cache", "off") as h:
        for _ in range(2):
            a = h.post("/v1/completions", dict(BODY, prompt=prefix))[2]
            assert a["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_prefix_of_1000_tokens_is_computed_once_for_32_requests():
    n_prefix, n = 256 if SLOW else 1024, 32
    prefix = [5 + i * 7 % 200 for i in range(n_prefix)]

    def body(i, **kw):
        return dict(BODY, prompt=prefix + [20 + i] * 16, max_tokens=4, return_token_ids=True, **kw)
    with Hearth("--parallel", "32") as h:
        shared = [a[2] for a in many(h, [body(i) for i in range(n)], n)]
        cached = [a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in shared]
        assert sum(n_prefix + 16 - c for c in cached) == n_prefix + n * 16, sorted(cached)
        for i in (0, 9, 31):
            alone = h.post("/v1/completions", body(i, cache_prompt=False))[2]
            assert alone["choices"][0]["token_ids"] == shared[i]["choices"][0]["token_ids"], i


def test_85_a_thousand_requests_leave_nothing_behind():
    """Bursts, streams and clients that leave; then the server must end with 0, which the sanitizers' builds
    (leaks, races, undefined behaviour) turn into their own verdict."""
    with Hearth("--parallel", "4", "--max-queue", "64") as h:
        def one(i):
            body = dict(BODY, prompt=f"Tom {i % 50}", max_tokens=3, n=1 + i % 3)
            if i % 5 == 0:
                leave(start_request(h, "/v1/completions", dict(body, max_tokens=50, stream=i % 2 == 0)), i % 3 == 0)
            elif i % 5 == 1:
                chunks(h.stream("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}],
                                                         "max_tokens": 3, "stream": True}))
            else:
                status, _, answer = h.post("/v1/completions", body if i % 5 < 4 else {"prompt": i, "n": "x"})
                assert status == (200 if i % 5 < 4 else 400), (status, answer)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(one, range(1000)))
        h.wait_until(lambda: h.metrics()["hearth_http_requests_open"] == 1, 30, "all requests have ended")
        h.wait_until(lambda: h.slots()["pages"]["used"] == 0, what="all pages free")


def test_86_choices_cost_what_they_use():
    """1.4 KB of body ask for 4,096 choices: memory is taken as they are computed, and given back."""
    with Hearth() as h:
        h.post("/v1/completions", dict(BODY, prompt=[[5 + i] * 40 for i in range(8)], n=16))  # KV pages are touched
        h.wait_until(lambda: h.slots()["running"] == 0, 10, "idle")
        before = h.memory_kib()
        body = dict(BODY, prompt=[[5]] * 256, n=16, max_tokens=2000)
        for _ in range(3):
            c = start_request(h, "/v1/completions", body)
            done = h.metrics()["hearth_generated_tokens_total"]
            h.wait_until(lambda: h.metrics()["hearth_generated_tokens_total"] > done + 500, 60, "it runs")
            if not os.environ.get("HEARTH_SLOW"):  # a sanitizer keeps what is freed
                assert h.memory_kib() - before < 64 << 10, (h.memory_kib(), before)
            leave(c, reset=True)
            h.wait_until(lambda: h.slots()["running"] == 0, 60, "its slots are free")


def test_86_answers_have_a_budget():
    """Logs of all that may come are charged before anything is computed; the error names what does not fit in numbers."""
    with Hearth("--answer-memory", "16M", "--debug-hooks", "on") as h:
        large = dict(BODY, n=16, max_tokens=2000, logprobs=20)  # 5.6 MiB
        status, _, answer = h.post("/v1/completions", dict(large, prompt=[BODY["prompt"]] * 4))
        assert status == 413 and answer["error"]["code"] == "request_too_large", (status, answer)
        for number in ("4 prompts", "16 choices", "2000 tokens", "21 log-probabilities", "16 MiB"):
            assert number in answer["error"]["message"], answer
        h.pause_engine()
        held = [start_request(h, "/v1/completions", large) for _ in range(2)]
        h.wait_until(lambda: h.slots()["waiting"] == 32, 10, "two wait")
        status, head, answer = h.post("/v1/completions", large)
        assert status == 429 and head["retry-after"] and "of the 16 MiB" in answer["error"]["message"], answer
        small = threading.Thread(target=h.post, args=("/v1/completions", BODY))
        small.start()
        h.wait_until(lambda: h.slots()["waiting"] == 33, 10, "a small one is let in")
        leave(held.pop(), reset=False)
        h.wait_until(lambda: h.slots()["waiting"] == 17, 10, "one has left")
        leave(held.pop(), reset=False)
        h.resume_engine()
        small.join()
        h.wait_until(lambda: h.slots()["running"] == 0, 60, "idle")
        assert h.post("/v1/completions", dict(large, stop="e"))[0] == 200
        # An answer that nobody reads counts as long as it is held.
        text = {"content": "Once upon a time. " * 200000, "with_pieces": True}  # about 28 MB of answer
        status, _, answer = h.post("/tokenize", text)
        assert status == 503 and answer["error"]["code"] == "server_overloaded", (status, str(answer)[:200])


def test_a_key_of_unfinished_bodies_leaves_room_for_others():
    """Of the memory of all bodies a key holds half while there are several keys; short bodies have an eighth more."""
    largest, keys = 1 << 20, ("key-of-a", "key-of-b")

    def begin(h, key):
        s = h.open_socket()
        s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (key.encode(), largest) + b" " * (largest - 1))
        return s

    def ask(h, key, body):
        return h.request("POST", "/tokenize", body, {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})[0]

    large, small = (json.dumps({"content": "a " * (n // 2)}).encode() for n in (largest - 100, 1000))
    for n_keys in (2, 1):
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("\n".join(keys[:n_keys]))
            f.flush()
            with Hearth("--api-key-file", f.name, "--max-body-bytes", str(largest)) as h:
                held = [begin(h, keys[0]) for _ in range(17)]
                # some of those that came at once were refused, each with all that it held: others take their room
                h.wait_until(lambda: ask(h, keys[0], large) == 503 or held.append(begin(h, keys[0])), 20, "the bodies are held")
                assert ask(h, keys[0], small) == 200
                if n_keys == 2:
                    assert ask(h, keys[1], small) == 200 and ask(h, keys[1], large) == 200
                for s in held:
                    s.close()
                h.wait_until(lambda: ask(h, keys[0], large) == 200, 10, "their memory is given back")


def test_86_large_answers_come_in_pieces():
    """An answer of some size is written as the client reads it, and is the same as in one piece."""
    with Hearth() as h:
        ids = [5 + i * 7 % 300 for i in range(1500)]
        scored = {"prompt": ids, "max_tokens": 8, "temperature": 0, "echo": True, "logprobs": 5, "stop": "the"}
        messages = [{"role": "user", "content": "Tell a story. " * 20}]
        chat = {"messages": messages, "max_tokens": 500 if SLOW else 800, "temperature": 0, "logprobs": True, "top_logprobs": 20,
                "ignore_eos": True, "return_token_ids": True, "prompt_logprobs": 3}
        for path, body, n in (("/v1/completions", scored, 4), ("/v1/chat/completions", chat, 4)):
            _, head, one = h.post(path, dict(body, n=1))
            _, many_head, many_choices = h.post(path, dict(body, n=n))
            assert "content-length" not in many_head, many_head
            assert "content-length" in head or path.endswith("chat/completions"), head
            assert [dict(c, index=0) for c in many_choices["choices"]] == one["choices"] * n
            assert many_choices["usage"]["completion_tokens"] == n * one["usage"]["completion_tokens"]
            for key in one.keys() - {"choices", "id", "created", "usage"}:
                assert one[key] == many_choices[key], key
        # A client that reads slowly gets all of it, one that leaves costs nothing.
        for stays in (True, False):
            s = start_request(h, "/v1/completions", dict(scored, n=4), receive_buffer=4096)
            answer = b""
            while (chunk := s.recv(16384)) and (stays or len(answer) < 100000):
                answer += chunk
            if stays:
                assert answer.endswith(b"}\r\n0\r\n\r\n") or answer.endswith(b"}"), answer[-50:]
            leave(s, reset=True)
        h.wait_until(lambda: h.metrics()["hearth_http_requests_open"] == 1, 10, "all requests have ended")


def test_77_memory_and_descriptors_stay_flat():
    n = 60 if SLOW else 300
    with Hearth("--parallel", "4") as h:
        def round_trip(i):
            assert h.post("/v1/completions", dict(BODY, prompt=f"Tom {i % 7}", max_tokens=4))[0] == 200
            chunks(h.stream("/v1/completions", dict(BODY, max_tokens=4, stream=True)))
            assert h.post("/v1/completions", {"prompt": 5})[0] == 400

        def measure():
            return h.memory_kib(), len(os.listdir(f"/proc/{h.process.pid}/fd")), \
                len(os.listdir(f"/proc/{h.process.pid}/task"))
        for i in range(n // 3):
            round_trip(i)
        before = measure()
        for i in range(n):
            round_trip(i)
        after = measure()
        print(f"    RSS {before[0]} -> {after[0]} KiB, descriptors {before[1]} -> {after[1]}, "
              f"threads {before[2]} -> {after[2]}")
        assert after[1] <= before[1] + 4 and after[2] == before[2]
        if not os.environ.get("HEARTH_SLOW"):
            assert after[0] < before[0] + 2048


if __name__ == "__main__":
    run_cases(globals())
