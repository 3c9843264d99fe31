#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A model hub on loopback for tests: the routes, headers, redirects and errors of huggingface.co that clients
depend on, on two ports (the hub itself, and the store that its signed links lead to).

    with FakeHub() as hub:
        repo = hub.add("acme/tiny", {"config.json": b"{}", "model.safetensors": b"..."})
        hub.on(r"/acme/tiny/resolve/.*/config.json", cut(100), times=2)     # the first two answers end early
        ... clients with HF_ENDPOINT=hub.url ...
        assert [r.path for r in hub.requests] == [...]

test_fake_hub.py proves it right by running huggingface_hub against it. By hand: fake_hub.py DIRECTORY NAME serves
a model directory under that name until it is interrupted. Standard library only.
"""
import collections
import email.utils
import gzip
import hashlib
import http.server
import itertools
import json
import os
import re
import socket
import socketserver
import ssl
import sys
import threading
import time
import urllib.parse

LFS_SUFFIXES = (".safetensors", ".bin", ".pt", ".h5", ".onnx", ".gguf", ".msgpack")
TEXT_SUFFIXES = (".json", ".txt", ".jinja", ".md", ".py")
PIECE = 1 << 18


def git_blob(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Entry:
    """A file of a commit. content: bytes, or the path of a file on disk (for large ones)."""

    def __init__(self, path, content, lfs=None):
        self.path, self.content = path, content
        self.size = os.path.getsize(content) if isinstance(content, str) else len(content)
        self.lfs = path.endswith(LFS_SUFFIXES) if lfs is None else lfs
        if self.lfs:
            self.sha256 = self._sha256()
            self.pointer = (f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\n"
                            f"size {self.size}\n").encode()
            self.oid = git_blob(self.pointer)
            self.xet = hashlib.sha256(b"xet" + self.sha256.encode()).hexdigest()
        else:
            self.oid = git_blob(self.read())
        self.etag = self.sha256 if self.lfs else self.oid

    def _sha256(self):
        if not isinstance(self.content, str):
            return hashlib.sha256(self.content).hexdigest()
        with open(self.content, "rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest()

    def read(self):
        if not isinstance(self.content, str):
            return self.content
        with open(self.content, "rb") as f:
            return f.read()

    def listed(self):
        row = {"type": "file", "oid": self.oid, "size": self.size, "path": self.path}
        if self.lfs:
            row["lfs"] = {"oid": self.sha256, "size": self.size, "pointerSize": len(self.pointer)}
            row["xetHash"] = self.xet
        return row


class Repo:
    """files: path -> bytes or the path of a file; private and gated: who has `token` may read."""

    def __init__(self, name, files, private=False, gated=False, moved_to=None):
        self.name, self.private, self.gated, self.moved_to = name, private, gated, moved_to
        self.commits, self.refs = {}, {}
        self.commit(files)

    def commit(self, files, ref="main"):
        """A new commit of these files, which a branch or tag names from now on. Returns its hash."""
        entries = {path: Entry(path, content) for path, content in files.items()}
        text = json.dumps([self.name, len(self.commits), [e.listed() for e in entries.values()]])
        sha = hashlib.sha1(text.encode()).hexdigest()
        self.commits[sha] = entries
        self.refs[ref] = sha
        return sha

    def resolve(self, revision):
        if revision in self.commits:
            return revision
        return self.refs.get(revision)

    def tree(self, sha):
        """The listing, folders before what is in them, as the hub orders it."""
        rows, folders = [], set()
        for path, entry in sorted(self.commits[sha].items()):
            parts = path.split("/")[:-1]
            for i in range(len(parts)):
                folder = "/".join(parts[:i + 1])
                if folder not in folders:
                    folders.add(folder)
                    rows.append({"type": "directory", "oid": git_blob(folder.encode()), "size": 0, "path": folder})
            rows.append(entry.listed())
        return rows


Request = collections.namedtuple("Request", "server method path headers")


# ---- faults: functions of (handler, normal), where normal() gives the answer as it would have been -----------


def status(code, headers=None, body=b""):
    """Answers with this status instead."""
    return lambda h, normal: h.send(code, headers or {}, body)


def redirect(location, code=302):
    return status(code, {"Location": location})


def changed(**changes):
    """The normal answer with some of its parts replaced: code, body, length (of Content-Length), headers (None:
    that header is left out), cut (bytes of the body after which the connection ends), stall (bytes after which
    nothing more comes until the client leaves or hub.go_on is set), pace (bytes a second)."""
    def fault(h, normal):
        h.changes = changes
        normal()
    return fault


def cut(n):
    return changed(cut=n)


def stall(n):
    return changed(stall=n)


def corrupt(h, normal):
    """One byte in the middle of the body is another."""
    h.changes = {"corrupt": True}
    normal()


def ignore_range(h, normal):
    h.ranged = False
    normal()


def no_answer(h, normal):
    """The request is read, and nothing comes back until the client leaves."""
    h.wait_for_client()


def reset(h, normal):
    """The connection is reset."""
    h.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    h.close_connection = True


def raw(data):
    """These bytes instead of an answer, then the end of the connection."""
    def fault(h, normal):
        h.wfile.write(data)
        h.close_connection = True
    return fault


# ---- the servers ------------------------------------------------------------------------------------------------


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    which = None  # "hub" or "store"

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.changes, self.ranged = {}, True
        hub = self.server.hub
        split = urllib.parse.urlsplit(self.path)
        self.route, self.query = split.path, dict(urllib.parse.parse_qsl(split.query))
        with hub.lock:
            hub.requests.append(Request(self.which, self.command, self.path, dict(self.headers.items())))
        fault = hub.next_fault(self.which, self.path)
        try:
            if fault:
                fault(self, self.answer)
            else:
                self.answer()
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            self.close_connection = True

    do_HEAD = do_GET

    def send(self, code, headers=None, body=b""):
        """An answer. body: bytes, or (entry, begin, end) for a part of a file."""
        length = body[2] - body[1] if isinstance(body, tuple) else len(body)
        headers = {"Content-Length": length, **(headers or {}), **self.changes.get("headers", {})}
        if "length" in self.changes:
            headers["Content-Length"] = self.changes["length"]
        code = self.changes.get("code", code)
        body = self.changes.get("body", body)
        self.send_response(code)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()
        if self.command != "HEAD":
            self.send_body(body)

    def send_body(self, body):
        if isinstance(body, tuple) and isinstance(body[0].content, str) and not self.changes and \
                not isinstance(self.connection, ssl.SSLSocket):
            self.send_from_disk(*body)
            return
        data = body[0].read()[body[1]:body[2]] if isinstance(body, tuple) else body
        if self.changes.get("corrupt"):
            middle = len(data) // 2
            data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:]
        end = min(len(data), self.changes.get("cut", len(data)), self.changes.get("stall", len(data)))
        self.send_pieces(data, end)
        if "stall" in self.changes and self.changes["stall"] < len(data):
            self.wait_for_client()
        elif end < len(data):
            self.close_connection = True

    def send_pieces(self, data, end):
        pace = self.changes.get("pace")
        step = PIECE if not pace else max(1, pace // 50)
        for begin in range(0, end, step):
            piece = data[begin:min(begin + step, end)]
            self.wfile.write(piece)
            self.count(len(piece))
            if pace:
                time.sleep(step / pace)

    def count(self, n):
        with self.server.hub.lock:
            self.server.hub.sent[self.which] += n

    def send_from_disk(self, entry, begin, end):
        with open(entry.content, "rb") as f:
            while begin < end:
                n = os.sendfile(self.connection.fileno(), f.fileno(), begin, min(end - begin, 1 << 20))
                begin += n
                self.count(n)

    def wait_for_client(self):
        """Until the client has left, or the test lets the answer go on."""
        self.server.hub.stalled.set()
        self.close_connection = True
        self.connection.settimeout(0.05)
        while not self.server.hub.go_on.is_set():
            try:
                if not self.connection.recv(1):
                    return
            except (TimeoutError, ssl.SSLWantReadError):
                continue
            except OSError:
                return

    def error(self, code, error_code, message, headers=None):
        headers = {"X-Error-Code": error_code, "X-Error-Message": message, **(headers or {})}
        self.send(code, {k: v for k, v in headers.items() if v},
                  json.dumps({"error": message}).encode())

    def send_part(self, entry, headers):
        """200 or 206 or 416 for a file, as the header Range has it."""
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")) if self.ranged else None
        headers = {"Accept-Ranges": "bytes", "ETag": f'"{entry.etag}"', **headers}
        if not found:
            self.send(200, headers, (entry, 0, entry.size))
            return
        begin = int(found.group(1))
        end = min(int(found.group(2) or entry.size - 1), entry.size - 1) + 1
        if begin >= entry.size:
            self.send(416, {"Content-Range": f"bytes */{entry.size}"})
        else:
            self.send(206, {**headers, "Content-Range": f"bytes {begin}-{end - 1}/{entry.size}"}, (entry, begin, end))


class HubHandler(Handler):
    which = "hub"

    def answer(self):
        hub = self.server.hub
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if "Authorization" in self.headers and token not in hub.tokens:
            self.error(401, None, "Invalid credentials in Authorization header")
            return
        for pattern, method in ((r"/api/models/((?:[^/]+/)?[^/]+)/revision/([^/]+)", self.revision),
                                (r"/api/models/((?:[^/]+/)?[^/]+)/tree/([^/]+)", self.tree),
                                (r"/api/models/((?:[^/]+/)?[^/]+)", self.revision),
                                (r"/api/resolve-cache/models/((?:[^/]+/)?[^/]+)/([0-9a-f]{40})/(.+)", self.small),
                                (r"/((?:[^/]+/)?[^/]+)/resolve/([^/]+)/(.+)", self.resolve)):
            found = re.fullmatch(pattern, self.route)
            if found:
                name, *rest = (urllib.parse.unquote(g) for g in found.groups())
                repo = self.find(name, token)
                if repo:
                    method(repo, *rest)
                return
        self.send(404, {}, b"Not Found")

    def find(self, name, token):
        """The repository, or None once the answer has gone out."""
        hub = self.server.hub
        repo = hub.repos.get(name)
        if repo is None or (repo.private and token not in hub.tokens):
            if token:
                self.error(404, "RepoNotFound", "Repository not found")
            else:
                self.error(401, "RepoNotFound", "Invalid username or password.")
            return None
        if repo.moved_to:
            self.send(307, {"Location": self.path.replace(name, repo.moved_to, 1)})
            return None
        self.token = token
        return repo

    def commit_of(self, repo, revision):
        sha = repo.resolve(revision)
        if sha is None:
            self.error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return sha

    def revision(self, repo, revision="main"):
        sha = self.commit_of(repo, revision)
        if sha is None:
            return
        self.send_json({"_id": "0" * 24, "id": repo.name, "modelId": repo.name, "sha": sha, "private": repo.private,
                        "gated": "auto" if repo.gated else False, "disabled": False, "downloads": 0, "likes": 0,
                        "tags": [], "lastModified": "2026-01-02T03:04:05.000Z",
                        "createdAt": "2026-01-02T03:04:05.000Z",
                        "siblings": [{"rfilename": path} for path in sorted(repo.commits[sha])]})

    def tree(self, repo, revision):
        sha = self.commit_of(repo, revision)
        if sha is None:
            return
        rows = repo.tree(sha)
        if self.query.get("recursive", "").lower() != "true":
            rows = [row for row in rows if "/" not in row["path"]]
        page = self.server.hub.page_entries
        begin = int(self.query.get("cursor", "0"))
        headers = {}
        if begin + page < len(rows):
            query = urllib.parse.urlencode({**self.query, "cursor": begin + page})
            headers["Link"] = f'<{self.server.hub.url}{self.route}?{query}>; rel="next"'
        self.send_json(rows[begin:begin + page], headers)

    def send_json(self, value, headers=None):
        headers = {"Content-Type": "application/json; charset=utf-8", **(headers or {})}
        text = json.dumps(value, ensure_ascii=False).encode()
        if "gzip" in self.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            text = gzip.compress(text)
        self.send(200, headers, text)

    def entry_of(self, repo, sha, path):
        entry = repo.commits[sha].get(path)
        if entry is None:
            self.error(404, "EntryNotFound", f"Entry not found: {path}", {"X-Repo-Commit": sha})
        return entry

    def resolve(self, repo, revision, path):
        if repo.gated and self.token not in self.server.hub.tokens_with_access:
            code, message = (403, "your request is awaiting a review") if self.token else (401, "please log in")
            self.error(code, "GatedRepo", f"Access to model {repo.name} is restricted, {message}")
            return
        sha = self.commit_of(repo, revision)
        entry = sha and self.entry_of(repo, sha, path)
        if not entry:
            return
        headers = {"X-Repo-Commit": sha, "Accept-Ranges": "bytes", "X-Linked-Size": entry.size,
                   "X-Linked-ETag": f'"{entry.etag}"'}
        if entry.lfs:
            headers["Location"] = self.server.hub.sign(entry)
            self.send(302, headers, b"Found. Redirecting to " + headers["Location"].encode())
        else:
            location = f"/api/resolve-cache/models/{repo.name}/{sha}/{urllib.parse.quote(path, safe='')}"
            self.send(307, {**headers, "Location": location}, b"Temporary Redirect. Redirecting to " + location.encode())

    def small(self, repo, sha, path):
        entry = self.entry_of(repo, sha, path)
        if not entry:
            return
        headers = {"X-Repo-Commit": sha, "Content-Type": "text/plain; charset=utf-8"}
        if "gzip" in self.headers.get("Accept-Encoding", "") and path.endswith(TEXT_SUFFIXES):
            headers.update({"Content-Encoding": "gzip", "ETag": f'W/"{entry.etag}"'})
            self.send(200, headers, gzip.compress(entry.read()))
        else:
            self.send_part(entry, headers)


class StoreHandler(Handler):
    """Where signed links lead. It has no accounts: a request with a token is refused, as such stores do."""
    which = "store"

    def answer(self):
        hub = self.server.hub
        if "Authorization" in self.headers:
            self.send(400, {}, b"<Error><Code>InvalidArgument</Code></Error>")
            return
        with hub.lock:
            entry = hub.links.get(self.query.get("Signature"))
        if entry is None:
            self.send(403, {}, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")
        else:
            self.send_part(entry, {"Content-Type": "binary/octet-stream"})


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], (OSError, ssl.SSLError)):
            super().handle_error(request, client_address)


class FakeHub:
    """tls: (certificate file, key file) makes both servers speak HTTPS. ports: 0 for any free one."""

    def __init__(self, tls=None, port=0, host="127.0.0.1"):
        self.tls, self.port, self.host = tls, port, host
        self.repos, self.links, self.faults = {}, {}, []
        self.links_last = True
        self.requests = []
        self.sent = collections.Counter()     # body bytes of each server
        self.tokens = {"hf_good", "hf_noaccess"}
        self.tokens_with_access = {"hf_good"}
        self.page_entries = 1000
        self.lock = threading.Lock()
        self.stalled, self.go_on = threading.Event(), threading.Event()
        self.numbers = itertools.count(1)

    def __enter__(self):
        self.servers = [self._start(HubHandler, self.port), self._start(StoreHandler, 0)]
        scheme = "https" if self.tls else "http"
        self.url, self.store_url = (f"{scheme}://{self.host}:{s.server_address[1]}" for s in self.servers)
        return self

    def _start(self, handler, port):
        server = Server((self.host, port), handler)
        server.hub = self
        if self.tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.tls)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    def __exit__(self, *_):
        self.go_on.set()
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def add(self, name, files, **kind):
        self.repos[name] = Repo(name, files, **kind)
        return self.repos[name]

    def on(self, pattern, fault, times=1, server="hub"):
        """The next `times` requests whose path matches get this fault (None: all of them)."""
        with self.lock:
            self.faults.append([server, re.compile(pattern), fault, times])

    def next_fault(self, server, path):
        with self.lock:
            for row in self.faults:
                if row[0] == server and row[1].search(path) and row[3] != 0:
                    if row[3] is not None:
                        row[3] -= 1
                    return row[2]
        return None

    def sign(self, entry):
        number = next(self.numbers)
        signature = hashlib.sha256(f"{number}{entry.etag}".encode()).hexdigest()
        with self.lock:
            if self.links_last:
                self.links[signature] = entry
        return f"{self.store_url}/{entry.etag}?Expires={1 << 31}&Signature={signature}"

    def forget(self):
        """Begins the records anew and takes all faults away."""
        with self.lock:
            self.requests, self.faults = [], []
            self.sent.clear()
        self.stalled.clear()
        self.go_on.clear()

    def paths(self, server=None):
        """Paths without their queries, in order."""
        with self.lock:
            return [r.path.split("?")[0] for r in self.requests if server in (None, r.server)]


def http_date(seconds_from_now):
    return email.utils.formatdate(time.time() + seconds_from_now, usegmt=True)


def files_of(directory):
    """path -> path on disk of every file below a directory."""
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, directory)] = path
    return found


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with FakeHub(port=int(os.environ.get("PORT", "0"))) as served:
        served.add(sys.argv[2], files_of(sys.argv[1]))
        print(f"HF_ENDPOINT={served.url}", flush=True)
        threading.Event().wait()
