#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Load on a server with the OpenAI-style /v1/completions, and what its clients see of it.

    load.py --url http://127.0.0.1:8080 --clients 1,4,16,32     closed loop: N clients, each sends its
                                                                next request when its last one is done
    load.py --url URL --rate 2,4,8 --seconds 60                 open loop: requests come at random
                                                                (Poisson) whatever the server is doing
    load.py --url A --url B --clients 16 --rounds 5             two servers in turns, and the ratios

Prompts are random token ids (--prompt of them), different in every request, so a prefix cache helps only
with --shared. Times are those of bytes read from the socket: TTFT from the first byte sent to the first event
with text, gaps between two events with text of one stream. Rates count the tokens of `usage`. One thread
with a selector, standard library only; the client's own CPU time is reported. Seeded: the same arguments
send the same requests (--seed). --json FILE keeps everything.
"""
import argparse
import heapq
import json
import os
import random
import selectors
import shlex
import socket
import statistics
import sys
import time
import urllib.parse

from compare_llama import commit, listed, machine

FIRST_ID, LAST_ID = 300, 48000


class Request:
    """One streaming request on its own connection. `body` bytes in, times of events out."""

    def __init__(self, target, body):
        self.target, self.body = target, body
        self.start = self.end = None
        self.times, self.usage, self.error, self.status = [], {}, None, 0
        self.pending, self.rest = b"", b""
        self.socket = None
        self.finished = False

    def open(self):
        t = self.target
        self.start = time.perf_counter()
        self.socket = socket.create_connection((t.host, t.port), timeout=t.timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = f"POST {t.path} HTTP/1.1\r\nHost: {t.host}:{t.port}\r\nContent-Type: application/json\r\n" \
               f"Connection: close\r\n{t.authorization}Content-Length: {len(self.body)}\r\n\r\n"
        self.socket.sendall(head.encode() + self.body)
        self.socket.setblocking(False)

    def read(self):
        """True when the answer has ended."""
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return False
        except OSError as e:
            return self.close(str(e))
        if not data:
            return self.close(None if self.finished else "the answer ended early")
        self.take(data, time.perf_counter())
        return self.finished and self.close(None)

    def take(self, data, now):
        self.rest += data
        if not self.status:
            at = self.rest.find(b"\r\n\r\n")
            if at < 0:
                return
            self.status = int(self.rest.split(None, 2)[1])
            self.rest = self.rest[at + 4:]
        if self.status != 200:
            return
        lines = self.rest.split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            if line.startswith(b"data:"):
                self.event(line[5:].strip(), now)

    def event(self, text, now):
        if text == b"[DONE]":
            self.finished = True
            return
        try:
            e = json.loads(text)
        except ValueError:
            self.error = f"not JSON: {text[:80]!r}"
            return
        if e.get("error"):
            self.error = str(e["error"])[:200]
        if e.get("usage"):
            self.usage = e["usage"]
        for choice in e.get("choices") or []:
            if choice.get("text") or (choice.get("delta") or {}).get("content"):
                self.times.append(now)

    def close(self, error):
        self.end = time.perf_counter()
        if error and not self.error:
            self.error = f"status {self.status}: {error} {self.rest[:200]!r}" if self.status != 200 else error
        self.socket.close()
        return True


class Target:
    def __init__(self, url, a):
        u = urllib.parse.urlsplit(url if "//" in url else "http://" + url)
        if u.scheme != "http":
            sys.exit("only http: is measured")
        self.url, self.host, self.port = url, u.hostname, u.port or 80
        self.label = url
        self.path = (u.path.rstrip("/") or "/v1") + "/completions"
        self.timeout = a.timeout
        key = os.environ.get("OPENAI_API_KEY")
        self.authorization = f"Authorization: Bearer {key}\r\n" if key else ""


def make_body(a, rng):
    ids = [rng.randrange(FIRST_ID, a.last_id) for _ in range(a.prompt)]
    shared = random.Random(7)
    ids[:a.shared] = [shared.randrange(FIRST_ID, a.last_id) for _ in range(min(a.shared, a.prompt))]
    body = {"model": a.model, "prompt": ids, "max_tokens": a.gen, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}, "ignore_eos": True, **json.loads(a.extra)}
    return json.dumps(body).encode()


class Loop:
    """Runs requests; `next_body(done)` of the closed loop or a list of due times of the open one."""

    def __init__(self, target, a):
        self.target, self.a, self.done = target, a, []
        self.selector = selectors.DefaultSelector()
        self.n_open = 0

    def send(self, body):
        r = Request(self.target, body)
        try:
            r.open()
        except OSError as e:
            r.error, r.end = str(e), time.perf_counter()
            self.done.append(r)
            return
        self.selector.register(r.socket, selectors.EVENT_READ, r)
        self.n_open += 1

    def step(self, wait):
        """Reads what has come; the requests that ended."""
        ended = []
        for key, _ in self.selector.select(wait):
            fd = key.fileobj
            if key.data.read():
                self.selector.unregister(fd)
                self.n_open -= 1
                ended.append(key.data)
        self.done += ended
        self.cut_late()
        return ended

    def cut_late(self):
        now = time.perf_counter()
        for key in list(self.selector.get_map().values()):
            if now - key.data.start > self.a.timeout:
                self.selector.unregister(key.fileobj)
                self.n_open -= 1
                key.data.close(f"no end after {self.a.timeout} s")
                self.done.append(key.data)

    def closed(self, n_clients, bodies):
        """Every client starts its next request when its last is done, until the bodies are used up."""
        waiting = list(reversed(bodies))
        for _ in range(min(n_clients, len(waiting))):
            self.send(waiting.pop())
        while self.n_open:
            for _ in self.step(1):
                if waiting:
                    self.send(waiting.pop())

    def open(self, due):
        """due: a heap of (time since the start, body)."""
        begin = time.perf_counter()
        while due or self.n_open:
            now = time.perf_counter() - begin
            while due and due[0][0] <= now:
                self.send(heapq.heappop(due)[1])
            self.step(min(1, max(0, due[0][0] - now)) if due else 1)


def percentile(values, p):
    """Linear between the two nearest."""
    if not values:
        return None
    values = sorted(values)
    k = (len(values) - 1) * p
    low = int(k)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (k - low)


def in_ms(values):
    """The figures of a list of seconds."""
    points = {"p50": .5, "p95": .95, "p99": .99, "max": 1}
    return {name: None if not values else round(1e3 * percentile(values, p), 3) for name, p in points.items()}


def summary(loop, cpu):
    good = [r for r in loop.done if not r.error]
    bad = [r for r in loop.done if r.error]
    heard = [r for r in good if r.times]
    if not good:
        return {"requests": len(loop.done), "errors": len(bad), "first_error": bad[0].error}
    wall = max(r.end for r in good) - min(r.start for r in good)
    out = sum(r.usage.get("completion_tokens", len(r.times)) for r in good)
    prompt = sum(r.usage.get("prompt_tokens", 0) for r in good)
    row = {"requests": len(loop.done), "errors": len(bad), "seconds": round(wall, 3), "output_tokens": out,
           "prompt_tokens": prompt, "output_tok_s": round(out / wall, 2),
           "total_tok_s": round((out + prompt) / wall, 2), "requests_s": round(len(good) / wall, 3),
           "without_text": len(good) - len(heard), "ttft_ms": in_ms([r.times[0] - r.start for r in heard]),
           "itl_ms": in_ms([y - x for r in good for x, y in zip(r.times, r.times[1:])]),
           "e2e_ms": in_ms([r.end - r.start for r in good]),
           "client_cpu": round(cpu / wall, 3)}
    if bad:
        row["first_error"] = bad[0].error
    return row


def run_level(target, a, level, seed):
    """One level of load on one server: a row of the results."""
    rng = random.Random(seed)
    loop, cpu = Loop(target, a), time.process_time()
    if a.rate:
        due, at = [], rng.expovariate(level)
        while at < a.seconds:
            due.append((at, make_body(a, rng)))
            at += rng.expovariate(level)
        loop.open(due)
    else:
        n = max(a.requests or -(-a.total // level), 1) * level
        loop.closed(level, [make_body(a, rng) for _ in range(n)])
    row = {"server": target.label, "rate" if a.rate else "clients": level, "seed": seed}
    return {**row, **summary(loop, time.process_time() - cpu)}


def points(figures):
    return " ".join(f"{name} {'-' if v is None else format(v, '.1f')}" for name, v in figures.items())


def show(row):
    level = f"rate {row['rate']:g}" if "rate" in row else f"clients {row['clients']}"
    if "output_tok_s" not in row:
        print(f"{row['server']} {level}: all {row['errors']} requests failed: {row['first_error']}", flush=True)
        return
    t, i = row["ttft_ms"], row["itl_ms"]
    print(f"{row['server']} {level}: {row['output_tok_s']:.1f} tok/s out, {row['total_tok_s']:.1f} in all; TTFT "
          f"{points(t)}; gap {points(i)} ms; {row['requests']} requests, {row['errors']} errors, client "
          f"{row['client_cpu']:.1%} of a core", flush=True)


def ratios(rows, names, levels, key):
    """Second server over the first, round by round."""
    result = []
    for level in levels:
        speeds = [[r.get("output_tok_s") for r in rows if r["server"] == u and r[key] == level] for u in names]
        pairs = [b / a for a, b in zip(*speeds) if a and b]
        if pairs:
            result.append({key: level, "ratio": round(statistics.median(pairs), 3),
                           "min": round(min(pairs), 3), "max": round(max(pairs), 3)})
            print(f"{key} {level:g}: {names[1]} / {names[0]} = {statistics.median(pairs):.3f} "
                  f"({min(pairs):.3f} to {max(pairs):.3f})")
    return result


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--url", action="append", help="once, or twice to compare")
    p.add_argument("--label", action="append", help="name of the server in the results, one for each --url")
    p.add_argument("--clients", type=listed(int), default=[1, 4, 16, 32])
    p.add_argument("--rate", type=listed(float), help="requests a second, instead of clients")
    p.add_argument("--seconds", type=float, default=30, help="how long requests come at each rate")
    p.add_argument("--requests", type=int, default=0, help="of each client; 0: --total / clients")
    p.add_argument("--total", type=int, default=64, help="requests of each level")
    p.add_argument("--prompt", type=int, default=128, help="prompt tokens")
    p.add_argument("--shared", type=int, default=0, help="of these, the same in all requests")
    p.add_argument("--last-id", type=int, default=LAST_ID, help="ids are below this")
    p.add_argument("--gen", type=int, default=128, help="tokens to generate")
    p.add_argument("--model", default="default")
    p.add_argument("--extra", default='{"cache_prompt": false}', help="JSON object added to every request")
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--timeout", type=float, default=300, help="seconds a request may take")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--json")
    a = p.parse_args()
    urls = a.url or ["http://127.0.0.1:8080"]
    targets = [Target(u, a) for u in urls]
    for t, label in zip(targets, a.label or []):
        t.label = label
    levels, key = (a.rate, "rate") if a.rate else (a.clients, "clients")
    for t in targets:  # one request for warmth, which also tells whether the server answers at all
        loop = Loop(t, a)
        loop.closed(1, [make_body(a, random.Random(a.seed))])
        if loop.done[0].error:
            sys.exit(f"{t.url}: {loop.done[0].error}")
    rows = []
    for i in range(a.rounds):
        for level in levels:
            for t in targets:
                rows.append(run_level(t, a, level, a.seed + i))
                show(rows[-1])
    found = ratios(rows, [t.label for t in targets], levels, key) if len(urls) == 2 else []
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"kind": "load", "machine": machine(), "commit": commit(), "prompt": a.prompt,
                       "gen": a.gen, "command": shlex.join(sys.argv), "rows": rows, "ratios": found}, f, indent=1)
    return 1 if any(r["errors"] for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
