#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Mixed load for a long time, run by hand: every answer is compared with the one the same request got alone.

    soak.py [--minutes 30] [--clients 8] [--seed 1] [--disconnect 0.2] [--bad 0.05] [--encoder] [server options...]

Plain and streamed completions, chat, scoring, embeddings, token counting; a fifth of the clients leave in
the middle, one request in twenty is wrong. Once a minute the resident memory, descriptors and threads of
the server are printed. Fails on: an unexpected status, an answer that differs, a rise of the resident
memory of 1 MB or more between the first and the last sample of the last two thirds, more descriptors or
threads than at their start, and a server that does not end with 0. Standard library only.
"""
import argparse
import gc
import json
import os
import random
import socket
import sys
import threading
import time

from hearth_server import DEMO, Hearth, chunks

WORDS = "the little dog found a red ball in the garden and Tom said hello to his friend Anna".split()
BAD = [("/v1/completions", b"{", 400), ("/v1/completions", b'{"prompt":5}', 400),
       ("/v1/completions", b'{"prompt":"a","max_tokens":-1}', 400), ("/v1/completions", b"", 400),
       ("/v1/completions", b'{"prompt":"a","model":"nope"}', 404), ("/v1/nothing", b"{}", 404),
       ("/v1/chat/completions", b'{"messages":[{"role":"user"}]}', 400),
       ("/v1/chat/completions", b'{"messages":' + b"[" * 500, 400),
       ("/v1/completions", b'{"prompt":"' + b"a" * 60000 + b'"}', 400),
       ("/tokenize", b'{"content":"\xff"}', 400), ("/v1/embeddings", b'{"input":""}', 400)]
BUSY = (429, 503)


def make_requests(n, seed):
    """(path, body) pairs whose answers do not depend on anything else."""
    rng, out = random.Random(seed), []
    for i in range(n):
        text = " ".join(rng.choice(WORDS) for _ in range(rng.choice([1, 5, 20, 60, 150])))
        common = {"temperature": rng.choice([0, 0.8, 1.2]), "seed": i + 1, "max_tokens": rng.choice([1, 8, 40, 120])}
        kind = i % 8
        if kind < 3:
            out.append(("/v1/completions", dict(common, prompt=text, n=rng.choice([1, 1, 3]),
                                                logprobs=rng.choice([None, 0, 3]), stream=kind > 0)))
        elif kind < 6:
            out.append(("/v1/chat/completions", dict(
                common, messages=[{"role": "user", "content": text}], stream=kind > 3,
                logprobs=rng.choice([False, True]))))
        elif kind == 6:
            out.append(("/v1/completions", {"prompt": [text, "Tom"], "echo": True, "logprobs": 1, "max_tokens": 0}))
        else:
            out.append(rng.choice([("/v1/embeddings", {"input": [text, "Tom"]}), ("/tokenize", {"prompt": text}),
                                   ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": text}]})]))
    return out


def encoder_requests(n, seed):
    """The same of a model of vectors: queries, and jobs of many texts."""
    rng, out = random.Random(seed), []
    for i in range(n):
        texts = [" ".join(rng.choice(WORDS) for _ in range(rng.choice([1, 5, 20, 60, 120])))
                 for _ in range(rng.choice([1, 1, 1, 7, 32]))]
        out.append(rng.choice([("/v1/embeddings", {"input": 8 * texts}), ("/embed", {"inputs": texts}),
                               ("/api/embed", {"input": texts}), ("/tokenize", {"prompt": texts[0]})]))
    return out


def read_stream(h, path, body):
    """{index: (text, log-probabilities, finish reason)} of a stream, or a status that is not 200."""
    out = {}
    try:
        events = chunks(h.stream(path, body))
    except AssertionError as e:
        if str(e).startswith("status "):
            return int(str(e).split()[1].rstrip(":"))
        raise
    for e in events:
        if "error" in e:
            return {"status": e["error"]["code"]}
        for c in e["choices"]:
            text, logprobs, reason = out.get(c["index"], ("", [], None))
            lp = c["logprobs"] or {}
            logprobs = logprobs + (lp.get("content") or lp.get("token_logprobs") or [])
            piece = c["text"] if "text" in c else c["delta"].get("content", "")
            out[c["index"]] = (text + piece, logprobs, c["finish_reason"] or reason)
    return out


def answer(h, path, body):
    """What must be the same every time; a status number where it is not 200."""
    if body.get("stream"):
        return read_stream(h, path, body)
    status, _, a = h.post(path, body)
    if status != 200:
        return status
    for volatile in ("id", "created", "usage", "total_duration", "load_duration"):
        if isinstance(a, dict):
            a.pop(volatile, None)
    return a


class Load:
    def __init__(self, h, a, requests, expected):
        self.h, self.a, self.requests, self.expected = h, a, requests, expected
        self.counts, self.faults, self.lock = {}, [], threading.Lock()
        self.end = time.monotonic() + a.minutes * 60

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def fault(self, text):
        with self.lock:
            if len(self.faults) < 20:
                self.faults.append(text)
                print("FAULT", text, flush=True)

    def leave(self, rng, path, body):
        """Sends a request, or a part of it, and leaves after some time or a few bytes."""
        data = json.dumps(body).encode()
        head = (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(data)}\r\n\r\n").encode()
        whole = head + data
        with socket.create_connection((self.h.host, self.h.port), timeout=30) as s:
            s.sendall(whole[:rng.randrange(1, len(whole))] if rng.random() < 0.2 else whole)
            s.settimeout(rng.choice([0.001, 0.01, 0.05]))
            try:
                s.recv(rng.choice([1, 200, 2000]))
            except TimeoutError:
                pass
        self.count("left")

    def one(self, rng):
        i = rng.randrange(len(self.requests))
        path, body = self.requests[i]
        draw = rng.random()
        if draw < self.a.disconnect:
            self.leave(rng, path, dict(body, max_tokens=200))
            return
        if draw < self.a.disconnect + self.a.bad:
            bad_path, data, wanted = rng.choice(BAD)
            status, _, got = self.h.post(bad_path, data)
            if status != wanted or "error" not in got:
                self.fault(f"{bad_path} {data[:40]}: {status} instead of {wanted}")
            self.count(status)
            return
        got = answer(self.h, path, body)
        if isinstance(got, int):
            self.count(got)
            if got not in BUSY:
                self.fault(f"{path} {json.dumps(body)[:80]}: status {got}")
            time.sleep(0.05)
            return
        self.count(200)
        if got != self.expected[i]:
            self.fault(f"{path} {json.dumps(body)[:120]}: another answer than alone: {json.dumps(got)[:300]}")

    def client(self, number):
        rng = random.Random(self.a.seed * 1000 + number)
        while time.monotonic() < self.end:
            try:
                self.one(rng)
            except (OSError, AssertionError, ValueError) as e:
                self.fault(f"{type(e).__name__}: {e}")
                time.sleep(0.2)


def sample(h):
    base = f"/proc/{h.process.pid}"
    return h.memory_kib(), len(os.listdir(base + "/fd")), len(os.listdir(base + "/task"))


def verdict(load, samples, quiet):
    """Compares the last two thirds; descriptors and threads once all clients have gone."""
    late = samples[len(samples) // 3:] if len(samples) > 3 else samples
    rise = late[-1][0] - late[0][0]
    print(f"RSS {late[0][0]} -> {late[-1][0]} KiB over the last {len(late) - 1} samples ({rise:+d} KiB), highest "
          f"{max(s[0] for s in samples)}; descriptors {quiet[0][1]} before, {quiet[1][1]} after; "
          f"threads {quiet[0][2]} before, {quiet[1][2]} after")
    print("answers:", dict(sorted(load.counts.items(), key=str)), "faults:", len(load.faults))
    return not load.faults and rise < 1024 and quiet[1][1] <= quiet[0][1] and quiet[1][2] == quiet[0][2]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--minutes", type=float, default=30)
    p.add_argument("--clients", type=int, default=8)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--disconnect", type=float, default=0.2)
    p.add_argument("--bad", type=float, default=0.05)
    p.add_argument("--encoder", action="store_true", help="requests for vectors alone; with --model demo-embed")
    p.add_argument("--every", type=float, default=60, help="seconds between samples")
    a, server_args = p.parse_known_args()
    if "--model" not in server_args:
        server_args += ["--model", DEMO]
    requests = (encoder_requests if a.encoder else make_requests)(160, a.seed)
    with Hearth("--parallel", "4", "--log-format", "text", *server_args) as h:
        h.log = h.log[:0]  # the access log is not needed, and would grow here
        expected = [answer(h, path, body) for path, body in requests]
        wrong = [r for r, e in zip(requests, expected) if isinstance(e, int)]
        assert not wrong, wrong[0]
        h.wait_until(lambda: h.metrics()["hearth_http_connections"] <= 1, 10, "quiet")
        quiet, samples, load = [sample(h)], [], Load(h, a, requests, expected)
        threads = [threading.Thread(target=load.client, args=(i,)) for i in range(a.clients)]
        for t in threads:
            t.start()
        start = time.monotonic()
        while time.monotonic() < load.end:
            time.sleep(min(a.every, max(0.1, load.end - time.monotonic())))
            samples.append(sample(h))
            del h.log[:]
            gc.collect()
            print(f"{time.monotonic() - start:7.0f} s: RSS %d KiB, %d descriptors, %d threads; " % samples[-1] +
                  f"{sum(load.counts.values())} requests", flush=True)
        for t in threads:
            t.join()
        h.wait_until(lambda: h.slots()["running"] == 0 and h.slots()["pages"]["used"] == 0, 10, "idle at the end")
        deadline = time.monotonic() + 90  # the longest clock is the idle one
        while sample(h)[1] > quiet[0][1] and time.monotonic() < deadline:
            time.sleep(0.1)
        print(f"descriptors back after {90 - (deadline - time.monotonic()):.1f} s")
        quiet.append(sample(h))
        passed = verdict(load, samples, quiet)
    print("passed" if passed else "FAILED", f"(seed {a.seed})")
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
