#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run by hand: what --kv-disk is worth, and that it changes no bit.

    tests/e2e/kv_disk_run.py [--model DIR] [CASE...]      # default: the demo model

test_time_to_first_token: a long prompt, kill -9, start, the same prompt. test_conversations: random conversations whose server
is killed at any moment, against a server without it. test_two_servers: two on one directory, which is cut all the time.
test_hostile: a directory that vanishes, cannot be written, is full of other files or gets another secret, and ends of the server
while it reads or writes. test_gaps: tokens of others while pages are written and read.
"""
import http.client
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

from hearth_server import DEMO, Hearth, run_cases

MODEL, N_CONVERSATIONS = DEMO, 500


def ids(draw, n):
    return [draw.randrange(20, 1000) for _ in range(n)]


def complete(h, prompt, seed, n=8):
    body = {"prompt": prompt, "max_tokens": n, "seed": seed, "temperature": 1, "logprobs": 1, "timings_per_token": True}
    status, _, answer = h.post("/v1/completions", body, timeout=600)
    assert status == 200, answer
    return answer


def written(h):
    """Waits until the writer is at rest."""
    last, since = -1, 0
    while since < 5:
        now = h.metrics()["hearth_kv_disk_written_bytes_total"]
        last, since = now, since + 1 if now == last else 0
        time.sleep(0.1)
    return last


def first_token_seconds(h, prompt):
    start = time.monotonic()
    answer = complete(h, prompt, 1, 1)
    return time.monotonic() - start, answer


def test_time_to_first_token():
    draw = random.Random(1)
    n_ctx = None
    with tempfile.TemporaryDirectory() as folder:
        for args in ([], ["--kv-disk", folder]):
            for turn in range(4):
                with Hearth("--model", MODEL, "--parallel", "1", *args) as h:
                    if n_ctx is None:
                        n_ctx = min(h.get("/props")[2]["n_ctx"] - 20, 14906)
                        prompt = ids(draw, n_ctx)
                    seconds, answer = first_token_seconds(h, prompt)
                    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                    print(f"  {'with' if args else 'without'}, start {turn}: {n_ctx} tokens, {cached} cached, {seconds:.3f} s; restored in "
                          f"{answer['timings'].get('restore_ms', 0):.0f} ms")
                    if args and turn == 0:
                        start = time.monotonic()
                        print(f"  {written(h) / 1e6:.0f} MB written in {time.monotonic() - start - 0.5:.1f} s")
                        h.stop(signal.SIGKILL)
                        h.process.returncode = 0
                if not args:
                    break


def test_conversations():
    """Three servers' lives each: whatever was written when it was killed, the next one gives the same."""
    draw, n_cached = random.Random(2), 0
    with Hearth("--model", MODEL) as plain, tempfile.TemporaryDirectory() as folder:
        for case in range(N_CONVERSATIONS):
            if case % 25 == 0:
                shared = ids(draw, 700)
            prompt = shared[:draw.randrange(700)] + ids(draw, draw.randrange(1, 600))
            for turn in range(2):
                want = complete(plain, prompt, case)
                with Hearth("--model", MODEL, "--kv-disk", folder) as h:
                    got = complete(h, prompt, case)
                    assert got["choices"] == want["choices"], (case, turn)
                    n_cached += got["usage"]["prompt_tokens_details"]["cached_tokens"]
                    time.sleep(draw.choice([0, 0.001, 0.003, 0.01, 0.1]))
                    h.stop(signal.SIGKILL)
                    h.process.returncode = 0
                prompt = prompt + ids(draw, draw.randrange(1, 100))
    print(f"  {N_CONVERSATIONS} conversations, {n_cached} tokens read, 0 differ")
    assert n_cached > 0


def test_two_servers():
    """Ten minutes of writing, reading and removing by both: 0 wrong bits, 0 errors."""
    minutes = float(os.environ.get("MINUTES", "10"))
    draw = random.Random(3)
    prompts = [ids(draw, draw.randrange(520, 1500)) for _ in range(60)]
    with Hearth("--model", MODEL) as plain:
        wants = [complete(plain, p, 5)["choices"] for p in prompts]
    counts, faults = [0, 0], []
    with tempfile.TemporaryDirectory() as folder:
        args = ["--model", MODEL, "--kv-disk", folder, "--kv-memory", "12M", "--kv-disk-bytes", "20M"]
        with Hearth(*args) as a, Hearth(*args) as b:
            end = time.monotonic() + 60 * minutes

            def work(h, seed):
                mine = random.Random(seed)
                while time.monotonic() < end and not faults:
                    i = mine.randrange(len(prompts))
                    answer = complete(h, prompts[i], 5)
                    if answer["choices"] != wants[i]:
                        faults.append(i)
                    counts[0] += 1
                    counts[1] += "restore_ms" in answer["timings"]

            threads = [threading.Thread(target=work, args=(h, n)) for n, h in enumerate((a, b, a, b))]
            for t in threads:
                t.start()
            while time.monotonic() < end:
                time.sleep(0.5)
                old = sorted((os.stat(p).st_mtime, p) for d, _, fs in os.walk(folder) for f in fs
                             if f != "secret" and os.path.exists(p := os.path.join(d, f)))
                for _, path in old[:len(old) // 4]:
                    if os.path.exists(path):
                        os.unlink(path)
            for t in threads:
                t.join()
            bad = sum(v for h in (a, b) for k, v in h.metrics().items() if k.startswith("hearth_kv_disk_bad_files_total"))
            print(f"  {counts[0]} answers, {counts[1]} with pages read, {len(faults)} differ, {bad:.0f} bad files, "
                  f"{sum(h.metrics()['hearth_kv_disk_write_errors_total'] for h in (a, b)):.0f} write errors")
            assert not faults and counts[1] > 0 and bad == 0


def restores(h):
    """Prompts that were read; not all, since the demo computes about as fast as files are read."""
    print("  {hearth_kv_disk_restores_total:.0f} read, {hearth_kv_disk_dropped_total:.0f} not written".format(**h.metrics()))
    return h.metrics()["hearth_kv_disk_restores_total"]


def test_hostile():
    draw = random.Random(4)
    prompts = [ids(draw, 1500) for _ in range(12)]
    with Hearth("--model", MODEL) as plain:
        wants = [complete(plain, p, 5)["choices"] for p in prompts]

    def right(h, some):
        return all(complete(h, prompts[i], 5)["choices"] == wants[i] for i in some)

    with tempfile.TemporaryDirectory() as top:
        folder = os.path.join(top, "kv")
        args = ["--model", MODEL, "--kv-disk", folder]
        with Hearth(*args) as h:
            assert right(h, range(6))
            written(h)
            shutil.rmtree(folder)  # it vanishes
            assert right(h, range(12))
        with Hearth(*args) as h:
            assert right(h, range(12))
            written(h)
        with Hearth(*args) as h:
            with open(os.path.join(folder, "secret"), "wb") as f:  # another one, while it runs
                f.write(os.urandom(32))
            assert right(h, range(12)) and restores(h) >= 6, restores(h)
        with Hearth(*args) as h:
            assert right(h, range(6)) and restores(h) == 0
            written(h)
        os.makedirs(os.path.join(folder, "v1", "00"), exist_ok=True)
        for i in range(100000):
            open(os.path.join(folder, "v1", "00", f"other{i}"), "w").close()
        start = time.monotonic()
        with Hearth(*args) as h:
            print(f"  ready in {time.monotonic() - start:.2f} s with 100,000 other files")
            assert right(h, range(6)) and restores(h) >= 3, restores(h)
        for path, _, names in os.walk(folder):
            for name in names:
                if len(name) == 64:  # a hard link to a foreign file of the same length
                    n = os.path.getsize(os.path.join(path, name))
                    os.unlink(os.path.join(path, name))
                    with open(os.path.join(top, name), "wb") as f:
                        os.fchmod(f.fileno(), 0o600)
                        f.write(os.urandom(n))
                    os.link(os.path.join(top, name), os.path.join(path, name))
        with Hearth(*args) as h:
            assert right(h, range(12)) and restores(h) == 0
        for _ in range(20):
            with Hearth(*args) as h:
                threads = [threading.Thread(target=lambda i=i: ignore(lambda: complete(h, prompts[i], 5))) for i in range(4)]
                for t in threads:
                    t.start()
                time.sleep(draw.random() * 0.02)
                assert h.stop(signal.SIGTERM) == 0
                for t in threads:
                    t.join()
        with Hearth(*args) as h:
            assert right(h, range(12))


def ignore(action):
    try:
        action()
    except (OSError, AssertionError, ValueError, http.client.HTTPException):
        pass


def test_gaps():
    """A stream's gaps alone, beside other prompts, and beside the same whose pages are written, then read."""
    draw = random.Random(6)
    prompts = [ids(draw, 2000) for _ in range(6)]

    def gaps(h, others):
        times, stop = [], threading.Event()

        def work():
            while not stop.is_set():
                for p in others:
                    complete(h, p, 5, 1)
        thread = threading.Thread(target=work)
        body = {"prompt": "a", "max_tokens": 300, "stream": True, "ignore_eos": True, "speculate": False}
        for _ in h.stream("/v1/completions", body):
            times.append(time.monotonic())
            if len(times) == 5 and others:
                thread.start()
        stop.set()
        if others:
            thread.join()
        all_gaps = sorted(b - a for a, b in zip(times[5:], times[6:]))
        return all_gaps[len(all_gaps) // 2] * 1000, all_gaps[int(len(all_gaps) * 0.99)] * 1000

    with tempfile.TemporaryDirectory() as folder:
        for args in ([], ["--kv-disk", folder], ["--kv-disk", folder]):
            more = ["--no-prefix-cache"] if not args else ["--kv-memory", "200M"]
            with Hearth("--model", MODEL, "--ctx-size", "4096", *more, *args) as h:
                alone, beside = gaps(h, []), gaps(h, prompts)
                m = h.metrics()
                print(f"  {' '.join(more)}: alone p50 {alone[0]:.2f}, p99 {alone[1]:.2f} ms; beside {beside[0]:.2f}, {beside[1]:.2f}; "
                      f"{m['hearth_kv_disk_written_bytes_total'] / 1e6:.0f} MB written, "
                      f"{m['hearth_kv_disk_read_bytes_total'] / 1e6:.0f} read")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--model"]:
        MODEL = sys.argv[2]
        del sys.argv[1:3]
    run_cases(globals())
