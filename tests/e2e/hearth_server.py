# SPDX-License-Identifier: MIT
"""A running `hearth serve` for tests: a free port or a socket file, the ready line, HTTP and SSE helpers, a clean exit.

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
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

ROOT = os.environ.get("HEARTH_SOURCE_ROOT") or os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("HEARTH_BIN") or os.path.join(ROOT, "build", "hearth")
FILTER = os.path.join(os.environ.get("HEARTH_BUILD_ROOT") or os.path.dirname(BIN), "tests", "hearth-filter")
DEMO = os.path.join(ROOT, "deploy", "demo")
HANGING = os.path.join(os.environ.get("HEARTH_BUILD_ROOT") or os.path.dirname(BIN), "tests", "fault", "libhanging.so")
SKIPPED = 77
START_SECONDS = 60 if not os.environ.get("HEARTH_SLOW") else 240
PATIENCE = 60  # least seconds before something is said not to come: machines stall, and who waits longer fails no test
# for servers whose tests fill the context; a sanitizer takes seconds for a thousand tokens
SMALL_CONTEXT = ["--ctx-size", "512"] if os.environ.get("HEARTH_SLOW") else []


# Runs the command that follows with an inherited socket as systemd passes it: descriptor 3, announced to this process.
SOCKET_ACTIVATION = """import os, sys
os.dup2(int(sys.argv[1]), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""


def reference(*parts):
    """A path inside $HEARTH_REFERENCE; exits as skipped if that is unset."""
    base = os.environ.get("HEARTH_REFERENCE")
    if not base:
        print("HEARTH_REFERENCE is not set; it names the directory of the reference data")
        sys.exit(SKIPPED)
    return os.path.join(base, *parts)


def reference_model(name):
    """The directory of a reference model: goldens/models has the random ones, models the public ones."""
    inside = reference("goldens", "models", name)
    return inside if os.path.isdir(inside) else reference("models", name)


def enter_clients_venv():
    """Starts the script again with the interpreter of $HEARTH_VENV; exits as skipped if there is none."""
    if os.environ.get("HEARTH_IN_VENV"):
        return
    python = os.path.join(os.environ.get("HEARTH_VENV", ""), "bin", "python")
    if not os.path.exists(python):
        print("HEARTH_VENV is not a virtual environment with the Python clients; tests/run.sh makes one")
        sys.exit(SKIPPED)
    os.environ["HEARTH_IN_VENV"] = "1"
    os.execv(python, [python, *sys.argv])


def run(*args, stdin="", timeout=60, **env):
    """(status, stdout, stderr) of a hearth command, with some variables changed."""
    p = subprocess.run([BIN, *args], text=True, env=dict(os.environ, **env), input=stdin, capture_output=True,
                       timeout=timeout, check=False)
    return p.returncode, p.stdout, p.stderr


def hanging(directory, switch, busy=""):
    """Environment of a server for which reads and writes of a directory's files wait while the file `switch` exists, and
    nothing can be unlinked while the file `busy` does."""
    env = {"LD_PRELOAD": HANGING, "HANG_DIR": directory, "HANG_WHILE": switch, "BUSY_WHILE": busy}
    # the library comes before the sanitizer's, and threads that hang are left at the end
    for name, option in (("ASAN_OPTIONS", "verify_asan_link_order=0"), ("TSAN_OPTIONS", "report_thread_leaks=0")):
        env[name] = ":".join(filter(None, (os.environ.get(name), option)))
    return env


def roomy_folder():
    """A temporary directory for --kv-disk or --batch-dir, which want a part of the disk free. Where that is not so, it is in
    memory."""
    disk = shutil.disk_usage(tempfile.gettempdir())
    full = disk.free < disk.total // 10 + (1 << 30)
    return tempfile.TemporaryDirectory(dir="/dev/shm" if full and os.path.isdir("/dev/shm") else None)


def make_certificate(directory):
    """(key file, certificate file) for localhost, or None without openssl, which is then said."""
    openssl = shutil.which("openssl")
    if not openssl:
        print("  (no openssl: apt install openssl)")
        return None
    key, cert = os.path.join(directory, "key.pem"), os.path.join(directory, "cert.pem")
    subprocess.run([openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-keyout", key, "-out", cert], check=True, capture_output=True)
    return key, cert


def read_all(s):
    """All bytes from a socket until it is closed or times out."""
    data = b""
    try:
        while chunk := s.recv(65536):
            data += chunk
    except (TimeoutError, ConnectionResetError):
        pass
    return data


class SocketFileConnection(http.client.HTTPConnection):
    """HTTP over a socket file."""

    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Hearth:
    """The server process.

    wait_ready=False: start() returns as soon as the socket listens. command: another command line than that of
    $HEARTH_BIN. unix_socket=True: on a socket file in a directory of its own. listener: a listening socket that the
    server inherits as from systemd. host, port, url or path say where it answers, log holds its lines so far.
    """

    def __init__(self, *args, env=None, wait_ready=True, command=None, unix_socket=False, listener=None):
        self.args = list(args)
        self.env = dict(os.environ, **(env or {}))
        self.wait_ready = wait_ready
        self.command = command or [BIN, "serve", *([] if listener else ["--port", "0"])]
        self.directory = tempfile.TemporaryDirectory() if unix_socket else None
        self.listener = listener
        self.log = []
        self.process = self.path = None
        self.scheme = "http"
        self.headers = {}  # of every request that names none

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, value, trace):
        status = self.stop()
        passed = kind is None or (kind is SystemExit and not value.code)
        if passed and status != 0:
            raise AssertionError(f"the server exits with {status}:\n" + "".join(self.log[-40:]))
        if not passed:
            shown = [line for line in self.log if '"/slots"' not in line]
            sys.stderr.write("".join(shown[-30:]))

    def launch(self):
        """Starts the process and the thread that reads its log, and waits for nothing."""
        command = self.command + self.args
        if self.directory:
            command += ["--unix-socket", os.path.join(self.directory.name, "hearth.sock")]
        if self.listener:
            command = [sys.executable, "-c", SOCKET_ACTIVATION, str(self.listener.fileno()), *command]
        self.process = subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        pass_fds=[self.listener.fileno()] if self.listener else [],
                                        stderr=subprocess.PIPE, text=True, errors="replace")
        self.ready = threading.Event()
        self.listening = threading.Event()
        self.reader = threading.Thread(target=self._read_log, daemon=True)
        self.reader.start()

    def start(self):
        self.launch()
        wanted = self.ready if self.wait_ready else self.listening
        deadline = time.monotonic() + START_SECONDS
        while not wanted.wait(0.02):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                self.reader.join(PATIENCE)
                raise AssertionError("the server did not start:\n" + "".join(self.log))

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"(ready|listening) on (?:(https?)://([\d.]+|localhost|\[[0-9a-f:]+\]):(\d+)|unix:([^\s\"]+))", line)
            if found:
                state, scheme, host, port, self.path = found.groups()
                if self.path:
                    self.url = f"unix:{self.path}"
                else:
                    self.scheme, self.host, self.port = scheme, host.strip("[]"), int(port)
                    self.url = f"{scheme}://{host}:{port}"
                self.listening.set()
                if state == "ready":
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
        self.reader.join(PATIENCE)
        if self.directory and status == 0:
            assert not os.path.exists(os.path.join(self.directory.name, "hearth.sock")), "the socket file is still there"
            self.directory.cleanup()
        return status

    # ---- HTTP -----------------------------------------------------------------------------------

    def connect(self, timeout=120):
        if self.path:
            return SocketFileConnection(self.path, timeout)
        if self.scheme == "https":  # certificates of tests are their own authority
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout,
                                               context=ssl._create_unverified_context())
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def open_socket(self, timeout=PATIENCE, receive_buffer=0):
        """A connected stream socket; receive_buffer: bytes the kernel takes for a client that does not read."""
        s = socket.socket(socket.AF_UNIX if self.path else socket.AF_INET6 if ":" in self.host else socket.AF_INET)
        s.settimeout(timeout)
        if receive_buffer:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        s.connect(self.path or (self.host, self.port))
        return s

    def request(self, method, path, body=None, headers=None, timeout=120):
        """(status, headers with lower-case names, body bytes)"""
        c = self.connect(timeout)
        try:
            c.request(method, path, body, headers or self.headers)
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
            "POST", path, data, {"Content-Type": "application/json", **(headers or self.headers)}, timeout)
        return status, head, json.loads(answer) if "json" in head.get("content-type", "") else answer

    def stream(self, path, body, headers=None, timeout=120):
        """Yields (event name or None, data text) of a server-sent event stream, comments left out."""
        c = self.connect(timeout)
        try:
            c.request("POST", path, json.dumps(body),
                      {"Content-Type": "application/json", **(headers or self.headers)})
            r = c.getresponse()
            if r.status != 200:
                raise AssertionError(f"status {r.status}: {r.read()[:400]}")
            yield from parse_events(r)
        finally:
            c.close()

    def raw(self, data, timeout=PATIENCE, half_close=False):
        """Sends bytes as they are and returns all that comes back until the close or the timeout."""
        with self.open_socket(timeout) as s:
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
            return read_all(s)

    # ---- watching ---------------------------------------------------------------------------------

    def metrics(self):
        """{'name{labels}': value}"""
        _, _, text = self.request("GET", "/metrics")
        rows = [l.rsplit(" ", 1) for l in text.decode().splitlines() if l and l[0] != "#"]
        return {name: float(value) for name, value in rows}

    def slots(self):
        return self.get("/slots")[2]

    def settled_metrics(self):
        """The engine's counts follow the events of a step: they are complete once nothing runs."""
        self.wait_until(lambda: self.slots()["running"] == 0, what="an idle engine")
        return self.metrics()

    def wait_until(self, condition, seconds=PATIENCE, what="condition"):
        """Polls until condition() is true, for PATIENCE at least; returns the seconds it took."""
        start, seconds = time.monotonic(), max(seconds, PATIENCE)
        while not condition():
            if time.monotonic() - start > seconds:
                raise AssertionError(f"{what}: not within {seconds} s")
            time.sleep(0.002)
        return time.monotonic() - start

    def holds_for(self, condition, seconds, what="condition"):
        """Polls that condition() stays true."""
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            assert condition(), f"{what}: not for {seconds} s"
            time.sleep(0.01)

    def wait_log(self, text, seconds=PATIENCE):
        """Waits for a line of the log that holds the text, and returns it."""
        def lines():
            return [line for line in list(self.log) if text in line]
        self.wait_until(lines, seconds, f"a line with {text!r}")
        return lines()[0]

    def _toggle_engine(self, line):
        lines = sum(line in l for l in self.log)
        self.process.send_signal(signal.SIGUSR1)
        self.wait_until(lambda: sum(line in l for l in self.log) > lines, 10, line)

    def pause_engine(self):
        """Holds the engine between two steps until resume_engine(); both need --debug-hooks on."""
        self._toggle_engine("the engine is paused")

    def resume_engine(self):
        self._toggle_engine("the engine is running")

    def hold_running(self, begin, n, n_running=None):
        """What begin() returned, with n sequences that run on an engine which is then paused. On a fast machine, or if
        the client stalls, some are over before: they are begun anew then. begin() returns things that can be closed."""
        n_running = n_running or (lambda: self.slots()["running"])
        for _ in range(100):
            begun = begin()
            self.pause_engine()
            if n_running() == n:
                return begun
            self.resume_engine()
            for b in begun:
                b.close()
            self.wait_until(lambda: n_running() == 0, what="all free")
        raise AssertionError(f"{n} sequences never ran at once")

    def admin(self):
        """The same helpers for the listener of health and metrics (needs --metrics-port)."""
        other = Hearth()
        line = self.wait_log("health and metrics on")
        other.host, other.port = "127.0.0.1", int(re.search(r"metrics on http://[\d.]+:(\d+)", line).group(1))
        other.process = self.process
        return other

    def memory_kib(self, field="VmRSS"):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return int(re.search(field + r":\s+(\d+)", f.read()).group(1))


@contextlib.contextmanager
def with_named_key(*args):
    """A server whose requests have a key with a name, for the metrics of keys."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "keys")
        with open(path, "w", encoding="ascii") as f:
            f.write("key-0123456789 name=kitchen\n")
        with Hearth(*args, "--api-key-file", path) as h:
            h.headers = {"Authorization": "Bearer key-0123456789"}
            yield h


def start_request(h, path, body, receive_buffer=0, headers=None):
    """Sends a POST and returns its socket, for tests of clients that leave or do not read."""
    data = json.dumps(body).encode()
    more = "".join(f"{k}: {v}\r\n" for k, v in (headers or {}).items())
    s = h.open_socket(60, receive_buffer)
    s.sendall(b"POST %s HTTP/1.1\r\nHost: %s:%d\r\nContent-Type: application/json\r\n%s"
              b"Connection: close\r\nContent-Length: %d\r\n\r\n"
              % (path.encode(), h.host.encode(), h.port, more.encode(), len(data)) + data)
    return s


def leave(s, reset):
    if reset:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


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
        except Exception:  # noqa: BLE001, the other cases are still run
            verdict, failed = "FAILED: " + traceback.format_exc(), failed + 1
        print(f"{name}: {verdict} ({time.monotonic() - start:.2f} s)", flush=True)
    sys.exit(1 if failed else 0)
