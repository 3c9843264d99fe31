# SPDX-License-Identifier: MIT
"""Real nginx, HAProxy and Caddy in front of a test server, on loopback; see deploy/ for how they are set up."""
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from hearth_server import PATIENCE, Hearth

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
    """One that no system gives to who asks for any port, as all other tests do meanwhile."""
    while True:
        port = random.randrange(10000, 32000)
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind(("127.0.0.1", port))
            return port


def installed(name):
    """The proxy's program, or None."""
    program = PROXIES[name][0]
    path = shutil.which(program) or f"/usr/sbin/{program}"
    return path if os.path.exists(path) else None


@contextlib.contextmanager
def running(command, port, env):
    """A proxy that listens on the port until the end of the block."""
    p = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < deadline and p.poll() is None, f"{command[0]} did not start"
                time.sleep(0.02)
        yield
    finally:
        p.send_signal(signal.SIGTERM)
        try:
            p.wait(10)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()


@contextlib.contextmanager
def proxy(name, backend):
    """Yields the port of a proxy before a server on port `backend`."""
    _, config, args, extra = PROXIES[name]
    port = free_port()
    with tempfile.TemporaryDirectory() as d:
        file = os.path.join(d, "config")
        with open(file, "w", encoding="ascii") as f:
            f.write(config.format(dir=d, port=port, backend=backend, extra=extra))
        env = dict(os.environ, HOME=d, XDG_DATA_HOME=d, XDG_CONFIG_HOME=d)
        with running([installed(name)] + [a.format(file=file, dir=d) for a in args], port, env):
            yield port


class Through(Hearth):
    """The same helpers, aimed at the proxy."""

    def __init__(self, port):
        super().__init__()
        self.host, self.port = "127.0.0.1", port


def tried(name, check, *args):
    """Runs a check. Caddy 2.6.2, Debian 12's, now and then closes its own connection in the middle of a stream
    ("use of closed network connection" in its log; any server that answers at once shows it): five tries."""
    for left in range(4 if name.startswith("caddy") else 0, -1, -1):
        try:
            return check(*args)
        except AssertionError:
            if not left:
                raise
