#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Many swaps under streaming clients, by hand: statuses, texts, memory, descriptors, threads, gaps.

    swap_run.py [--swaps 100] [--clients 8] [--large DIR]

Two models take turns while clients stream. Every stream must end with [DONE] and hold the text that its fingerprint
gives alone. Memory after the last swap is compared with that after the fourth of the same model, and so are
descriptors and threads, each with the clients held. With --large (a model of SmolLM2-135M's shape, as
tests/bench/make_model.py makes it) the gaps between chunks are measured while that model loads next to the demo, and
before. Prints the figures; exits 1 if one is outside its bound. Standard library only.
"""
import argparse
import json
import os
import statistics
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hearth_server import DEMO, Hearth  # noqa: E402
from test_swap import PROMPT, Other, load_ok, text_of, wait_idle  # noqa: E402

RSS_SHARE, GAP_SECONDS, GAP_RATIO = 0.05, 0.3, 2


class Streamer(threading.Thread):
    """Streams answers until it is stopped; keeps texts, faults and (time, gap) of chunks. `gate` holds it between two."""

    def __init__(self, h, n_tokens, gate):
        super().__init__(daemon=True)
        self.h, self.n_tokens, self.gate = h, n_tokens, gate
        self.answers, self.faults, self.gaps = [], [], []
        self.stopping, self.busy = False, False
        self.start()

    def one(self):
        c = self.h.connect(60)
        c.request("POST", "/v1/completions", json.dumps({**PROMPT, "max_tokens": self.n_tokens, "stream": True}),
                  {"Content-Type": "application/json"})
        r = c.getresponse()
        if r.status != 200:
            self.faults.append((r.status, r.read(300)))
            return
        prints, text, done, last = set(), "", False, None
        for line in r:
            if not line.startswith(b"data: "):
                continue
            now = time.monotonic()
            if last:
                self.gaps.append((now, now - last))
            last = now
            if line.strip() == b"data: [DONE]":
                done = True
                continue
            event = json.loads(line[6:])
            if "error" in event:
                self.faults.append(event)
                return
            prints.add(event["system_fingerprint"])
            text += "".join(choice["text"] for choice in event["choices"])
        c.close()
        if not done or len(prints) != 1:
            self.faults.append(f"done={done} fingerprints={prints}")
        else:
            self.answers.append((prints.pop(), text))

    def run(self):
        while not self.stopping:
            self.gate.wait()
            self.busy = True
            try:
                self.one()
            except Exception as e:  # pylint: disable=broad-except
                self.faults.append(repr(e))
            self.busy = False


def process_counts(h):
    """(descriptors, threads)"""
    base = f"/proc/{h.process.pid}"
    return len(os.listdir(base + "/fd")), len(os.listdir(base + "/task"))


def measure(h, gate, clients):
    """Memory, descriptors and threads with no request running."""
    gate.clear()
    h.wait_until(lambda: not any(c.busy for c in clients), 60, "clients at rest")
    wait_idle(h)
    time.sleep(1.5)  # idle memory goes back after a second
    numbers = (h.memory_kib(), *process_counts(h))
    gate.set()
    return numbers


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0


def swaps_under_load(a):
    n = 64
    gate = threading.Event()
    gate.set()
    with Other() as other, Hearth("--swap", "on", "--threads", "2", "--parallel", str(a.clients)) as h:
        models = [other.dir, DEMO]
        alone = dict([text_of(h, n)])
        load_ok(h, models[0], wait="drained")
        alone.update([text_of(h, n)])
        load_ok(h, models[1], wait="drained")
        clients = [Streamer(h, n, gate) for _ in range(a.clients)]
        marks, times = {}, []
        for i in range(1, a.swaps + 1):
            start = time.monotonic()
            load_ok(h, models[(i - 1) % 2], wait="drained")
            times.append(time.monotonic() - start)
            if i in (4, a.swaps):
                marks[i] = measure(h, gate, clients)
        for c in clients:
            c.stopping = True
        for c in clients:
            c.join(60)
        metrics = h.metrics()
    answers = [x for c in clients for x in c.answers]
    faults = [x for c in clients for x in c.faults]
    wrong = [x for x in answers if alone.get(x[0]) != x[1]]
    gaps = [g for c in clients for _, g in c.gaps]
    first, last = marks[4], marks[a.swaps]
    growth = last[0] / first[0] - 1
    print(f"{a.swaps} swaps under {a.clients} clients: {len(answers)} streams, {len(faults)} faults, {len(wrong)} wrong "
          f"texts, {len({x[0] for x in answers})} fingerprints; a swap with its draining: median "
          f"{statistics.median(times) * 1000:.0f} ms, longest {max(times) * 1000:.0f} ms")
    print(f"RSS after swap 4 {first[0]} KiB, after swap {a.swaps} {last[0]} KiB ({growth:+.1%}); descriptors {first[1]} "
          f"-> {last[1]}; threads {first[2]} -> {last[2]}")
    print(f"gaps between chunks: p95 {percentile(gaps, 0.95) * 1000:.1f} ms, longest {max(gaps) * 1000:.0f} ms")
    for fault in faults[:5]:
        print("FAULT", fault)
    return [not faults and not wrong, growth <= RSS_SHARE, first[1:] == last[1:], max(gaps) <= GAP_SECONDS,
            metrics["hearth_models_loaded"] == 1]


def gaps_during_a_load(a):
    gate = threading.Event()
    gate.set()
    with Hearth("--swap", "on", "--ctx-size", "1024", "--parallel", str(a.clients)) as h:
        clients = [Streamer(h, 200, gate) for _ in range(a.clients)]
        time.sleep(3)
        start = time.monotonic()
        body = load_ok(h, a.large)
        end = time.monotonic()
        wait_idle(h, 120)
        for c in clients:
            c.stopping = True
        for c in clients:
            c.join(120)
    before = [g for c in clients for t, g in c.gaps if start - 2 < t < start]
    during = [g for c in clients for t, g in c.gaps if start <= t <= end]
    ratio = percentile(during, 0.95) / percentile(before, 0.95)
    print(f"loading {os.path.basename(a.large)} in {body['load_ms']} ms, tested in {body['self_test_ms']} ms: p95 gap "
          f"{percentile(before, 0.95) * 1000:.1f} ms before, {percentile(during, 0.95) * 1000:.1f} ms during ({ratio:.2f} "
          f"times); longest {max(during) * 1000:.0f} ms")
    return [ratio <= GAP_RATIO, not any(c.faults for c in clients)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--swaps", type=int, default=100)
    p.add_argument("--clients", type=int, default=8)
    p.add_argument("--large", help="directory of a model of SmolLM2-135M's shape")
    a = p.parse_args()
    checks = swaps_under_load(a)
    if a.large:
        checks += gaps_during_a_load(a)
    print("all bounds kept" if all(checks) else f"outside a bound: {checks}")
    sys.exit(not all(checks))


if __name__ == "__main__":
    main()
