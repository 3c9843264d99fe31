#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Behind real nginx, HAProxy and Caddy on loopback: streams arrive as they are made, clients that leave free
their slot, a long prefill survives, errors pass through. Each proxy that is not installed is named and
passed over; with none the test is skipped."""
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from hearth_server import SKIPPED, Hearth, chunks

NGINX = """
daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;
  uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
  server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{backend}; {extra} }} }}
}}
"""
HAPROXY = """
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option http-no-delay
  option abortonclose
frontend f
  bind 127.0.0.1:{port}
  default_backend b
backend b
  server s 127.0.0.1:{backend}
"""
CADDY = "{{\n admin off\n auto_https off\n}}\nhttp://127.0.0.1:{port} {{\n reverse_proxy 127.0.0.1:{backend}\n}}\n"
KEEPALIVE = 'proxy_http_version 1.1; proxy_set_header Connection "";'
# name -> (program, configuration, arguments)
PROXIES = {
    "nginx, defaults": ("nginx", NGINX, ["-c", "{file}", "-p", "{dir}"], ""),
    "nginx, HTTP/1.1": ("nginx", NGINX, ["-c", "{file}", "-p", "{dir}"], KEEPALIVE),
    "haproxy": ("haproxy", HAPROXY, ["-db", "-f", "{file}"], ""),
    "caddy": ("caddy", CADDY, ["run", "--adapter", "caddyfile", "--config", "{file}"], ""),
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def proxy(name, backend):
    program, config, args, extra = PROXIES[name]
    port = free_port()
    with tempfile.TemporaryDirectory() as d:
        file = os.path.join(d, "config")
        with open(file, "w", encoding="ascii") as f:
            f.write(config.format(dir=d, port=port, backend=backend, extra=extra))
        path = shutil.which(program) or f"/usr/sbin/{program}"
        env = dict(os.environ, HOME=d, XDG_DATA_HOME=d, XDG_CONFIG_HOME=d)
        p = subprocess.Popen([path] + [a.format(file=file, dir=d) for a in args], env=env,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 20
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    assert time.monotonic() < deadline and p.poll() is None, f"{name} did not start"
                    time.sleep(0.02)
            yield port
        finally:
            p.send_signal(signal.SIGTERM)
            try:
                p.wait(10)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()


class Through(Hearth):
    """The same helpers, aimed at the proxy."""

    def __init__(self, port):
        super().__init__()
        self.host, self.port = "127.0.0.1", port


def stream_times(through):
    """Seconds until the first and the last event of a long stream."""
    times, start = [], time.monotonic()
    for _ in through.stream("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 1900,
                                                "ignore_eos": True, "stream": True, "temperature": 0}):
        times.append(time.monotonic() - start)
    assert len(times) > 5, f"{len(times)} events"
    return times[0], times[-1]


def check_stream_is_not_held(through, direct):
    """Events must not come in one lump: the first well before the last, in one of three streams at least."""
    tries = [stream_times(through) for _ in range(3)]
    assert any(first < last / 2 for first, last in tries), f"first and last event after {tries} s"


def check_same_answer(through, direct):
    body = {"messages": [{"role": "user", "content": "What is 2+2?"}], "temperature": 0}
    plain = direct.post("/v1/chat/completions", body)[2]["choices"][0]["message"]["content"]
    assert through.post("/v1/chat/completions", body)[2]["choices"][0]["message"]["content"] == plain
    events = chunks(through.stream("/v1/chat/completions", dict(body, stream=True)))
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events) == plain
    status, _, answer = through.post("/v1/completions", {"prompt": 5})
    assert status == 400 and answer["error"]["code"] == "invalid_type"


def check_disconnect(through, direct):
    body = json.dumps({"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "n": 4,
                       "stream": True}).encode()
    for stream in (True, False):
        data = body if stream else body.replace(b'"stream": true', b'"stream": false')
        s = socket.create_connection(("127.0.0.1", through.port), timeout=20)
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n" % (through.port, len(data)) + data)
        direct.wait_until(lambda: direct.slots()["running"] == 4, 20, "running")
        s.close()
        seconds = direct.wait_until(lambda: direct.slots()["running"] == 0, 5, "free after the client left")
        print(f"    {'stream' if stream else 'plain'} call: free after {seconds * 1000:.0f} ms")


def main():
    ran, failed = 0, 0
    # proxies pass on the Host they were asked by; the server is told to accept any
    with Hearth("--parallel", "8", "--allowed-hosts", "*") as direct:
        for name, (program, *_rest) in PROXIES.items():
            if not (shutil.which(program) or os.path.exists(f"/usr/sbin/{program}")):
                print(f"{name}: not installed")
                continue
            with proxy(name, direct.port) as port:
                ran += 1
                for check in (check_same_answer, check_stream_is_not_held, check_disconnect):
                    try:
                        check(Through(port), direct)
                        print(f"{name}: {check.__name__} ok", flush=True)
                    except AssertionError as e:
                        failed += 1
                        print(f"{name}: {check.__name__} FAILED: {e}", flush=True)
        sys.exit(1 if failed else 0 if ran else SKIPPED)


if __name__ == "__main__":
    main()
