#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Memory after a thousand hostile requests, by hand: `tests/e2e/memory_run.py [N]`.

Half of them ask for thousands of choices in a small body and leave; the other half ask for a large answer, take a
little of it now and then, and leave. Resident memory 10 s after the last one is to be within 64 MiB of the idle figure.
"""
import concurrent.futures
import random
import sys
import time

from hearth_server import Hearth, leave, start_request

LIMIT_MIB = 64


def many_choices(h, rng):
    body = {"prompt": [[5 + rng.randrange(200)]] * 256, "n": 16, "ignore_eos": True,
            "max_tokens": rng.choice([16, 500, 2000]), "logprobs": rng.choice([None, None, 1])}
    s = start_request(h, "/v1/completions", body)
    time.sleep(rng.random() / 4)
    leave(s, reset=rng.random() < 0.5)


def drip_reader(h, rng):
    ids = [5 + rng.randrange(200) for _ in range(rng.choice([300, 1500]))]
    body = {"prompt": ids, "max_tokens": 4, "echo": True, "logprobs": rng.choice([5, 20]), "n": rng.choice([1, 4, 16])}
    s = start_request(h, "/v1/completions", body, receive_buffer=4096)
    s.settimeout(5)
    try:
        for _ in range(rng.randrange(8)):
            s.recv(1)
            time.sleep(0.1)
    except OSError:
        pass
    leave(s, reset=rng.random() < 0.5)


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rng = random.Random(1)
    with Hearth("--max-queue", "64") as h:
        h.post("/v1/completions", {"prompt": [[5 + i] * 1500 for i in range(8)], "n": 16, "max_tokens": 40})
        time.sleep(2)
        idle, most = h.memory_kib(), 0
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            kinds = [many_choices, drip_reader]
            futures = [pool.submit(kinds[i % 2], h, random.Random(rng.random())) for i in range(n)]
            for f in futures:
                f.result()
                most = max(most, h.memory_kib())
        left = time.monotonic()
        h.wait_until(lambda: h.metrics()["hearth_http_requests_open"] == 1, 60, "all have ended")
        time.sleep(max(0, 10 - (time.monotonic() - left)))
        after = h.memory_kib()
        print(f"{n} requests: idle {idle >> 10} MiB, most {most >> 10} MiB, 10 s after the last {after >> 10} MiB")
        assert after - idle < LIMIT_MIB << 10


if __name__ == "__main__":
    main()
