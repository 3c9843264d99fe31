#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How soon slots and pages are free after a client has left: every stage, direct and through each proxy. By hand.

    disconnect_run.py [--model DIR] [--prompt-tokens 8000] [--rounds 10]

The time runs from the client's close (every other one a reset) until /slots shows nothing running, waiting or
held. Without --model one with random weights in SmolLM2's shape is made. Exit status 1 where the median of a
row is above 100 ms or its worst above 200.
"""
import argparse
import contextlib
import http.client
import json
import random
import statistics
import sys
import time

from hearth_server import Hearth, leave, start_request
from proxies import PROXIES, Through, installed, proxy
from tiny_models import random_model

MEDIAN_MS, WORST_MS, SEED = 100, 200, 11


class Watcher:
    """/slots over one connection, as fast as it answers."""

    def __init__(self, h):
        self.c = http.client.HTTPConnection(h.host, h.port, timeout=60)

    def slots(self):
        self.c.request("GET", "/slots")
        return json.loads(self.c.getresponse().read())

    def wait(self, condition, seconds, what):
        """Until condition(slots); the time at which it was seen."""
        deadline = time.monotonic() + seconds
        while not condition(self.slots()):
            assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
            time.sleep(0.001)
        return time.monotonic()


def is_idle(s):
    return s["running"] == 0 and s["waiting"] == 0 and s["pages"]["used"] == 0


class Stages:
    """Each brings a request to its stage through `way` and returns its socket."""

    def __init__(self, direct, prompt):
        self.direct, self.watch = direct, Watcher(direct)
        self.body = {"prompt": prompt, "max_tokens": 180, "temperature": 0, "ignore_eos": True}
        self.random = random.Random(SEED)

    def decoding(self, way, **kw):
        s = start_request(way, "/v1/completions", dict(self.body, stream=True, **kw))
        got = b""
        while got.count(b"data: ") < 2:
            more = s.recv(65536)
            assert more, got
            got += more
        return s

    def prefill(self, way):
        s = start_request(way, "/v1/completions", dict(self.body, cache_prompt=False, stream=True))
        self.watch.wait(lambda slots: slots["running"] == 1, 20, "prefill")
        time.sleep(self.random.uniform(0.01, 1.0))
        return s

    def decode(self, way):
        return self.decoding(way)

    def decode_n4(self, way):
        return self.decoding(way, n=4)

    def plain(self, way):
        s = start_request(way, "/v1/completions", self.body)
        self.watch.wait(lambda slots: slots["running"] == 1, 20, "a plain call runs")
        time.sleep(self.random.uniform(0.01, 0.5))
        return s

    def plain_n4(self, way):
        s = start_request(way, "/v1/completions", dict(self.body, n=4))
        self.watch.wait(lambda slots: slots["running"] == 4, 20, "a plain call runs")
        time.sleep(self.random.uniform(0.01, 0.5))
        return s


def leave_and_time(stages, sock, reset, is_free):
    start = time.monotonic()
    leave(sock, reset)
    return (stages.watch.wait(is_free, 20, "free") - start) * 1000


def measure_running(stages, stage, way, rounds):
    times = []
    for i in range(rounds):
        sock = getattr(stages, stage)(way)
        times.append(leave_and_time(stages, sock, i % 2 == 1, is_idle))
    return times


def measure_queued(stages, way, rounds):
    """A request that waits behind one that fills all slots with long contexts."""
    times = []
    for i in range(rounds):
        blocker = stages.decode_n4(stages.direct)
        sock = start_request(way, "/v1/completions", stages.body)
        stages.watch.wait(lambda slots: slots["waiting"] == 1, 20, "a request waits")
        time.sleep(stages.random.uniform(0, 0.05))
        times.append(leave_and_time(stages, sock, i % 2 == 1, lambda slots: slots["waiting"] == 0))
        assert stages.watch.slots()["running"] == 4, "the blocker has ended: no measurement"
        leave(blocker, False)
        stages.watch.wait(is_idle, 20, "all free")
    return times


def measure_way(stages, name, way, rounds):
    """Prints the rows of one way to the server; how many missed."""
    missed = 0
    for stage in ("queue", "prefill", "decode", "plain", "decode_n4", "plain_n4"):
        if stage == "queue":
            times = measure_queued(stages, way, rounds)
        else:
            times = measure_running(stages, stage, way, rounds)
        median, worst = statistics.median(times), max(times)
        held = median <= MEDIAN_MS and worst <= WORST_MS
        missed += not held
        print(f"{name:16} {stage:10} median {median:4.0f} ms, worst {worst:4.0f} ms{'' if held else '  MISSED'}",
              flush=True)
    return missed


@contextlib.contextmanager
def ways(direct):
    """name -> where to connect"""
    with contextlib.ExitStack() as stack:
        found = {"direct": direct}
        for name in PROXIES:
            if installed(name):
                found[name] = Through(stack.enter_context(proxy(name, direct.port)))
            else:
                print(f"{name}: not installed")
        yield found


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model")
    p.add_argument("--prompt-tokens", type=int, default=8000)
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--only", help="one way: direct, haproxy ...")
    a = p.parse_args()
    with random_model("smollm2-135m", a.model) as model:
        with Hearth("--model", model, "--parallel", "4", "--allowed-hosts", "*") as h, ways(h) as found:
            prompt = [5 + i * 7 % 250 for i in range(a.prompt_tokens)]
            stages = Stages(h, prompt)
            assert h.post("/v1/completions", dict(stages.body, max_tokens=1))[0] == 200  # fills the prefix cache
            missed = sum(measure_way(stages, name, way, a.rounds) for name, way in found.items()
                         if a.only in (None, name))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
