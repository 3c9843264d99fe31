#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Start, signals, drain, watchdog and command line of the server process."""
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

from hearth_server import BIN, DEMO, Hearth, chunks, run_cases, serve_on_socket

LONG = {"prompt": "Once upon a time", "max_tokens": 900, "ignore_eos": True, "temperature": 0, "stream": True}


def run(*args, env=None, timeout=30):
    return subprocess.run([BIN, *args], capture_output=True, text=True, check=False, timeout=timeout,
                          env=dict(os.environ, **(env or {})))


# ---- start ---------------------------------------------------------------------------------------

def test_port_taken():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        start = time.monotonic()
        r = run("serve", "--port", str(s.getsockname()[1]))
        assert r.returncode != 0 and time.monotonic() - start < 5, r
        assert len(r.stderr.strip().splitlines()) <= 2, r.stderr


def test_missing_model():
    r = run("serve", "--port", "0", "--model", "/nonexistent/model")
    assert r.returncode != 0 and "/nonexistent/model" in r.stderr, r


def test_memory_refused_with_the_sums():
    r = run("serve", "--port", "0", "--memory", "8M", "--ctx-size", "1024", "--parallel", "64")
    assert r.returncode != 0 and re.search(r"\d", r.stderr), r
    assert any(w in r.stderr.lower() for w in ("memory", "limit")), r.stderr


def test_bad_options():
    for args, word in [(["--threads", "-1"], "threads"), (["--numerics", "fast"], "exact"),
                       (["--nonsense"], "nonsense"), (["--port", "70000"], "65535")]:
        r = run("serve", *args)
        assert r.returncode != 0 and word in r.stderr, (args, r.stderr)


def test_precedence_and_print_config():
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as f:
        f.write("[compute]\nthreads = 1\nparallel = 5\n")
        f.flush()
        r = run("serve", "--config", f.name, "--threads", "3", "--print-config", env={"HEARTH_THREADS": "2"})
        assert r.returncode == 0 and re.search(r"^threads = 3", r.stdout, re.M), r
        assert re.search(r"^parallel = 5", r.stdout, re.M), r.stdout
        r = run("serve", "--config", f.name, "--print-config", env={"HEARTH_THREADS": "2"})
        assert re.search(r"^threads = 2", r.stdout, re.M)
        assert run("serve", "--config", f.name, "--check-config").returncode == 0


def test_version_and_help():
    assert re.match(r"hearth \d+\.\d+", run("--version").stdout)
    text = run("serve", "--help").stdout
    assert "--model" in text and "--ctx-size" in text


def test_healthcheck_command():
    with Hearth() as h:
        assert run("healthcheck", h.url + "/healthz").returncode == 0
    assert run("healthcheck", h.url + "/healthz").returncode != 0


def test_from_any_directory():
    with tempfile.TemporaryDirectory() as d:
        r = subprocess.run([BIN, "generate", "--prompt", "Once", "-n", "2"], cwd=d, capture_output=True,
                           text=True, check=False, timeout=60)
        assert r.returncode == 0 and r.stdout, r.stderr


def test_hub_cache():
    with tempfile.TemporaryDirectory() as home:
        repo = os.path.join(home, "hub", "models--some--demo")
        commit = "0123456789abcdef0123456789abcdef01234567"
        os.makedirs(os.path.join(repo, "refs"))
        os.makedirs(os.path.join(repo, "snapshots"))
        os.symlink(DEMO, os.path.join(repo, "snapshots", commit))
        with open(os.path.join(repo, "refs", "main"), "w", encoding="ascii") as f:
            f.write(commit)
        with Hearth("--model", "some/demo", env={"HF_HOME": home}) as h:
            assert h.get("/v1/models")[2]["data"][0]["id"] == "some/demo"
        r = run("serve", "--port", "0", "--model", "some/none", env={"HF_HOME": home})
        assert r.returncode != 0 and "some/none" in r.stderr


# ---- signals and drain -------------------------------------------------------------------------------

def test_sigterm_idle():
    h = Hearth()
    h.start()
    start = time.monotonic()
    assert h.stop() == 0
    assert time.monotonic() - start < 3


def stream_all(h, body, results, i):
    try:
        results[i] = len(chunks(h.stream("/v1/completions", body)))
    except Exception as e:  # noqa: BLE001 - the case reports it
        results[i] = repr(e)


def test_drain_finishes_streams():
    with Hearth("--parallel", "8", "--drain-timeout-ms", "60000") as h:
        body = dict(LONG, max_tokens=1900)
        results = [None] * 8
        threads = [threading.Thread(target=stream_all, args=(h, body, results, i)) for i in range(8)]
        for t in threads:
            t.start()
        h.wait_until(lambda: h.slots()["running"] == 8, 20, "all streams running")
        h.process.send_signal(signal.SIGTERM)
        for t in threads:
            t.join(60)
        assert all(isinstance(r, int) and r > 10 for r in results), results
        assert h.process.wait(30) == 0


def test_drain_refuses_new_and_is_not_ready():
    with Hearth("--drain-delay-ms", "1500", "--drain-timeout-ms", "60000") as h:
        results = [None]
        t = threading.Thread(target=stream_all, args=(h, LONG, results, 0))
        t.start()
        h.wait_until(lambda: h.slots()["running"] == 1, 20, "running")
        h.process.send_signal(signal.SIGTERM)
        h.wait_until(lambda: h.get("/readyz")[0] == 503, 1.4, "not ready")
        assert h.get("/healthz")[0] == 200

        def refused():
            try:
                socket.create_connection((h.host, h.port), timeout=5).close()
                return False
            except ConnectionRefusedError:
                return True
        h.wait_until(refused, 10, "new connections refused")
        t.join(60)
        assert isinstance(results[0], int), results


def test_drain_deadline():
    with Hearth("--drain-timeout-ms", "300") as h:
        events = []
        def read():
            for _, data in h.stream("/v1/completions", dict(LONG, n=4)):
                events.append(data)
        t = threading.Thread(target=read)
        t.start()
        h.wait_until(lambda: len(events) > 3, 20, "streaming")
        h.process.send_signal(signal.SIGTERM)
        t.join(20)
        assert events[-1] == "[DONE]"
        ended = [json.loads(e) for e in events[:-1]]
        cut = any("error" in e for e in ended)
        finished = sum(bool(e.get("choices") and e["choices"][0]["finish_reason"]) for e in ended)
        assert cut or finished == 4, events[-3:]


def test_second_signal():
    h = Hearth("--drain-timeout-ms", "60000")
    h.start()
    t = threading.Thread(target=stream_all, args=(h, dict(LONG, n=4), [None], 0), daemon=True)
    t.start()
    h.wait_until(lambda: h.slots()["running"] > 0, 20, "running")
    h.process.send_signal(signal.SIGTERM)
    time.sleep(0.05)
    h.process.send_signal(signal.SIGTERM)
    h.process.wait(5)


def test_sighup_and_sigpipe():
    with Hearth() as h:
        h.process.send_signal(signal.SIGHUP)
        h.process.send_signal(signal.SIGPIPE)
        assert h.post("/v1/completions", {"prompt": "Hello", "max_tokens": 2})[0] == 200


# ---- surroundings -------------------------------------------------------------------------------------

def test_no_home_read_only_directory():
    env = {k: "" for k in ("HOME", "XDG_CACHE_HOME", "HF_HOME", "TMPDIR")}
    with Hearth(env=env) as h:
        assert h.post("/v1/completions", {"prompt": "Hello", "max_tokens": 2})[0] == 200


def test_idle_uses_no_cpu():
    with Hearth() as h:
        h.post("/v1/completions", {"prompt": "Hello", "max_tokens": 8})
        time.sleep(0.3)

        def ticks():
            with open(f"/proc/{h.process.pid}/stat", encoding="ascii") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            return int(fields[11]) + int(fields[12])
        before = ticks()
        time.sleep(2)
        used = (ticks() - before) / os.sysconf("SC_CLK_TCK") / 2
        assert used < 0.02, f"{used:.1%} of a core while idle"


def test_unix_socket():
    with serve_on_socket() as path, socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        s.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"200" in s.recv(65536)


def test_watchdog():
    with Hearth("--watchdog-ms", "300", "--debug-hooks") as h:
        assert h.get("/healthz")[0] == 200
        h.process.send_signal(signal.SIGUSR1)
        h.wait_until(lambda: any("paused" in line for line in h.log), 5, "engine paused")
        t = threading.Thread(target=lambda: h.post("/v1/completions", {"prompt": "Hello", "max_tokens": 2}))
        t.start()
        h.wait_until(lambda: h.get("/healthz")[0] == 503, 5, "liveness failed")
        h.process.send_signal(signal.SIGUSR1)
        t.join(20)
        h.wait_until(lambda: h.get("/healthz")[0] == 200, 5, "liveness recovered")


if __name__ == "__main__":
    run_cases(globals())
