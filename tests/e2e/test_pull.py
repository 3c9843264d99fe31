#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`hearth pull`, `hearth list` and `--pull` against fake_hub.py on loopback: requests, files, tries, exit statuses,
progress, security. No network. test_pull_client.py compares trees with huggingface_hub's own."""
import contextlib
import email.utils
import fcntl
import hashlib
import json
import os
import pty
import re
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

import fake_hub
import gguf_files
from fake_hub import FakeHub, changed, corrupt, cut, http_date, ignore_range, no_answer, redirect, reset, stall, status
from hearth_server import BIN, DEMO, PATIENCE, SKIPPED, Hearth, run_cases

HUB = None
VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE",
             "TRANSFORMERS_OFFLINE", "HUGGINGFACE_HUB_CACHE", "HF_ENDPOINT", "http_proxy", "https_proxy", "XDG_CACHE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE")


def read(name):
    with open(os.path.join(DEMO, name), "rb") as f:
        return f.read()


TAKEN = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
         "model.safetensors")
FILES = {name: read(name) for name in TAKEN}
WEIGHTS = FILES["model.safetensors"]
OTHERS = {"README.md": b"# x", "pytorch_model.bin": b"pickle", "model.fp16.safetensors": b"v", "original/params.json": b"{}",
          "code.py": b"x", "model.onnx": b"o", "additional_chat_templates/rag.jinja": b"{{ x }}",
          "additional_chat_templates/deep/no.jinja": b"no"}


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err
        self.last = err.strip().splitlines()[-1] if err.strip() else ""

    def __str__(self):
        return f"exit {self.code}, stdout {self.out!r}, stderr {self.err!r}"


class Home:
    """An empty home whose cache is `self.cache`."""

    def __init__(self, directory):
        self.directory, self.cache = directory, os.path.join(directory, "hub")

    def env(self, **more):
        env = {k: v for k, v in os.environ.items() if k not in VARIABLES}
        env.update({"HOME": self.directory, "HF_HUB_CACHE": self.cache, "HF_ENDPOINT": HUB.url,
                    "HF_HUB_ETAG_TIMEOUT": "60", "HF_HUB_DOWNLOAD_TIMEOUT": "60"})
        env.update(more)
        return {k: v for k, v in env.items() if v is not None}

    def start(self, *args, **env):
        return subprocess.Popen([BIN, *args], env=self.env(**env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def run(self, *args, limit=None, **env):
        def before():
            os.umask(0o022)
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        p = subprocess.run([BIN, *args], env=self.env(**env), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=60, check=False, preexec_fn=before)
        return Result(p.returncode, p.stdout, p.stderr)

    def pull(self, name="acme/tiny", *args, **kw):
        return self.run("pull", name, "--debug-retry-ms", "5", *args, **kw)

    def repo(self, name="acme/tiny"):
        return os.path.join(self.cache, "models--" + name.replace("/", "--"))

    def wait_for_part(self, n_bytes):
        """Until the part file has this many bytes."""
        deadline = time.monotonic() + PATIENCE

        def size(name):
            with contextlib.suppress(FileNotFoundError):  # complete meanwhile
                return os.path.getsize(os.path.join(self.repo(), "blobs", name))
            return 0
        while max(map(size, self.parts()), default=0) < n_bytes:
            assert time.monotonic() < deadline, "the bytes do not reach the disk"
            time.sleep(0.005)

    def parts(self, name="acme/tiny"):
        blobs = os.path.join(self.repo(name), "blobs")
        return sorted(n for n in os.listdir(blobs) if n.endswith(".incomplete")) if os.path.isdir(blobs) else []


@contextlib.contextmanager
def home():
    HUB.forget()
    with tempfile.TemporaryDirectory() as directory:
        yield Home(directory)


def add(name="acme/tiny", **kind):
    return HUB.add(name, dict(FILES, **OTHERS), **kind)


def must(result, code, pattern=""):
    assert result.code == code, result
    assert re.search(pattern, result.last), f"{pattern!r}: {result}"
    if code not in (0, 130, 143):
        assert result.last.startswith("hearth: "), result
    return result


def snapshot_of(path):
    found = {}
    for folder, _, names in os.walk(path):
        for name in names:
            full = os.path.join(folder, name)
            with open(full, "rb") as f:
                found[os.path.relpath(full, path)] = f.read()
    return found


WANTED = dict(FILES, **{"additional_chat_templates/rag.jinja": OTHERS["additional_chat_templates/rag.jinja"]})


# ---- the order of requests, the files taken (A3, A4) -------------------------------------------------------------

def test_whole_model():
    repo = add()
    with home() as h:
        r = must(h.pull(), 0)
        path = os.path.join(h.repo(), "snapshots", repo.refs["main"])
        assert r.out == path + "\n", r
        assert snapshot_of(path) == WANTED
        paths = HUB.paths("hub")
        assert paths[0] == "/api/models/acme/tiny/revision/main"
        assert paths[1] == f"/api/models/acme/tiny/tree/{repo.refs['main']}"
        resolved = [p.split("/", 5)[5] for p in paths if "/resolve/" in p]
        assert resolved[0] == "config.json" and sorted(resolved) == sorted(WANTED)
        assert resolved[-1] == "model.safetensors", resolved  # the largest comes last
        assert all(r.method == "GET" for r in HUB.requests)
        tree = next(r for r in HUB.requests if "/tree/" in r.path)
        assert tree.path.endswith("?recursive=true&expand=false")
        assert all(r.headers["User-Agent"].startswith("hearth/") for r in HUB.requests)
        assert all(r.headers["Accept-Encoding"] == "identity" for r in HUB.requests)


def test_what_is_written():
    repo = add()
    with home() as h:
        must(h.pull(), 0)
        sha = repo.refs["main"]
        with open(os.path.join(h.cache, "CACHEDIR.TAG"), encoding="ascii") as f:
            assert f.readline() == "Signature: 8a477f597d28d172789f06886806bc55\n"
        with open(os.path.join(h.repo(), "refs", "main"), encoding="ascii") as f:
            assert f.read() == sha
        with open(os.path.join(h.repo(), "trees", sha + ".json"), encoding="ascii") as f:
            text = f.read()
        tree = json.loads(text)
        assert json.dumps(tree, indent=1) == text and list(tree["files"]) == sorted(tree["files"])
        assert set(tree["files"]) == set(FILES) | set(OTHERS)
        for path, content in WANTED.items():
            link = os.path.join(h.repo(), "snapshots", sha, path)
            target = os.readlink(link)
            assert target.startswith("../" * (2 + path.count("/")) + "blobs/"), target
            mode = os.stat(link).st_mode
            assert stat.S_IMODE(mode) == 0o644, oct(mode)
            lfs = path.endswith(".safetensors")
            etag = hashlib.sha256(content).hexdigest() if lfs else fake_hub.git_blob(content)
            assert os.path.basename(target) == etag
        assert not h.parts()


def test_nothing_to_do_is_one_request():
    add()
    with home() as h:
        must(h.pull(), 0)
        HUB.forget()
        must(h.pull(), 0)
        assert HUB.paths() == ["/api/models/acme/tiny/revision/main"]


def test_revisions():
    repo = add()
    first = repo.refs["main"]
    second = repo.commit(dict(FILES, **{"generation_config.json": b"{}"}), "refs/pr/1")
    with home() as h:
        assert must(h.pull("acme/tiny@refs/pr/1"), 0).out.strip().endswith(second)
        assert HUB.paths()[0] == "/api/models/acme/tiny/revision/refs%2Fpr%2F1"
        assert os.path.exists(os.path.join(h.repo(), "refs", "refs", "pr", "1"))
        HUB.forget()
        assert must(h.pull(f"acme/tiny@{first}"), 0).out.strip().endswith(first)
        assert not any("/revision/" in p for p in HUB.paths()), "a commit is not asked for"
        assert not os.path.exists(os.path.join(h.repo(), "refs", "main"))


def test_a_renamed_repository_keeps_its_name():
    add("acme/new")
    HUB.add("acme/old", {}, moved_to="acme/new")
    with home() as h:
        assert "models--acme--old" in must(h.pull("acme/old"), 0).out


def test_shards():
    half = len(WEIGHTS) // 2
    index = json.dumps({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}).encode()
    files = {k: v for k, v in FILES.items() if k != "model.safetensors"}
    files.update({"model.safetensors.index.json": index, "m-1.safetensors": WEIGHTS[:half], "m-2.safetensors": WEIGHTS[half:],
                  "m-3.safetensors": b"not named"})
    HUB.add("acme/shards", files)
    with home() as h:
        path = must(h.pull("acme/shards"), 0).out.strip()
        assert set(snapshot_of(path)) == set(files) - {"m-3.safetensors"}
    del files["m-2.safetensors"]
    HUB.add("acme/shards", files)
    with home() as h:
        must(h.pull("acme/shards"), 6, "m-2.safetensors")
        assert not any("safetensors" in p and "index" not in p for p in HUB.paths()), "before any shard"


def test_unsupported_models_end_before_any_weight():
    HUB.add("acme/whisper", dict(FILES, **{"config.json": b'{"architectures": ["WhisperForConditionalGeneration"]}'}))
    pickle = {k: v for k, v in FILES.items() if k != "model.safetensors"}
    HUB.add("acme/pickle", dict(pickle, **{"pytorch_model.bin": b"x"}))
    with home() as h:
        must(h.pull("acme/whisper"), 8, "WhisperForConditionalGeneration")
        assert not any(p.endswith(".safetensors") for p in HUB.paths())
        must(h.pull("acme/pickle"), 8, r"no safetensors weights \(it has pytorch_model.bin; pickle files can run code")
        assert not any("/resolve/" in p and "pickle" in p for p in HUB.paths())


# ---- listings ----------------------------------------------------------------------------------------------------

def test_pages():
    add()
    HUB.page_entries = 3
    try:
        with home() as h:
            must(h.pull(), 0)
            assert sum("/tree/" in p for p in HUB.paths()) == 6, "17 entries, 3 per page"
            sha = HUB.repos["acme/tiny"].refs["main"]
        with home() as h:
            loop = {"Link": f'<{HUB.url}/api/models/acme/tiny/tree/{sha}?recursive=true&expand=false>; rel="next"'}
            HUB.on("/tree/", changed(headers=loop))
            must(h.pull(), 6, "lists twice")
        with home() as h:
            HUB.on("/tree/", changed(headers={"Link": f'<{HUB.store_url}/x>; rel="next"'}))
            must(h.pull(), 6, "another host")
            assert not HUB.paths("store") and not os.path.exists(h.cache)
    finally:
        HUB.page_entries = 1000


def test_listings_that_are_not_safe():
    rows = [{"type": "file", "oid": "0" * 40, "size": 1, "path": "config.json"}]
    bad = ["../x", "/etc/x", "a//b", "a/./b", "", "a\\b", "a\nb", "x" * 256, "a/" * 600 + "b"]
    add()
    for path in bad:
        with home() as h:
            body = json.dumps(rows + [dict(rows[0], path=path)]).encode()
            HUB.on("/tree/", changed(body=body, length=len(body)))
            must(h.pull(), 6)
            assert not os.path.exists(h.cache), path
    odd = [json.dumps(rows + rows), json.dumps([dict(rows[0], size=-1)]), json.dumps([dict(rows[0], size=1 << 63)]),
           json.dumps([dict(rows[0], oid="xyz")]), json.dumps([dict(rows[0], size="1")]), "<html>", "{}", "[1]", "["]
    for text in odd:
        with home() as h:
            HUB.on("/tree/", changed(body=text.encode(), length=len(text)))
            must(h.pull(), 6)
            assert not os.path.exists(h.cache), text
    with home() as h:
        HUB.on("/revision/", changed(body=b'{"sha": "main"}', length=15))
        must(h.pull(), 6, "HF_ENDPOINT")


# ---- who may (A6) ------------------------------------------------------------------------------------------------

def test_not_found_and_not_allowed():
    add()
    add("acme/hidden", private=True)
    add("acme/gated", gated=True)
    with home() as h:
        must(h.pull("acme/none"), 3, "no such model on .*, or a private one .no token was sent.")
        must(h.pull("acme/none", HF_TOKEN="hf_good"), 3)
        must(h.pull("acme/tiny@v9"), 3, "acme/tiny has no revision 'v9'")
        must(h.pull("acme/hidden"), 3)
        must(h.pull("acme/hidden", HF_TOKEN="hf_good"), 0)
        must(h.pull("acme/gated"), 4, "is gated: accept its licence at .*/acme/gated, then set HF_TOKEN")
        must(h.pull("acme/gated", HF_TOKEN="hf_noaccess"), 4, "gated")
        must(h.pull("acme/gated", HUGGING_FACE_HUB_TOKEN=" hf_good\n"), 0)
        must(h.pull("acme/tiny", HF_TOKEN="hf_wrong"), 4, "the hub does not accept the token in HF_TOKEN")


def test_usage():
    with home() as h:
        for name in ("a/b/c", "../x", "a b", "acme/", "-x/y@", "acme/x@../y"):
            must(h.pull(name), 2)
        must(h.pull("acme/x", HF_ENDPOINT="ftp://x"), 2)
        must(h.pull("acme/x", HF_TOKEN="a\x01b"), 2)
        must(h.run("pull"), 2)
        assert HUB.paths() == []


def test_token_from_its_file_and_where_it_goes():
    add()
    with home() as h:
        path = os.path.join(h.directory, "token")
        with open(path, "w", encoding="ascii") as f:
            f.write(" hf_good\n")
        r = must(h.pull(HF_TOKEN_PATH=path), 0)
        for request in HUB.requests:
            wanted = "Bearer hf_good" if request.server == "hub" else None
            assert request.headers.get("Authorization") == wanted, request
        assert "hf_good" not in r.out + r.err
    with home() as h:
        must(h.pull(HF_TOKEN_PATH=path, HF_HUB_DISABLE_IMPLICIT_TOKEN="1"), 0)
        assert not any("Authorization" in r.headers for r in HUB.requests)


def test_redirects():
    add()
    for target, code in (("file:///etc/passwd", 6), ("ftp://127.0.0.1/x", 6)):
        with home() as h:
            HUB.on(r"/resolve/.*/config.json", redirect(target), times=None)
            must(h.pull(), code, "which is not followed")
    with home() as h:
        HUB.on(r"/resolve/", redirect(HUB.url + "/acme/tiny/resolve/main/config.json"), times=None)
        must(h.pull(), 5, "more than 5 redirects")


def make_certificate(directory):
    cert, key = os.path.join(directory, "cert.pem"), os.path.join(directory, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def test_tls():
    if not shutil.which("openssl"):
        print("no openssl to make a certificate with: TLS to the hub is not tested")
        return
    with home() as h:
        cert, key = make_certificate(h.directory)
        with FakeHub(tls=(cert, key)) as hub:
            hub.add("acme/tiny", dict(FILES, **OTHERS))
            must(h.pull(HF_ENDPOINT=hub.url), 5, "the hub's certificate is not trusted")
            assert hub.requests == [], "no request before the certificate is checked"
            hub.on(r"/resolve/", redirect(HUB.url + "/acme/tiny/resolve/main/config.json"))
            must(h.pull(HF_ENDPOINT=hub.url, SSL_CERT_FILE=cert), 6, "redirected to http:, which is not followed")
            must(h.pull(HF_ENDPOINT=hub.url, CURL_CA_BUNDLE=cert), 0)
        assert HUB.paths() == []


# ---- bodies (A5) -------------------------------------------------------------------------------------------------

def ranges():
    return [r.headers.get("Range") for r in HUB.requests if r.server == "store"]


def test_a_cut_body_is_resumed_at_the_byte():
    add()
    with home() as h:
        HUB.on("/", cut(1000001), server="store")
        must(h.pull(), 0)
        assert ranges() == [None, "bytes=1000001-"] and HUB.sent["store"] == len(WEIGHTS), (ranges(), HUB.sent)


def test_answers_to_a_range_that_are_not_the_rest():
    add()
    size = len(WEIGHTS)
    wrong = [ignore_range, changed(headers={"Content-Range": f"bytes 5-{size - 1}/{size}"}),
             changed(headers={"Content-Range": None}), changed(headers={"Content-Range": f"bytes 500000-{size - 1}/{size + 1}"}),
             status(416)]
    for fault in wrong:
        with home() as h:
            HUB.on("/", cut(500000), server="store")
            HUB.on("/", fault, server="store")
            must(h.pull(), 0)
            assert ranges()[1] == "bytes=500000-" and (len(ranges()) == 2 or ranges()[2] is None), ranges()


def test_wrong_content():
    add()
    with home() as h:
        HUB.on("/", corrupt, server="store")
        must(h.pull(), 0)
        assert ranges() == [None, None]
    with home() as h:
        HUB.on("/", corrupt, times=None, server="store")
        must(h.pull(), 6, r"model.safetensors: SHA-256 mismatch on two attempts: expected \w{8}\u2026, got \w{8}\u2026")
        assert len(ranges()) == 2 and HUB.sent["store"] <= 2 * len(WEIGHTS)
        assert not os.path.exists(os.path.join(h.repo(), "refs", "main")), "a half pull does not resolve"
        must(h.run("inspect", "acme/tiny"), 1, "hearth pull acme/tiny")
    with home() as h:
        HUB.on("/acme/tiny/resolve/.*/tokenizer.json|resolve-cache.*/tokenizer.json", corrupt, times=None)
        must(h.pull(), 6, r"tokenizer.json: SHA-1 mismatch on two attempts")


def test_a_body_that_is_too_long_is_cut():
    add()
    with home() as h:
        HUB.on("/", changed(body=WEIGHTS + b"x" * 100000, length=len(WEIGHTS) + 100000), server="store")
        must(h.pull(), 0)


def test_mirrors_without_etags():
    add()
    bare = changed(headers={"ETag": None, "X-Linked-ETag": None, "X-Linked-Size": None})
    with home() as h:
        HUB.on("/resolve", bare, times=None)
        HUB.on("/", bare, times=None, server="store")
        must(h.pull(), 0)
    with home() as h:
        HUB.on("/resolve", changed(headers={"ETag": '"x"', "X-Linked-ETag": '"y"', "X-Linked-Size": "3"}), times=None)
        must(h.pull(), 0)


def test_equal_content_is_one_transfer():
    HUB.add("acme/equal", dict(FILES, **{"vocab.json": FILES["tokenizer_config.json"]}))
    with home() as h:
        path = must(h.pull("acme/equal"), 0).out.strip()
        assert os.readlink(path + "/vocab.json") == os.readlink(path + "/tokenizer_config.json")
        assert sum(p.endswith(("vocab.json", "tokenizer_config.json")) and "/resolve/" in p for p in HUB.paths()) == 1


def test_found_damage_is_fetched_again():
    add()
    with home() as h:
        path = must(h.pull(), 0).out.strip()
        blob = os.path.realpath(path + "/model.safetensors")
        os.truncate(blob, 1000)
        must(h.pull(), 0)
        assert snapshot_of(path) == WANTED
        os.unlink(os.path.realpath(path + "/tokenizer.json"))
        must(h.pull(), 0)
        assert snapshot_of(path) == WANTED
        HUB.forget()
        must(h.pull("acme/tiny", "--force"), 0)
        assert sum("/resolve/" in p for p in HUB.paths()) == len(WANTED), HUB.paths()


def test_parts_of_other_tools_are_adopted():
    add()
    etag = hashlib.sha256(WEIGHTS).hexdigest()
    cases = {"half": (WEIGHTS[:1000], ["bytes=1000-"]), "whole": (WEIGHTS, []), "longer": (WEIGHTS + b"x", [None]),
             "wrong": (b"x" * 1000, ["bytes=1000-", None])}
    for name, (content, wanted) in cases.items():
        with home() as h:
            os.makedirs(os.path.join(h.repo(), "blobs"))
            with open(os.path.join(h.repo(), "blobs", f"{etag}.0123abcd.incomplete"), "wb") as f:
                f.write(content)
            must(h.pull(), 0)
            assert ranges() == wanted, (name, ranges())
            assert h.parts() == []


def test_links_that_expire():
    add()
    with home() as h:
        HUB.on("/", status(403), server="store")
        must(h.pull(), 0)
        assert sum("/resolve/" in p and "safetensors" in p for p in HUB.paths("hub")) == 2, "a new link is asked for"


# ---- tries and stops (A6) ----------------------------------------------------------------------------------------

def test_what_is_tried_again():
    add()
    for fault in (status(408), status(429), status(500), status(502), status(503), status(504), reset, cut(1)):
        for pattern in ("/revision/", "/tree/", "/resolve/.*config.json"):
            with home() as h:
                HUB.on(pattern, fault, times=2)
                must(h.pull(), 0)
    with home() as h:
        HUB.on("/revision/", status(503), times=None)
        must(h.pull(), 5, "status 503, 5 tries")
        assert len(HUB.paths()) == 5
    with home() as h:
        HUB.on("/revision/", status(429, {"Retry-After": "3600"}), times=None)
        must(h.pull(), 5, "the hub asks to come back in 60 min")
        assert len(HUB.paths()) == 1
    with home() as h:
        date = http_date(2)
        HUB.on("/revision/", status(429, {"Retry-After": date}))
        must(h.pull(), 0)
        assert time.time() >= email.utils.parsedate_to_datetime(date).timestamp(), "the date is waited for"
    with home() as h:
        HUB.on("/revision/", status(429, {"RateLimit": '"api";r=0;t=900'}))
        must(h.pull(), 5, "15 min")


def test_progress_resets_the_count_of_tries():
    add()
    with home() as h:
        for n in range(8):
            HUB.on("/", cut(100000), server="store")
        must(h.pull(), 0)
        assert len(ranges()) == 9
    with home() as h:
        HUB.on("/", cut(10), times=None, server="store")
        must(h.pull(), 5, r"5 tries; \d+ % is kept, the next pull goes on from there")


def test_stalls_end():
    add()
    with home() as h:
        HUB.on("/", stall(1000), times=None, server="store")
        must(h.pull(HF_HUB_DOWNLOAD_TIMEOUT="1"), 5, r"model.safetensors: .*byte for 1 s, 5 tries")
    with home() as h:
        HUB.on("/revision/", no_answer, times=None)
        must(h.pull(HF_HUB_ETAG_TIMEOUT="1"), 5, "no answer")
    with home() as h:
        HUB.on("/revision/", fake_hub.raw(b"HTTP/1.1 200 OK\r\n" + b"X-A: " + b"y" * 1000 + b"\r\n" * 1 + b"X: z\r\n" * 20000), times=None)
        must(h.pull(), 5, "header")


def test_signals_keep_what_came():
    for sig, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        add()
        with home() as h:
            HUB.on("/", stall(len(WEIGHTS) // 2), server="store")
            p = h.start("pull", "acme/tiny", HF_HUB_DOWNLOAD_TIMEOUT="3600")
            assert HUB.stalled.wait(PATIENCE)
            h.wait_for_part(len(WEIGHTS) // 2)
            p.send_signal(sig)
            out, err = p.communicate(timeout=PATIENCE)
            assert p.returncode == code, (p.returncode, err)
            assert re.search(r"hearth: stopped; \d+ % is kept$", err.strip()), err
            HUB.forget()
            must(h.pull(), 0)
            assert HUB.sent["store"] <= len(WEIGHTS) // 2 + (256 << 10), HUB.sent


def test_kill_at_a_byte_and_resume():
    add()
    for at in (1, 70000, 1500000, len(WEIGHTS) - 1):
        with home() as h:
            HUB.on("/", stall(at), server="store")
            p = h.start("pull", "acme/tiny")
            assert HUB.stalled.wait(PATIENCE)
            h.wait_for_part(at)
            p.kill()
            p.communicate()
            HUB.forget()
            path = must(h.pull(), 0).out.strip()
            assert snapshot_of(path) == WANTED
            assert HUB.sent["store"] <= len(WEIGHTS) - at + (256 << 10), (at, HUB.sent)


def test_two_pulls_at_once():
    add()
    with home() as h:
        HUB.on("/", stall(1000), server="store")
        first = h.start("pull", "acme/tiny")
        assert HUB.stalled.wait(PATIENCE)
        second = h.start("pull", "acme/tiny")
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(second.stderr))
        reader.start()
        deadline = time.monotonic() + PATIENCE
        while not any("wait" in line for line in lines) and time.monotonic() < deadline:
            time.sleep(0.01)
        HUB.go_on.set()
        assert first.wait(PATIENCE) == 0 and second.wait(PATIENCE) == 0, lines
        reader.join()
        assert any("wait" in line for line in lines), lines
        first.communicate()
        second.stdout.close()
        assert snapshot_of(os.path.join(h.repo(), "snapshots", HUB.repos["acme/tiny"].refs["main"])) == WANTED


def test_locks_that_cannot_be_had():
    add()
    with home() as h:
        os.makedirs(h.cache)
        with open(os.path.join(h.cache, ".locks"), "w", encoding="ascii"):
            pass
        must(h.pull(), 0)


# ---- the disk ----------------------------------------------------------------------------------------------------

def test_no_space():
    add()
    with home() as h:
        must(h.pull("acme/tiny", limit=1 << 20), 7, "no space")
        assert h.parts(), "the part is kept"
        must(h.pull(), 0)


def test_links_in_place_of_folders():
    add()
    with home() as h, tempfile.TemporaryDirectory() as elsewhere:
        os.makedirs(h.repo())
        os.symlink(elsewhere, os.path.join(h.repo(), "blobs"))
        must(h.pull(), 7, "is not a folder")
        assert os.listdir(elsewhere) == []


# ---- offline, unreachable, --pull --------------------------------------------------------------------------------

def test_offline_and_unreachable():
    add()
    nowhere = "http://127.0.0.1:1"
    with home() as h:
        must(h.pull(HF_HUB_OFFLINE="1"), 5, r"offline \(HF_HUB_OFFLINE\), and acme/tiny is not in the cache")
        must(h.pull(), 0)
        HUB.forget()
        for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            must(h.pull(**{variable: "1"}), 0)
        assert HUB.paths() == []
        must(h.pull(HF_ENDPOINT=nowhere), 5)
        generate = ("generate", "--prompt", "Once", "-n", "1", "--debug-retry-ms", "5", "--model", "acme/tiny", "--pull")
        r = must(h.run(*generate, HF_ENDPOINT=nowhere), 0)
        assert re.search(r"the hub cannot be reached; serving the copy of \d{4}-\d\d-\d\d", r.err), r
        HUB.on("/revision/", status(429, {"Retry-After": "3600"}))
        must(h.run(*generate), 0)
        must(h.run("generate", "--prompt", "Once", "-n", "1", "--model", "acme/none", "--pull"), 3)
        must(h.run("generate", "--prompt", "Once", "-n", "1", "-hf", "acme/tiny"), 0)
        HUB.forget()
        must(h.run("generate", "--prompt", "Once", "-n", "1", "--model", "acme/tiny"), 0)
        assert HUB.paths() == [], "without --pull nothing goes to the network"


def test_a_complete_copy_makes_one_short_try_enough():
    add()
    dead = socket.socket()
    dead.bind(("127.0.0.1", 0))
    dead.listen(16)  # whoever connects waits for an answer
    generate = ("generate", "--prompt", "Once", "-n", "1", "--model", "acme/tiny", "--pull")
    with home() as h, dead:
        must(h.pull(), 0)
        for where in ("http://127.0.0.1:1", f"http://127.0.0.1:{dead.getsockname()[1]}"):
            begin = time.monotonic()
            r = must(h.run(*generate, HF_ENDPOINT=where, HF_HUB_ETAG_TIMEOUT=None), 0)
            assert "serving the copy of" in r.err and "try" not in r.err, r
            assert time.monotonic() - begin < 8, "a try of 3 s"
        with Hearth("--model", "acme/tiny", "--pull", env=h.env(HF_ENDPOINT="http://127.0.0.1:1")) as server:
            assert server.get("/v1/models")[0] == 200
        HUB.forget()
        HUB.on("/revision/", status(503, {"Retry-After": "5"}), times=None)
        assert "serving the copy of" in must(h.run(*generate), 0).err
        assert len(HUB.paths()) == 1, HUB.paths()
        # what moved meanwhile is fetched with all the tries
        HUB.forget()
        HUB.add("acme/tiny", dict(FILES, **{"generation_config.json": b"{}"}))
        HUB.on("/resolve/", status(503))
        r = must(h.run(*generate, "--debug-retry-ms", "5"), 0)
        assert "serving the copy of" not in r.err and "status 503" in r.err, r


def test_serve_pull():
    add()
    with home() as h:
        HUB.on("/", stall(len(WEIGHTS) // 2), server="store")
        server = Hearth("--model", "acme/tiny", "--pull", env=h.env(), wait_ready=False)
        for name in VARIABLES:
            if name not in h.env():
                server.env.pop(name, None)
        server.start()
        try:
            assert HUB.stalled.wait(PATIENCE)
            state = lambda: server.get("/readyz")[2]
            server.wait_until(lambda: state().get("percent", 0) >= 40, 10, "the percentage")
            status_code, head, body = server.get("/readyz")
            assert status_code == 503 and body["status"] == "pulling" and 40 <= body["percent"] <= 60, body
            assert server.get("/livez")[0] == 200 and server.request("GET", "/")[0] == 200
            code, head, answer = server.post("/v1/completions", {"prompt": "x"})
            assert code == 503 and answer["error"]["code"] == "model_loading", answer
            told = re.fullmatch(r"The model is being downloaded, (\d+) %\.", answer["error"]["message"])
            assert told and 40 <= int(told.group(1)) <= 60 and 1 <= int(head["retry-after"]) <= 60, (head, answer)
            HUB.go_on.set()
            server.wait_until(server.ready.is_set, 20, "ready")
            assert server.get("/v1/models")[2]["data"][0]["id"] == "acme/tiny"
        finally:
            assert server.stop() == 0


def test_serve_pull_fails_with_its_status():
    with home() as h:
        r = h.run("serve", "--port", "0", "--model", "acme/none", "--pull")
        assert r.code == 3 and "no such model" in r.err, r


def test_pull_fetches_the_draft_model_too():
    add()
    draft = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/draft")
    files = {}
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        with open(os.path.join(draft, name), "rb") as f:
            files[name] = f.read()
    HUB.add("acme/small", files)
    generate = ("generate", "--model", DEMO, "--prompt", "Once", "-n", "1", "--draft-model", "acme/small")
    with home() as h:
        must(h.run(*generate), 1, "draft-model: model .acme/small. is neither .* or add --pull")
        assert HUB.paths() == [], "without --pull nothing goes to the network"
        check = ("serve", "--check-config", "--model", DEMO, "--pull", "--draft-model")
        assert "acme/small is fetched at the start" in must(h.run(*check, "acme/small"), 0).err and HUB.paths() == []
        must(h.run(*generate, "--pull"), 0)
        HUB.forget()
        must(h.run(*generate), 0)
        must(h.run(*check, "acme/small"), 0)
        assert HUB.paths() == []
        must(h.run(*generate[:-1], "acme/none", "--pull"), 3)
        with Hearth("--model", "acme/tiny", "--draft-model", "acme/small", "--pull", env=h.env()) as server:
            assert server.get("/props")[2]["draft_model"]["model"] == "acme/small"


def test_an_adapter_is_pulled_and_served():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "lora")
    files = {name: open(os.path.join(folder, name), "rb").read() for name in ("adapter_config.json", "adapter_model.safetensors")}
    HUB.add("acme/ahoy", {**files, "README.md": b"# x", "training_args.bin": b"pickle", "tokenizer.json": b"{}"})
    with home() as h:
        must(h.pull("acme/ahoy"), 0)
        assert {os.path.basename(path) for path in HUB.paths() if "/resolve/" in path} == set(files), HUB.paths()
        with Hearth("--model", "demo", "--lora", "ahoy=acme/ahoy", env=h.env()) as server:
            models = {m["id"]: m for m in server.get("/v1/models")[2]["data"]}
            assert models["ahoy"]["parent"] == "hearth-demo" and h.repo("acme/ahoy") in models["ahoy"]["root"], models


# ---- where the cache is ------------------------------------------------------------------------------------------

def test_cache_dir():
    add()
    with home() as h:
        other, third = (os.path.join(h.directory, name) for name in ("other", "third"))
        path = must(h.pull("acme/tiny", "--cache-dir", other), 0).out.strip()
        assert path.startswith(other + "/models--acme--tiny/snapshots/") and not os.path.exists(h.cache), path
        generate = ("generate", "--prompt", "Once", "-n", "1", "--model", "acme/tiny")
        must(h.run(*generate), 1, "neither a directory nor in the Hugging Face cache")
        must(h.run(*generate, HEARTH_CACHE_DIR=other), 0)
        assert "acme/tiny" in must(h.run("list", "--cache-dir", other), 0).out
        ini = os.path.join(h.directory, "hearth.ini")
        with open(ini, "w", encoding="utf-8") as f:
            f.write(f"[model]\nmodel = acme/tiny\npull = on\ncache-dir = {third}\n")
        assert must(h.run("pull", "--config", ini), 0).out.startswith(third + "/")
        with Hearth("--config", ini, env=h.env(HF_HUB_CACHE="/nowhere")) as server:
            assert server.get("/v1/models")[2]["data"][0]["id"] == "acme/tiny"
        must(h.pull(HF_HUB_CACHE=None, HOME=None), 2, "no place for models: set --cache-dir, HF_HUB_CACHE or HOME")
        must(h.run(*generate, HF_HUB_CACHE=None, HOME=None), 1, "set --cache-dir, HF_HUB_CACHE or HOME")


def in_own_mounts(h, uid, *command, **env):
    """As root with a /var/cache that has the service's folder, which belongs to uid."""
    prepare = f"mount -t tmpfs none /var/cache && install -d -o {uid} -g {uid} /var/cache/hearth && exec \"$@\""
    p = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", prepare, "sh", *command], env=h.env(**env),
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    return Result(p.returncode, p.stdout, p.stderr)


def test_root_fills_the_cache_of_the_service():
    if os.geteuid() != 0:
        print("  (left out: only root fills the service's cache)")
        return
    add()
    with home() as h:
        look = f"{BIN} pull acme/tiny && stat -c '%u %g' $(find /var/cache/hearth) | sort | uniq -c && {BIN} list"
        r = must(in_own_mounts(h, 4321, "sh", "-c", look, HF_HUB_CACHE=None), 0)
        assert "hearth: pulling into the service's cache, /var/cache/hearth/hub" in r.err, r
        assert r.out.startswith("/var/cache/hearth/hub/models--acme--tiny/snapshots/"), r
        assert re.search(r"^ +\d\d 4321 4321\nMODEL .*\nacme/tiny ", r.out, re.M), r
        r = must(in_own_mounts(h, 4321, BIN, "pull", "acme/tiny"), 0)
        assert r.out.startswith(h.cache + "/") and "service" not in r.err, r


# ---- progress, dry run, list -------------------------------------------------------------------------------------

def in_terminal(h, *args, keys="", **env):
    """(exit status, what a terminal of 80 columns gets)"""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 80, 0, 0))
    p = subprocess.Popen([BIN, *args], env=h.env(TERM="xterm", **env), stdin=side, stdout=subprocess.PIPE, stderr=side)
    os.close(side)
    os.write(main, keys.encode())
    seen = b""
    with contextlib.suppress(OSError):
        while piece := os.read(main, 65536):
            seen += piece
    os.close(main)
    p.stdout.close()
    return p.wait(30), seen.decode()


def test_progress_on_a_terminal():
    add()
    with home() as h:
        code, seen = in_terminal(h, "pull", "acme/tiny")
        assert code == 0 and "%" not in seen, seen
        for path in WANTED:
            assert re.search(rf"hearth: {re.escape(path)}: [\d.]+ k?M?B\r?\n", seen), (path, seen)
        assert re.search(r"pulled acme/tiny: 2.3 MB in [\d.]+ s, [\d.]+ .B/s", seen), seen


def test_progress_elsewhere_is_a_line_a_second():
    add()
    with home() as h:
        HUB.on("/", changed(pace=1 << 20), server="store")
        r = must(h.pull(), 0)
        lines = [line for line in r.err.splitlines() if "%" in line]
        assert 1 <= len(lines) <= 4 and "\r" not in r.err, r.err
        assert re.fullmatch(r"hearth: model.safetensors: \d+ %, [\d.]+ [kM]?B of [\d.]+ MB", lines[0]), lines


def test_dry_run_writes_nothing():
    add()
    with home() as h:
        r = must(h.pull("acme/tiny", "--dry-run"), 0)
        rows = [line.split("\t") for line in r.out.splitlines()]
        assert {row[0] for row in rows[:-1]} == set(WANTED) and all(row[2] == "missing" for row in rows[:-1]), r
        assert int(rows[-1][1]) == sum(len(v) for v in WANTED.values())
        assert not os.path.exists(h.cache)


def test_list():
    repo = add()
    with home() as h:
        r = must(h.run("list"), 0, f"no models in {h.cache}; `hearth pull org/name` fetches one$")
        assert r.out == "" and must(h.run("list", "--json"), 0).out == ""
        must(h.pull(), 0)
        HUB.add("acme/half", dict(FILES, **{"model.safetensors": WEIGHTS[::-1]}))
        HUB.on("/", cut(1000000), server="store")
        HUB.on("/", status(404), times=None, server="store")
        must(h.pull("acme/half"), 6, "status 404")
        rows = must(h.run("list"), 0, f"^hearth: 2 of {h.cache}$").out.splitlines()
        assert rows[0].split() == ["MODEL", "REVISION", "COMMIT", "SIZE", "STATE", "SERVED"], rows
        assert all(row.startswith("acme/") for row in rows[1:]), rows
        assert re.search(r"acme/tiny +main +" + repo.refs["main"][:12] + r" .*complete +served$", "\n".join(rows), re.M), rows
        objects = {o["name"]: o for o in map(json.loads, must(h.run("list", "--json"), 0).out.splitlines())}
        tiny = objects["acme/tiny"]
        assert set(tiny) == {"name", "revision", "commit", "path", "bytes", "complete", "servable", "reason"}
        assert tiny["complete"] and tiny["servable"] and tiny["reason"] is None and os.path.isdir(tiny["path"])
        assert list(objects) == sorted(objects)
        half = objects["acme/half"]
        assert not half["complete"] and not half["servable"] and half["reason"], half
        assert re.search(r"^acme/half .* partial 4\d % +not served: ", "\n".join(rows), re.M), rows


def test_rm():
    add()
    HUB.add("acme/other", FILES)
    with home() as h:
        must(h.pull(), 0)
        must(h.pull("acme/other"), 0)
        must(h.run("rm", "acme/tiny"), 2, "no terminal to ask on: -y says yes")
        must(h.run("rm", "acme/none", "-y"), 3, f"acme/none is not in the cache \\({h.cache}\\)")
        must(h.run("rm", "acme/tiny@main", "-y"), 2, "all revisions")
        must(h.run("rm", "../etc", "-y"), 2, "not a model name")
        for keys, code, left in (("n\r", 1, True), ("\r", 1, True), ("y\r", 0, False)):
            code_now, seen = in_terminal(h, "rm", "acme/tiny", keys=keys)
            assert code_now == code and "remove acme/tiny (2.3 MB) from " in seen, (code_now, seen)
            assert os.path.isdir(h.repo()) == left, keys
        assert not os.path.exists(os.path.join(h.cache, ".locks", "models--acme--tiny"))
        assert "acme/other" in h.run("list").out and "acme/tiny" not in h.run("list").out
        outside = os.path.join(h.directory, "outside")
        os.mkdir(outside)
        os.symlink(outside, h.repo("acme/link"))
        must(h.run("rm", "acme/link", "-y"), 3)
        os.symlink(outside, os.path.join(h.repo("acme/other"), "link"))
        open(os.path.join(outside, "kept"), "w", encoding="utf-8").close()
        assert must(h.run("rm", "acme/other", "-y"), 0).out == "removed acme/other: 2.3 MB\n"
        assert not os.path.exists(h.repo("acme/other")) and os.listdir(outside) == ["kept"]


def test_run_is_pull_and_chat():
    add()
    with home() as h:
        r = must(h.run("run", "acme/tiny", "What is 2+2?", "--temperature", "0"), 0)
        assert r.out == "2+2: 2+2=4. The answer is 4.\n" and "pulled acme/tiny" in r.err, r
        HUB.forget()
        r = must(h.run("run", "acme/tiny", "-p", "What is 2+2?", "--temperature", "0"), 0)
        assert r.out.startswith("2+2") and len(HUB.paths()) == 1, (r, HUB.paths())
        must(h.run("run", "acme/none", "Hi"), 3)
        must(h.run("run"), 2, "run needs the name of a model")
        assert must(h.run("run", "--help"), 0).out.startswith("hearth chat: ")


def test_addresses_are_names():
    repo = add()
    host = HUB.url.removeprefix("http://")
    with home() as h:
        must(h.pull(), 0)
        for address in (f"{HUB.url}/acme/tiny", f"{host}/acme/tiny/", f"{HUB.url}/acme/tiny/tree/main", "hf.co/acme/tiny",
                        f"{HUB.url}/acme/tiny/blob/main/config.json?download=true", "https://huggingface.co/acme/tiny",
                        "huggingface.co/acme/tiny#usage", f"hf.co/acme/tiny@{repo.refs['main']}"):
            HUB.forget()
            must(h.run("pull", address), 0)
            assert all("/acme/tiny/" in path for path in HUB.paths()), (address, HUB.paths())
        HUB.forget()
        must(h.pull("https://example.org/acme/tiny"), 2, "is not on the hub that is used; HF_ENDPOINT names another")
        must(h.pull(f"{HUB.url}/acme/tiny/tree/v9"), 3, "no revision 'v9'")
        with Hearth("--model", f"{HUB.url}/acme/tiny", env=h.env()) as server:
            assert server.get("/v1/models")[2]["data"][0]["id"] == "acme/tiny"
        HUB.forget()
        must(h.pull("hf.co/acme/tiny:Q4_K_M"), 8, "acme/tiny has no GGUF files; leave out :Q4_K_M")


# ---- models in GGUF ------------------------------------------------------------------------------------------

KEYS, TENSORS = gguf_files.demo(DEMO)
BESIDE = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def split(n):
    return {f"Q5_0/tiny-Q5_0-{i + 1:05}-of-{n:05}.gguf": data
            for i, data in enumerate(gguf_files.splits(KEYS, TENSORS, n))}


def gguf_repository(more=()):
    """Q8_0 is a file, Q5_0 a set in a folder; the third has a header that is refused."""
    one = gguf_files.gguf(KEYS, TENSORS)
    bad = [t if t[0] != "output_norm.weight" else (t[0], t[1], 200, t[3]) for t in TENSORS]
    return HUB.add("acme/quants", {"tiny-Q8_0.gguf": one, "tiny-IQ2_M.gguf": gguf_files.gguf(KEYS, bad), **split(3),
                                   "mmproj-F16.gguf": b"x", "README.md": b"# x", "config.json": b"{}",
                                   **{n: FILES[n] for n in BESIDE}, **dict(more)})


def snapshot_files(h):
    root = os.path.join(h.repo("acme/quants"), "snapshots")
    return {os.path.relpath(os.path.join(d, f), root).split("/", 1)[1] for d, _, files in os.walk(root) for f in files}


def listed(h):
    return [json.loads(line) for line in must(h.run("list", "--json"), 0).out.splitlines()]


def test_gguf_by_tag():
    gguf_repository()
    with home() as h:
        r = must(h.pull("acme/quants"), 0)
        assert r.out.strip().endswith("/tiny-Q8_0.gguf"), r
        assert snapshot_files(h) == {"tiny-Q8_0.gguf", *BESIDE}, snapshot_files(h)
        assert not any("config.json" in p and "_config" not in p for p in HUB.paths()), HUB.paths()
        HUB.forget()
        must(h.pull("acme/quants:q8_0"), 0)
        assert len(HUB.paths()) == 1, HUB.paths()
        must(h.run("inspect", "--model", "acme/quants:Q5_0"), 1, "no complete snapshot of revision 'main'; "
             "`hearth pull acme/quants:Q5_0` fetches it")
        must(h.pull("acme/quants:Q5_0"), 0)
        assert snapshot_files(h) >= set(split(3)), snapshot_files(h)
        assert [(m["name"], m["complete"], m["servable"]) for m in listed(h)] == [
            ("acme/quants:Q5_0", True, True), ("acme/quants:Q8_0", True, True)], listed(h)
        for name in ("acme/quants:Q8_0", "acme/quants", "acme/quants:Q5_0"):
            must(h.run("inspect", "--model", name, HF_HUB_OFFLINE="1"), 0)
        with Hearth("--model", "acme/quants:Q5_0", env=h.env()) as server:
            assert server.get("/v1/models")[2]["data"][0]["id"] == "acme/quants:Q5_0"
        assert must(h.run("rm", "acme/quants:Q5_0", "-y"), 0).out.startswith("removed acme/quants:Q5_0: ")
        assert snapshot_files(h) == {"tiny-Q8_0.gguf", *BESIDE}, snapshot_files(h)
        assert [m["name"] for m in listed(h)] == ["acme/quants:Q8_0"]
        must(h.run("rm", "acme/quants:Q5_0", "-y"), 3, "acme/quants:Q5_0 is not in the cache")
        must(h.run("inspect", "--model", "acme/quants:Q8_0"), 0)


def test_gguf_that_is_not_fetched():
    gguf_repository()
    with home() as h:
        must(h.pull("acme/quants:Q2_K"), 8, "no GGUF file for the tag Q2_K; it has :Q5_0, :IQ2_M, :Q8_0")
        must(h.pull("acme/quants:IQ2_M"), 8, "tiny-IQ2_M.gguf: tensor output_norm.weight is of type 200")
        assert not listed(h) or not any(m["complete"] for m in listed(h)), listed(h)
        other = [("general.architecture", "str", "mamba"), *(k for k in KEYS if k[0] != "general.architecture")]
        HUB.add("acme/other", {"a-Q8_0.gguf": gguf_files.gguf(other, TENSORS)})
        must(h.pull("acme/other"), 8, "a-Q8_0.gguf: general.architecture mamba is not supported")
        HUB.add("acme/odd", {"a-Q5_K_M.gguf": b"x", "a-IQ4_XS.gguf": b"x"})
        must(h.pull("acme/odd"), 8, "acme/odd has GGUF files only; add one of :IQ4_XS, :Q5_K_M")
        part = split(3)
        part.pop("Q5_0/tiny-Q5_0-00002-of-00003.gguf")
        HUB.add("acme/part", part)
        HUB.forget()
        must(h.pull("acme/part:Q5_0"), 8, "acme/part has no Q5_0/tiny-Q5_0-00002-of-00003.gguf, a part of the model")
        assert not any(".gguf" in p for p in HUB.paths()), HUB.paths()


def test_gguf_whose_tokenizer_is_missing():
    HUB.add("acme/untold", {"a-Q8_0.gguf": gguf_files.gguf([k for k in KEYS if k[0] != "tokenizer.ggml.pre"], TENSORS)})
    with home() as h:
        must(h.pull("acme/untold"), 0)
        found = listed(h)
        assert [m["servable"] for m in found] == [False] and "tokenizer.ggml.pre" in found[0]["reason"], found


def test_gguf_beside_safetensors():
    gguf_repository({n: FILES[n] for n in TAKEN})
    with home() as h:
        must(h.pull("acme/quants:Q8_0"), 0)
        must(h.run("inspect", "--model", "acme/quants"), 1, "no complete snapshot of revision 'main'")
        assert [m["name"] for m in listed(h)] == ["acme/quants:Q8_0"]
        must(h.pull("acme/quants"), 0)
        assert [m["name"] for m in listed(h)] == ["acme/quants", "acme/quants:Q8_0"]
        assert '"format": ' not in must(h.run("inspect", "--json", "--model", "acme/quants"), 0).out
        assert '"format": ' in must(h.run("inspect", "--json", "--model", "acme/quants:Q8_0"), 0).out


def test_tokenizer_of_another_repository():
    add()
    keys = [k for k in KEYS if k[0] != "tokenizer.ggml.pre"]
    with home() as h:
        path = os.path.join(h.directory, "m.gguf")
        with open(path, "wb") as f:
            f.write(gguf_files.gguf(keys, TENSORS))
        must(h.run("inspect", "--model", path, "--tokenizer", "acme/tiny"), 1, "tokenizer: .*hearth pull acme/tiny")
        must(h.run("inspect", "--model", path, "--tokenizer", "acme/tiny", "--pull"), 0)
        assert not any("safetensors" in p for p in HUB.paths("store")) and snapshot_names(h) >= {"tokenizer.json"}
        must(h.run("inspect", "--model", path, "--tokenizer", "acme/tiny"), 0)


def snapshot_names(h):
    root = os.path.join(h.repo(), "snapshots")
    return {f for d in os.listdir(root) for f in os.listdir(os.path.join(root, d))}


def test_no_library_of_the_hub_is_linked():
    out = subprocess.run(["ldd", BIN], capture_output=True, text=True, check=True).stdout
    assert "libcurl" not in out and "libssl" not in out, out
    with Hearth() as server:
        with open(f"/proc/{server.process.pid}/maps", encoding="ascii") as f:
            assert "libcurl" not in f.read()


def need_libcurl():
    """Exits as skipped if this build, or this machine, cannot fetch models."""
    p = subprocess.run([BIN, "pull", "acme/tiny"], env=dict(os.environ, HF_ENDPOINT="ftp://x"), capture_output=True, text=True,
                       timeout=60, check=False)
    if "hf download" in p.stderr:
        print(p.stderr.strip())
        sys.exit(SKIPPED)


if __name__ == "__main__":
    need_libcurl()
    with FakeHub() as HUB:
        run_cases(globals())
