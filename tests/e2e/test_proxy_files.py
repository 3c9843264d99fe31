#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The proxy configurations of deploy/ as they are shipped, but for ports and the servers' name: the proxy takes the
file, and answers and streams pass through it. The argument names the proxy; skipped where it is not installed."""
import os
import shutil
import subprocess
import sys
import tempfile

from hearth_server import ROOT, SKIPPED, Hearth, chunks
from proxies import Through, free_port, running, tried

NGINX_MAIN = """daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/error.log;
events {{ worker_connections 64; }}
http {{ access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;
uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s; include {file}; }}
"""
# proxy -> (package, file, what is replaced in it, command that checks, command that runs)
PROXIES = {
    "nginx": ("nginx-light", "nginx/hearth.conf", {"listen 80;": "listen 127.0.0.1:{port};",
                                                   "server hearth:8080;": "server {name}:{backend};"},
              ["nginx", "-t", "-c", "{main}", "-p", "{dir}"], ["nginx", "-c", "{main}", "-p", "{dir}"]),
    "haproxy": ("haproxy", "haproxy/haproxy.cfg", {"bind :80": "bind 127.0.0.1:{port}",
                                                   " hearth:8080 ": " {name}:{backend} "},
                ["haproxy", "-c", "-f", "{file}"], ["haproxy", "-db", "-f", "{file}"]),
    "caddy": ("caddy", "caddy/Caddyfile", {":80 {": "{{\n admin off\n auto_https off\n}}\nhttp://:{port} {{\n bind 127.0.0.1",
                                           "dynamic a hearth 8080": "dynamic a {name} {backend}"},
              ["caddy", "validate", "--adapter", "caddyfile", "--config", "{file}"],
              ["caddy", "run", "--adapter", "caddyfile", "--config", "{file}"]),
}


def program(name):
    return shutil.which(name) or (f"/usr/sbin/{name}" if os.path.exists(f"/usr/sbin/{name}") else None)


class Shipped:
    """The configuration in a directory of its own, with other ports and another name for the servers."""

    def __init__(self, proxy, directory, name, backend):
        _, path, replaced, check, run = PROXIES[proxy]
        self.port = free_port()
        values = {"dir": directory, "file": os.path.join(directory, "shipped"), "port": self.port,
                  "main": os.path.join(directory, "main"), "name": name, "backend": backend}
        with open(os.path.join(ROOT, "deploy", path), encoding="utf-8") as f:
            text = f.read()
        for old, new in replaced.items():
            assert text.count(old) == 1, f"{path}: {old!r} is there {text.count(old)} times"
            for key in ("port", "name", "backend"):
                new = new.replace("{" + key + "}", str(values[key]))
            text = text.replace(old, new.replace("{{", "{").replace("}}", "}"))
        with open(values["file"], "w", encoding="utf-8") as f:
            f.write(text)
        with open(values["main"], "w", encoding="utf-8") as f:
            f.write(NGINX_MAIN.format(**values))
        self.check = [program(proxy)] + [a.format(**values) for a in check[1:]]
        self.run = [program(proxy)] + [a.format(**values) for a in run[1:]]
        self.env = dict(os.environ, HOME=directory, XDG_DATA_HOME=directory, XDG_CONFIG_HOME=directory)


def check_is_taken(proxy):
    with tempfile.TemporaryDirectory() as d:
        shipped = Shipped(proxy, d, "localhost", 8080)
        p = subprocess.run(shipped.check, env=shipped.env, capture_output=True, text=True, check=False, timeout=60)
        assert p.returncode == 0, p.stdout + p.stderr


def check_answers_pass(proxy):
    body = {"prompt": "Once upon a time", "max_tokens": 20, "temperature": 0}
    with tempfile.TemporaryDirectory() as d, Hearth("--allowed-hosts", "api.example") as direct:
        named = {"Host": "api.example"}
        plain = direct.post("/v1/completions", body, named)[2]["choices"][0]["text"]
        shipped = Shipped(proxy, d, "127.0.0.1", direct.port)
        with running(shipped.run, shipped.port, shipped.env):
            through = Through(shipped.port)
            direct.wait_until(lambda: through.get("/readyz", named)[0] == 200, 20, "ready through the proxy")
            assert through.post("/v1/completions", body, named)[2]["choices"][0]["text"] == plain
            events = chunks(through.stream("/v1/completions", dict(body, stream=True), named))
            assert "".join(e["choices"][0]["text"] for e in events) == plain
            assert through.get("/v1/models", {"Host": "other.example"})[0] == 403
            # The server's own page, as the browser names it: with the proxy's port.
            page = {"Host": f"api.example:{shipped.port}", "Origin": f"http://api.example:{shipped.port}"}
            assert through.post("/v1/completions", body, page)[0] == 200
            assert through.post("/v1/completions", body, dict(page, Origin="http://evil.example"))[0] == 403


def main():
    proxy = sys.argv[1]
    if not program(proxy):
        print(f"no {proxy}: apt install {PROXIES[proxy][0]}")
        sys.exit(SKIPPED)
    failed = 0
    for check in (check_is_taken, check_answers_pass):
        try:
            tried(proxy, check, proxy)
            print(f"{proxy}: {check.__name__} ok", flush=True)
        except AssertionError as e:
            failed = 1
            print(f"{proxy}: {check.__name__} FAILED: {e}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
