#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ten times the slots for a minute, with as many clients as slots and queue hold. By hand.

    overload_run.py [--seconds 60] [--slots 4] [--queue 8] [--tokens 400]

Closed-loop clients on the demo model. A refused client comes back after `retry-after-ms`. Shown, and
exit status 1 where they do not hold: only 200, 429 and 503; the p95 of the 200s at most 1.5 times that of the
quiet run; at least 80 % of those that come back admitted; memory within the plan.
"""
import argparse
import sys
import threading
import time

from hearth_server import Hearth


class Load:
    """n closed-loop clients until a time."""

    def __init__(self, h, n, seconds, tokens):
        self.h, self.tokens, self.end = h, tokens, time.monotonic() + seconds
        self.lock = threading.Lock()
        self.statuses, self.times = {}, []
        self.returned = self.admitted = 0
        self.errors = []
        threads = [threading.Thread(target=self.client, args=(i,)) for i in range(n)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def client(self, i):
        back = False
        try:
            while time.monotonic() < self.end:
                back = self.once(i, back)
        except Exception as e:  # a broken connection is what this looks for
            self.errors.append(repr(e))

    def once(self, i, back):
        body = {"prompt": [5 + (i * 7 + k) % 200 for k in range(40)], "max_tokens": self.tokens, "temperature": 0,
                "ignore_eos": True}
        start = time.monotonic()
        status, head, answer = self.h.post("/v1/completions", body)
        took = time.monotonic() - start
        with self.lock:
            self.statuses[status] = self.statuses.get(status, 0) + 1
            self.returned += back
            self.admitted += back and status == 200
            if status == 200:
                self.times.append(took)
        if status == 200:
            assert answer["usage"]["completion_tokens"] == self.tokens, answer["usage"]
            return False
        time.sleep(int(head["retry-after-ms"]) / 1000)
        return True

    def p95(self):
        return sorted(self.times)[int(len(self.times) * 0.95)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--slots", type=int, default=4)
    p.add_argument("--queue", type=int, default=8)
    p.add_argument("--tokens", type=int, default=400)
    a = p.parse_args()
    with Hearth("--parallel", str(a.slots), "--max-queue", str(a.queue), "--log-level", "info") as h:
        memory = h.get("/props")[2]["memory"]
        planned = sum(memory[k] for k in ("weights_bytes", "kv_bytes", "scratch_bytes", "logits_bytes"))
        full = Load(h, a.slots + a.queue, a.seconds / 3, a.tokens)
        over = Load(h, 10 * a.slots, a.seconds, a.tokens)
        rss = h.memory_kib("VmHWM") * 1024
    ratio, share = over.p95() / full.p95(), over.admitted / max(1, over.returned)
    print(f"{a.slots + a.queue} clients: {full.statuses}, p95 {full.p95():.2f} s")
    print(f"{10 * a.slots} clients: {over.statuses}, p95 {over.p95():.2f} s, {ratio:.2f} times; of {over.returned} "
          f"that came back {share:.0%} admitted; peak memory {rss >> 20} MiB, planned {planned >> 20} MiB")
    bad = full.errors + over.errors
    print("\n".join(bad[:10]))
    held = not bad and set(over.statuses) <= {200, 429, 503} and ratio <= 1.5 and share >= 0.8
    sys.exit(0 if held and rss < planned + (96 << 20) else 1)


if __name__ == "__main__":
    main()
