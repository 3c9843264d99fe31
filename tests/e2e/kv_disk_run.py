#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run by hand: what --kv-disk is worth, and that it changes no bit.

    tests/e2e/kv_disk_run.py [--model DIR] [CASE...]      # default: the demo model

test_time_to_first_token: a long prompt, kill -9, start, the same prompt. test_conversations: random conversations whose server
is killed at any moment, against a server without it. test_two_servers: two on one directory, which is cut all the time.
test_hostile: a directory that vanishes, cannot be written, is full of other files or gets another secret, and ends of the server
while it reads or writes. test_gaps: tokens of others while pages are written and read. test_agent: a conversation of 12 turns, kill -9,
start, the next turn; with PEER=LIBRARIES,GGUF beside llama.cpp's state files. test_limits: a directory of 100 GB, 1 GB
a second of new pages; test_small_file_system (root): what stays free. test_medians: requests with the tier on and nothing to read,
beside those without. test_usage: the numbers of golden conversations in three dialects, whole and streamed.
"""
import glob
import http.client
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from hearth_server import DEMO, ROOT, Hearth, run_cases

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


def test_agent():
    """12 turns of an agent: a long system prompt, then calls and what tools said. The turn after a restart."""
    draw, tries = random.Random(7), int(os.environ.get("TRIES", "3"))
    with tempfile.TemporaryDirectory() as folder:
        args = ["--model", MODEL, "--parallel", "1"]
        with Hearth(*args, "--kv-disk", folder) as h:
            part = min(h.get("/props")[2]["n_ctx"] - 200, 7600) // 20
            prompt = ids(draw, 6 * part)
            for turn in range(12):
                body = {"prompt": prompt, "max_tokens": 40, "ignore_eos": True, "return_token_ids": True, "seed": turn}
                answer = h.post("/v1/completions", body, timeout=600)[2]
                last = prompt
                prompt = prompt + answer["choices"][0]["token_ids"] + ids(draw, part - 40)
            print(f"  {written(h) / 1e6:.0f} MB written; the next turn has {len(prompt)} tokens, {len(prompt) - len(last) - 40} new")
            warm = first_token_seconds(h, prompt)  # in memory, for comparison
            print(f"  without a restart: {warm[0]:.3f} s, {warm[1]['usage']['prompt_tokens_details']['cached_tokens']} cached")
            h.stop(signal.SIGKILL)
            h.process.returncode = 0
        for more in ([], ["--kv-disk", folder]):
            times = []
            for _ in range(tries if more else 1):
                copy = tempfile.mkdtemp()  # each try finds what the killed server left
                shutil.copytree(folder, copy, dirs_exist_ok=True)
                start = time.monotonic()
                with Hearth(*args, *(["--kv-disk", copy] if more else [])) as h:
                    ready = time.monotonic() - start
                    seconds, answer = first_token_seconds(h, prompt)
                    assert answer["choices"] == warm[1]["choices"]
                    times.append((seconds, ready, answer["usage"]["prompt_tokens_details"]["cached_tokens"],
                                  answer["timings"].get("restore_ms", 0)))
                shutil.rmtree(copy)
            seconds, ready, cached, restored = sorted(times)[len(times) // 2]
            print(f"  {'with' if more else 'without'} kv-disk: first token {seconds:.3f} s after ready ({ready:.2f} s), {cached} cached, "
                  f"restored in {restored:.0f} ms")
        if os.environ.get("PEER"):
            libraries, gguf = os.environ["PEER"].split(",")
            peer = [sys.executable, os.path.join(ROOT, "tests", "bench", "peer_llama.py"), libraries, "turn", gguf,
                    "--file", os.path.join(folder, "peer"), "--old", str(len(last)), "--new", str(len(prompt) - len(last))]
            for kind in ("save", "restore", "restore", "restore", "compute"):
                run = subprocess.run([*peer, "--kind", kind], check=True, text=True, capture_output=True)
                print("  llama.cpp", run.stdout.strip())


def sparse(folder, n, size, draw):
    """Files with the names and sizes of extents, without blocks."""
    for _ in range(n):
        name = f"{draw.getrandbits(256):064x}"
        path = os.path.join(folder, "v1", name[:2], name)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "wb") as f:
            os.fchmod(f.fileno(), 0o600)
            f.truncate(size)


def size_of(folder):
    total = 0
    for path in glob.glob(os.path.join(folder, "v1", "*", "*")):
        try:
            total += os.stat(path).st_size
        except FileNotFoundError:
            pass
    return total


def flood(h, seconds):
    """New prompts from 4 clients."""
    end = time.monotonic() + seconds

    def work(seed):
        draw = random.Random(seed)
        while time.monotonic() < end:
            complete(h, ids(draw, 1800), 1, 1)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    return threads


def test_limits():
    draw, extent = random.Random(9), 4096 + 16 * 737280
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        with Hearth("--model", MODEL, "--kv-disk", folder):
            plain = time.monotonic() - start
        sparse(folder, 100 * 10**9 // extent, extent, draw)
        start = time.monotonic()
        with Hearth("--model", MODEL, "--kv-disk", folder, "--kv-disk-bytes", "200G") as h:
            ready = time.monotonic() - start
            h.wait_until(lambda: h.metrics()["hearth_kv_disk_bytes"] > 0, 10, "a pass")
            first = time.monotonic() - start
            print(f"  {size_of(folder) / 1e9:.1f} GB: ready in {ready:.3f} s ({plain:.3f} s without files), counted after {first:.3f} s")
        start = time.monotonic()
        with Hearth("--model", MODEL, "--kv-disk", folder) as h:
            ready = time.monotonic() - start
            h.wait_until(lambda: size_of(folder) <= 10 << 30, 30, "90 GB to go")
            print(f"  ready in {ready:.3f} s, cut to {size_of(folder) / 1e9:.1f} GB after {time.monotonic() - start:.2f} s")
        budget = 1 << 30
        with Hearth("--model", MODEL, "--kv-disk", folder, "--kv-disk-bytes", str(budget)) as h:
            threads, end, most = flood(h, 130), time.monotonic() + 130, 0
            while time.monotonic() < end:  # another server writes 1 GB a second
                sparse(folder, 85, extent, draw)
                most = max(most, size_of(folder))
                time.sleep(1)
            for t in threads:
                t.join()
            own = h.metrics()["hearth_kv_disk_written_bytes_total"]
            print(f"  1 GB/s beside {own / 1e6:.0f} MB of its own: at most {most / 1e9:.1f} GB")
            h.wait_until(lambda: size_of(folder) <= budget, 70, "a pass")
            print(f"  {size_of(folder) / 1e9:.2f} GB of {budget / 1e9:.2f} after one pass")


def test_small_file_system():
    top = tempfile.mkdtemp()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100M,mode=700", "tmpfs", top], check=True)
    try:
        with Hearth("--model", MODEL, "--kv-disk", os.path.join(top, "kv")) as h:
            threads, least = flood(h, 30), 1 << 60
            while any(t.is_alive() for t in threads):
                v = os.statvfs(top)
                least = min(least, v.f_bavail * v.f_frsize)
                time.sleep(0.01)
            m = h.metrics()
            print(f"  100 MiB: {m['hearth_kv_disk_written_bytes_total'] / 1e6:.0f} MB written, at least {least / 2**20:.1f} MiB free, "
                  f"{m['hearth_kv_disk_write_errors_total']:.0f} errors")
    finally:
        subprocess.run(["umount", top], check=True)
        os.rmdir(top)


def test_medians():
    """9 rounds in turns; every prompt is new, so nothing is read, and with the tier all is written."""
    rounds, n = int(os.environ.get("ROUNDS", "9")), int(os.environ.get("REQUESTS", "40"))
    with tempfile.TemporaryDirectory() as folder:
        ratios = []
        for r in range(rounds):
            speeds = []
            for more in ([], ["--kv-disk", folder])[:: 1 if r % 2 else -1]:
                with Hearth("--model", MODEL, "--ctx-size", "2048", *more) as h:
                    complete(h, ids(random.Random(0), 700), 1)

                    def work(seed):
                        draw = random.Random(seed)
                        for _ in range(n // 4):
                            complete(h, ids(draw, 700), 1, 64)
                    start = time.monotonic()
                    threads = [threading.Thread(target=work, args=(4 * r + i,)) for i in range(4)]
                    for t in threads:
                        t.start()
                    for t in threads:
                        t.join()
                    speeds.append((bool(more), n / (time.monotonic() - start)))
                shutil.rmtree(os.path.join(folder, "v1"), ignore_errors=True)
            on, off = dict(speeds)[True], dict(speeds)[False]
            ratios.append(on / off)
            print(f"  round {r}: {off:.2f} requests/s without, {on:.2f} with: {on / off:.3f}")
        print(f"  median {statistics.median(ratios):.3f}")


def dialects(messages, tools):
    """(path, body) of a conversation in three dialects; text of blocks has a breakpoint."""
    front = [m for m in messages if m["role"] == "system"]
    blocks, items = [], []
    for m in messages[len(front):]:
        text = {"type": "text", "text": m.get("content") or "none", "cache_control": {"type": "ephemeral"}}
        if m["role"] == "tool":
            blocks.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": m["tool_call_id"], "content": [text]}]})
            items.append({"type": "function_call_output", "call_id": m["tool_call_id"], "output": m.get("content")})
            continue
        calls = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in m.get("tool_calls") or []]
        blocks.append({"role": m["role"], "content": ([text] if m.get("content") else []) + [
            {"type": "tool_use", "id": i, "name": n, "input": json.loads(a) if isinstance(a, str) else a} for i, n, a in calls]})
        items += [{"role": m["role"], "content": m.get("content")}] if m.get("content") else []
        items += [{"type": "function_call", "call_id": i, "name": n, "arguments": a if isinstance(a, str) else json.dumps(a)}
                  for i, n, a in calls]
    flat = [t["function"] for t in tools or []]
    yield "/v1/chat/completions", {"messages": messages, **({"tools": tools} if tools else {})}
    yield "/v1/responses", {"input": items, **({"instructions": front[0]["content"]} if front else {}),
                            **({"tools": [{"type": "function", **f} for f in flat]} if flat else {})}
    yield "/v1/messages", {"messages": blocks, **({"system": [{"type": "text", "text": f["content"]} for f in front]} if front else {}),
                           **({"tools": [{"name": f["name"], "description": f["description"], "input_schema": f["parameters"]}
                                         for f in flat]} if flat else {})}


def test_usage():
    sys.path.insert(0, os.path.join(ROOT, "tests", "golden", "chat"))
    from scenarios import SCENARIOS
    n, refused, read = 0, 0, 0
    with tempfile.TemporaryDirectory() as folder, Hearth("--model", MODEL, "--kv-disk", folder) as h:
        for name, (messages, tools, _) in SCENARIOS.items():
            for again in range(4):
                for path, body in dialects(messages, tools):
                    body = {**body, ("max_output_tokens" if "responses" in path else "max_tokens"): 2}
                    count = path + ("/count_tokens" if "messages" in path else "/input_tokens")
                    status, _, counted = h.post(count, {k: v for k, v in body.items() if not k.startswith("max_")})
                    if again < 2:
                        status, _, answer = h.post(path, body)
                        usage = answer.get("usage")
                    else:
                        usage, status = {}, 200
                        try:
                            more = {"stream_options": {"include_usage": True}} if "chat" in path else {}
                            for _, data in h.stream(path, {**body, **more, "stream": True}):
                                event = {} if data == "[DONE]" else json.loads(data)
                                for holder in (event, event.get("message", {}), event.get("response", {})):
                                    usage.update(holder.get("usage") or {})
                        except AssertionError:
                            status = 400
                    if status != 200:
                        refused += 1
                        continue
                    n += 1
                    total = counted["input_tokens"]
                    if "messages" in path:
                        parts = [usage[k] for k in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")]
                        made = usage["cache_creation"]
                        assert sum(parts) == total and min(parts) >= 0 and sum(made.values()) == parts[2], (name, usage, total)
                        read += parts[1]
                    else:
                        details = usage.get("prompt_tokens_details") or usage["input_tokens_details"]
                        cached, wrote = details["cached_tokens"], details["cache_write_tokens"]
                        prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
                        assert prompt == total and 0 <= wrote <= prompt - cached <= prompt, (name, path, usage, total)
                        read += cached
    print(f"  {len(SCENARIOS)} conversations, {n} answers, {refused} refused, {read} tokens read: all add up")
    assert n > 200 and read > 0


def ignore(action):
    try:
        action()
    except (OSError, AssertionError, ValueError, http.client.HTTPException):
        pass


def test_gaps():
    """Gaps of a stream beside prompts: new ones, without the tier and written to it, then old ones, computed and read."""
    draw, rounds = random.Random(6), int(os.environ.get("ROUNDS", "5"))
    old = [ids(draw, 1900) for _ in range(12)]
    body = {"prompt": "a", "max_tokens": 300, "stream": True, "ignore_eos": True, "speculate": False}

    def gaps(h, n_new):
        """Median and p99 in ms of 8 streams, and the prompts per second."""
        found, stop, n = [], threading.Event(), [0]

        def work():
            while not stop.is_set():
                complete(h, ids(draw, 1900) if n_new else old[n[0] % len(old)], 5, 1)
                n[0] += 1
        thread, start = threading.Thread(target=work), time.monotonic()
        thread.start()
        for _ in range(8):
            times = [time.monotonic() for _ in h.stream("/v1/completions", body)]
            found += [b - a for a, b in zip(times, times[1:])]
        stop.set()
        thread.join()
        found.sort()
        return found[len(found) // 2] * 1000, found[len(found) * 99 // 100] * 1000, n[0] / (time.monotonic() - start)

    results = {}
    with tempfile.TemporaryDirectory() as folder:
        args = ["--model", MODEL, "--ctx-size", "2048", "--kv-memory", "12M"]
        with Hearth(*args, "--kv-disk", folder) as h:
            for p in old:
                complete(h, p, 5, 1)
                written(h)
        for _ in range(rounds):
            for new in (True, False):
                for tier in (False, True):
                    with Hearth(*args, *(["--kv-disk", folder] if tier else [])) as h:
                        results.setdefault((new, tier), []).append(gaps(h, new) + tuple(
                            h.metrics()[f"hearth_kv_disk_{what}_bytes_total"] / 1e6 if tier else 0 for what in ("written", "read")))
    for (new, tier), rows in results.items():
        p50, p99, speed, wrote, read = (statistics.median(column) for column in zip(*rows))
        print(f"  {'new' if new else 'old'} prompts, {'with' if tier else 'without'}: p50 {p50:.2f}, p99 {p99:.2f} ms, {speed:.1f} prompts/s; "
              f"{wrote:.0f} MB written, {read:.0f} read")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--model"]:
        MODEL = sys.argv[2]
        del sys.argv[1:3]
    run_cases(globals())
