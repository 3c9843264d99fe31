#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The log never holds up the server: stderr is not read or accepts nothing, fields cannot be forged."""
import contextlib
import fcntl
import http.client
import os
import re
import resource
import signal
import socket
import subprocess
import tempfile
import time

from hearth_server import BIN, Hearth, run_cases

F_SETPIPE_SZ = 1031


@contextlib.contextmanager
def serving(stderr, **more):
    """A ready server that writes its log there: (process, port). It must end well, and soon after SIGTERM."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    p = subprocess.Popen([BIN, "serve", "--port", str(port)], stderr=stderr, **more)
    try:
        wait_ready(port)
        yield port
        start = time.monotonic()
        p.send_signal(signal.SIGTERM)
        assert p.wait(20) == 0 and time.monotonic() - start < 10
    except (OSError, subprocess.TimeoutExpired) as e:
        raise AssertionError(f"the server hangs: {e}") from e
    finally:
        p.kill()
        p.wait()


def small_pipe():
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, F_SETPIPE_SZ, 4096)
    return read_end, write_end


def wait_ready(port, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if get(port, "/readyz") == 200:
                return
        except OSError:
            pass
        time.sleep(0.02)
    raise AssertionError("not ready")


def get(port, path, timeout=10):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        c.request("GET", path)
        r = c.getresponse()
        r.read()
        return r.status
    finally:
        c.close()


def dropped(port):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    c.request("GET", "/metrics")
    text = c.getresponse().read().decode()
    c.close()
    return float(re.search(r"^hearth_log_lines_dropped_total (\S+)$", text, re.M).group(1))


def test_nobody_reads_stderr():
    """More lines than pipe and queue hold: all requests are answered, drops are counted and logged."""
    read_end, write_end = small_pipe()
    with serving(write_end) as port:
        os.close(write_end)
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        for _ in range(3000):
            c.request("GET", "/version?" + "x" * 200)
            r = c.getresponse()
            r.read()
            assert r.status == 200
        c.close()
        n = dropped(port)
        assert n > 100, n
        # Somebody reads again: what waited comes, and a line that says how many are missing.
        data = b""
        while not (found := re.search(rb"dropped (\d+) log lines", data)):
            data += os.read(read_end, 65536)
        assert int(found.group(1)) >= n, (found, n)
        os.set_blocking(read_end, True)
    os.close(read_end)


def test_nobody_reads_stderr_at_the_end():
    """The pipe is full when the server is asked to end: it ends all the same."""
    read_end, write_end = small_pipe()
    with serving(write_end) as port:
        os.close(write_end)
        for _ in range(40):
            assert get(port, "/version") == 200
    os.close(read_end)


def test_reader_of_stderr_ends():
    read_end, write_end = os.pipe()
    with serving(write_end) as port:
        os.close(write_end)
        os.close(read_end)
        for _ in range(20):
            assert get(port, "/version") == 200
        end = time.monotonic() + 10
        while dropped(port) < 20:
            assert time.monotonic() < end, dropped(port)


def test_log_file_at_its_size_limit():
    """A file that may not grow (RLIMIT_FSIZE) costs lines, not the process."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    with tempfile.TemporaryFile() as f:
        with serving(f, preexec_fn=limit) as port:
            for _ in range(40):
                assert get(port, "/version") == 200
        assert os.fstat(f.fileno()).st_size == 4096


def test_fields_of_the_text_log_cannot_be_forged():
    with Hearth("--log-format", "text") as h:
        h.request("GET", "/version", headers={"x-session-id": "s status=599 peer=10.0.0.1"})
        h.request("GET", "/no%20status=598")
    lines = [line for line in h.log if " request id=" in line]
    assert len(lines) == 2 and not any(" status=59" in line for line in lines), lines
    assert "session=s\\x20status\\x3d599\\x20peer\\x3d10.0.0.1" in lines[0], lines[0]
    assert "path=/no\\x20status\\x3d598 " in lines[1], lines[1]


if __name__ == "__main__":
    run_cases(globals())
