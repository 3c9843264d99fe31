#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The night as a figure: what a batch computes beside people who come and go, and what they notice of it.

    night.py --svg docs/images/night.svg --json NIGHT.json [--minutes 10] [--lines 5000] -- --model DIR --parallel 16 ...
    night.py --again NIGHT.json --svg docs/images/night.svg       draws the figures of a run once more

After -- are options of `hearth serve`, which is started twice: without a batch, and with one of so many lines by /v1/files and
/v1/batches that is cancelled at the end if it has not ended. Both times the same 8 clients (--clients) stream /v1/completions:
each is there for some seconds, sends a request, waits a little, sends the next, and is away for some seconds. Prompts are random
token ids. Times are those of bytes read from the socket, as load.py's; tokens a second in all are those of the server's counter,
read once a second, those of people what their clients got. Seeded. Standard library only; linux.
"""
import argparse
import heapq
import http.client
import json
import math
import os
import random
import shlex
import subprocess
import sys
import tempfile
import threading
import time

from compare_llama import ROOT, commit, machine
from load import FIRST_ID, LAST_ID, Loop, Target, in_ms
from plot import BOTTOM, COLOURS, GREY, HEIGHT, LEFT, RIGHT, TOP, WIDTH, label_places, nice_step, text

COUNTERS = {"all": "hearth_generated_tokens_total", "batch": 'hearth_batch_tokens_total{kind="generated"}',
            "parked": "hearth_batch_parked_total", "recomputed": "hearth_batch_recomputed_tokens_total"}
HERE_S, AWAY_S, THINK_S = (15, 45), (5, 20), (0.2, 3)
PROMPT, ANSWER = (32, 256), (32, 128)  # tokens of people's requests,
LINE_PROMPT, LINE_ANSWER = (32, 128), (32, 96)  # and of a line
SMOOTH_S = 10  # of the curves


class Server:
    """`hearth serve` while it runs."""

    def __init__(self, a, directory):
        self.log = open(os.path.join(directory, "log"), "w+", encoding="utf-8")  # noqa: SIM115
        self.process = subprocess.Popen([a.hearth, "serve", "--port", "0", "--log-format", "json", "--batch-dir",
                                         os.path.join(directory, "batches"), *a.options], stderr=self.log)
        self.port = None
        while not self.port:
            if self.process.poll() is not None:
                sys.exit(open(self.log.name, encoding="utf-8").read())
            time.sleep(0.05)
            for line in open(self.log.name, encoding="utf-8"):
                if "ready on" in line:
                    self.port = int(line.split("ready on", 1)[1].split(":")[2].split()[0].strip('/",'))

    def ask(self, method, path, body=None, kind="application/json"):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        c.request(method, path, body, {"Content-Type": kind} if body else {})
        answer = c.getresponse()
        data = answer.read()
        c.close()
        if answer.status != 200:
            sys.exit(f"{method} {path}: {answer.status} {data[:300]!r}")
        return data

    def counters(self):
        found = dict.fromkeys(COUNTERS, 0)
        lines = dict(line.rsplit(" ", 1) for line in self.ask("GET", "/metrics").decode().splitlines() if line[0] != "#")
        for name, family in COUNTERS.items():
            found[name] = sum(float(v) for k, v in lines.items() if k == family or k.startswith(family + "{"))
        return found

    def close(self):
        self.process.terminate()
        self.process.wait(60)
        self.log.close()


def body_of(rng, prompt, answer, last_id, **more):
    ids = [rng.randrange(FIRST_ID, last_id) for _ in range(rng.randint(*prompt))]
    return {"model": "default", "prompt": ids, "max_tokens": rng.randint(*answer), "temperature": 0, "ignore_eos": True, **more}


def send_batch(server, a):
    """The id of a batch of new lines."""
    rng = random.Random(a.seed + 1)
    lines = "".join(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions",
                                "body": body_of(rng, LINE_PROMPT, LINE_ANSWER, a.last_id)}) + "\n" for i in range(a.lines))
    mark = "night-of-lines"
    form = f'--{mark}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--{mark}\r\n' \
           f'Content-Disposition: form-data; name="file"; filename="night.jsonl"\r\n\r\n{lines}\r\n--{mark}--\r\n'
    file = json.loads(server.ask("POST", "/v1/files", form.encode(), f"multipart/form-data; boundary={mark}"))
    order = {"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
    return json.loads(server.ask("POST", "/v1/batches", json.dumps(order)))["id"]


class People:
    """Clients that come and go: when each is there, and what it asks, is drawn from the seed alone."""

    def __init__(self, a, target):
        self.a, self.loop, self.due, self.whose = a, Loop(target, a), [], {}
        self.rngs = [random.Random(a.seed * 1000 + i) for i in range(a.clients)]
        self.leaves = [0] * a.clients
        for i, rng in enumerate(self.rngs):
            at = rng.uniform(0, AWAY_S[1])
            self.leaves[i] = at + rng.uniform(*HERE_S)
            heapq.heappush(self.due, (at, i))

    def plan(self, i, now):
        rng, at = self.rngs[i], now
        at += rng.uniform(*THINK_S)
        if at > self.leaves[i]:
            at += rng.uniform(*AWAY_S)
            self.leaves[i] = at + rng.uniform(*HERE_S)
        heapq.heappush(self.due, (at, i))

    def run(self, seconds):
        begin = time.perf_counter()
        now = 0
        while now < seconds or self.loop.n_open:
            while self.due and self.due[0][0] <= now < seconds:
                _, i = heapq.heappop(self.due)
                stream = {"stream": True, "stream_options": {"include_usage": True}, "cache_prompt": False}
                body = json.dumps(body_of(self.rngs[i], PROMPT, ANSWER, self.a.last_id, **stream)).encode()
                self.whose[body] = i
                self.loop.send(body)
            for r in self.loop.step(0.005 if self.loop.n_open else 0.02):
                self.plan(self.whose.pop(r.body), time.perf_counter() - begin)
            now = time.perf_counter() - begin
        return self.loop.done


def night(a, with_batch):
    """One of the two runs: what was measured."""
    with tempfile.TemporaryDirectory() as d:
        server, samples, stop = Server(a, d), [], threading.Event()
        try:
            target = Target(f"http://127.0.0.1:{server.port}", a)
            warm = Loop(target, a)
            warm.closed(1, [json.dumps(body_of(random.Random(0), PROMPT, ANSWER, a.last_id, stream=True)).encode()])
            batch = send_batch(server, a) if with_batch else None
            begin = time.perf_counter()

            def sample():
                while not stop.is_set():
                    samples.append((round(time.perf_counter() - begin, 3), server.counters()))
                    stop.wait(1)
            watcher = threading.Thread(target=sample)
            watcher.start()
            done = People(a, target).run(60 * a.minutes)
            stop.set()
            watcher.join()
            seen = json.loads(server.ask("GET", f"/v1/batches/{batch}")) if batch else {}
            if seen.get("status") in ("validating", "in_progress"):
                server.ask("POST", f"/v1/batches/{batch}/cancel", "{}")
        finally:
            server.close()
    good = [r for r in done if not r.error]
    gaps = [y - x for r in good for x, y in zip(r.times, r.times[1:])]
    first, last = samples[0], samples[-1]
    got = sorted((t - begin, r.usage.get("completion_tokens", 0) / len(r.times)) for r in good for t in r.times)
    return {"requests": len(done), "errors": len(done) - len(good), "first_error": next((r.error for r in done if r.error), None),
            "ttft_ms": in_ms([r.times[0] - r.start for r in good if r.times]), "gap_ms": in_ms(gaps), "seconds": last[0],
            "tokens": {k: last[1][k] - first[1][k] for k in COUNTERS}, "batch": {k: seen.get(k) for k in ("status", "request_counts")},
            "samples": [[t, c["all"], round(sum(n for at, n in got if at <= t))] for t, c in samples]}


def rates(samples, column):
    """[(time, tokens a second)], each over some seconds."""
    out = []
    for a, b in zip(samples, samples[SMOOTH_S:]):
        out.append(((a[0] + b[0]) / 2, (b[column] - a[column]) / (b[0] - a[0])))
    return out


def draw(found):
    alone, beside = found["without"], found["with"]
    curves = {"all, with the batch": (beside["samples"], 1), "people, with the batch": (beside["samples"], 2),
              "people, without it": (alone["samples"], 2)}
    series = {label: rates(*curve) for label, curve in curves.items()}
    end = max(p[0] for points in series.values() for p in points)
    step = nice_step(max(p[1] for points in series.values() for p in points))
    top = step * math.ceil(max(p[1] for points in series.values() for p in points) / step)

    def x(t):
        return LEFT + (WIDTH - LEFT - RIGHT) * t / end

    def y(v):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * v / top
    title = f"Tokens generated a second: {found['clients']} people who come and go, and a batch"
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + 40}" width="{WIDTH}" height="{HEIGHT + 40}" '
           f'font-family="sans-serif" fill="{GREY}">', f"<title>{title}</title>", text(LEFT, 24, title, "start", 15, 'font-weight="bold"')]
    for k in range(round(top / step) + 1):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(k * step):.1f}" y2="{y(k * step):.1f}" stroke="{GREY}" '
                   f'stroke-opacity="{0.25 if k else 0.7}"/>')
        out.append(text(LEFT - 8, y(k * step) + 4, f"{k * step:,.10g}", "end"))
    every = nice_step(end)
    out += [text(x(k * every), HEIGHT - BOTTOM + 18, f"{k * every:,.10g}") for k in range(int(end / every) + 1)]
    out += [text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, "seconds", size=13),
            text(18, HEIGHT / 2, "tokens/s", size=13, extra=f'transform="rotate(-90 18 {HEIGHT / 2:.0f})"')]
    ends = []
    for colour, (label, points) in zip(COLOURS, series.items()):
        path = " ".join(f"{x(t):.1f},{y(v):.1f}" for t, v in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        samples, column = curves[label]
        mean = (samples[-1][column] - samples[0][column]) / (samples[-1][0] - samples[0][0])
        ends.append((y(points[-1][1]) + 4, f"{label}: {mean:,.0f}", colour))
    out += [text(WIDTH - RIGHT + 6, at, label, "start", 12, f'style="fill:{colour}"') for at, label, colour in label_places(ends)]
    for i, (name, run) in enumerate((("without", alone), ("with", beside))):
        figures = ", ".join(f"{what} p50 {run[key]['p50']:.1f} ms, p99 {run[key]['p99']:.1f} ms"
                            for what, key in (("first token", "ttft_ms"), ("gap", "gap_ms")))
        out.append(text(LEFT, HEIGHT + 8 + 18 * i, f"people {name} the batch: {figures}", "start"))
    return "\n".join([*out, "</svg>", ""])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--hearth", default=os.environ.get("HEARTH_BIN", os.path.join(ROOT, "build", "hearth")))
    p.add_argument("--minutes", type=float, default=10, help="of each of the two runs")
    p.add_argument("--clients", type=int, default=8)
    p.add_argument("--lines", type=int, default=5000)
    p.add_argument("--last-id", type=int, default=LAST_ID, help="ids are below this")
    p.add_argument("--timeout", type=float, default=300, help="seconds a request may take")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--again", help="a file of --json")
    p.add_argument("--json")
    p.add_argument("--svg")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    a = p.parse_args(sys.argv[1:at])
    a.options = sys.argv[at + 1:]
    if a.again:
        with open(a.again, encoding="utf-8") as f:
            found = json.load(f)
    else:
        found = {"kind": "night", "machine": machine(), "commit": commit(), "command": shlex.join(sys.argv), "minutes": a.minutes,
                 "clients": a.clients, "lines": a.lines, "without": night(a, False), "with": night(a, True)}
    for name in ("without", "with"):
        run = found[name]
        print(f"{name} the batch: {json.dumps({k: v for k, v in run.items() if k != 'samples'})}")
        print(f"  {run['tokens']['all'] / run['seconds']:.1f} tokens/s, of them the batch {run['tokens']['batch'] / run['seconds']:.1f}")
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            f.write(json.dumps(found, indent=1, separators=(",", ":")).replace("\n    ", "").replace("\n   ]", "]"))
    if a.svg:
        with open(a.svg, "w", encoding="utf-8") as f:
            f.write(draw(found))
    return 1 if found["without"]["errors"] or found["with"]["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
