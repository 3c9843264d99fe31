#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Memory that runs out, reads that fail or are short, descriptors that are spent: never a crash, never a hang.

    test_fault.py --library failing.so [--model DIR] [--all] [--start N] [--request N] [--seed 1]

A start whose k-th allocation fails either succeeds or ends with a status that is not 0 and one line on
stderr. A request whose k-th allocation fails gets 200 or an error object of 500 or 503, and the server goes
on. Without --all: a few seconds, seeded draws of k; with it: every k of a start and of one request of each
kind, by hand. Standard library only.
"""
import argparse
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "e2e"))
from hearth_server import BIN, DEMO, Hearth  # noqa: E402

REQUESTS = [
    ("/v1/completions", {"prompt": ["Tom has", "Once"], "max_tokens": 4, "n": 2, "logprobs": 2, "echo": True,
                         "stop": ["zzz", "yyy"], "temperature": 0}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "What is 2+2?"}], "max_tokens": 4}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "stream": True}),
    ("/v1/responses", {"input": "Hi", "instructions": "Be nice", "max_output_tokens": 3}),
    ("/v1/messages", {"system": "Be nice", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}),
    ("/v1/completions", {"prompt": "Tom", "max_tokens": 20, "n": 2, "json_schema": {
        "type": "object", "required": ["a"], "additionalProperties": False, "properties": {
            "a": {"type": "string", "pattern": "^[a-z]{2,9}$"}, "b": {"type": "string", "format": "date-time"},
            "c": {"anyOf": [{"$ref": "#"}, {"enum": [1, "two", None]}]}}}}),
    ("/api/chat", {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "thinking": "Hm", "tool_calls": [
        {"function": {"name": "add", "arguments": {"a": 2}}}]}, {"role": "tool", "content": "5"}], "tools": [
            {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}],
                   "logprobs": True, "keep_alive": "5m", "options": {"temperature": 0, "num_predict": 4, "stop": ["zzz"], "num_ctx": 9}}),
    ("/api/generate", {"prompt": "Tom", "system": "Be nice", "stream": False, "format": "json", "options": {"num_predict": 4}}),
    ("/v1/embeddings", {"input": ["Tom", "Anna"]}), ("/tokenize", {"prompt": "Tom has a ball"}),
    ("/models/load", {"model": DEMO, "alias": "other", "wait": "drained"}),
    ("/v1/embeddings", {"model": "demo-embed", "input": "Tom"}), ("/v1/completions", {"model": "demo", "prompt": "Tom"}),
    ("/detokenize", {"tokens": [5, 6, 7]}), ("/apply-template", {"messages": [{"role": "user", "content": "Hi"}]})]


class Faults:
    def __init__(self, library, model):
        self.library, self.model, self.found, self.runs = library, model, [], 0
        self.texts = {}  # of answers that are always the same

    def environment(self, **kw):
        return dict(os.environ, LD_PRELOAD=self.library, **{k: str(v) for k, v in kw.items()})

    def note(self, what):
        self.found.append(what)
        print("FAULT", what, flush=True)

    # ---- starts -----------------------------------------------------------------------------------

    def command(self, **kw):
        """One start with a short generation: (status, stderr); judged."""
        p = subprocess.run([BIN, "generate", "--model", self.model, "--prompt", "Tom", "-n", "1", "--threads", "1"],
                           env=self.environment(**kw), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                           timeout=120, check=False)
        self.runs += 1
        text = p.stderr.decode(errors="replace").strip()
        if p.returncode < 0 or p.returncode > 2:
            self.note(f"generate {kw}: status {p.returncode}: {text[-200:]}")
        elif p.returncode and len(text.splitlines()) != 1:
            self.note(f"generate {kw}: status {p.returncode} with {len(text.splitlines())} lines: {text[:300]}")
        return p.returncode

    def count_start(self):
        with tempfile.NamedTemporaryFile() as f:
            assert self.command(FAIL_COUNT_FILE=f.name) == 0, "a start without faults"
            return int(open(f.name, encoding="ascii").read())

    def starts(self, ks):
        refused = 0
        for k in ks:
            try:
                refused += self.command(FAIL_ALLOC_AT=k) != 0
            except subprocess.TimeoutExpired:
                self.note(f"generate, allocation {k}: hangs")
        return refused

    def reads(self):
        if self.command(FAIL_READ="eio") == 0:
            self.note("every read fails, and the start succeeds")
        if self.command(FAIL_READ="short") != 0:
            self.note("short reads are not read on")

    # ---- requests ------------------------------------------------------------------------------------

    def server(self, body, **kw):
        """A request that names a model has it loaded on demand."""
        found = ["--models", os.path.dirname(DEMO)] if "model" in body and "wait" not in body else []
        return Hearth("--model", f"first={self.model}" if found else self.model, *found, "--threads", "1", "--parallel", "2",
                      "--log-format", "text", "--swap", "on", env=self.environment(FAIL_ARM_SIGNAL=1, **kw))

    def arm(self, h):
        """Counting begins: the signal has been taken once it is pending no more."""
        h.process.send_signal(signal.SIGURG)

        def taken():
            with open(f"/proc/{h.process.pid}/status", encoding="ascii") as f:
                pending = [int(l.split()[1], 16) for l in f if l.startswith("ShdPnd")]
            return not pending[0] >> (signal.SIGURG - 1) & 1
        h.wait_until(taken, 5, "armed")

    def judge(self, k, path, body, answer):
        status, head, data = answer
        if path == "/api/chat" and status == 200:
            lines = [json.loads(line) for line in data.splitlines()]
            text = "".join(line["message"]["content"] for line in lines if "message" in line)
            good = "error" in lines[-1] or (lines[-1].get("done") and text == self.texts.setdefault(path, text))
        elif body.get("stream") and status == 200:
            good = data.endswith(b"data: [DONE]\n\n") or b'"error"' in data
        elif status == 200:
            good = isinstance(json.loads(data), (dict, list))
        else:  # a file whose parsing had no memory counts as one that cannot be served
            statuses = (400, 404, 409, 500, 503) if path == "/models/load" else (500, 503)
            error = json.loads(data)["error"]
            good = status in statuses and (type(error) is str if path.startswith("/api/") else "message" in error)
        if not good:
            self.note(f"{path}, allocation {k}: {status} {data[:200]}")
        return status

    def request(self, k, path, body):
        """One request whose k-th allocation (of all threads) fails; then another that must be served."""
        statuses = None
        h = self.server(body, FAIL_ALLOC_AT=k)
        h.start()
        try:
            self.arm(h)
            try:
                statuses = self.judge(k, path, body, h.request("POST", path, json.dumps(body), {
                    "Content-Type": "application/json"}, timeout=20))
            except (OSError, http.client.HTTPException) as e:  # no memory for the connection or for an event: it closes
                if isinstance(e, TimeoutError):
                    self.note(f"{path}, allocation {k}: no answer")
                statuses = "closed"
            if h.process.poll() is None and not self.is_served(h, path, body):
                self.note(f"{path}, allocation {k}: the server serves no more")
        except (OSError, ValueError) as e:
            self.note(f"{path}, allocation {k}: {type(e).__name__}: {e}")
        status = h.stop()
        self.runs += 1
        if status != 0:
            self.note(f"{path}, allocation {k}: the server ended with {status}: {''.join(h.log[-3:])[-300:]}")
        return statuses

    def is_served(self, h, path, body):
        """One of three more is served: where the first needed fewer than k, it is one of these that fails."""
        if "model" in body:  # whichever it is, or the first: a load that has failed is not tried again at once
            path, body = REQUESTS[0]
        for _ in range(3):
            try:
                if h.request("POST", path, json.dumps(body), {"Content-Type": "application/json"}, timeout=20)[0] == 200:
                    return True
            except ConnectionError:
                pass
        return False

    def count_request(self, path, body):
        with tempfile.NamedTemporaryFile() as f:
            h = self.server(body, FAIL_COUNT_FILE=f.name)
            h.start()
            self.arm(h)
            h.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            assert h.stop() == 0
            return int(open(f.name, encoding="ascii").read())

    def accepts(self):
        with Hearth("--model", self.model, env=self.environment(FAIL_ACCEPT=2)) as h:
            if h.request("GET", "/version", timeout=30)[0] != 200:
                self.note("no connection is accepted after two that found no descriptor")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--library", required=True)
    p.add_argument("--model", default=DEMO)
    p.add_argument("--all", action="store_true")
    p.add_argument("--start", type=int, default=25, help="draws of k for a start")
    p.add_argument("--request", type=int, default=2, help="draws of k for each kind of request")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    rng = random.Random(a.seed)
    faults = Faults(os.path.abspath(a.library), a.model)
    n = faults.count_start()
    ks = range(1, n + 1) if a.all else sorted({rng.randrange(1, min(n, 200) if i % 2 else n) for i in range(a.start)})
    print(f"a start makes {n} allocations; {faults.starts(ks)} of {len(ks)} were refused", flush=True)
    faults.reads()
    faults.accepts()
    for path, body in REQUESTS:
        n = faults.count_request(path, body)
        ks = range(1, n + 1) if a.all else rng.sample(range(1, n + 1), min(a.request, n))
        seen = [faults.request(k, path, body) for k in ks]
        print(f"{path}: {n} allocations; answers {({s: seen.count(s) for s in set(seen)})}", flush=True)
    print(f"{faults.runs} runs, {len(faults.found)} faults (seed {a.seed})")
    sys.exit(1 if faults.found else 0)


if __name__ == "__main__":
    main()
