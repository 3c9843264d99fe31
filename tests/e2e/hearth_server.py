# SPDX-License-Identifier: MIT
"""A running `hearth serve` for tests: a free port, the ready line, HTTP and SSE helpers, a clean end.

    with Hearth("--parallel", "8") as h:
        status, headers, body = h.post("/v1/completions", {"prompt": "Once", "max_tokens": 4})
        for event in h.stream("/v1/chat/completions", {...}): ...

Standard library only. The binary is $HEARTH_BIN (default build/hearth).
"""
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.environ.get("HEARTH_SOURCE_ROOT") or os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("HEARTH_BIN") or os.path.join(ROOT, "build", "hearth")
DEMO = os.path.join(ROOT, "deploy", "demo")
SKIPPED = 77
START_SECONDS = 60 if not os.environ.get("HEARTH_SLOW") else 240


def reference(*parts):
    """A path inside $HEARTH_REFERENCE; exits as skipped where that is unset."""
    base = os.environ.get("HEARTH_REFERENCE")
    if not base:
        print("HEARTH_REFERENCE is not set; it names the directory of the reference data")
        sys.exit(SKIPPED)
    return os.path.join(base, *parts)


def enter_clients_venv():
    """Starts the script anew with the interpreter of $HEARTH_VENV; exits as skipped where there is none."""
    if os.environ.get("HEARTH_IN_VENV"):
        return
    python = os.path.join(os.environ.get("HEARTH_VENV", ""), "bin", "python")
    if not os.path.exists(python):
        print("HEARTH_VENV names no virtual environment with the Python clients; tests/run.sh makes one")
        sys.exit(SKIPPED)
    os.environ["HEARTH_IN_VENV"] = "1"
    os.execv(python, [python, *sys.argv])


def link_demo(directory, *without):
    """Links to the files of the demo model, but for some, in a directory."""
    for name in os.listdir(DEMO):
        path = os.path.join(DEMO, name)
        if name not in without and os.path.isfile(path):
            os.symlink(path, os.path.join(directory, name))


@contextlib.contextmanager
def demo_without(*names):
    """A directory with the demo model, but for some of its files, until the end of the block."""
    with tempfile.TemporaryDirectory() as directory:
        link_demo(directory, *names)
        yield directory


@contextlib.contextmanager
def serve_on_socket():
    """A server on a socket file, which is yielded; it must end well."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "hearth.sock")
        p = subprocess.Popen([BIN, "serve", "--unix-socket", path], stderr=subprocess.PIPE, text=True)
        try:
            for line in p.stderr:
                if "ready on" in line:
                    break
            yield path
        finally:
            p.send_signal(signal.SIGTERM)
            p.communicate(timeout=20)
        assert p.returncode == 0, p.returncode


class Hearth:
    """The server process. wait_ready=False returns as soon as the socket listens."""

    def __init__(self, *args, env=None, wait_ready=True, command=None):
        self.args = list(args)
        self.env = dict(os.environ, **(env or {}))
        self.wait_ready = wait_ready
        self.command = command or [BIN, "serve", "--port", "0"]
        self.log = []
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, value, trace):
        status = self.stop()
        passed = kind is None or (kind is SystemExit and not value.code)
        if passed and status != 0:
            raise AssertionError(f"server ended with {status}:\n" + "".join(self.log[-40:]))
        if not passed:
            shown = [line for line in self.log if '"/slots"' not in line]
            sys.stderr.write("".join(shown[-30:]))

    def start(self):
        self.process = subprocess.Popen(self.command + self.args, env=self.env,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True, errors="replace")
        self.ready = threading.Event()
        self.listening = threading.Event()
        self.reader = threading.Thread(target=self._read_log, daemon=True)
        self.reader.start()
        wanted = self.ready if self.wait_ready else self.listening
        deadline = time.monotonic() + START_SECONDS
        while not wanted.wait(0.02):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                self.reader.join(5)
                raise AssertionError("server did not start:\n" + "".join(self.log))

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"(ready|listening) on http://([\d.]+|localhost|\[[0-9a-f:]+\]):(\d+)", line)
            if found:
                self.host, self.port = found.group(2).strip("[]"), int(found.group(3))
                self.url = f"http://{found.group(2)}:{self.port}"
                self.listening.set()
                if found.group(1) == "ready":
                    self.ready.set()

    def stop(self, how=signal.SIGTERM, timeout=60):
        """Ends the server and returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            status = "killed: it did not end"
        self.reader.join(5)
        return status

    # ---- HTTP -----------------------------------------------------------------------------------

    def connect(self, timeout=120):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None, timeout=120):
        """(status, headers with lower-case names, body bytes)"""
        c = self.connect(timeout)
        try:
            c.request(method, path, body, headers or {})
            r = c.getresponse()
            return r.status, {k.lower(): v for k, v in r.getheaders()}, r.read()
        finally:
            c.close()

    def get(self, path, headers=None):
        status, head, body = self.request("GET", path, headers=headers)
        return status, head, json.loads(body) if "json" in head.get("content-type", "") else body

    def post(self, path, body, headers=None, timeout=120):
        """body: an object (sent as JSON) or bytes. The answer's JSON, or its bytes."""
        data = body if isinstance(body, (bytes, str)) else json.dumps(body)
        status, head, answer = self.request(
            "POST", path, data, {"Content-Type": "application/json", **(headers or {})}, timeout)
        return status, head, json.loads(answer) if "json" in head.get("content-type", "") else answer

    def stream(self, path, body, headers=None, timeout=120):
        """Yields (event name or None, data text) of a server-sent event stream, comments left out."""
        c = self.connect(timeout)
        try:
            c.request("POST", path, json.dumps(body),
                      {"Content-Type": "application/json", **(headers or {})})
            r = c.getresponse()
            if r.status != 200:
                raise AssertionError(f"status {r.status}: {r.read()[:400]}")
            yield from parse_events(r)
        finally:
            c.close()

    def raw(self, data, timeout=10, half_close=False):
        """Sends bytes as they are and returns all that comes back until the close or the timeout."""
        with socket.create_connection((self.host, self.port), timeout=timeout) as s:
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
            answer = b""
            try:
                while chunk := s.recv(65536):
                    answer += chunk
            except (TimeoutError, ConnectionResetError):
                pass
            return answer

    # ---- watching ---------------------------------------------------------------------------------

    def metrics(self):
        """{'name{labels}': value}"""
        _, _, text = self.request("GET", "/metrics")
        rows = [l.rsplit(" ", 1) for l in text.decode().splitlines() if l and l[0] != "#"]
        return {name: float(value) for name, value in rows}

    def slots(self):
        return self.get("/slots")[2]

    def wait_until(self, condition, seconds=10, what="condition"):
        """Polls until condition() is true; returns the seconds it took."""
        start = time.monotonic()
        while not condition():
            if time.monotonic() - start > seconds:
                raise AssertionError(f"{what}: not within {seconds} s")
            time.sleep(0.002)
        return time.monotonic() - start

    def memory_kib(self, field="VmRSS"):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return int(re.search(field + r":\s+(\d+)", f.read()).group(1))


def parse_events(lines):
    name, data = None, []
    for raw in lines:
        line = raw.decode("utf-8").rstrip("\r\n")
        if not line:
            if data:
                yield name, "\n".join(data)
            name, data = None, []
        elif line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))


def chunks(events):
    """JSON of the events of an OpenAI stream, which must end with [DONE]."""
    out, done = [], False
    for _, data in events:
        assert not done, "something follows [DONE]"
        if data == "[DONE]":
            done = True
        else:
            out.append(json.loads(data))
    assert done, "no [DONE]"
    return out


def run_cases(module_globals):
    """Runs every function test_* of a script with its names printed; exits 1 when one failed."""
    failed = 0
    only = sys.argv[1:]
    for name, fn in list(module_globals.items()):
        if not name.startswith("test_") or not callable(fn) or (only and name not in only):
            continue
        start = time.monotonic()
        try:
            fn()
            verdict = "ok"
        except AssertionError as e:
            verdict, failed = f"FAILED: {e}", failed + 1
        print(f"{name}: {verdict} ({time.monotonic() - start:.2f} s)", flush=True)
    sys.exit(1 if failed else 0)
