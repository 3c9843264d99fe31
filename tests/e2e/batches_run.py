#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Files and batches that survive: SIGKILL at each call that changes the disk and in the middle of each write, and at moments of
chance; a power loss after each such call; a disk that fails, a clock that is wrong, hostile inputs, clients and sizes.

    tests/e2e/batches_run.py [--lines N] [--kills N] [--seed N] [--step N] [CASE ...]

Each case prints its figures; all of them take about an hour.
"""
import argparse
import contextlib
import http.client
import itertools
import json
import os
import random
import re
import shutil
import signal
import statistics
import struct
import sys
import threading
import time
import unicodedata

from batch_disk import Record, check_batch, check_power_loss, check_survived, disk, plain, run_one, until_killed
from hearth_server import DEMO, ROOT, Hearth, roomy_folder, run
from test_batches import COMPLETE, ONE, content, create, form, line, rows, upload, wait, wait_for

EMBED = os.path.join(ROOT, "deploy", "demo-embed")
FORM = {"Content-Type": "multipart/form-data; boundary=b0undary"}


def say(name, **figures):
    print(f"{name}: " + ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in figures.items()), flush=True)


def lines(n, tokens):
    """Prompts of seven beginnings, so that the prefix cache has what another run may not have."""
    return "".join(line(f"l{i}", {"prompt": f"{i % 7} " + "The quick brown fox " * 5 + f"{i}", "max_tokens": tokens}) + "\n" for i in range(n)).encode()


def undisturbed(text, top):
    """The output; it is that of another batch of the lines too."""
    with Hearth(*ONE, "--batch-dir", os.path.join(top, "undisturbed")) as h:
        once, again = run_one(h, text), run_one(h, text)
        assert once == again
        return once


# ---- kills and power -----------------------------------------------------------------------------------

def stop_at_each(text, wanted, top, half, args):
    """Returns the numbers of the calls at which it was stopped."""
    for k in itertools.count(args.first, args.step):
        d, told = os.path.join(top, f"stop{k}"), []
        h = Hearth(*ONE, "--batch-dir", d, env=disk(top, DISK_STOP=k, DISK_HALF=half))

        def client():
            run_one(h, text, lambda kind, item: told.append((kind, item)))
            while h.process.poll() is None and any(name.endswith(".results") for name in os.listdir(os.path.join(d, "batches"))):
                time.sleep(0.001)
        alive = until_killed(h, client)
        try:
            check_survived(d, text, told, wanted)
        except AssertionError as e:
            raise AssertionError(f"stopped at call {k}, half {half}: {e}") from e
        shutil.rmtree(d)
        if alive or k + args.step > args.last:
            return range(args.first, k + (not alive), args.step)


def stops(args):
    with roomy_folder() as top:
        text = lines(args.lines, 2)
        wanted = undisturbed(text, top)
        for half in (0, 1):
            begin = time.monotonic()
            at = stop_at_each(text, wanted, top, half, args)
            say("stopped in the middle of each call" if half else "stopped before each call", lines=args.lines, times=len(at), at=at,
                minutes=(time.monotonic() - begin) / 60)


def power(args):
    with roomy_folder() as top:
        text = lines(args.lines, 40)  # some seconds, so that answers of lines are synced
        wanted = undisturbed(text, top)
        for cancels in (False, True):
            record = Record(os.path.join(top, "cancelled" if cancels else "whole"))
            with record.server() as h:
                run_one(h, text, record.note, cancels)
            for kind in ("undone", "zeroed", "emptied", "killed")[:1 if cancels else 2 if args.small else 4]:
                begin = time.monotonic()
                step = 1 if cancels or (kind == "undone" and not args.small) else args.step
                n, tried = check_power_loss(record, kind, text, wanted, top, lambda number: number % step == 0, cancels)
                say(f"power loss, {kind}", lines=args.lines, cancelled=cancels, images=n, started=tried, minutes=(time.monotonic() - begin) / 60)


def one_life(draw, d, text, told, cancels):
    """A server that is killed at a moment of chance, and its client. Returns True if the batch had ended."""
    h = Hearth(*ONE, "--batch-dir", d)
    ended = []

    def client():
        ids = {kind: [i["id"] for k, i in told if k == kind] for kind in ("file", "batch")}
        if not ids["file"]:
            found = h.get("/v1/files")[2]["data"]
            told.append(("file", found[0] if found else upload(h, text)))
            ids["file"] = [told[-1][1]["id"]]
        if not ids["batch"]:
            found = h.get("/v1/batches")[2]["data"]
            told.append(("batch", found[0] if found else create(h, ids["file"][0])))
            ids["batch"] = [told[-1][1]["id"]]
        if cancels and draw.random() < 0.3:
            status, _, b = h.post(f"/v1/batches/{ids['batch'][0]}/cancel", {})
            assert status in (200, 400), b
            if status == 200:
                told.append(("batch", b))
        told.append(("batch", wait(h, ids["batch"][0], "cancelled" if any(i["status"] == "cancelling" for _, i in told) else "completed", "cancelled")))
        ended.append(True)
    after, killed = draw.expovariate(4), threading.Event()

    def kill():
        while not h.process and not killed.wait(0.001):
            pass
        if not killed.wait(after):
            h.process.kill()
    killer = threading.Thread(target=kill)
    killer.start()
    until_killed(h, client)
    killed.set()
    killer.join()
    return bool(ended)


def kills(args):
    draw, n, batches, cancelled, begin = random.Random(args.seed), 0, 0, 0, time.monotonic()
    with roomy_folder() as top:
        text = lines(args.lines, 20)
        wanted = undisturbed(text, top)
        while n < args.kills:
            d, told, cancels = os.path.join(top, f"batch{batches}"), [], batches % 4 == 3
            while not one_life(draw, d, text, told, cancels):
                n += 1
            n += 1  # that one is killed after its end
            batches += 1
            cancelled += told[-1][1]["status"] == "cancelled"
            check_survived(d, text, told, wanted, cancels)
            shutil.rmtree(d)
    say("kill -9 at moments of chance", kills=n, batches=batches, cancelled=cancelled, seed=args.seed, minutes=(time.monotonic() - begin) / 60)


# ---- the disk and the clock ----------------------------------------------------------------------------

@contextlib.contextmanager
def number_in(path, number):
    with open(path + ".new", "w", encoding="ascii") as f:
        f.write(str(number))
    os.rename(path + ".new", path)
    try:
        yield
    finally:
        os.remove(path)


def wait_for_lines(h, batch, n):
    deadline = time.monotonic() + 120
    while h.get(f"/v1/batches/{batch}")[2]["request_counts"]["completed"] < n:
        assert time.monotonic() < deadline


def faults(args):
    """ENOSPC, EIO and a file system that is read-only from some moment on."""
    text = lines(40, 300 if args.small else 1500)
    with roomy_folder() as top:
        wanted, switch = args.small or undisturbed(text, top), os.path.join(top, "fault")
        for name, number in (("ENOSPC", 28), ("EIO", 5), ("EROFS", 30)):
            d = os.path.join(top, name)
            os.mkdir(d)
            with number_in(switch, number):
                code, _, err = run("serve", "--port", "0", "--batch-dir", os.path.join(d, "b"), **disk(d, DISK_FAULT=switch))
                assert code == 1 and os.strerror(number) in err and os.path.join(d, "b") in err, err
            with Hearth(*ONE, "--batch-dir", os.path.join(d, "b"), env=disk(d, DISK_FAULT=switch)) as h:
                file = upload(h, text)
                batch = create(h, file["id"])["id"]
                wait_for_lines(h, batch, 1)
                with number_in(switch, number):
                    wait_for(lambda: h.metrics()["hearth_batch_paused"] == 1)
                    begin = time.monotonic()
                    status, _, answer = h.post(COMPLETE, {"prompt": "Once", "max_tokens": 4})
                    assert status == 200, answer
                    assert upload(h, lines(1, 1), wanted=500)["error"]["code"] == "internal_error"
                    for path, what in (("/v1/batches", {"input_file_id": file["id"], "endpoint": COMPLETE, "completion_window": "24h"}), (f"/v1/batches/{batch}/cancel", {})):
                        status, _, answer = h.post(path, what)
                        assert status == 500, answer
                    assert h.get(f"/v1/batches/{batch}")[2]["status"] == "in_progress" and len(h.get("/v1/files")[2]["data"]) == 1
                    if name == "EIO" and not args.small:
                        time.sleep(100)  # it is tried again, and not said again
                if args.small:  # it rests for half a minute
                    continue
                b = wait(h, batch, "completed")
                assert plain(content(h, b["output_file_id"]), b) == wanted
                rest = time.monotonic() - begin
                said = [l for l in h.log if "batches rest" in l]
                assert len(said) == 1, said
                assert upload(h, text)["bytes"] == len(text)
            say(f"a disk with {name}", seconds_until_all_is_done=rest, messages=len(said))


def clock(args):
    """The date is set back by ten days and forward by 25 hours while a batch runs, and by 40 days."""
    text = lines(args.lines, 20)
    with roomy_folder() as top:
        wanted, shift = undisturbed(text, top), os.path.join(top, "shift")
        for name, seconds, status in (("back by 10 days", -864000, "completed"), ("forward by 25 h", 90000, "expired")):
            d = os.path.join(top, name)
            with Hearth(*ONE, "--debug-hooks", "on", "--batch-dir", d, env=disk(d, CLOCK_SHIFT=shift)) as h:
                h.pause_engine()
                batch = create(h, upload(h, text)["id"])["id"]
                wait(h, batch, "in_progress")
                with number_in(shift, seconds):
                    h.resume_engine()
                    b = wait(h, batch, "completed", "expired")
                    assert b["status"] == status, b
                    check_batch(h, b, wanted, status == "expired")
                    assert status == "completed" or {r["error"]["code"] for r in rows(content(h, b["error_file_id"]))} == {"batch_expired"}
                    say(f"clock {name}", status=b["status"], completed=b["request_counts"]["completed"], failed=b["request_counts"]["failed"])
                    if status == "expired":
                        continue
                with number_in(shift, 40 * 86400):
                    wait_for(lambda: not h.get("/v1/files")[2]["data"])
                    assert sorted(os.listdir(os.path.join(d, "files"))) == []
                    assert h.get(f"/v1/batches/{batch}")[2]["status"] == "completed"
                    say("clock forward by 40 days", files=0)


def corrupted(args):
    """Bytes in the middle of the answers that are there: lines from there on run again."""
    text = lines(args.lines, 20)
    draw = random.Random(args.seed)
    with roomy_folder() as top:
        wanted = undisturbed(text, top)
        began = os.path.join(top, "began")
        # some thirty calls come before the first answer
        h, told = Hearth(*ONE, "--batch-dir", began, env=disk(top, DISK_STOP=30 + args.lines * 3 // 4)), []

        def client():
            told.append(("file", upload(h, text)))
            told.append(("batch", create(h, told[0][1]["id"])))
            wait(h, told[1][1]["id"], "completed")
        assert not until_killed(h, client)
        n = 0
        for i in range(4 if args.small else 40):
            d = os.path.join(top, "changed")
            shutil.copytree(began, d)
            path = os.path.join(d, "batches", told[1][1]["id"] + ".results")
            with open(path, "r+b") as f:
                size = os.path.getsize(path)
                at = draw.randrange(size)
                f.seek(at)
                old = f.read(1)
                f.seek(at)
                what = (bytes([old[0] ^ 1 << draw.randrange(8)]), b"\0" * 4096, os.urandom(300), b"\xff" * 40)[i % 4]
                f.write(what[:size - at])
            check_survived(d, text, told, wanted)
            shutil.rmtree(d)
            n += 1
        say("answers corrupted in the middle", times=n)


# ---- hostile inputs ------------------------------------------------------------------------------------

def run_input(h, data, endpoint=COMPLETE, *statuses):
    file = upload(h, data)
    batch = wait(h, create(h, file["id"], endpoint)["id"], "completed", "failed")
    return batch, rows(content(h, batch["output_file_id"])) if batch["output_file_id"] else [], \
        rows(content(h, batch["error_file_id"])) if batch["error_file_id"] else []


def refused(h, data, code, number, endpoint=COMPLETE):
    batch = run_input(h, data, endpoint)[0]
    assert batch["status"] == "failed" and [(e["code"], e["line"]) for e in batch["errors"]["data"]] == [(code, number)], batch
    return batch["errors"]["data"][0]["message"]


def prompt(custom_id):
    return line(custom_id, {"prompt": "a", "max_tokens": 1}).encode() + b"\n"


def inputs(args):
    with roomy_folder() as top, Hearth(*ONE, "--batch-dir", os.path.join(top, "b")) as h:
        before = h.memory_kib()
        long = line("a", {"prompt": "x" * (5_000_000 if args.small else 200_000_000), "max_tokens": 1}).encode()
        begin = time.monotonic()
        file = upload(h, long)["id"]
        uploaded = time.monotonic() - begin
        batch = wait(h, create(h, file)["id"], "failed")
        assert [(e["code"], e["line"]) for e in batch["errors"]["data"]] == [("invalid_json_line", 1)], batch
        say("one long line", mb=len(long) / 1e6, upload_s=uploaded, validation_s=time.monotonic() - begin - uploaded, peak_mib=(h.memory_kib("VmHWM") - before) / 1024,
            error=batch["errors"]["data"][0]["message"])
        del long
        refused(h, b"\n" * 50000, "empty_file", None)
        refused(h, b"\r\n" * 50000, "empty_file", None)
        batch, good, _ = run_input(h, b"\n" * 50000 + prompt("a"))
        assert len(good) == 1 and batch["request_counts"]["total"] == 1
        say("50,000 empty lines", verdict="empty_file, and with a line after them that runs")
        names = ["\x01\x02\x1f\x7f", "😀" * 512, "é", "e\u0301", "\n", '"\\', "\u2028", " "]
        assert unicodedata.normalize("NFC", names[3]) == names[2]
        batch, good, _ = run_input(h, b"".join(map(prompt, names)))
        assert [r["custom_id"] for r in good] == names, (batch, good)
        batch, good, _ = run_input(h, b"".join(json.dumps(json.loads(prompt(n)), ensure_ascii=False).encode() + b"\n" for n in names))
        assert [r["custom_id"] for r in good] == names, (batch, good)
        refused(h, prompt("a") + prompt("a").replace(b'"a", "method', b'"\\u0061", "method'), "duplicate_custom_id", 2)
        refused(h, prompt("a").replace(b'"a", "method', b'"\x01", "method'), "invalid_json_line", 1)
        refused(h, prompt("a\0b"), "invalid_json_line", 1)
        refused(h, prompt("😀" * 513), "invalid_value", 1)
        refused(h, prompt("a").replace(b'"a", "method', b'"\xff", "method'), "invalid_json_line", 1)
        say("custom_id", accepted=len(names), refused=5)
        for n, text in (("of objects", b'{"a":' * 10000 + b"1" + b"}" * 10000), ("of lists", b"[" * 10000 + b"]" * 10000), ("unclosed", b"[" * 10000)):
            refused(h, prompt("ok") + prompt("a").replace(b'"a", "max', b'%b, "max' % text), "invalid_json_line", 2)
            refused(h, prompt("ok") + text + b"\n", "invalid_json_line", 2)
        say("nested 10,000", refused=6)
        if args.small:
            return
        big = {"prompt": "Once", "max_tokens": 1500, "logprobs": 20, "n": 8, "ignore_eos": True, "min_tokens": 1500, "temperature": 1.5}
        begin = time.monotonic()
        file = upload(h, prompt("a") + line("big", big).encode() + b"\n" + prompt("b"))
        batch = wait(h, create(h, file["id"])["id"], "completed")
        data = content(h, batch["output_file_id"])
        assert [r["custom_id"] for r in rows(data)] == ["a", "big", "b"], batch
        say("a line with a large answer", mib=len(data) / 2**20, seconds=time.monotonic() - begin)
        assert len(data) > 4 << 20
    with roomy_folder() as top, Hearth(*ONE, "--model", EMBED, "--batch-dir", os.path.join(top, "b")) as h:
        texts = [f"text {i}" for i in range(2048)]
        batch, good, bad = run_input(h, line("e", {"input": texts}, "/v1/embeddings").encode(), "/v1/embeddings")
        assert not bad and len(good[0]["response"]["body"]["data"]) == 2048, bad
        more, _, bad = run_input(h, line("e", {"input": texts + ["x"]}, "/v1/embeddings").encode(), "/v1/embeddings")
        say("a line of 2,048 embeddings", tokens=batch["usage"]["total_tokens"], with_one_more=bad[0]["response"]["status_code"] if bad else more["status"])


def models(args):
    """Lines for 50 models in random order, of which two fit: each is loaded once."""
    n_models = 5 if args.small else 50
    with roomy_folder() as top:
        folder = os.path.join(top, "models")
        for i in range(n_models):
            os.makedirs(os.path.join(folder, f"m{i}"))
            for name in os.listdir(DEMO):
                if os.path.isfile(os.path.join(DEMO, name)):
                    os.symlink(os.path.join(DEMO, name), os.path.join(folder, f"m{i}", name))
        order = [f"m{i % n_models}" for i in range(args.lines)]
        random.Random(args.seed).shuffle(order)
        text = "".join(line(f"{i}", {"model": m, "prompt": f"Once {i}", "max_tokens": 3}) + "\n" for i, m in enumerate(order)).encode()
        begin = time.monotonic()
        with Hearth(*ONE, "--models", folder, "--models-max", "2", "--batch-dir", os.path.join(top, "b")) as h:
            batch, good, bad = run_input(h, text)
            assert [(r["custom_id"], r["response"]["body"]["model"]) for r in good] == [(f"{i}", m) for i, m in enumerate(order)], (batch, bad[:3])
            loads = {m: h.metrics()[f'hearth_model_loads_total{{model="{m}",result="ok"}}'] for m in sorted(set(order))}
            assert len(loads) == n_models and set(loads.values()) == {1}, loads
            say(f"lines for {n_models} models", lines=args.lines, seconds=time.monotonic() - begin, loads=int(sum(loads.values())))


# ---- clients -------------------------------------------------------------------------------------------

def cancels(args):
    """A cancel in each state, and deletes of the input."""
    seen, begin = {}, time.monotonic()
    with roomy_folder() as top, Hearth(*ONE, "--debug-hooks", "on", "--batch-dir", os.path.join(top, "b")) as h:
        n = 10000 if args.small else 50000
        text = "".join(line(f"l{i}", {"prompt": "a", "max_tokens": 1}) + "\n" for i in range(n)).encode()
        file = upload(h, text)["id"]

        def cancel(batch):
            status, _, answer = h.post(f"/v1/batches/{batch}/cancel", {})
            return status, answer
        h.pause_engine()
        while "validating" not in seen:  # on a slow machine that may be over
            b = create(h, file)
            assert h.request("DELETE", f"/v1/files/{file}")[0] == 409
            state = h.get(f"/v1/batches/{b['id']}")[2]["status"]
            status, answer = cancel(b["id"])
            seen[state] = status, answer["status"]
            assert status == 200 and answer["status"] == "cancelling", (state, answer)
            again = cancel(b["id"])
            assert again[0] == 200, again
            seen["cancelling"] = again[0], again[1]["status"]
            b = wait(h, b["id"], "cancelled")
            assert b["request_counts"] == {"total": n, "completed": 0, "failed": n} and b["output_file_id"] is None, b
        small = upload(h, lines(args.lines * 4, 4))["id"]
        b = create(h, small)["id"]
        wait(h, b, "in_progress")
        seen["in_progress"] = cancel(b)[0], h.get(f"/v1/batches/{b}")[2]["status"]
        assert seen["in_progress"] == (200, "cancelling"), seen
        h.resume_engine()
        wait(h, b, "cancelled")
        b = create(h, small)
        deadline = time.monotonic() + 120
        while (now := h.get(f"/v1/batches/{b['id']}")[2])["status"] != "completed" and time.monotonic() < deadline:
            if now["status"] == "finalizing":
                status, answer = cancel(b["id"])
                seen["finalizing"] = status, answer.get("status") or answer["error"]["message"]
        for state, batch in (("completed", b["id"]), ("cancelled", h.get("/v1/batches")[2]["data"][1]["id"])):
            seen[state] = cancel(batch)[0], h.get(f"/v1/batches/{batch}")[2]["status"]
            assert seen[state] == (400, state), seen
        bad = create(h, upload(h, b"{\n")["id"])
        wait(h, bad["id"], "failed")
        seen["failed"] = cancel(bad["id"])[0], "failed"
        deleted = [h.request("DELETE", f"/v1/files/{f}")[0] for f in (file, small)]
        assert deleted == [200, 200], deleted
        code, _, err = run("serve", "--port", "0", "--batch-dir", os.path.join(top, "b"))
        assert code == 1 and f"process {h.process.pid} has this directory" in err, err
    say("cancel in each state", **{k: v for k, v in seen.items()}, seconds=time.monotonic() - begin)


def many(args):
    """1,000 batches of one line at once, by 63 keys; one key may have 16."""
    n, n_keys = (32, 2) if args.small else (1000, 63)
    with roomy_folder() as top:
        keys = os.path.join(top, "keys")
        with open(keys, "w", encoding="ascii") as f:
            f.write("".join(f"key-{i:04d}\n" for i in range(n_keys)))
        with Hearth(*ONE, "--batch-dir", os.path.join(top, "b"), "--api-key-file", keys) as h:
            heads = [{"Authorization": f"Bearer key-{i:04d}"} for i in range(n_keys)]
            files = [upload(h, prompt("a"), key=f"key-{i:04d}")["id"] for i in range(n_keys)]
            made, over, others, lock = {}, [0], [], threading.Lock()

            def client(of):
                for i in range(of, n, 16):
                    status, _, b = h.post("/v1/batches", {"input_file_id": files[i % n_keys], "endpoint": COMPLETE, "completion_window": "24h"}, heads[i % n_keys])
                    with lock:
                        if status == 200:
                            made[b["id"]] = heads[i % n_keys]
                        elif status == 403:
                            over[0] += 1
                        else:
                            others.append((status, b))
            begin = time.monotonic()
            threads = [threading.Thread(target=client, args=(i,)) for i in range(16)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            created = time.monotonic() - begin
            assert not others and over[0] == 0 and len(made) == n, (others[:3], over, len(made))
            for batch, head in made.items():
                b = wait(h, batch, "completed", headers=head)
                assert b["request_counts"] == {"total": 1, "completed": 1, "failed": 0}, b
            ended = time.monotonic() - begin
            say("batches of one line at once", batches=n, keys=n_keys, created_s=created, ended_s=ended, refused=over[0])


def slow(args):
    """A client that sends a byte a second, one that sends just enough, one that stops."""
    with roomy_folder() as top, Hearth(*ONE, "--batch-dir", os.path.join(top, "b")) as h:
        whole = form([("purpose", None, b"batch"), ("file", "a", b"x" * 300000)])
        head = b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nContent-Type: %b\r\n\r\n" % (len(whole), FORM["Content-Type"].encode())
        times = {}

        def send(name, piece, every):
            begin, at = time.monotonic(), 0
            with h.open_socket(60) as s:
                s.sendall(head)
                try:
                    s.settimeout(every)
                    while at < len(whole):
                        s.sendall(whole[at:at + piece])
                        at += piece
                        with contextlib.suppress(TimeoutError):
                            got = s.recv(4096)
                            times[name] = time.monotonic() - begin, got.split(b"\r\n")[0]
                            return
                    s.settimeout(60)
                    times[name] = time.monotonic() - begin, s.recv(4096).split(b"\r\n")[0]
                except OSError as e:
                    times[name] = time.monotonic() - begin, type(e).__name__
        threads = [threading.Thread(target=send, args=a) for a in (("a byte a second", 1, 1), ("20,000 bytes a second", 20000, 1), ("1,000 bytes and silence", 1000, 50))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert b" 200 " in times["20,000 bytes a second"][1], times
        wait_for(lambda: not any(f.endswith(".tmp") for f in os.listdir(os.path.join(top, "b", "files"))))
        assert times["a byte a second"][0] < 30 and times["1,000 bytes and silence"][0] < 30, times
        say("slow uploads", **{k: f"{s:.1f} s {what}" for k, (s, what) in times.items()})


def polling(args):
    """16 clients that ask a hundred times a second each while a batch runs."""
    with roomy_folder() as top, Hearth(*ONE, "--batch-dir", os.path.join(top, "b")) as h:
        batch = create(h, upload(h, lines(20000, 30))["id"])["id"]
        wait(h, batch, "in_progress")
        took, end = [], time.monotonic() + 5

        def client():
            c = http.client.HTTPConnection(h.host, h.port, timeout=60)
            due = time.monotonic()
            while due < end:
                begin = time.monotonic()
                c.request("GET", f"/v1/batches/{batch}")
                r = c.getresponse()
                b = json.loads(r.read())
                took.append(time.monotonic() - begin)
                assert r.status == 200 and b["status"] == "in_progress", b
                due += 0.01
                time.sleep(max(0, due - time.monotonic()))
        threads = [threading.Thread(target=client) for _ in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        spent = sorted(float(m.group(1)) for l in h.log if f"/v1/batches/{batch}" in l and (m := re.search(r'"total_ms":([\d.]+)', l)))
        say("16 clients polling", answers=len(took), per_second=len(took) / 5, client_p50_ms=statistics.median(took) * 1000,
            server_p50_us=spent[len(spent) // 2] * 1000, server_p99_us=spent[len(spent) * 99 // 100] * 1000)
        h.post(f"/v1/batches/{batch}/cancel", {})
        wait(h, batch, "cancelled")


# ---- sizes ---------------------------------------------------------------------------------------------

def sizes(args):
    text = "".join(line(f"l{i}", {"prompt": f"Once {i}", "max_tokens": 1}) + "\n" for i in range(50000)).encode()
    with roomy_folder() as top:
        d = os.path.join(top, "b")
        with Hearth(*ONE, "--batch-dir", d) as h:
            run_input(h, lines(100, 2))
            h.post(COMPLETE, {"prompt": "Once", "max_tokens": 4})
            before = h.memory_kib()
            begin = time.monotonic()
            file = upload(h, text)["id"]
            batch = create(h, file)["id"]
            peak, middle = 0, []
            while (b := h.get(f"/v1/batches/{batch}")[2])["status"] != "completed":
                now = h.memory_kib()
                peak = max(peak, now)
                middle.append(now)
                time.sleep(0.05)
            took = time.monotonic() - begin
            peak = max(peak, h.memory_kib("VmHWM"))
            assert b["request_counts"]["completed"] == 50000
            say("50,000 lines", seconds=took, rss_growth_mib=(peak - before) / 1024, while_it_runs_mib=(middle[len(middle) // 2] - before) / 1024,
                afterwards_mib=(h.memory_kib() - before) / 1024)
            assert peak - before <= 16 << 10
        # ended ones by copying: documents of batch, input and output; the bytes are links
        docs = {folder: {} for folder in ("files", "batches")}
        for folder in docs:
            for name in os.listdir(os.path.join(d, folder)):
                if name.endswith(".json"):
                    with open(os.path.join(d, folder, name), encoding="utf-8") as f:
                        docs[folder][name] = json.load(f)
        doc = docs["batches"][batch + ".json"]
        for i in range(999):
            number = 1000 + 3 * i
            new = {"id": f"batch_{i:032x}", "number": number}
            for j, member in enumerate(("input_file_id", "output_file_id")):
                old, new[member] = doc[member], f"file-{i * 2 + j:032x}"
                os.link(os.path.join(d, "files", old), os.path.join(d, "files", new[member]))
                with open(os.path.join(d, "files", new[member] + ".json"), "w", encoding="utf-8") as f:
                    json.dump({**docs["files"][old + ".json"], "id": new[member], "number": number + 1 + j}, f)
            with open(os.path.join(d, "batches", new["id"] + ".json"), "w", encoding="utf-8") as f:
                json.dump({**doc, **new}, f)
        times = {}
        for name, options in (("without", []), ("with", ["--batch-dir", d])) * 3:
            begin = time.monotonic()
            with Hearth(*ONE, *options) as h:
                times.setdefault(name, []).append(time.monotonic() - begin)
                if options:
                    assert len(h.get("/v1/batches?limit=100")[2]["data"]) == 100 and len(h.get("/v1/files?limit=10000")[2]["data"]) > 1998
        say("start with 1,000 batches of 50,000 lines", seconds=min(times["with"]), without_batches=min(times["without"]))
        assert min(times["with"]) - min(times["without"]) <= 1


def main():
    cases = [stops, power, kills, faults, clock, corrupted, inputs, models, cancels, many, slow, polling, sizes]
    p = argparse.ArgumentParser()
    p.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(c.__name__ for c in cases))
    p.add_argument("--lines", type=int, default=500)
    p.add_argument("--kills", type=int, default=1000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--step", type=int, default=1, help="of each so many calls one")
    p.add_argument("--first", type=int, default=1, help="call of `stops`")
    p.add_argument("--last", type=int, default=sys.maxsize, help="call of `stops`")
    p.add_argument("--small", action="store_true", help="as in the suite")
    args = p.parse_args()
    for case in cases:
        if not args.cases or case.__name__ in args.cases:
            case(args)


if __name__ == "__main__":
    main()
