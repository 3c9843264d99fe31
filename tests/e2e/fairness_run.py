#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Key B's completions beside a key A that takes what there is, each way and all at once; and SIGTERM meanwhile. By hand.

    fairness_run.py [--requests 300] [--runs 3] [--block 50] [WAY ...]

    texts    A reranks, scores and embeds thousands of texts, whose queries are 60 KB long
    bodies   A holds 17 bodies of the largest size that never end
    readers  A asks for long answers and reads none of them
    disk     A's prompts are marked to be kept, and are written to --kv-disk; B's must be written too
    hanging  the files of kv-disk do not answer, while A's prompts are looked up there
    loads    A asks for another model than B's, of which one has room, and leaves

B's completions of one token come one after the other, a block alone, a block beside A, and so on, so that both see the
same machine. Exit status 1 if the median over the runs of the p99 is more than twice that of alone plus one step plus 20 ms, if B is refused, or if the server does not end with status 0 within the drain time. Beside `loads`:
if B is refused, or its model leaves oftener than once in two seconds. On a machine with other work the p99 is the other work's.
"""
import argparse
import contextlib
import http.client
import itertools
import json
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import threading
import time

from hearth_server import DEMO, ROOT, Hearth, hanging, run

NUMBERS = itertools.count()
A, B = ({"Authorization": f"Bearer key-of-{name}", "Content-Type": "application/json"} for name in "ab")
DRAIN_SECONDS = 30
SHORT = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 1, "temperature": 0}
LARGEST = 4 << 20


def long_prompt(**fields):
    text = f"{next(NUMBERS)} and once upon a time there was a little dog. " * 60
    return {"model": "demo", "prompt": text, "max_tokens": 1, **fields}


class Load:
    """Clients of key A, each of which does its own again and again until the end; in a process of low priority, so that what
    is measured is the server."""

    def __init__(self, h, clients):
        self.h, self.statuses = h, {}
        self.ended, self.pipe = multiprocessing.Event(), multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=self.run, args=(clients,), daemon=True)

    def run(self, clients):
        os.nice(10)
        threads = [threading.Thread(target=self.repeat, args=(client,), daemon=True) for client in clients]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.pipe[1].send(self.statuses)

    def repeat(self, client):
        while not self.ended.is_set():
            try:
                status = client(self.h, self.ended)
            except (OSError, http.client.HTTPException, ValueError):  # the server ends
                status = "cut"
                self.ended.wait(0.05)
            self.statuses[status] = self.statuses.get(status, 0) + 1

    def __enter__(self):
        self.process.start()
        time.sleep(0.5)
        return self

    def __exit__(self, *_):
        self.ended.set()
        if self.pipe[0].poll(60):
            self.statuses = self.pipe[0].recv()
        self.process.join(5)


# ---- what A does ----------------------------------------------------------------------------------------

def post(path, body):
    data = None if callable(body) else json.dumps(body).encode()
    return lambda h, ended: h.request("POST", path, data or json.dumps(body()), A)[0]


def unfinished(h, ended):
    head = ("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + "".join(f"{k}: {v}\r\n" for k, v in A.items()) +
            f"Content-Length: {LARGEST}\r\n\r\n")
    with contextlib.closing(h.open_socket()) as s:
        s.sendall(head.encode() + b" " * (LARGEST - 1))
        ended.wait(20)
    return "held"


def unread(h, ended):
    """Eight long answers, one after the other: of each the first byte is read, and no more."""
    body = json.dumps({**SHORT, "prompt": [5 + i * 7 % 300 for i in range(1500)], "echo": True, "logprobs": 5}).encode()
    head = ("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + "".join(f"{k}: {v}\r\n" for k, v in A.items()) +
            f"Content-Length: {len(body)}\r\n\r\n")
    with contextlib.ExitStack() as held:
        for _ in range(8):
            s = held.enter_context(contextlib.closing(h.open_socket(receive_buffer=4096)))
            s.sendall(head.encode() + body)
            s.recv(1)
            ended.wait(0.2)
        ended.wait(2)
    return "8 unread"


def impatient(h, ended):
    """Asks for the other model, and leaves while that is loaded."""
    with contextlib.closing(h.connect(5)) as c:
        c.request("POST", "/v1/completions", json.dumps({**SHORT, "model": "other"}), A)
        ended.wait(0.05)
    return "left"


DOCUMENTS = ["a cat sat on the mat"] * 1000
QUERY = "what did the cat do? " * 3000
TEXTS = [post("/v1/rerank", {"model": "rank", "query": QUERY, "documents": DOCUMENTS, "truncate_prompt_tokens": -1})] * 4 + \
    [post("/score", {"model": "rank", "text_1": QUERY, "text_2": DOCUMENTS, "truncate_prompt_tokens": -1})] * 2 + \
    [post("/v1/embeddings", {"model": "embed", "input": DOCUMENTS})] * 2
KEPT = {"prompt_cache_options": {"mode": "explicit", "ttl": "30m"}}
WAYS = {"texts": TEXTS, "bodies": [unfinished] * 17, "readers": [unread] * 2,
        "disk": [post("/v1/completions", lambda: long_prompt(**KEPT))] * 2}


# ---- B --------------------------------------------------------------------------------------------------

def p99(times):
    return sorted(times)[min(len(times) - 1, int(len(times) * 0.99))] * 1000


def complete(h, n):
    """Seconds of each of B's completions, on one connection, and how many were refused."""
    times, n_refused = [], 0
    with contextlib.closing(h.connect(60)) as c:
        for _ in range(n):
            start = time.monotonic()
            c.request("POST", "/v1/completions", json.dumps(SHORT), B)
            r = c.getresponse()
            r.read()
            times.append(time.monotonic() - start)
            n_refused += r.status != 200
            assert r.status in (200, 429, 503, 504), r.status
    return times, n_refused


def step_ms(h):
    ids = [7 + i * 31 % 300 for i in range(128)]
    body = {**SHORT, "prompt": ids, "timings_per_token": True, "cache_prompt": False}
    return statistics.median(h.post("/v1/completions", body, B)[2]["timings"]["prompt_ms"] for _ in range(5))


def counts(h):
    """Steps of all engines, and their seconds."""
    totals = {"hearth_engine_steps_total": 0, "hearth_cores_seconds_total": 0}
    for line in h.get("/metrics", B)[2].decode().splitlines():
        name = line.split("{")[0].split(" ")[0]
        if name in totals:
            totals[name] += float(line.split()[-1])
    return totals.values()


def measure(h, a, clients):
    """p99 alone and beside in ms, the median of the runs; the longest of B's steps and A's; B's refusals beside."""
    complete(h, 20)
    step, before = step_ms(h), counts(h)
    alone, beside, n_refused, statuses = [], [], 0, {}
    for _ in range(a.runs):
        times = ([], [])
        for _ in range(max(1, a.requests // a.block)):
            times[0].extend(complete(h, a.block)[0])
            with Load(h, clients) as load:
                got, n = complete(h, a.block)
                times[1].extend(got)
                n_refused += n
            for k, v in load.statuses.items():
                statuses[k] = statuses.get(k, 0) + v
        alone.append(p99(times[0]))
        beside.append(p99(times[1]))
    steps, seconds = (now - then for now, then in zip(counts(h), before))
    return statistics.median(alone), statistics.median(beside), max(step, seconds / steps * 1000), n_refused, statuses


def end(h, clients):
    """SIGTERM beside A: seconds and exit status."""
    with Load(h, clients):
        time.sleep(0.3)
        start = time.monotonic()
        status = h.stop(signal.SIGTERM, 90)
        took = time.monotonic() - start
    return took, status


def pages_of_b(disk, keys):
    """Tokens on disk of key B."""
    import hashlib
    digest = hashlib.sha256(b"key-of-b").hexdigest()[:12]
    return sum(int(line.split()[4]) for line in run("kv", "ls", "--kv-disk", disk)[1].splitlines()[1:] if digest in line)


# ---- the ways -------------------------------------------------------------------------------------------

def try_way(name, a, keys):
    clients = [c for way in WAYS.values() for c in way] if name == "all" else WAYS[name]
    models = ["--model", f"demo={DEMO}", "--model", f"rank={os.path.join(ROOT, 'deploy', 'demo-rerank')}",
              "--model", f"embed={os.path.join(ROOT, 'deploy', 'demo-embed')}"]
    with tempfile.TemporaryDirectory() as disk:
        h = Hearth(*models, "--api-key-file", keys, "--kv-disk", disk, "--max-connections", "200", "--max-body-bytes", str(LARGEST))
        h.start()
        alone, beside, step, n_refused, statuses = measure(h, a, clients)
        written = ""
        if name in ("disk", "all"):
            with Load(h, clients):
                n = sum(h.post("/v1/completions", long_prompt(), B)[0] == 200 for _ in range(12))
        took, status = end(h, clients)
        passed = True
        if name in ("disk", "all"):
            n_written = pages_of_b(disk, keys) // 512
            passed = n_written >= n
            written = f", of B's {n} prompts {min(n, n_written)} were written"
    most = 2 * alone + step + 20
    passed = passed and beside <= most and n_refused == 0 and status == 0 and took <= DRAIN_SECONDS
    print(f"{name:8} p99 alone {alone:.1f} ms, beside {beside:.1f} ms (most {most:.1f}), {n_refused} refused{written}; "
          f"SIGTERM: status {status} after {took:.1f} s; A: {statuses}", flush=True)
    return passed


def try_hanging(a, keys):
    with tempfile.TemporaryDirectory() as disk, tempfile.NamedTemporaryFile() as switch:
        prompts = [long_prompt() for _ in range(8)]
        with Hearth("--model", f"demo={DEMO}", "--api-key-file", keys, "--kv-disk", disk) as h:
            for body in prompts:
                h.post("/v1/completions", body, A)
        h = Hearth("--model", f"demo={DEMO}", "--api-key-file", keys, "--kv-disk", disk,
                   env=hanging(os.path.join(disk, "v1"), switch.name))
        h.start()
        turn = itertools.cycle(prompts)
        clients = [post("/v1/completions", lambda: {**next(turn), "prompt": next(turn)["prompt"] + str(next(NUMBERS))})] * 2
        alone, beside, step, n_refused, statuses = measure(h, a, clients)
        live = h.get("/livez")[0]
        took, status = end(h, clients)
    most = 2 * alone + step + 20
    print(f"hanging  p99 alone {alone:.1f} ms, beside {beside:.1f} ms (most {most:.1f}), {n_refused} refused, /livez {live}; "
          f"SIGTERM: status {status} after {took:.1f} s; A: {statuses}", flush=True)
    return beside <= most and n_refused == 0 and live == 200 and status == 0 and took <= DRAIN_SECONDS


def try_loads(a, keys):
    models = ["--model", f"demo={DEMO}", "--model", f"other={DEMO}"]

    def evictions(h):
        name = 'hearth_model_evictions_total{model="demo",reason="memory"} '
        return sum(float(line[len(name):]) for line in h.get("/metrics", B)[2].decode().splitlines() if line.startswith(name))

    with Hearth(*models, "--api-key-file", keys, "--models-max", "1") as h:
        complete(h, 1)
        before, start = evictions(h), time.monotonic()
        with Load(h, [impatient] * 20) as load:
            times, n_refused = complete(h, a.requests)
            seconds = time.monotonic() - start
            took = time.monotonic()
            n = evictions(h) - before
            h.process.send_signal(signal.SIGTERM)
            status = h.process.wait(90)
            took = time.monotonic() - took
    most = seconds / 2 + 1
    print(f"loads    {n_refused} of {a.requests} refused, B's model left {n:.0f} times in {seconds:.1f} s (most {most:.0f}), "
          f"p99 {p99(times):.1f} ms; SIGTERM: status {status} after {took:.1f} s; A: {load.statuses}", flush=True)
    return n_refused == 0 and n <= most and status == 0 and took <= DRAIN_SECONDS


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--requests", type=int, default=300)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--block", type=int, default=50)
    p.add_argument("ways", nargs="*", default=[*WAYS, "all", "hanging", "loads"])
    a = p.parse_args()
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("key-of-a\nkey-of-b\n")
        keys.flush()
        tries = {"hanging": try_hanging, "loads": try_loads}
        failed = [w for w in a.ways if not (tries[w](a, keys.name) if w in tries else try_way(w, a, keys.name))]
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
