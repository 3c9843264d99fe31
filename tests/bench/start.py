#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Starting and standing still: seconds from exec to the first token over HTTP, memory then, CPU when idle.

    start.py [-n 5] [--idle 10] [--json FILE] -- build/hearth serve --model DIR --port 8091 ...
    start.py --port 8080 -- OTHER-SERVER ...       a peer: the port it will listen on

Each of n runs starts the command, asks POST /v1/completions for one token of an eight-token prompt
every 2 ms until it is answered, notes the resident set, and ends the process with SIGTERM. The last run's
server is then left alone for --idle seconds and its CPU time read. --max-seconds, --max-mb and
--max-idle (share of a core) give exit status 1 when exceeded. The model's file should be in the page cache:
the first run is for warmth and not counted. Standard library only; linux.
"""
import argparse
import http.client
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time

from compare_llama import commit, machine


def memory(pid):
    """Megabytes (10^6) by kind."""
    found = {}
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        for line in f:
            if line.startswith(("VmHWM", "VmRSS", "RssAnon", "RssFile")):
                key, value = line.split(":")
                found[key] = int(value.split()[0]) * 1024 / 1e6
    return found


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(port, body):
    """The status of one request, or 0 when nothing listens."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        c.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        answer = c.getresponse()
        answer.read()
        return answer.status
    except OSError:
        return 0
    finally:
        c.close()


def start(a):
    """(process, seconds to the first token, seconds to the first answer of any kind)"""
    body = json.dumps({"model": a.model, "prompt": list(range(300, 308)), "max_tokens": 1, "temperature": 0,
                       "ignore_eos": True})
    begin = time.perf_counter()
    p = subprocess.Popen(a.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    listening = None
    while True:
        status = ask(a.port, body)
        now = time.perf_counter() - begin
        if status and listening is None:
            listening = now
        if status == 200:
            return p, now, listening
        if p.poll() is not None or now > 120 or status in (400, 401, 404):
            p.kill()
            sys.exit(f"no token: status {status}, exit status {p.poll()}, after {now:.1f} s")
        time.sleep(0.002)


def stop(p):
    p.send_signal(signal.SIGTERM)
    try:
        p.wait(20)
    except subprocess.TimeoutExpired:
        p.kill()
        p.wait()


def idle_share(p, seconds):
    """CPU time over time, by the last run's server with nothing to do. The first second does not count."""
    time.sleep(1)
    cpu, begin = cpu_seconds(p.pid), time.perf_counter()
    time.sleep(seconds)
    return (cpu_seconds(p.pid) - cpu) / (time.perf_counter() - begin)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("-n", type=int, default=5)
    p.add_argument("--port", type=int, help="default: what follows --port in the command, else 8080")
    p.add_argument("--model", default="default", help="name to ask for")
    p.add_argument("--idle", type=float, default=10)
    p.add_argument("--max-seconds", type=float)
    p.add_argument("--max-mb", type=float, help="resident set at the first token, 10^6 bytes")
    p.add_argument("--max-idle", type=float)
    p.add_argument("--json")
    p.add_argument("command", nargs=argparse.REMAINDER)
    a = p.parse_args()
    a.command = a.command[1:] if a.command[:1] == ["--"] else a.command
    if not a.command:
        p.error("no command")
    if a.port is None:
        at = a.command.index("--port") if "--port" in a.command else -2
        a.port = int(a.command[at + 1]) if at >= 0 else 8080
    seconds, listening, sizes, share = [], [], [], None
    for i in range(a.n + 1):
        server, first, heard = start(a)
        if i:
            seconds.append(first)
            listening.append(heard)
            sizes.append(memory(server.pid))
        if i == a.n and a.idle:
            share = idle_share(server, a.idle)
        stop(server)
    rss = {k: round(statistics.median(m[k] for m in sizes), 1) for k in sizes[0]}
    row = {"first_token_s": round(statistics.median(seconds), 4), "min": round(min(seconds), 4),
           "max": round(max(seconds), 4), "first_answer_s": round(statistics.median(listening), 4),
           "memory_mb": rss, "idle_cpu": share if share is None else round(share, 5)}
    print(f"first token {row['first_token_s']:.3f} s after exec ({row['min']:.3f} to {row['max']:.3f}), first "
          f"answer {row['first_answer_s']:.3f} s; MB {rss}; idle "
          + ("not measured" if share is None else f"{share:.3%} of a core"))
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"kind": "start", "machine": machine(), "commit": commit(),
                       "command": shlex.join(sys.argv), "rows": [row]}, f, indent=1)
    return 1 if (a.max_seconds and row["first_token_s"] > a.max_seconds) or \
        (a.max_mb and rss["VmRSS"] > a.max_mb) or (a.max_idle and share and share > a.max_idle) else 0


if __name__ == "__main__":
    sys.exit(main())
