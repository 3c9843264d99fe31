#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""--kv-disk: prompts computed before a restart are read, the same bits come, and nobody else's or damaged pages do."""
import hashlib
import json
import os
import random
import signal
import subprocess
import tempfile

from hearth_server import BIN, DEMO, FILTER, Hearth, hanging, leave, roomy_folder, run, run_cases, start_request
from tiny_models import DemoCopy, hybrid_model

PROMPT = "Once upon a time there was a little dog. " * 120
BODY = {"prompt": PROMPT, "max_tokens": 30, "temperature": 0.7, "seed": 3, "logprobs": 2}
DIR = None
SLOW = bool(os.environ.get("HEARTH_SLOW"))
# SHA-256 of the demo's logits, computed by the plain C kernels
DIGESTS = {"exact": "e50f44c47df3d1f77da16ac6b05b242f",
           "bf16": "b3bee9ea6c448e9843f5a9a15bbfbef0",
           "int8": "f6a2dccf4af2d4f4950759b6b1d679e1",
           "int4": "63aa12c029da9ed3d249d3c638810052"}


def extents():
    return sorted(os.path.join(d, f) for d, _, files in os.walk(os.path.join(DIR, "v1")) for f in files)


def serve(*args, **env):
    return Hearth("--model", "demo", "--kv-disk", DIR, *args, **env)


def ask(h, headers=None, **body):
    status, _, answer = h.post("/v1/completions", {**BODY, **body}, headers)
    assert status == 200, answer
    return answer["choices"][0], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def count(h, name):
    return h.metrics()[f"hearth_kv_disk_{name}"]


def await_files(h, n):
    h.wait_until(lambda: len(extents()) >= n and not any(".tmp-" in f for f in extents()), 20, f"{n} extents")


def alone():
    with Hearth("--model", "demo") as h:
        return ask(h)


def test_restart():
    """After a SIGTERM, which writes what is left, and after a SIGKILL of a server that has written."""
    global DIR
    want, none = alone()
    assert none == 0
    with roomy_folder() as DIR:
        with serve() as h:
            assert ask(h) == (want, 0)
        files = extents()
        assert len(files) == 3 and all(os.stat(f).st_mode & 0o777 == 0o600 for f in files), files
        with serve() as h:
            choice, cached = ask(h)
            assert choice == want and cached == 1024, cached
            assert count(h, "prompt_tokens_total") == 1024 and count(h, "restores_total") == 1
            more = " Then the dog found a ball." * 40
            longer = ask(h, prompt=PROMPT + more)
            await_files(h, len(files) + 2)
            h.stop(signal.SIGKILL)
            h.process.returncode = 0
        with serve() as h:
            status, _, answer = h.post("/v1/completions", {**BODY, "prompt": PROMPT + more, "timings_per_token": True})
            assert status == 200 and answer["choices"][0] == longer[0]
            assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 1500, answer["usage"]
            assert answer["timings"]["cache_disk_n"] > 1500 and answer["timings"]["restore_ms"] > 0
        with Hearth("--model", "demo") as h:
            assert ask(h, prompt=PROMPT + more)[0] == longer[0]


def test_swap():
    """A model that leaves writes first, with its answers just ended; coming back it finds that."""
    global DIR
    want = alone()[0]
    with roomy_folder() as DIR, DemoCopy() as other:
        other.config(rms_norm_eps=2e-5)
        with serve("--swap", "on") as h:
            assert ask(h) == (want, 0)
            for model in (other.dir, "demo"):
                status, _, answer = h.post("/models/load", {"model": model, "wait": "drained"})
                assert status == 200 and not answer.get("unchanged"), answer
            assert ask(h) == (want, 1024)


def test_scopes():
    """Keys and salts stay apart; another path has other bits; cache_prompt false is not written."""
    global DIR
    keys = {name: {"Authorization": f"Bearer {name * 30}"} for name in "ab"}
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f, roomy_folder() as DIR:
        f.write("".join(name * 30 + "\n" for name in keys))
        f.flush()
        os.chmod(f.name, 0o600)
        with serve("--api-key-file", f.name) as h:
            ask(h, keys["a"], cache_prompt=False)
        assert not os.path.exists(os.path.join(DIR, "v1"))
        with serve("--api-key-file", f.name) as h:
            ask(h, keys["a"], cache_salt="x")
        n = len(extents())
        paths = (("--numerics", "int8"),) + (() if SLOW else (("--kernels", "c"),))  # plain C takes a minute there
        for args, key, salt, hit in (((), "a", None, False), ((), "b", "x", False), *((p, "a", "x", False) for p in paths),
                                     ((), "a", "x", True)):
            with serve("--api-key-file", f.name, *args) as h:
                body = {"cache_salt": salt} if salt else {}
                assert (ask(h, keys[key], **body)[1] > 0) == hit, (args, key, salt)
        assert len(extents()) > n


def kv(*args):
    status, out, err = run("kv", *args, "--kv-disk", DIR)
    return status, out, err


def test_listed_and_erased():
    """hearth kv; a key that leaves the key file takes its pages with it, salted ones too, while the server runs."""
    global DIR
    names = {name: name * 30 for name in "abc"}
    keys = {name: {"Authorization": f"Bearer {key}"} for name, key in names.items()}
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f, roomy_folder() as DIR:
        def write_keys(some):
            f.seek(0)
            f.truncate()
            f.write("".join(names[name] + "\n" for name in some))
            f.flush()

        def listed():
            status, out, err = kv("ls")
            assert status == 0, err
            return {line.split()[2]: int(line.split()[4]) for line in out.splitlines()[1:]}

        digests = {name: hashlib.sha256(key.encode()).hexdigest()[:12] for name, key in names.items()}
        write_keys("abc")
        os.chmod(f.name, 0o600)
        with serve("--api-key-file", f.name) as h:
            ask(h, keys["a"])
            ask(h, keys["b"])
            ask(h, keys["b"], cache_salt="x")
            ask(h, keys["c"], cache_salt="y")
            await_files(h, 12)
            h.wait_until(lambda: h.get("/props", keys["a"])[2]["kv_disk"]["pages"] * 32 == sum(listed().values()), 10, "its pages")
            props = h.get("/props", keys["a"])[2]["kv_disk"]
            assert props["hit_tokens"] == 0 and props["bytes"] > 0, props
            each = listed()[digests["a"]]
            assert listed() == {digests["a"]: each, digests["b"]: 2 * each, digests["c"]: each}, listed()
            write_keys("ac")
            h.process.send_signal(signal.SIGHUP)
            h.wait_until(lambda: digests["b"] not in listed(), 10, "the pages of b to go")
            assert set(listed()) == {digests["a"], digests["c"]}
            write_keys("abc")
            h.process.send_signal(signal.SIGHUP)
            h.wait_until(lambda: h.post("/v1/completions", {"prompt": "a", "max_tokens": 1}, keys["b"])[0] == 200, 10, "b")
            ask(h, keys["b"], prompt="Now. " + PROMPT)
            h.wait_until(lambda: digests["b"] in listed(), 20, "pages of b")
        write_keys("b")
        status, out, _ = kv("erase", "--key-file", f.name)
        assert status == 0 and out.startswith("erased 3 files"), out
        assert set(listed()) == {digests["a"], digests["c"]}
        for path in extents()[:2]:
            os.utime(path, (1, 1))
        assert kv("erase", "--older", "100000d")[1].startswith("erased 0 files")
        assert kv("erase", "--older", "2h", "--model", "another")[1].startswith("erased 0 files")
        assert kv("erase", "--older", "2h")[1].startswith("erased 2 files")
        os.truncate(extents()[0], 100)
        assert "(damaged)" in kv("ls")[1] and kv("ls", "--model", "another")[1] == ""
        for args, words in ((("erase",), "--all"), (("erase", "--older", "x"), "12h, 7d"), (("look",), "ls or erase")):
            status, _, err = kv(*args)
            assert status == 2 and words in err, (args, err)
        assert kv("erase", "--all")[1].startswith("erased 4 files") and not extents()
        assert listed() == {}


def test_erased_whatever_is_loaded():
    """A removed key's pages go though its model is not loaded, and those that cannot for a moment are not read meanwhile."""
    global DIR
    keys = {name: {"Authorization": f"Bearer {name * 30}"} for name in "ab"}
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f, roomy_folder() as DIR, \
            tempfile.TemporaryDirectory() as switches:
        busy = os.path.join(switches, "busy")

        def write_keys(h, some):
            f.seek(0)
            f.truncate()
            f.write("".join(name * 30 + "\n" for name in some))
            f.flush()
            if h:
                h.log.clear()
                h.process.send_signal(signal.SIGHUP)
                h.wait_log("read the API keys again")

        def unload(h):
            status, _, answer = h.post("/models/unload", {"model": "hearth-demo", "wait": "drained"}, {"Authorization": "Bearer operator"})
            assert status == 200, answer
            await_files(h, 6)
            h.wait_until(lambda: h.get("/v1/models", keys["a"])[2]["data"][0]["status"]["value"] == "unloaded", 10, "unloaded")

        os.chmod(f.name, 0o600)
        write_keys(None, "ab")
        with serve("--api-key-file", f.name, "--swap", "on", env={**hanging(DIR, "", busy), "HEARTH_OPERATOR_KEY": "operator"}) as h:
            ask(h, keys["a"])
            ask(h, keys["b"])
            unload(h)
            write_keys(h, "a")
            h.wait_until(lambda: len(extents()) == 3, 20, "the pages of b to go")
            write_keys(h, "ab")
            assert ask(h, keys["b"])[1] == 0
            unload(h)
            with open(busy, "w"):
                write_keys(h, "a")
                h.wait_log("are still there")
                write_keys(h, "ab")
                # in this order: where something was computed, that could be faster than the disk
                assert ask(h, keys["a"])[1] == 1024 and ask(h, keys["b"])[1] == 0
                os.unlink(busy)
            h.wait_until(lambda: len(extents()) == 3, 20, "the pages of b to go")


def test_retention():
    """in_memory is never written; 24h is, for a day."""
    global DIR
    with roomy_folder() as DIR:
        with serve() as h:
            ask(h, prompt_cache_retention="in_memory")
            assert ask(h, prompt_cache_retention="in_memory")[1] > 0  # of memory
        assert not extents()
        with serve() as h:
            ask(h, prompt_cache_retention="24h")
        assert len(extents()) == 3 and all(os.stat(f).st_mode & 0o777 == 0o400 for f in extents())
        with serve() as h:
            assert ask(h)[1] == 1024
            await_files(h, 3)
        for f in extents():
            os.utime(f, (os.stat(f).st_mtime - 90000,) * 2)
        with serve() as h:
            h.wait_until(lambda: not extents(), 10, "a day to be over")


def damage(path, draw, others):
    with open(path, "rb") as f:
        data = bytearray(f.read())
    kind = draw.randrange(4)
    if kind == 0:
        data = data[:draw.choice([0, 1, 4095, 4096, draw.randrange(len(data))])]
    elif kind == 1:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif kind == 2:
        data += b"\0"
    else:
        with open(draw.choice(others), "rb") as f:
            data = f.read()
    with open(path, "wb") as f:
        f.write(data)


def test_damaged_files():
    """Each is a miss that is counted; the answer is the same, and what was bad is gone."""
    global DIR
    want = alone()[0]
    draw = random.Random(4)
    with roomy_folder() as DIR:
        with serve() as h:
            ask(h)
        names = extents()
        whole = {name: open(name, "rb").read() for name in names}
        for case in range(12):
            for name, data in whole.items():
                with open(name, "wb") as f:
                    f.write(data)
            bad = draw.choice(names)
            others = [n for n in names if whole[n] != whole[bad]]
            damage(bad, draw, others)
            unchanged = open(bad, "rb").read() == whole[bad]
            with serve() as h:
                choice, cached = ask(h)
                assert choice == want, case
                faults = sum(v for k, v in h.metrics().items() if k.startswith("hearth_kv_disk_bad_files_total"))
                assert unchanged or cached == 1024 or faults == 1, (case, cached, faults)


def test_limits():
    """At the start the directory is cut to its bytes, the least recently used first."""
    global DIR
    with roomy_folder() as DIR:
        with serve() as h:
            ask(h)
        files = extents()
        old = files[1]
        os.utime(old, (1, 1))
        with serve("--kv-disk-age", "1") as h:
            h.wait_until(lambda: len(extents()) == len(files) - 1, 10, "the old file to go")
            assert old not in extents()
        with serve("--kv-disk-bytes", "0") as h:
            h.wait_until(lambda: not extents(), 10, "all files to go")


def test_a_disk_that_hangs():
    """Prompts that are being read end with their deadline, their client and the server, or are computed: the same bits."""
    global DIR
    with roomy_folder() as DIR, tempfile.NamedTemporaryFile() as switch:
        with serve() as h:
            want, _ = ask(h)
        args = {"env": hanging(os.path.join(DIR, "v1"), switch.name)}

        def running(h, n):
            h.wait_until(lambda: h.slots()["running"] == n, 20, f"{n} run")

        with serve("--parallel", "2", "--request-timeout-ms", "700", **args) as h:
            late = [start_request(h, "/v1/completions", BODY) for _ in range(2)]
            for s in late:
                assert b" 504 " in s.recv(100)
            running(h, 0)
            assert h.post("/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200
        with serve("--parallel", "2", "--drain-timeout-ms", "300", **args) as h:
            some = [start_request(h, "/v1/completions", BODY) for _ in range(2)]
            running(h, 2)
            leave(some[0], reset=True)
            running(h, 1)
            assert h.stop() == 0
        with serve(**args) as h:
            assert ask(h) == (want, 0)
            assert ask(h, prompt="Now. " + PROMPT, prompt_cache_retention="in_memory")[1] == 0
            assert count(h, "restores_total") == 0


def test_loads_while_a_disk_hangs():
    """A model whose pages cannot be written holds up no load; nor does a load that hangs hold up the end."""
    global DIR
    with roomy_folder() as DIR, DemoCopy() as other, tempfile.TemporaryDirectory() as switches:
        switch = os.path.join(switches, "hangs")
        models = ["--model", f"demo={DEMO}", "--model", f"other={other.dir}", "--swap", "on"]

        def unload(h, name):
            assert h.post("/models/unload", {"model": name})[0] == 200

        def complete(h, model):
            return h.post("/v1/completions", {"model": model, "prompt": "a", "max_tokens": 1})[0]

        with Hearth(*models, "--kv-disk", DIR, env=hanging(os.path.join(DIR, "v1"), switch)) as h:
            with open(switch, "w"):
                ask(h, model="demo")
                unload(h, "demo")
                unload(h, "other")
                assert complete(h, "other") == 200
                os.unlink(switch)
            await_files(h, 3)
        with Hearth(*models, env=hanging(os.path.realpath(DEMO), switch)) as h:
            unload(h, "other")
            with open(switch, "w"):
                waits = start_request(h, "/v1/completions", {"model": "other", "prompt": "a"})
                h.wait_until(lambda: h.get("/v1/models/other")[2]["status"]["value"] == "loading", 10, "the load hangs")
                assert h.stop() == 0
                waits.close()
                os.unlink(switch)


def test_recurrent_layers():
    """The states behind a turn are written too: the next turn computes what is new, and up to two pages."""
    draw = random.Random(8)
    with tempfile.TemporaryDirectory() as folder, roomy_folder() as disk:
        model = hybrid_model(folder)
        prompt = [draw.randrange(3, 56) for _ in range(1500)]
        with Hearth("--model", model) as plain:
            for turn in range(4):
                body = {"prompt": prompt, "ignore_eos": True, "max_tokens": 20, "seed": turn, "return_token_ids": True}
                want = ask(plain, **body)[0]
                with Hearth("--model", model, "--kv-disk", disk) as h:
                    choice, cached = ask(h, **body)
                    assert choice == want, turn
                    assert turn in (0, 3) or cached >= len(prompt) - 100, (turn, cached, len(prompt))
                    shorter = ask(h, **{**body, "prompt": prompt[:1100]})
                assert shorter[0] == ask(plain, **{**body, "prompt": prompt[:1100]})[0]
                prompt = prompt + want["token_ids"] + [draw.randrange(3, 56) for _ in range(30)]
                if turn == 2:
                    for path, _, names in os.walk(disk):
                        for name in names:
                            if name.endswith(".s"):
                                os.truncate(os.path.join(path, name), 5000)
                    with Hearth("--model", model, "--kv-disk", disk) as h:
                        assert ask(h, **{**body, "prompt": prompt})[0] == ask(plain, **{**body, "prompt": prompt})[0]
                        assert h.metrics()['hearth_kv_disk_bad_files_total{reason="length"}'] == 1


def test_revision():
    """If this fails, steps compute other bits than before: raise BITS_REVISION in engine/engine.c, and change the digests."""
    for numerics, want in list(DIGESTS.items())[-1 if SLOW else 0:]:  # plain C takes 10 s each in slow builds
        with tempfile.TemporaryDirectory() as tmp:
            line = json.dumps({"ids": [i * 37 % 500 + 10 for i in range(100)], "logits": os.path.join(tmp, "rows")})
            args = [FILTER, "score", "--model", DEMO, "--numerics", numerics, "--kernels", "c", "--gemm", "native"]
            subprocess.run(args, input=line, text=True, check=True, capture_output=True)
            with open(os.path.join(tmp, "rows"), "rb") as f:
                assert hashlib.sha256(f.read()).hexdigest()[:32] == want, numerics


def test_refusals():
    with tempfile.TemporaryDirectory() as top:
        path = os.path.join(top, "d")
        os.mkdir(path, 0o755)
        link, file = os.path.join(top, "link"), os.path.join(top, "file")
        os.symlink(top, link)
        open(file, "w").close()
        secret = os.path.join(top, "s")
        os.mkdir(secret, 0o700)
        with open(os.path.join(secret, "secret"), "w") as f:
            f.write("short")
        for name, words in ((path, "0755"), (link, "not a directory"), (file, "not a directory"), (secret, "32 bytes"),
                            (os.path.join(top, "no", "where"), "cannot be made")):
            status, _, err = run("serve", "--port", "0", "--model", "demo", "--kv-disk", name)
            assert status == 1 and words in err and name in err, (status, err)
        with Hearth("--model", "demo-embed", "--kv-disk", os.path.join(top, "e")) as h:
            h.wait_log("kv-disk is not used")


if __name__ == "__main__":
    run_cases(globals())
