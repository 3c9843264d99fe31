#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A key whose requests only compile, next to one that generates; and SIGTERM while grammars compile. By hand.

    compiling_run.py [--model DIR] [--rounds 200] [--tokens 32] [--clients 8] [--signals 100] [--threads N]

Key B's completions one after the other, alone and beside clients of key A that send grammars that use up the step
budget, each another one; ten completions alone, ten beside, and so on, so that both see the same machine. Exit status
1 if their p99 is more than 1.5 times that of alone plus one step, or if the server does not end with status 0 within
the drain time. On a machine with other work the p99 is the other work's: compare the medians.
"""
import argparse
import itertools
import random
import sys
import threading
import time

from test_compiling import KEYS, PLAIN, bearer, end_while_compiling, hostile, n_waiting, server_with_keys


NUMBERS = itertools.count()


def percentile(times, p):
    return sorted(times)[min(len(times) - 1, int(len(times) * p))] * 1000


def measure(h, a, n):
    body = dict(PLAIN, max_tokens=a.tokens, ignore_eos=True)
    times = []
    for _ in range(n):
        start = time.monotonic()
        status, _, answer = h.post("/v1/completions", body, bearer(KEYS[1]))
        times.append(time.monotonic() - start)
        assert status == 200 and answer["usage"]["completion_tokens"] == a.tokens, answer
    return times


class Hostile:
    """Clients of key A, each with one request after the other, until the end of the block."""

    def __init__(self, h, n):
        self.h, self.ended, self.n_answered, self.errors = h, False, 0, []
        self.threads = [threading.Thread(target=self.client) for _ in range(n)]

    def client(self):
        while not self.ended:
            status, _, answer = self.h.post("/v1/completions", hostile(next(NUMBERS)), bearer(KEYS[0]))
            self.n_answered += 1
            if status != 400:
                self.errors.append(answer)

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.ended = True
        for t in self.threads:
            t.join()


def neighbours(a):
    alone, beside, n = [], [], 0
    options = ["--threads", str(a.threads)] if a.threads else []
    with server_with_keys(*options, *(["--model", a.model] if a.model else [])) as (h, admin):
        measure(h, a, 3)
        while len(alone) < a.rounds:
            alone += measure(h, a, 10)
            with Hostile(h, a.clients) as others:
                admin.wait_until(lambda: n_waiting(admin) >= a.clients - 1, 60, "all of them wait")
                before = others.n_answered
                beside += measure(h, a, 10)
                n += others.n_answered - before
            assert not others.errors, others.errors[:3]
    step = percentile(alone, 0.5) / a.tokens
    for name, times in [("alone", alone), ("beside", beside)]:
        print(f"{name}: p50 {percentile(times, 0.5):.1f} ms, p99 {percentile(times, 0.99):.1f} ms, "
              f"worst {percentile(times, 1):.1f} ms of {len(times)}")
    print(f"{n} grammars refused meanwhile, {n / sum(beside):.1f} per second")
    limit = 1.5 * percentile(alone, 0.99) + step
    print(f"p99 {percentile(beside, 0.99):.1f} ms, limit {limit:.1f} ms")
    return percentile(beside, 0.99) <= limit


def signals(a):
    rng, worst, bad = random.Random(1), 0, 0
    for i in range(a.signals):
        drain_ms = rng.choice([100, 1000, 30000])
        status, seconds, answers = end_while_compiling(drain_ms, rng.randint(3, 12), i, rng.random() * 0.05)
        late = seconds - drain_ms / 1000
        worst = max(worst, late)
        if status != 0 or late > 0.5 or not set(answers) <= {400, 503}:
            bad += 1
            print(f"drain time {drain_ms} ms: status {status} after {seconds:.2f} s, answers {answers}")
    print(f"{a.signals} signals: {bad} bad; at most {worst * 1000:.0f} ms behind the drain time")
    return bad == 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=200)
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--clients", type=int, default=8)
    p.add_argument("--signals", type=int, default=100)
    p.add_argument("--model")
    p.add_argument("--threads", type=int)
    a = p.parse_args()
    held = [a.rounds == 0 or neighbours(a), signals(a)]
    sys.exit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
