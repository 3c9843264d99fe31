#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The log never holds up the server: stderr is not read or accepts nothing, fields cannot be forged."""
import contextlib
import fcntl
import os
import re
import resource
import select
import signal
import subprocess
import tempfile
import time

from hearth_server import BIN, PATIENCE, START_SECONDS, Hearth, SocketFileConnection, run_cases

F_SETPIPE_SZ = 1031


@contextlib.contextmanager
def serving(stderr, **more):
    """The socket file of a ready server that writes its log there. It must end well, and wait for no drain time."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "hearth.sock")
        p = subprocess.Popen([BIN, "serve", "--drain-timeout-ms", "3600000", "--unix-socket", path], stderr=stderr, **more)
        try:
            wait_ready(path)
            yield path
            p.send_signal(signal.SIGTERM)
            assert p.wait(PATIENCE) == 0
        except (OSError, subprocess.TimeoutExpired) as e:
            raise AssertionError(f"the server hangs: {e}") from e
        finally:
            p.kill()
            p.wait()


def small_pipe():
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, F_SETPIPE_SZ, 4096)
    return read_end, write_end


def wait_ready(server):
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if get(server, "/readyz")[0] == 200:
                return
        time.sleep(0.02)
    raise AssertionError("not ready")


def get(server, path):
    c = SocketFileConnection(server, PATIENCE)
    try:
        c.request("GET", path)
        r = c.getresponse()
        return r.status, r.read()
    finally:
        c.close()


def dropped(server):
    text = get(server, "/metrics")[1].decode()
    return float(re.search(r"^hearth_log_lines_dropped_total (\S+)$", text, re.M).group(1))


def test_nobody_reads_stderr():
    """More lines than pipe and queue hold: all requests are answered, drops are counted and logged."""
    read_end, write_end = small_pipe()
    with serving(write_end) as server:
        os.close(write_end)
        c = SocketFileConnection(server, PATIENCE)
        for _ in range(3000):
            c.request("GET", "/version?" + "x" * 200)
            r = c.getresponse()
            r.read()
            assert r.status == 200
        c.close()
        n = dropped(server)
        assert n > 100, n
        # Somebody reads again: what waited comes, and lines that say how many are missing.
        data = b""
        while sum(map(int, re.findall(rb"dropped (\d+) log lines", data))) < n:
            assert select.select([read_end], [], [], PATIENCE)[0], (data[-300:], n)
            data += os.read(read_end, 65536)
        os.set_blocking(read_end, True)
    os.close(read_end)


def test_nobody_reads_stderr_at_the_end():
    """The pipe is full when the server is asked to end: it ends all the same."""
    read_end, write_end = small_pipe()
    with serving(write_end) as server:
        os.close(write_end)
        for _ in range(40):
            assert get(server, "/version")[0] == 200
    os.close(read_end)


def test_reader_of_stderr_ends():
    read_end, write_end = os.pipe()
    with serving(write_end) as server:
        os.close(write_end)
        os.close(read_end)
        for _ in range(20):
            assert get(server, "/version")[0] == 200
        end = time.monotonic() + PATIENCE
        while dropped(server) < 20:
            assert time.monotonic() < end, dropped(server)


def test_log_file_at_its_size_limit():
    """A file that may not grow (RLIMIT_FSIZE) costs lines, not the process."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    with tempfile.TemporaryFile() as f:
        with serving(f, preexec_fn=limit) as server:
            for _ in range(40):
                assert get(server, "/version")[0] == 200
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
