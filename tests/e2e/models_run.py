#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Several models, at length: what test_on_demand.py does for seconds. Each part prints its numbers.

  models_run.py [--minutes 10] [--rounds 1000] [PART ...]

Parts: both (two models that do not fit together, 8 clients each), rounds (load and unload under streams), cold (from
an entry that is not loaded to the first token), gap (a chat stream beside another model's bulk job), resident (memory
beside the sum that was printed), idle (processor time of three loaded models). Standard library only.
"""
import argparse
import json
import os
import re
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hearth_server import DEMO, ROOT, Hearth  # noqa: E402

EMBED = os.path.join(ROOT, "deploy", "demo-embed")
RERANK = os.path.join(ROOT, "deploy", "demo-rerank")


def completion(h, name, prompt, n=32):
    return h.post("/v1/completions", {"model": name, "prompt": prompt, "max_tokens": n, "temperature": 0,
                                      "ignore_eos": True})


def stream_times(h, name, prompt, n):
    """(seconds to the first token, gaps between events in ms) of a stream."""
    start, times = time.monotonic(), []
    for _, data in h.stream("/v1/completions", {"model": name, "prompt": prompt, "max_tokens": n, "temperature": 0,
                                                "ignore_eos": True, "stream": True}):
        if data != "[DONE]":
            times.append(time.monotonic())
    return times[0] - start, [(b - a) * 1e3 for a, b in zip(times, times[1:])]


def p95(values):
    return sorted(values)[int(len(values) * 0.95)] if values else 0


def part_both(args):
    big = args.model or DEMO
    models = ["--model", f"a={big}", "--model", f"b={big}", "--threads", "2", "--parallel", "4", "--memory", args.memory]
    with Hearth(*models) as h:
        prompts = [f"Once upon a time there was number {i}" for i in range(8)]
        want = {(m, p): completion(h, m, p)[2]["choices"][0]["text"] for m in "ab" for p in prompts}
        before = h.metrics()["hearth_model_load_seconds_sum"]
        statuses, wrong, done = {}, [], {"a": 0, "b": 0}
        lock, stop = threading.Lock(), time.monotonic() + args.minutes * 60

        def client(name, prompt, streams):
            while time.monotonic() < stop:
                if streams:
                    text = "".join(json.loads(d)["choices"][0]["text"] for _, d in h.stream(
                        "/v1/completions", {"model": name, "prompt": prompt, "max_tokens": 32, "temperature": 0,
                                            "ignore_eos": True, "stream": True}) if d != "[DONE]")
                    status = 200
                else:
                    status, _, body = completion(h, name, prompt)
                    text = body["choices"][0]["text"] if status == 200 else None
                with lock:
                    statuses[status] = statuses.get(status, 0) + 1
                    done[name] += status == 200
                    if status == 200 and text != want[name, prompt]:
                        wrong.append((name, prompt, text))
        threads = [threading.Thread(target=client, args=(m, p, i % 2)) for m in "ab" for i, p in enumerate(prompts)]
        start = time.monotonic()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        wall = time.monotonic() - start
        metrics = h.metrics()
        loading = metrics["hearth_model_load_seconds_sum"] - before
        print(f"both: {wall:.0f} s, statuses {statuses}, served {done}, {len(wrong)} other texts, "
              f"{metrics['hearth_model_load_seconds_count']:.0f} loads, {100 * loading / wall:.1f} % of the time loading")
        assert set(statuses) == {200} and not wrong and loading <= 0.35 * wall


def threads_of(h):
    return len(os.listdir(f"/proc/{h.process.pid}/task"))


def files_of(h):
    return len(os.listdir(f"/proc/{h.process.pid}/fd"))


def part_rounds(args):
    with Hearth("--model", f"a={DEMO}", "--model", f"b={DEMO}", "--threads", "2", "--swap", "on") as h:
        stop, errors, done = threading.Event(), [], [0]

        def client(name):
            want = completion(h, name, "Tom has")[2]["choices"][0]["text"]
            while not stop.is_set():
                text = "".join(json.loads(d)["choices"][0]["text"] for _, d in h.stream(
                    "/v1/completions", {"model": name, "prompt": "Tom has", "max_tokens": 32, "temperature": 0,
                                        "ignore_eos": True, "stream": True}) if d != "[DONE]")
                done[0] += 1
                if text != want:
                    errors.append(text)
        threads = [threading.Thread(target=client, args=(m,)) for m in "abab"]
        for t in threads:
            t.start()
        rows = []
        for i in range(args.rounds):
            name = "ab"[i % 2]
            status = h.post("/models/unload", {"model": name, "wait": "drained"})[0]
            assert status in (200, 400), status
            assert h.post("/models/load", {"model": name})[0] == 200
            if i in (9, args.rounds - 1):
                h.wait_until(lambda: h.metrics()["hearth_models_loaded"] == 2, 20, "both")
                rows.append((h.memory_kib(), files_of(h), threads_of(h)))
        stop.set()
        for t in threads:
            t.join()
        h.wait_until(lambda: h.metrics()["hearth_http_requests_open"] == 1, 10, "silence")
        print(f"rounds: {args.rounds}, {done[0]} streams, {len(errors)} other texts; KiB, descriptors and threads after "
              f"the 10th {rows[0]}, after the last {rows[1]} ({100 * (rows[1][0] / rows[0][0] - 1):+.1f} % memory)")
        assert not errors


def part_cold(args):
    big = args.model or DEMO
    with Hearth("--model", f"a={DEMO}", "--model", f"b={big}", "--threads", "2", "--models-max", "1", "--swap", "on") as h:
        times = []
        for _ in range(7):
            h.post("/models/load", {"model": "a"})
            h.wait_until(lambda: h.metrics()["hearth_models_loaded"] == 1, 20, "one model")
            # At once: a virtual machine gives memory that is free for seconds back, and touching it again is slow.
            times.append(stream_times(h, "b", "Once upon a time", 4)[0])
        print(f"cold: first token of {os.path.basename(big)} after {statistics.median(times):.3f} s "
              f"({min(times):.3f} to {max(times):.3f})")


def part_gap(args):
    big = args.model or DEMO
    with Hearth("--model", f"chat={big}", "--model", f"embed={EMBED}", "--threads", "2") as h:
        stream_times(h, "chat", "Once upon a time", 64)
        alone = stream_times(h, "chat", "Once upon a time", args.tokens)[1]
        stop = threading.Event()

        def flood():
            while not stop.is_set():
                h.post("/v1/embeddings", {"model": "embed", "input": ["a cat on a roof " * 20] * 256})
        threads = [threading.Thread(target=flood) for _ in range(2)]
        for t in threads:
            t.start()
        time.sleep(1)
        beside = stream_times(h, "chat", "Once upon a time", args.tokens)[1]
        stop.set()
        for t in threads:
            t.join()
        print(f"gap: p95 alone {p95(alone):.1f} ms, beside a bulk job {p95(beside):.1f} ms "
              f"(median {statistics.median(alone):.1f}, {statistics.median(beside):.1f})")


def part_resident(args):
    models = ["--model", f"chat={DEMO}", "--model", f"embed={EMBED}", "--model", f"rank={RERANK}"]
    with Hearth(*(["--config", args.config] if args.config else models), "--threads", "2", "--speculate", "off") as h:
        line = h.wait_log("memory: 3 models take ")
        planned = float(re.search(r"take (\d+) MiB", line)[1])
        idle = h.memory_kib("VmRSS") / 1024
        text = "a cat on a roof and a dog in the garden " * 20

        def embed(i):
            return h.post("/v1/embeddings", {"model": "embed", "input": [f"{i} {k} {text}"[:48] for k in range(32)]})

        def rank(i):
            return h.post("/v1/rerank", {"model": "rank", "query": "a cat",
                                         "documents": [f"{i} {k} {text}"[:48] for k in range(32)]})

        for i in range(3):
            with ThreadPoolExecutor(18) as pool:
                jobs = [pool.submit(completion, h, "chat", f"{i} {k} " + text, 64) for k in range(16)]
                jobs += [pool.submit(f, i) for f in (embed, rank)]
                for job in jobs:
                    assert job.result()[0] == 200, job.result()
        peak = h.memory_kib("VmHWM") / 1024
        print(f"resident: printed before loading {planned:.0f} MiB, idle {idle:.0f} MiB: {idle / planned:.2f}, "
              f"peak {peak:.0f} MiB: {peak / planned:.2f}")


def part_idle(_):
    with Hearth("--model", f"chat={DEMO}", "--model", f"embed={EMBED}", "--model", f"rank={RERANK}", "--threads", "2") as h:
        completion(h, "chat", "Hi")
        time.sleep(1)

        def ticks():
            with open(f"/proc/{h.process.pid}/stat", encoding="ascii") as f:
                return sum(int(x) for x in f.read().rsplit(")", 1)[1].split()[11:13])
        before = ticks()
        time.sleep(10)
        print(f"idle: {(ticks() - before) / 10:.1f} % of a core in 10 s, {threads_of(h)} threads")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--memory", default="110M", help="of the part both: so that one fits")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--model", help="of the parts both, cold and gap; default: the demo")
    parser.add_argument("--config", help="of the part resident: a file with the models chat, embed and rank")
    parser.add_argument("parts", nargs="*", default=["both", "rounds", "cold", "gap", "resident", "idle"])
    given = parser.parse_args()
    for part in given.parts:
        globals()["part_" + part](given)
