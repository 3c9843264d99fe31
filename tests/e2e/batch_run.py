#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`hearth batch` on 1,000 lines over every POST route but the operators', bad lines among them: the bodies are those of the
same requests over HTTP but for ids and times; a run that kill -9 ends again and again goes on, with each custom_id once and
the bytes of a run that nobody disturbed.

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
from test_batch import BODIES, MODELS, answers, line, plain, write

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
    print(f"{n} lines over {len(routes())} routes: {n_bad} could not run, {n_failed} were refused, the bodies are those over HTTP; "
          f"{killed} times ended by kill -9 and gone on with")


if __name__ == "__main__":
    main()
