#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Behind real nginx, HAProxy and Caddy on loopback: streams arrive as they are made, clients that leave free
their slot, a long prefill survives, errors pass through. Each proxy that is not installed is named and
passed over; with none the test is skipped."""
import sys
import time

from hearth_server import Hearth, SKIPPED, chunks, start_request
from proxies import PROXIES, Through, installed, proxy, tried

def stream_times(through):
    """Seconds until the first and the last event of a long stream."""
    times, start = [], time.monotonic()
    for _ in through.stream("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 1900,
                                                "ignore_eos": True, "stream": True, "temperature": 0}):
        times.append(time.monotonic() - start)
    assert len(times) > 5, f"{len(times)} events"
    return times[0], times[-1]


def check_stream_is_not_held(through, direct):
    """Events must not come in one lump: the first well before the last, in one of three streams at least."""
    tries = [stream_times(through) for _ in range(3)]
    assert any(first < last / 2 for first, last in tries), f"first and last event after {tries} s"


def check_same_answer(through, direct):
    body = {"messages": [{"role": "user", "content": "What is 2+2?"}], "temperature": 0}
    plain = direct.post("/v1/chat/completions", body)[2]["choices"][0]["message"]["content"]
    assert through.post("/v1/chat/completions", body)[2]["choices"][0]["message"]["content"] == plain
    events = chunks(through.stream("/v1/chat/completions", dict(body, stream=True)))
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events) == plain
    status, _, answer = through.post("/v1/completions", {"prompt": 5})
    assert status == 400 and answer["error"]["code"] == "invalid_type"


def check_disconnect(through, direct):
    body = {"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "n": 4}
    for stream in (True, False):
        begun = direct.metrics()["hearth_generated_tokens_total"]
        s = start_request(through, "/v1/completions", dict(body, stream=stream))
        direct.wait_until(lambda: direct.metrics()["hearth_generated_tokens_total"] > begun, 20, "running")
        s.close()
        seconds = direct.wait_until(lambda: direct.slots()["running"] == 0, 5, "free after the client left")
        print(f"    {'stream' if stream else 'plain'} call: free after {seconds * 1000:.0f} ms")


def main():
    ran, failed = 0, 0
    # proxies pass on the Host they were asked by; the server must accept any
    with Hearth("--parallel", "8", "--allowed-hosts", "*") as direct:
        for name in PROXIES:
            if not installed(name):
                print(f"{name}: not installed")
                continue
            with proxy(name, direct.port) as port:
                ran += 1
                for check in (check_same_answer, check_stream_is_not_held, check_disconnect):
                    try:
                        tried(name, check, Through(port), direct)
                        print(f"{name}: {check.__name__} ok", flush=True)
                    except AssertionError as e:
                        failed += 1
                        print(f"{name}: {check.__name__} FAILED: {e}", flush=True)
        if not ran:
            print("no proxy is installed: apt install nginx-light haproxy caddy")
        sys.exit(1 if failed else 0 if ran else SKIPPED)


if __name__ == "__main__":
    main()
