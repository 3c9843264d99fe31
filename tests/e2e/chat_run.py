#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""By hand: `hearth chat` with a model of SmolLM2-135M's shape: Ctrl-C at every stage, resizing, 500 hostile strings,
cached tokens, start and memory. Prints what it measures; about a minute.

    tests/e2e/chat_run.py [TEST...]
"""
import os
import re
import select
import signal
import statistics
import subprocess
import sys
import time

from hearth_server import BIN, Hearth, run_cases
from test_chat import Mock, Terminal, check_hostile, hostile
from tiny_models import random_model

MODEL = os.environ.get("CHAT_MODEL")


def seconds_until(t, text):
    begin = time.monotonic()
    t.wait(text)
    return time.monotonic() - begin


def test_ctrl_c_while_loading():
    t = Terminal("--model", MODEL)
    time.sleep(0.15)
    t.send(b"\x03")
    assert t.status(b"") == 130


def test_ctrl_c_in_process():
    t = Terminal("--model", MODEL, "--threads", "1")
    t.wait("> ")
    t.send("word " * 1500 + "\r")  # read for seconds: no text has come
    t.wait("reading ")
    t.send(b"\x03")
    print(f"  while reading: {1000 * seconds_until(t, '[stopped]'):.0f} ms")
    t.wait("> ")
    t.send("hello\r")
    t.wait("\x1b[36m")
    t.wait(" ")
    t.send(b"\x03")
    print(f"  while writing: {1000 * seconds_until(t, '[stopped]'):.0f} ms")
    t.wait("> ")
    t.send("\x1b[200~half a paste")
    time.sleep(0.2)
    t.send(b"\x03")
    t.wait("> ")
    t.ask("one\\", ". ")
    t.send(b"\x03")
    t.wait("> ")
    t.ask("/undo")
    t.send(f"/model {MODEL}\r")
    t.wait("/model")
    time.sleep(0.1)
    t.send(b"\x03")
    t.wait("stopped; ")
    t.wait("> ")
    assert t.status() == 0


def test_ctrl_c_over_http():
    with Hearth("--model", MODEL, "--threads", "1") as h:
        t = Terminal("--url", h.url)
        t.wait("> ")
        for text, stage in (("word " * 1500, "reading "), ("hello", "\x1b[36m")):
            t.send(text + "\r")
            t.wait(stage)
            h.wait_until(lambda: h.metrics()["hearth_sequences_running"] == 1, 20, "a running request")
            t.send(b"\x03")
            seconds = h.wait_until(lambda: h.metrics()["hearth_sequences_running"] == 0, 20, "a free slot")
            print(f"  the slot is free after {1000 * seconds:.0f} ms")
            t.wait("[stopped]")
            t.wait("> ")
        assert t.status() == 0


def test_ctrl_c_before_the_server_answers():
    with Mock(["wait"]) as mock:
        p = subprocess.Popen([BIN, "chat", "--url", mock.url, "-p", "x"], stdin=subprocess.DEVNULL)
        mock.heard(1)
        p.send_signal(signal.SIGINT)
        assert p.wait(5) == 130


def test_suspend():
    with Mock() as mock:
        t = Terminal(command=["bash", "--norc", "-i"], env={"PS1": "shell$ "})
        t.wait("shell$ ")
        t.send(f"{BIN} chat --url {mock.url}\r")
        t.wait("2004h> ")
        t.send("half")
        t.wait("half")
        t.send("\x1a")
        t.wait("shell$ ")
        t.send("fg\r")
        t.wait("> half")
        t.send(" more\r")
        assert mock.heard(1) == "half more", mock.requests
        t.wait("2004h> ")
        t.send("\x04")
        t.wait("shell$ ")
        assert t.status(b"exit\r") == 0


def test_resize():
    with Mock(["word " * 100]) as mock:
        t = Terminal("--url", mock.url, columns=80)
        t.wait("> ")
        t.send("a question " * 10)
        for columns in (40, 20, 120):
            t.resize(columns)
            os.kill(t.process.pid, signal.SIGWINCH)
            time.sleep(0.1)
        t.resize(30)
        t.send("\r")
        assert mock.heard(1) == "a question " * 10
        t.wait("\x1b[36m")
        rows = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", t.wait("2004h> ").decode()).split("\r\n")
        rows = [row for row in rows if row.startswith("word")]
        assert rows and max(map(len, rows)) < 30, rows
        assert t.status() == 0


def test_500_hostile_strings():
    check_hostile(hostile(500))


def test_cached_tokens():
    """The demo model: a random one's answers are not tokenized again as they were generated."""
    t = Terminal("--temperature", "0", "--timings")
    t.wait("> ")
    read = written = 0
    for i in range(20):
        line = re.search(r"\[(\d+) tokens read \((\d+) cached\).*, (\d+) written", t.ask(f"What is 2+{i}?"))
        n, cached, made = map(int, line.groups())
        print(f"  {cached} of {read + written} earlier tokens cached")
        assert cached >= 0.9 * (read + written), line.group()
        read, written = n, made
    assert t.status() == 0


def rss_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1))


def test_start_and_memory():
    times, memory = [], []
    for _ in range(11):
        begin = time.monotonic()
        t = Terminal()
        t.wait("> ")
        times.append(time.monotonic() - begin)
        t.ask("hello")
        memory.append(rss_kib(t.process.pid))
        assert t.status() == 0
    r, w = os.pipe()
    p = subprocess.Popen([BIN, "generate", "--chat", "--prompt", "hello", "-n", "2000"], stdout=w, stderr=w)
    generate, until = 0, time.monotonic() + 5
    while p.poll() is None and time.monotonic() < until:
        try:
            generate = max(generate, rss_kib(p.pid))
        except (AttributeError, FileNotFoundError):
            break
    select.select([r], [], [], 5)
    p.wait()
    print(f"  first prompt after {1000 * statistics.median(times):.0f} ms; {statistics.median(memory)} KiB at most, "
          f"generate {generate} KiB")
    assert statistics.median(times) < 0.15


if __name__ == "__main__":
    with random_model("smollm2-135m", MODEL) as MODEL:
        try:
            run_cases(globals())
        finally:
            sys.stdout.flush()
