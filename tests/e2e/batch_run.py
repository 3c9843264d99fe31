#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`hearth batch` on 1,000 lines over every POST route but the operators', bad lines among them: the bodies are those of the
same requests over HTTP but for ids and times; a run that kill -9 ends again and again goes on, with each custom_id once and
the bytes of a run that nobody disturbed: at moments of chance, and with 500 lines at each end of a line, at a byte of chance in
each, and at 1,000 moments of chance.

    tests/e2e/batch_run.py [LINES]
"""
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

from hearth_server import BIN, ROOT, Hearth, run
from test_batch import BODIES, MODELS, answers, go_on_until_killed, line, plain, read, write

ROUTE = re.compile(r'\{"POST", "([^"]+)", ([^,]*)')
KILLS = 5


def routes():
    """Every path that takes POST and is not the operators'."""
    found = set()
    for folder, _, names in os.walk(os.path.join(ROOT, "server", "api")):
        for name in names:
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                for path, flags in ROUTE.findall(f.read()):
                    if "OPERATOR" not in flags:
                        found.add(path)
                        if "BARE" in flags:
                            found.add(path.removeprefix("/v1"))
    return found


def requests(n):
    """(custom_id, line, url and body; None for a line that cannot run), all routes in turn."""
    draw, body_of = random.Random(5), {}
    for url, body in BODIES:
        body_of.setdefault(url.removeprefix("/v1"), []).append(body)
    urls = sorted(routes())
    unknown = [u for u in urls if u.removeprefix("/v1") not in body_of and u not in ("/", "/beta/completions", "/embedding")]
    assert not unknown, f"no request is known for {unknown}"
    body_of |= {"/": [{"model": "embed", "inputs": "one"}], "/embedding": [{"model": "embed", "content": "one"}],
                "/beta/completions": [{"model": "chat", "prompt": "a", "max_tokens": 3, "seed": 1}]}
    good, bad = [], []
    for i in range(n):
        url = urls[i % len(urls)]
        bodies = body_of.get(url.removeprefix("/v1")) or body_of[url]
        body = dict(bodies[i // len(urls) % len(bodies)])
        if "seed" not in body and "max_tokens" in body and "temperature" not in body:
            body["seed"] = i
        good.append((f"{i}", line(f"{i}", url, body), (url, body)))
        if draw.random() < 0.05:
            bad.append((i, draw.choice(["no JSON", line("0", "/v1/completions", {"prompt": "a"}), line(f"b{i}", "/none", {}),
                                        line(f"s{i}", "/v1/completions", {"prompt": "a", "stream": True}),
                                        line(f"m{i}", "/v1/completions", {}).replace("POST", "GET"), '{"custom_id": 5}'])))
    for i, text in reversed(bad):
        good.insert(i + 1, (None, text, None))
    return good[:n]


def kill_and_go_on(path, out):
    """Ends runs at moments of chance, and lets the last one finish. Returns how many were ended."""
    draw, killed = random.Random(9), 0
    while killed < KILLS:
        options = ["--resume"] if os.path.exists(out + ".hearth") else []
        p = subprocess.Popen([BIN, "batch", path, "-o", out, *options, *MODELS], stderr=subprocess.DEVNULL)
        had = os.path.getsize(out) if options else 0
        more = draw.randrange(1, 60000)
        while p.poll() is None and (not os.path.exists(out) or os.path.getsize(out) < had + more):
            time.sleep(0.001)
        if p.poll() is not None:
            break
        p.kill()
        p.wait()
        killed += 1
    status = run("batch", path, "-o", out, "--resume", *MODELS)[0] if os.path.exists(out + ".hearth") else 3
    assert status == 3, status
    return killed


def kill_everywhere(folder, n, n_kills):
    """Lines half of which fail, with a file of errors. Returns how many runs were ended."""
    draw, paths = random.Random(13), [os.path.join(folder, name) for name in ("good", "errors", "good2", "errors2")]
    path = write(folder, [line(f"k{i}", "/v1/completions", {"prompt": f"Story {i}:", "max_tokens": 3} if i % 2 else {"prompt": i}) for i in range(n)])
    assert go_on_until_killed(path, paths[:2], None) == 3
    wanted, ends, n_ended = read(*paths[:2]), set(), 0
    for data in wanted:
        at = 0
        for text in data.splitlines(keepends=True):
            ends |= {at + draw.randrange(1, len(text)), at + len(text)}
            at += len(text)
    for limit in sorted(ends):
        n_ended += go_on_until_killed(path, paths[2:], limit) < 0
    assert go_on_until_killed(path, paths[2:], None) == 3 and read(*paths[2:]) == wanted
    for name in paths[2:]:
        os.remove(name)
    for _ in range(n_kills):
        options = ["--resume"] if os.path.exists(paths[2] + ".hearth") and os.path.getsize(paths[2] + ".hearth") == 64 else []
        p = subprocess.Popen([BIN, "batch", path, "-o", paths[2], "--errors", paths[3], *options], stderr=subprocess.DEVNULL)
        time.sleep(draw.uniform(0, 0.06))
        n_ended += p.poll() is None
        p.kill()
        if p.wait() == 3:  # it had ended
            assert read(*paths[2:]) == wanted
            os.remove(paths[2])
    assert go_on_until_killed(path, paths[2:], None) == 3 and read(*paths[2:]) == wanted
    return n_ended


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    wanted = requests(n)
    with tempfile.TemporaryDirectory() as d:
        path, out, again = write(d, [text for _, text, _ in wanted]), os.path.join(d, "out.jsonl"), os.path.join(d, "again.jsonl")
        status, _, err = run("batch", path, "-o", out, *MODELS)
        rows = answers(out)
        assert status == 3 and len(rows) == n, (status, len(rows), err)
        n_bad = n_failed = 0
        with Hearth(*MODELS) as h:
            for row, (custom_id, text, request) in zip(rows, wanted):
                got = row["response"]
                if request is None:
                    assert got["status_code"] == 400 and got["body"]["error"]["message"], (text, row)
                    n_bad += 1
                    continue
                code, _, body = h.post(*request)
                assert row["custom_id"] == custom_id and got["status_code"] == code, (request, row, body)
                assert plain(got["body"]) == plain(body), (request, got["body"], body)
                n_failed += code >= 300
        killed = kill_and_go_on(path, again)
        with open(out, encoding="utf-8") as a, open(again, encoding="utf-8") as b:
            undisturbed, gone_on = ([json.loads(t) for t in f] for f in (a, b))
        assert [r["custom_id"] for r in gone_on] == [r["custom_id"] for r in undisturbed]  # so each is there once
        assert plain(gone_on) == plain(undisturbed)
        everywhere = kill_everywhere(d, n // 2, n)
    print(f"{n} lines over {len(routes())} routes: {n_bad} could not run, {n_failed} were refused, the bodies are those over HTTP; "
          f"{killed} times and, of {n // 2} lines with a file of errors, {everywhere} times ended and gone on with")


if __name__ == "__main__":
    main()
