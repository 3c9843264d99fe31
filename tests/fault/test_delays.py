#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Operators who swap, load and unload at once, with delays before every lock: each call gets its own answer.

    test_delays.py --library delays.so [--calls 100000] [--clients 8] [--delay-us 400] [--seed 1]

Each swap has a name or a path that no other call has, so an answer shows whose it is; and each model that a swap
replaced is the one that another swap has put there. Standard library only.
"""
import argparse
import collections
import json
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "e2e"))
from hearth_server import DEMO, ROOT, Hearth  # noqa: E402

EMBED = os.path.join(ROOT, "deploy", "demo-embed")
WAITS = ("switched", "drained", False)
COUNTED = {200: "ok", 202: "ok", 404: "invalid", 409: "busy"}


class Operator(threading.Thread):
    """One client on a connection of its own."""

    def __init__(self, h, number, calls, seed):
        super().__init__()
        self.h, self.number, self.calls = h, number, calls
        self.rng = random.Random(1000 * seed + number)
        self.error, self.answers, self.names, self.links = None, collections.Counter(), set(), []
        self.connection = h.connect(60)

    def run(self):
        try:
            for i in range(self.calls):
                self.rng.choices((self.swap, self.swap_nothing, self.load, self.unload), (2, 4, 3, 3))[0](i)
        except Exception as e:  # pylint: disable=broad-except
            self.error = f"client {self.number}: {type(e).__name__}: {e}"

    def post(self, path, body, what):
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        r = self.connection.getresponse()
        answer = json.loads(r.read())
        self.answers[what, r.status] += 1
        if r.status not in (200, 202):
            assert "message" in answer["error"], answer
        return r.status, answer

    def swap(self, i):
        """The names begin with one of its own."""
        name, wait = f"swap-{self.number}-{i}", self.rng.choice(WAITS)
        self.names.add(name)
        status, answer = self.post("/models/load", {"model": DEMO, "replace": "spare", "alias": [name, "spare"],
                                                    "wait": wait}, "swap")
        if status == 200:
            assert wait and answer["model"] == name and "unchanged" not in answer, (name, answer)
            self.links.append((answer["previous"], name))
        else:
            assert status == (409 if wait else status) and status in (202, 409), (name, status, answer)

    def swap_nothing(self, i):
        path = f"/nonexistent/{self.number}-{i}"
        status, answer = self.post("/models/load", {"model": path, "replace": "spare"}, "swap")
        assert status == 409 or (status == 404 and f"'{path}'" in answer["error"]["message"]), (path, status, answer)

    def load(self, _):
        name = self.rng.choice(("embed", "spare"))
        wait = self.rng.choice((True, True, False))
        status, answer = self.post("/models/load", {"model": name, **({} if wait else {"wait": False})}, "load")
        assert status == 200 or (status == 202 and not wait), (status, answer)
        if status == 200:
            assert answer["model"] == "embed" if name == "embed" else answer["model"].startswith("swap-"), answer

    def unload(self, _):
        name = self.rng.choice(("embed", "spare"))
        status, answer = self.post("/models/unload", {"model": name, "wait": self.rng.choice(WAITS)}, "unload")
        assert status == 200 or answer["error"]["code"] == "model_not_loaded", (status, answer)
        if status == 200:
            assert answer["model"] == "embed" if name == "embed" else answer["model"].startswith("swap-"), answer


def check_chain(operators):
    """Each model that was replaced is that of one swap, and was replaced once."""
    names = {n for o in operators for n in o.names} | {"swap-0"}
    before = collections.Counter(b for o in operators for b, _ in o.links)
    assert set(before) <= names, set(before) - names
    assert not [b for b, n in before.items() if n > 1], before


def check_counts(h, operators):
    """The server has counted what the clients were told."""
    told = sum((o.answers for o in operators), collections.Counter({("swap", 200): 1}))  # the first one
    metrics = h.metrics()
    counted = {r: metrics[f'hearth_swaps_total{{result="{r}"}}'] for r in ("ok", "invalid", "busy")}
    for status in (404, 409):
        assert counted[COUNTED[status]] == told["swap", status], (status, counted, told)
    assert told["swap", 200] <= counted["ok"] <= told["swap", 200] + told["swap", 202], (counted, told)
    return told, int(sum(n for name, n in metrics.items() if name.startswith("hearth_model_loads_total") and "ok" in name))


def run(h, args):
    status, _, body = h.post("/models/load", {"model": DEMO, "replace": "spare", "alias": ["swap-0", "spare"]})
    assert status == 200, body
    operators = [Operator(h, i + 1, args.calls // args.clients, args.seed) for i in range(args.clients)]
    start = time.monotonic()
    for o in operators:
        o.start()
    for o in operators:
        o.join()
    errors = [o.error for o in operators if o.error]
    assert not errors and h.process.poll() is None, (errors, h.process.poll(), h.log[-20:])
    h.wait_until(lambda: h.get("/props")[2]["swap"]["state"] == "idle", 30, "an idle swap")
    check_chain(operators)
    told, loads = check_counts(h, operators)
    assert h.post("/v1/completions", {"model": "chat", "prompt": "Tom", "max_tokens": 2})[0] == 200
    print(f"{sum(told.values())} calls in {time.monotonic() - start:.0f} s, {loads} models loaded: "
          + ", ".join(f"{w} {s}: {n}" for (w, s), n in sorted(told.items())))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--library", required=True)
    p.add_argument("--calls", type=int, default=600)
    p.add_argument("--clients", type=int, default=8)
    p.add_argument("--delay-us", type=int, default=400)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    env = {"LD_PRELOAD": os.path.abspath(args.library), "DELAY_US": str(args.delay_us), "DELAY_SEED": str(args.seed)}
    with Hearth("--model", f"chat={DEMO}", "--model", f"spare={DEMO}", "--model", f"embed={EMBED}", "--threads", "1",
                "--parallel", "1", "--ctx-size", "64", "--swap", "on", "--speculate", "off", env=env) as h:
        run(h, args)


if __name__ == "__main__":
    main()
