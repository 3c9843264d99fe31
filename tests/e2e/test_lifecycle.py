#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The process: start, loading, signals, drain, watchdog, notification, inherited sockets."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from hearth_server import BIN, DEMO, Hearth, chunks, make_certificate, read_all, run, run_cases, start_request
from tiny_models import demo_without

BODY = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}
SLOW = bool(os.environ.get("HEARTH_SLOW"))


def open_stream(h, max_tokens=100000, **more):
    """A stream under way: (connection, response), the first event read."""
    c = h.connect(60)
    c.request("POST", "/v1/completions", json.dumps(dict(
        {"prompt": "a", "max_tokens": max_tokens, "ignore_eos": True, "stream": True}, **more)),
        {"Content-Type": "application/json"})
    r = c.getresponse()
    assert r.status == 200, (r.status, r.read(300))
    assert r.readline().startswith(b"data: ")
    return c, r


def can_connect(h):
    try:
        socket.create_connection((h.host, h.port), timeout=2).close()
        return True
    except OSError:
        return False


def wait_for_end(h):
    """The exit status of a server that has already been asked to end."""
    return h.stop(how=0)


# ---- start ----------------------------------------------------------------------------------------------

def test_01_missing_model():
    status, _, err = run("serve", "--port", "0", "--model", "/nonexistent/model")
    assert status != 0 and "/nonexistent/model" in err, (status, err)
    with tempfile.TemporaryDirectory() as empty:
        status, _, err = run("serve", "--port", "0", "--model", empty)
        assert status != 0 and "config.json" in err and "ready on" not in err, (status, err)


def test_14_port_taken_and_address_absent():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        status, _, err = run("serve", "--port", str(port))
        assert status != 0 and str(port) in err, (status, err)
        assert len(err.strip().splitlines()) <= 2, err
    status, _, err = run("serve", "--port", "0", "--host", "192.0.2.1", "--allow-public-without-key")
    assert status != 0 and "192.0.2.1" in err, (status, err)


def test_15_requests_while_loading():
    """The socket listens before the model is there."""
    h = Hearth("--debug-hold-load", "on", wait_ready=False)
    h.start()
    status, head, body = h.post("/v1/completions", BODY)
    assert status == 503 and body["error"]["code"] == "model_loading", (status, body)
    assert 1 <= int(head["retry-after"]) <= 60
    assert h.get("/healthz")[0] == 200 and h.get("/livez")[0] == 200
    assert h.get("/readyz")[0] == 503 and h.get("/health")[0] == 503
    assert h.get("/metrics")[0] == 200 and h.get("/version")[0] == 200
    assert h.stop() == 0


def test_13_memory_refused_with_the_sums():
    status, _, err = run("serve", "--port", "0", "--memory", "8M", "--ctx-size", "1024", "--parallel", "64")
    assert status != 0 and re.search(r"\d", err) and ("memory" in err.lower() or "limit" in err.lower()), err


def test_orphans_of_a_container_are_reaped():
    """As process 1 of a container the server gets the orphans of everybody in it."""
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        print("  (no namespace of processes can be made here: this needs root)")
        return
    orphans = 'for i in 0 0.1 0.5; do (sleep $i &); done; exec "$@"'
    late = "import os, sys, time; time.sleep(0.3); os.execv(sys.argv[1], sys.argv[1:])"  # some have ended before
    with Hearth(command=[*unshare, "sh", "-c", orphans, "sh", sys.executable, "-c", late, BIN, "serve", "--port", "0"]) as h:
        def children(pid):
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
                return f.read().split()
        first = children(h.process.pid)
        assert len(first) == 1, first
        h.wait_until(lambda: not children(first[0]), 10, "no child is left")
        assert h.get("/healthz")[0] == 200
        os.kill(int(first[0]), signal.SIGTERM)
        assert h.process.wait(60) == 0


def test_a_start_without_descriptors_says_what_to_do():
    seen = set()
    for n in range(4, 40):
        try:
            with Hearth(command=["prlimit", f"--nofile={n}", BIN, "serve", "--port", "0"]):
                pass
            break
        except AssertionError as e:
            errors = [line for line in str(e).splitlines() if '"error"' in line]
        assert len(errors) == 1 and "Too many open files; raise the limit of open files" in errors[0], (n, errors)
        seen.add(json.loads(errors[0])["message"].split(":")[0])
    assert "the HTTP daemon cannot start" in seen and n > 5, (n, seen)


def test_configuration_errors():
    for args, word in [(["--threads", "-1"], "threads"), (["--numerics", "fast"], "exact"),
                       (["--nonsense"], "nonsense"), (["--port", "70000"], "65535")]:
        status, _, err = run("serve", *args)
        assert status != 0 and word in err, (args, err)
    status, out, err = run("serve", "--port", "99999")
    assert status == 2 and "0 to 65535" in err
    status, out, _ = run("--print-config", "--port", "7")
    assert status == 0 and "port = 7" in out
    status, out, _ = run("--check-config")
    assert status == 0
    status, out, _ = run("--version")
    assert status == 0 and re.match(r"hearth \d+\.\d+\.\d+ \(commit [\w.+-]+\)\n", out)
    status, out, _ = run("--help")
    assert status == 0 and "--model" in out and "healthcheck" in out
    status, out, _ = run("serve", "--help")
    assert status == 0 and "--model" in out and "--ctx-size" in out
    assert run(HEARTH_PARALLEL="none")[0] == 2


def test_options_precedence():
    """Flag over environment over file over default."""
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as f:
        f.write("[compute]\nthreads = 1\nparallel = 5\n")
        f.flush()
        def shown(*args, **env):
            status, out, err = run("serve", "--config", f.name, *args, "--print-config", **env)
            assert status == 0, err
            return out
        out = shown("--threads", "3", HEARTH_THREADS="2")
        assert re.search(r"^threads = 3", out, re.M) and re.search(r"^parallel = 5", out, re.M), out
        assert re.search(r"^threads = 2", shown(HEARTH_THREADS="2"), re.M)
        assert re.search(r"^threads = 1", shown(), re.M)
        assert run("serve", "--config", f.name, "--check-config")[0] == 0


def test_59_public_bind_without_key():
    status, _, err = run("serve", "--port", "0", "--host", "0.0.0.0")
    assert status == 2 and "--allow-public-without-key" in err, (status, err)
    for host in ("256.1.1.1", "127.0.0.1:8080", "[::1]"):  # no address: a key would not help
        for command in (["serve", "--port", "0"], ["serve", "--check-config"]):
            status, _, err = run(*command, "--host", host)
            assert status == 1 and f"host '{host}': " in err and "key" not in err, (command, host, status, err)
    with Hearth("--host", "0.0.0.0", "--allow-public-without-key"):
        pass
    with Hearth("--host", "0.0.0.0", env={"HEARTH_API_KEY": "k"}) as h:
        assert h.get("/v1/models")[0] == 401
        assert h.get("/v1/models", {"Authorization": "Bearer k"})[0] == 200


def test_12_no_home_no_temporary_directory():
    for tmp in ("", "/nonexistent"):
        with Hearth(env={"HOME": "", "TMPDIR": tmp, "XDG_CACHE_HOME": "", "HF_HOME": ""}) as h:
            assert h.post("/v1/completions", BODY)[0] == 200


def test_12_from_any_directory():
    with tempfile.TemporaryDirectory() as d:
        os.chmod(d, 0o500)
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
        status, _, err = run("serve", "--port", "0", "--model", "some/none", HF_HOME=home)
        assert status != 0 and "some/none" in err


def test_12_any_user():
    """A user id that no file mentions, no home, no temporary directory, no environment but the path."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return
    command = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "env", "-i", BIN]
    if subprocess.run([*command, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                      check=False).returncode:
        return  # that user cannot reach the program
    with Hearth(command=[*command, "serve", "--port", "0"]) as h:
        assert h.post("/v1/completions", BODY)[0] == 200


# ---- signals and drain -------------------------------------------------------------------------------------

def test_78_sigterm_while_idle():
    """The end waits for no drain time."""
    for how in (signal.SIGTERM, signal.SIGINT):
        h = Hearth("--drain-timeout-ms", "3600000")
        h.start()
        assert h.stop(how) == 0


def test_79_drain_lets_streams_end():
    """Readiness falls at once, new connections are refused, all that runs or waits ends well."""
    h = Hearth("--parallel", "2", "--metrics-port", "0", "--max-queue", "64", "--drain-timeout-ms", "60000",
               "--debug-hooks", "on")
    h.start()
    kept = h.connect()  # an idle kept-alive connection
    kept.request("GET", "/version")
    kept.getresponse().read()
    results, n_tokens = [], 200 if SLOW else 600

    def client():
        body = dict(BODY, max_tokens=n_tokens, ignore_eos=True, stream=True, stream_options={"include_usage": True})
        events = list(h.stream("/v1/completions", body))
        usage = json.loads(events[-2][1])["usage"] if len(events) > 2 else None
        results.append((events[-1][1], usage and usage["completion_tokens"]))

    threads = [threading.Thread(target=client) for _ in range(16)]
    h.pause_engine()  # all requests are there before anything is answered
    for t in threads:
        t.start()
    h.wait_until(lambda: h.metrics()["hearth_sequences_waiting"] == 16, 30, "all requests are queued")
    h.resume_engine()
    h.wait_until(lambda: h.metrics()["hearth_generated_tokens_total"] > 0, 10)
    h.process.send_signal(signal.SIGTERM)
    h.wait_log("draining", 5)
    assert h.admin().get("/readyz")[0] == 503
    h.wait_until(lambda: not can_connect(h), 5, "new connections are refused")
    for t in threads:
        t.join(60)
    assert results == [("[DONE]", n_tokens)] * 16, results
    assert wait_for_end(h) == 0


def test_79_drain_delay():
    """Within the delay new requests are still served, with Connection: close; then connections are refused, and
    what has run on meanwhile ends well."""
    h = Hearth("--drain-delay-ms", "3600000")
    h.start()
    h.process.send_signal(signal.SIGTERM)
    h.wait_log("draining")
    status, head, _ = h.post("/v1/completions", BODY)
    assert status == 200 and head["connection"] == "close"
    assert h.get("/readyz")[0] == 503 and h.get("/healthz")[0] == 200
    assert h.stop() == 128 + signal.SIGTERM  # a second signal waits for nothing
    h = Hearth("--parallel", "6", "--drain-delay-ms", "200", "--drain-timeout-ms", "60000")
    h.start()
    c, r = open_stream(h, max_tokens=300 if SLOW else 1900, n=4)
    h.process.send_signal(signal.SIGTERM)
    h.wait_until(lambda: not can_connect(h), what="new connections are refused")
    assert r.read().endswith(b"data: [DONE]\n\n")
    c.close()
    assert wait_for_end(h) == 0


def test_79_drain_ends_unfinished_requests():
    """Heads and bodies that are not complete hold no drain until its end."""
    h = Hearth("--drain-timeout-ms", "3600000", "--header-timeout-ms", "600000", "--body-timeout-ms", "600000")
    h.start()
    unfinished = (b"", b"POST /v1/comp", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX: ",
                  b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  b"Content-Length: 100\r\n\r\n{")
    sockets = []
    for data in unfinished:
        s = socket.create_connection((h.host, h.port), timeout=60)
        s.sendall(data)
        sockets.append(s)
    h.wait_until(lambda: h.metrics()["hearth_http_requests_open"] >= 3, what="the heads have begun")
    h.process.send_signal(signal.SIGTERM)
    answers = [s.recv(1000) for s in sockets]
    assert wait_for_end(h) == 0
    assert b" 503 " in answers[2] and b" 503 " in answers[3] and b"shutting_down" in answers[3], answers


def test_80_drain_time_over_in_the_middle():
    """Streams that run are cut by the drain time with an error event, or have all ended."""
    h = Hearth("--drain-timeout-ms", "300")
    h.start()
    c, r = open_stream(h, max_tokens=900, n=4)
    h.process.send_signal(signal.SIGTERM)
    lines = [l for l in r.read().decode().split("\n\n") if l.startswith("data: ")]
    c.close()
    assert lines[-1] == "data: [DONE]", lines[-3:]
    ended = [json.loads(l[6:]) for l in lines[:-1]]
    finished = sum(bool(e.get("choices") and e["choices"][0]["finish_reason"]) for e in ended)
    assert any("error" in e for e in ended) or finished == 4, lines[-3:]
    assert wait_for_end(h) == 0


def test_80_drain_time_over():
    """What still runs ends with an error event, what waits with 503, and the exit is clean."""
    h = Hearth("--parallel", "1", "--drain-timeout-ms", "300", "--queue-timeout-ms", "600000", "--debug-hooks", "on")
    h.start()
    c, r = h.hold_running(lambda: open_stream(h), 1)  # nothing can end in time
    waiting = []
    t = threading.Thread(target=lambda: waiting.append(h.post("/v1/completions", BODY)))
    t.start()
    h.wait_until(lambda: h.metrics()["hearth_sequences_waiting"] == 1, 5)
    h.process.send_signal(signal.SIGTERM)
    rest = r.read()
    assert b'"error"' in rest and b"shutting_down" in rest and rest.endswith(b"data: [DONE]\n\n"), rest[-300:]
    t.join()
    assert waiting[0][0] == 503 and waiting[0][2]["error"]["code"] == "shutting_down", waiting
    assert wait_for_end(h) == 0, h.log[-5:]


def test_80_shutdown_with_readers_that_do_not_read():
    h = Hearth("--parallel", "2", "--drain-timeout-ms", "300")
    h.start()
    held = []
    for _ in range(2):
        s = h.open_socket(receive_buffer=4096)
        data = json.dumps({"prompt": "a", "max_tokens": 100000, "ignore_eos": True, "stream": True, "logprobs": 5}).encode()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        held.append(s)
    h.wait_until(lambda: h.metrics()["hearth_sequences_running"] == 2, 10, "both have begun")
    assert h.stop() == 0, h.log[-5:]
    for s in held:
        s.close()


def test_81_second_signal_ends_at_once():
    h = Hearth("--drain-timeout-ms", "3600000", "--debug-hooks", "on")
    h.start()
    h.pause_engine()
    s = start_request(h, "/v1/completions", BODY)
    h.wait_until(lambda: h.slots()["waiting"] == 1, what="a request that waits")
    h.process.send_signal(signal.SIGTERM)
    h.wait_log("draining")
    assert h.stop(signal.SIGTERM) == 128 + signal.SIGTERM
    s.close()


def test_81_other_signals():
    with Hearth() as h:
        for sig in (signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1):
            h.process.send_signal(sig)
        assert h.post("/v1/completions", BODY)[0] == 200


def test_81_sighup_reads_the_keys_again():
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
        f.write("# comment\nfirst\n")
        f.flush()
        with Hearth("--api-key-file", f.name) as h:
            assert h.get("/v1/models", {"Authorization": "Bearer first"})[0] == 200
            f.seek(0)
            f.truncate()
            f.write("second\n")
            f.flush()
            h.process.send_signal(signal.SIGHUP)
            h.wait_until(lambda: h.get("/v1/models", {"Authorization": "Bearer second"})[0] == 200, 5)
            assert h.get("/v1/models", {"Authorization": "Bearer first"})[0] == 401


# ---- health ---------------------------------------------------------------------------------------------------

def test_82_stuck_engine_fails_liveness():
    with Hearth("--watchdog-ms", "500", "--debug-hooks") as h:
        assert h.get("/healthz")[0] == 200
        h.pause_engine()
        # nothing waits: a paused engine is not a fault
        h.holds_for(lambda: h.get("/healthz")[0] == 200, 0.8, "liveness while nothing waits")
        t = threading.Thread(target=lambda: h.post("/v1/completions", BODY))
        t.start()
        h.wait_until(lambda: h.get("/healthz")[0] == 503, what="liveness fails")
        h.wait_log("no engine step has finished")
        assert h.get("/readyz")[0] == 200
        h.resume_engine()
        h.wait_until(lambda: h.get("/healthz")[0] == 200, 5, "liveness comes back")
        t.join()


def test_idle_uses_no_cpu():
    with Hearth() as h:
        h.post("/v1/completions", BODY)
        h.wait_until(lambda: h.metrics()["hearth_sequences_running"] == 0)

        def cpu_seconds():
            total = 0
            for task in os.listdir(f"/proc/{h.process.pid}/task"):
                with open(f"/proc/{h.process.pid}/task/{task}/schedstat", encoding="ascii") as f:
                    total += int(f.read().split()[0])
            return total / 1e9
        for _ in range(20):  # something of the start may be in the first ones
            before, begin = cpu_seconds(), time.monotonic()
            time.sleep(0.5)  # the time that is measured
            used = (cpu_seconds() - before) / (time.monotonic() - begin)
            if used < 0.02:
                return
        raise AssertionError(f"{used:.1%} of a core while idle")


def test_unix_socket():
    with Hearth(unix_socket=True) as h:
        assert h.get("/readyz")[0] == 200
    h = Hearth("--debug-hold-load", "on", unix_socket=True, wait_ready=False)
    h.start()
    assert h.get("/healthz")[0] == 200
    assert h.stop() == 0  # while loading; stop() looks for the file
    with tempfile.TemporaryDirectory() as directory, demo_without("tokenizer.json") as model:
        path = os.path.join(directory, "hearth.sock")
        status, _, err = run("serve", "--model", model, "--unix-socket", path)
        assert status == 1 and "listening on" in err and not os.path.exists(path), (status, err)
        with Hearth(command=[BIN, "serve", "--unix-socket", path]) as h:  # and nobody else's is removed
            status, _, err = run("serve", "--unix-socket", path)
            assert status == 1 and "in use" in err and h.get("/healthz")[0] == 200, (status, err)


def test_names_that_are_not_utf8():
    with Hearth("--alias", os.fsdecode(b"caf\xe9,\xf0\x9f")) as h:
        assert [m["id"] for m in h.get("/v1/models")[2]["data"]][0] == "caf?"
        assert all(h.post("/v1/completions", dict(BODY, model=name))[0] == 200 for name in ("caf?", "??"))
        assert 'model="caf?"' in h.request("GET", "/metrics")[2].decode("utf-8")


def test_healthcheck_command():
    with Hearth() as h:
        assert run("healthcheck", h.url + "/readyz")[0] == 0
        assert run("--healthcheck", h.url + "/healthz")[0] == 0
        assert run("healthcheck", h.url)[0] == 0
        assert run("healthcheck", HEARTH_PORT=str(h.port))[0] == 0
        assert run("healthcheck", "/healthz", HEARTH_PORT=str(h.port))[0] == 0
        assert run("healthcheck", "/nothing", HEARTH_PORT=str(h.port))[0] == 1
        assert run("healthcheck", h.url + "/nothing")[0] == 1
    assert run("healthcheck", h.url)[0] == 1 and run("healthcheck", h.url + "/healthz")[0] == 1
    assert run("healthcheck", "ftp://x")[0] == 1
    status, _, err = run("healthcheck", "http://no such host")
    assert status == 1 and "Success" not in err, err
    with tempfile.TemporaryDirectory() as directory:
        files = make_certificate(directory)
        if not files:
            return
        tls = {"HEARTH_TLS_KEY_FILE": files[0], "HEARTH_TLS_CERT_FILE": files[1]}
        with Hearth("--metrics-port", "0", env=tls) as h:
            status, _, err = run("healthcheck", HEARTH_PORT=str(h.port), **tls)
            assert status == 1 and "--metrics-port" in err, err
            port = str(h.admin().port)
            assert run("healthcheck", HEARTH_PORT=str(h.port), HEARTH_METRICS_PORT=port, **tls)[0] == 0
            status, _, err = run("healthcheck", f"http://127.0.0.1:{h.port}/readyz")
            assert status == 1 and "no answer in HTTP" in err, err


def test_metrics_listener():
    """Health and metrics without a key on their own port, and nothing else there."""
    with Hearth("--metrics-port", "0", env={"HEARTH_API_KEY": "k"}) as h:
        admin = h.admin()
        assert all(admin.get(path)[0] == 200 for path in ("/metrics", "/readyz", "/healthz"))
        assert admin.get("/v1/models")[0] == 404 and admin.post("/v1/completions", {})[0] == 404
        assert h.get("/metrics")[0] == 401 and h.get("/readyz")[0] == 200


def test_generation_config():
    """Off: neutral sampling. On: what the model's own file says, unless a request says otherwise."""
    with demo_without("generation_config.json") as directory:
        path = os.path.join(directory, "generation_config.json")

        def write(**values):
            with open(path, "w", encoding="ascii") as f:
                json.dump(dict(values, eos_token_id=[2, 0]), f)

        write(do_sample=True, temperature=0.25, top_k=7, top_p=0.5)
        with Hearth("--model", directory) as h:
            assert h.get("/props")[2]["default_sampling"]["temperature"] == 1
        with Hearth("--model", directory, "--generation-config") as h:
            d = h.get("/props")[2]["default_sampling"]
            assert (d["temperature"], d["top_k"], d["top_p"], d["min_p"]) == (0.25, 7, 0.5, 0), d
        write(do_sample=False)
        with Hearth("--model", directory, "--generation-config") as h:
            plain = {"prompt": "Once upon a time", "max_tokens": 20, "seed": 5}
            greedy = h.post("/v1/completions", dict(plain, temperature=0))[2]["choices"][0]["text"]
            assert h.post("/v1/completions", plain)[2]["choices"][0]["text"] == greedy
            hot = h.post("/v1/completions", dict(plain, temperature=2))[2]["choices"][0]["text"]
            assert hot != greedy
        write(temperature=-1)
        status, _, err = run("serve", "--port", "0", "--model", directory, "--generation-config")
        assert status == 1 and "temperature" in err, (status, err)


def test_prompts_are_logged_only_when_asked():
    for args, wanted in (((), False), (("--log-prompts",), True)):
        with Hearth(*args) as h:
            h.post("/v1/completions", dict(BODY, prompt="xylophonequartz"))
        assert ("xylophonequartz" in "".join(h.log)) == wanted, args


def check_tls_versions(port):
    """1.2 and above only, and only with forward secrecy."""
    def handshake(*args):
        p = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", *args], input=b"", timeout=30,
                           capture_output=True)
        found = re.search(rb"New, (TLSv[\d.]+), Cipher is (\S+)", p.stdout)
        return found.groups() if found else None
    weak = ("-cipher", "ALL:@SECLEVEL=0")  # so that it is the server that refuses
    assert handshake("-tls1", *weak) is None and handshake("-tls1_1", *weak) is None
    assert handshake("-tls1_2", "-cipher", "AES128-GCM-SHA256:AES256-SHA:@SECLEVEL=0") is None
    version, cipher = handshake("-tls1_2")
    assert b"DHE" in cipher, cipher
    version, cipher = handshake("-tls1_3")
    assert version == b"TLSv1.3", (version, cipher)


def test_tls():
    with tempfile.TemporaryDirectory() as d:
        files = make_certificate(d)
        if not files:
            return
        key, cert = files
        with Hearth("--tls-key-file", key, "--tls-cert-file", cert) as h:
            assert h.scheme == "https" and h.post("/v1/completions", BODY)[0] == 200
            assert chunks(h.stream("/v1/completions", dict(BODY, stream=True)))
            check_tls_versions(h.port)
        with open(cert, "w", encoding="ascii") as f:
            f.write("nonsense")
        status, _, err = run("serve", "--port", "0", "--tls-key-file", key, "--tls-cert-file", cert)
        assert status == 1 and "certificate" in err, (status, err)


def test_start_next_to_a_busy_server():
    """The backlog of the socket file is full: the second server says so at once, and the first is not disturbed."""
    with tempfile.TemporaryDirectory() as d, socket.socket(socket.AF_UNIX) as live:
        path = os.path.join(d, "h.sock")
        live.bind(path)
        live.listen(0)
        waiting = []
        while True:  # until the backlog takes no more
            s = socket.socket(socket.AF_UNIX)
            s.setblocking(False)
            waiting.append(s)
            try:
                s.connect(path)
            except BlockingIOError:
                break
        status, _, err = run("serve", "--unix-socket", path)
        assert status == 1 and path in err and "in use" in err, (status, err)
        assert os.path.exists(path)
        for s in waiting:
            s.close()


# ---- systemd ----------------------------------------------------------------------------------------------------

def test_notification():
    path = os.path.join(tempfile.mkdtemp(), "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(path)
        s.settimeout(60)
        h = Hearth(env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "400000"})
        h.start()
        said = b""
        while not (b"WATCHDOG=1" in said and b"READY=1" in said):
            said += s.recv(1000) + b"\n"
        assert b"STATUS=Serving" in said
        h.process.send_signal(signal.SIGTERM)
        while b"STOPPING=1" not in said:
            said += s.recv(1000) + b"\n"
        assert wait_for_end(h) == 0


def refusal_on(listener, *args):
    """The log of a server that must not start on this socket."""
    h = Hearth(*args, listener=listener)
    h.launch()
    try:
        status = h.process.wait(60)
    except subprocess.TimeoutExpired:
        h.stop(signal.SIGKILL)
        raise AssertionError("the server started") from None
    h.stop()
    assert status > 0, status
    return "".join(h.log)


def test_socket_activation():
    """Two servers, one after the other, on one socket that stays open, as systemd's does."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
        for n in (1, 2):
            with Hearth(listener=s) as h:
                assert h.port == port, (h.port, port)
                assert h.get("/v1/models")[0] == 200, f"server {n}"
        # nor does a server take it away that cannot load its model
        assert "memory" in refusal_on(s, "--memory", "8M", "--ctx-size", "1024", "--parallel", "64")


def first_answer(listener, *args):
    """What a client gets that was there before the server, and the seconds from the server's start to then."""
    body = b'{"prompt": "Once", "max_tokens": 2}'
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    with socket.create_connection(listener.getsockname(), timeout=60) as early:
        early.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        start = time.monotonic()
        with Hearth(*args, listener=listener, wait_ready=False):
            answer = read_all(early)
            return answer, time.monotonic() - start


def test_socket_activation_holds_the_first_request():
    """The request that starts the server waits for the model; if that takes longer than a second it gets 503."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        for _ in range(2):
            answer, _ = first_answer(s)
            assert answer.startswith(b"HTTP/1.1 200 "), answer
        answer, seconds = first_answer(s, "--debug-hold-load", "on")
        assert answer.startswith(b"HTTP/1.1 503 ") and b"model_loading" in answer and seconds >= 1, (answer, seconds)


def test_socket_activation_serves_what_it_took():
    """A connection that is taken just before the end is served, not cut: its client could not choose the next server."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        h = Hearth("--drain-delay-ms", "0", listener=s)
        h.start()
        with socket.create_connection(s.getsockname(), timeout=60) as late:
            assert h.get("/readyz")[0] == 200  # connections are taken in order
            h.process.send_signal(signal.SIGTERM)
            h.wait_log("draining")
            late.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_all(late).startswith(b"HTTP/1.1 200 "), "cut"
        assert h.process.wait(timeout=60) == 0


def test_socket_activation_keeps_the_socket_file():
    with tempfile.TemporaryDirectory() as d, socket.socket(socket.AF_UNIX) as s:
        path = os.path.join(d, "hearth.sock")
        s.bind(path)
        s.listen()
        for args in (("--unix-socket", path), ()):
            with Hearth(*args, listener=s) as h:  # whatever the Host: no name leads to a path
                assert h.get("/v1/models", {"Host": "any.name"})[0] == 200, "refused"
            assert os.path.exists(path), "the server removed a socket file that is not its own"


def test_socket_activation_checks_the_real_address():
    """A public inherited socket needs a key as much as --host 0.0.0.0 does."""
    with socket.create_server(("0.0.0.0", 0)) as s:
        assert "--allow-public-without-key" in refusal_on(s)
        with Hearth("--allow-public-without-key", listener=s):
            pass
    with socket.create_server(("127.0.0.1", 0)) as s, Hearth("--host", "0.0.0.0", listener=s):
        pass  # --host is not used, so the server needs no key


def test_socket_activation_with_no_listening_socket():
    with socket.socket() as s:
        err = refusal_on(s)
        assert "LISTEN_FDS" in err and "descriptor 3" in err, err


# ---- what a start may find --------------------------------------------------------------------------------------

def test_standard_descriptors_closed():
    """Started without descriptors 0 to 2, the server opens no socket as one of them, which would get log lines."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "hearth.sock")
        p = subprocess.Popen(["sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh", BIN, "serve", "--unix-socket", path])
        try:
            deadline = time.monotonic() + 60
            while run("healthcheck", "unix:" + path)[0]:
                assert p.poll() is None and time.monotonic() < deadline, "the server does not become ready"
                time.sleep(0.02)
            found = [os.readlink(f"/proc/{p.pid}/fd/{fd}") for fd in range(3)]
            assert found == ["/dev/null"] * 3, found
        finally:
            p.send_signal(signal.SIGTERM)
            assert p.wait(60) == 0


def exposed(h):
    return [l for l in h.log if "warning" in l and "readable by every user" in l]


def test_secrets_that_others_can_read():
    with tempfile.TemporaryDirectory() as d:
        keys = os.path.join(d, "keys")
        with open(keys, "w", encoding="ascii") as f:
            f.write("secret-key\n")
        for mode, wanted in ((0o644, 1), (0o604, 1), (0o640, 0), (0o600, 0)):
            os.chmod(keys, mode)
            with Hearth("--api-key-file", keys) as h:
                pass
            lines = exposed(h)
            assert len(lines) == wanted and all(keys in l and f"{mode:04o}" in l for l in lines), (oct(mode), h.log)
        with Hearth("--api-key-file", keys) as h:
            os.chmod(keys, 0o644)
            h.process.send_signal(signal.SIGHUP)
            h.wait_until(lambda: exposed(h), 5, "the warning after reading the keys again")


if __name__ == "__main__":
    run_cases(globals())
