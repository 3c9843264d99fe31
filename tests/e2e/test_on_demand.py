#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Models that do not fit into memory together: loading on demand, who makes room, pins, states, refusals.

The failures that other servers have are cases here: each names them in its text. Standard library only.
"""
import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hearth_server import DEMO, ROOT, Hearth, chunks, read_all, run, run_cases, start_request  # noqa: E402
from test_models import CHAT, EMBED, content, vector  # noqa: E402
from test_swap import PROMPT, Other, refused  # noqa: E402
from tiny_models import DemoCopy, pack  # noqa: E402

RERANK = os.path.join(ROOT, "deploy", "demo-rerank")
TWO = ["--model", f"chat={DEMO}", "--model", f"embed={EMBED}"]
THREE = [*TWO, "--model", f"rank={RERANK}"]
ONE_FITS = ["--memory", "110M", "--parallel", "2", "--threads", "2"]
TWO_FIT = ["--memory", "200M", "--parallel", "2", "--threads", "2"]
OPERATOR = ["--swap", "on"]
SMALL = ["--ctx-size", "256"]


def not_numbers(header, data):
    begin, end = next(v["data_offsets"] for k, v in header.items() if k.endswith("layers.1.mlp.down_proj.weight"))
    return pack(header, data[:begin] + b"\xff" * (end - begin) + data[end:])


def states(h):
    return {m["id"]: m["status"]["value"] for m in h.get("/v1/models")[2]["data"]}


def entry(h, name):
    return h.get("/v1/models/" + name)[2]


def chat(h, model="chat", **fields):
    return h.post("/v1/chat/completions", {**CHAT, "model": model, **fields})


def embed(h, model="embed", text="a cat"):
    return h.post("/v1/embeddings", {"model": model, "input": text})


def rank(h):
    status, _, body = h.post("/v1/rerank", {"model": "rank", "query": "a cat", "documents": ["a dog", "a cat"]})
    assert status == 200, body
    return [(r["index"], r["relevance_score"]) for r in body["results"]]


def wait_unloaded(h, name):
    h.wait_until(lambda: states(h)[name] == "unloaded", 20, f"{name} unloaded")


# ---- loading and leaving ------------------------------------------------------------------------------

def hold_a_stream(h):
    """A stream of 100 tokens on an engine which is then paused, in which it runs or waits."""
    return h.hold_running(lambda: [start_request(h, "/v1/completions", {**PROMPT, "max_tokens": 100, "stream": True})], 1,
                          lambda: entry(h, "chat")["in_flight"])[0]


def test_three_with_room_for_one():
    """Each answers as if it were alone, whatever was loaded before."""
    with Hearth(*THREE, "--threads", "2") as h:
        want = content(chat(h)), vector(embed(h)), rank(h)
        assert set(states(h).values()) == {"loaded"}
    with Hearth(*THREE, *ONE_FITS) as h:
        assert states(h) == {"chat": "loaded", "embed": "unloaded", "rank": "unloaded"}
        for _ in range(3):
            assert (vector(embed(h)), content(chat(h)), rank(h)) == (want[1], want[0], want[2])
            assert list(states(h).values()).count("loaded") == 1, states(h)
        metrics = h.metrics()
        assert metrics['hearth_model_loads_total{model="embed",result="ok"}'] == 3, metrics
        assert metrics['hearth_model_evictions_total{model="embed",reason="memory"}'] == 3
        assert "models: chat drains for embed (needs" in h.wait_log("models: chat drains for embed")
        assert h.get("/props?model=chat")[2]["is_sleeping"] is True
        assert h.get("/props?model=rank")[2]["is_sleeping"] is False


def test_the_least_recently_used_goes():
    with Hearth(*THREE, *TWO_FIT) as h:
        embed(h)
        h.wait_until(lambda: h.metrics()["hearth_model_load_seconds_count"] == 1, 10, "a load that is counted")
        start = time.monotonic()
        while time.monotonic() - start < 3 * h.metrics()["hearth_model_load_seconds_sum"]: # idle for as long as its load
            chat(h)
        rank(h)
        assert states(h) == {"chat": "loaded", "embed": "unloaded", "rank": "loaded"}, states(h)


def test_looking_is_no_use():
    """Lists, properties and health neither load a model nor keep it loaded."""
    with Hearth(*TWO, *ONE_FITS, "--idle-unload-s", "1") as h:
        def look():
            for path in ("/v1/models", "/models/chat", "/props?model=chat", "/props?model=embed", "/slots", "/metrics",
                         "/health", "/readyz"):
                assert h.get(path)[0] == 200, path
            return states(h)["chat"] == "unloaded"
        h.wait_until(look, 20, "an idle model that leaves")
        assert h.metrics()['hearth_model_evictions_total{model="chat",reason="idle"}'] == 1
        refused(h.get("/tokenizer_info?model=chat"), 400, "model_not_loaded")
        assert content(chat(h)) and h.get("/readyz")[0] == 200


def test_one_model_that_sleeps():
    with Hearth("--idle-unload-s", "1", "--threads", "2", *OPERATOR) as h:
        text = content(h.post("/v1/chat/completions", CHAT))
        before = h.memory_kib()
        wait_unloaded(h, "hearth-demo")
        if not os.environ.get("HEARTH_SLOW"):
            h.wait_until(lambda: h.memory_kib() < before, 10, "memory that is given back")
        assert h.get("/slots")[0] == 200 and h.get("/props")[2]["is_sleeping"] is True
        assert content(h.post("/v1/chat/completions", CHAT)) == text
        with Other() as other:
            wait_unloaded(h, "hearth-demo")
            assert h.post("/models/load", {"model": other.dir, "alias": "b", "wait": "drained"})[0] == 200
            assert list(states(h)) == ["b"]
            wait_unloaded(h, "b")
            assert content(h.post("/v1/chat/completions", {**CHAT, "model": "b"})) != text


# ---- what others get wrong ----------------------------------------------------------------------------

def test_both_wanted_all_the_time():
    """llama.cpp#22284, lmstudio#1796: two models, room for one: each load serves those that waited for it."""
    with Hearth(*TWO, *ONE_FITS) as h:
        want = content(chat(h)), vector(embed(h))
        done, errors, stop = [0, 0], [], threading.Event()

        def client(kind):
            while not stop.is_set():
                try:
                    assert (content(chat(h)) if kind == 0 else vector(embed(h))) == want[kind]
                    done[kind] += 1
                except Exception as e:  # pylint: disable=broad-except
                    errors.append(e)
                    return
        threads = [threading.Thread(target=client, args=(i % 2,)) for i in range(8)]
        def n_loads():
            metrics = h.metrics()
            return sum(metrics['hearth_model_loads_total{model="%s",result="ok"}' % m] for m in ("chat", "embed"))
        for t in threads:
            t.start()
        h.wait_until(lambda: errors or (min(done) >= 8 and n_loads() >= 4), what="both are served")
        stop.set()
        for t in threads:
            t.join()
        assert not errors, errors[0]
        assert sum(done) > 2 * n_loads(), (done, n_loads())


def test_a_stream_is_not_cut_for_another_model():
    """llama.cpp#21678, lmstudio#671: a model that streams ends what it began; the other's request waits for that."""
    with Hearth(*TWO, *ONE_FITS, "--debug-hooks", "on", *SMALL) as h:
        whole = "".join(c["text"] for e in chunks(h.stream("/v1/completions", {**PROMPT, "max_tokens": 100,
                                                                              "stream": True})) for c in e["choices"])
        reader = hold_a_stream(h)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            other = pool.submit(embed, h)
            h.wait_until(lambda: states(h)["embed"] == "loading", 10, "a waiter")
            h.wait_until(lambda: "draining" in h.get("/slots?model=chat")[2], 10, "a closed door")
            h.resume_engine()
            data = b""
            while part := reader.recv(65536):
                data += part
            reader.close()
            assert b"[DONE]" in data
            text = "".join(c["text"] for line in data.decode().splitlines() if line.startswith("data: {")
                           for c in json.loads(line[6:])["choices"])
            assert text == whole, (text, whole)
            assert other.result()[0] == 200


def test_a_slow_reader_holds_no_model():
    """An answer that is finished but not read yet keeps no model in memory."""
    body = {**PROMPT, "model": "chat", "max_tokens": 200, "n": 4, "logprobs": 5}
    with Hearth(*TWO, *ONE_FITS, *OPERATOR, *SMALL) as h:
        want = h.post("/v1/completions", body)[2]["choices"]
        before = h.metrics()['hearth_jobs_total{model="chat",end="done"}']
        readers = [start_request(h, "/v1/completions", body, receive_buffer=4096) for _ in range(3)]
        h.wait_until(lambda: h.metrics()['hearth_jobs_total{model="chat",end="done"}'] == before + 3, 30, "the answers")
        h.wait_until(lambda: entry(h, "chat")["in_flight"] == 0, 10, "a model that is given back")
        # Another model takes its place; an operator waits for the end of both.
        assert embed(h)[0] == 200 and states(h) == {"chat": "unloaded", "embed": "loaded"}
        h.wait_until(lambda: entry(h, "embed")["in_flight"] == 0, 10, "a model that is given back")
        assert h.post("/models/unload", {"model": "embed", "wait": "drained"})[2]["draining"] == 0
        h.wait_until(lambda: h.metrics()["hearth_http_requests_open"] == 1 + len(readers), 10, "the readers alone")
        for reader in readers:
            data = b""
            while part := reader.recv(65536):
                data += part
            assert json.loads(data.partition(b"\r\n\r\n")[2])["choices"] == want
            reader.close()
        assert content(chat(h))


def test_two_names_one_directory():
    """ollama#10948: aliases are one instance."""
    with Hearth("--model", f"chat={DEMO}", "--alias", "a,b", "--model", f"embed={EMBED}", *ONE_FITS) as h:
        for name in ("a", "chat", "b", "a"):
            assert chat(h, name)[2]["model"] == name
        assert h.metrics()['hearth_model_loads_total{model="chat",result="ok"}'] == 1
        assert entry(h, "chat")["aliases"] == ["a", "b"] and entry(h, "a")["root"] == "chat"


def test_a_request_changes_no_instance():
    """ollama#7773: no field of a request loads a model again."""
    with Hearth(*TWO, *ONE_FITS) as h:
        for fields in ({"num_ctx": 64}, {"options": {"num_ctx": 64}}, {"keep_alive": 0}, {"n_ctx": 9}):
            assert chat(h, **fields)[0] == 200
        assert h.metrics()['hearth_model_loads_total{model="chat",result="ok"}'] == 1


def test_pinned_and_refused():
    """lmstudio#644, llama.cpp#18153: only a pin exempts, it is shown, and what can never fit next to it is refused at once."""
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as f:
        f.write(f"[model chat]\nmodel = {DEMO}\npin = on\n[model embed]\nmodel = {EMBED}\n[model rank]\nmodel = {RERANK}\n")
        f.flush()
        with Hearth("--config", f.name, *TWO_FIT, *OPERATOR) as h:
            assert entry(h, "chat")["pinned"] is True and entry(h, "embed")["pinned"] is False
            for _ in range(2):
                embed(h), rank(h)
                assert states(h)["chat"] == "loaded"
            refused(h.post("/models/unload", {"model": "chat"}), 409, "model_pinned")
        status, _, err = run("serve", "--config", f.name, *ONE_FITS, "--port", "0")
        assert status == 1 and "pinned models take" in err and "model embed next to them" in err, err


# ---- routes -------------------------------------------------------------------------------------------

def test_load_and_unload():
    with Hearth(*TWO, *ONE_FITS, *OPERATOR) as h:
        body = h.post("/models/load", {"model": "chat"})[2]
        assert body["success"] and body["unchanged"] and body["model"] == "chat", body
        body = h.post("/models/load", {"model": "embed"})[2]
        assert body["success"] and "unchanged" not in body and states(h)["embed"] == "loaded", body
        body = h.post("/v1/models/unload", {"model": "embed", "wait": "drained"})[2]
        assert body == {"success": True, "model": "embed", "draining": 0}, body
        refused(h.post("/models/unload", {"model": "embed"}), 400, "model_not_loaded")
        refused(h.post("/models/unload", {"model": "nope"}), 404, "model_not_found")
        refused(h.post("/models/unload", {}), 400, "missing_required_parameter")
        refused(h.post("/models/unload", {"model": 5}), 400, "invalid_type")
        refused(h.post("/models/load", {"model": "nope"}), 400, "invalid_value")
        status, _, body = h.post("/models/load", {"model": "embed", "wait": False})
        assert status == 202 and body["success"], body
        h.wait_until(lambda: states(h)["embed"] == "loaded", 20, "embed")
        assert h.metrics()['hearth_model_evictions_total{model="embed",reason="request"}'] == 1


def test_autoload_off():
    with Hearth(*TWO, *ONE_FITS, *OPERATOR, "--models-autoload", "off") as h:
        message = refused(embed(h), 400, "model_not_loaded")
        assert "'embed'" in message
        assert h.post("/models/load", {"model": "embed"})[0] == 200 and embed(h)[0] == 200
        refused(chat(h), 400, "model_not_loaded")
    with Hearth(*TWO, *ONE_FITS) as h:
        refused(h.post("/v1/embeddings?autoload=false", {"model": "embed", "input": "a"}), 400, "model_not_loaded")
        assert h.post("/v1/embeddings?autoload=true", {"model": "embed", "input": "a"})[0] == 200


def test_names():
    with Hearth(*TWO, *ONE_FITS, "--default-model", "embed") as h:
        assert h.post("/v1/embeddings", {"input": "a"})[2]["model"] == "embed"
        # Neither model is loaded for a name that nobody has.
        for name in ("nope", "chat/../embed", "e" * 1000, "%63hat"):
            message = refused(embed(h, name), 404, "model_not_found")
            assert message.endswith("this server serves 'chat', 'embed'."), message
        assert states(h)["embed"] == "loaded"
        wait = h.metrics()['hearth_model_loads_total{model="chat",result="ok"}']
        chat(h)
        assert states(h)["embed"] == "unloaded"
        refused(embed(h, "nope"), 404, "model_not_found")
        assert h.metrics()['hearth_model_loads_total{model="chat",result="ok"}'] == wait + 1


def test_a_folder_of_models():
    with tempfile.TemporaryDirectory() as root:
        shutil.copytree(DEMO, os.path.join(root, "tales"))
        shutil.copytree(EMBED, os.path.join(root, "org", "embed"))
        os.symlink(DEMO, os.path.join(root, "link"))
        os.mkdir(os.path.join(root, "empty"))
        with Hearth("--model", f"chat={DEMO}", "--models", root, "--threads", "2") as h:
            assert states(h) == {"chat": "loaded", "org/embed": "unloaded", "tales": "unloaded"}, states(h)
            assert entry(h, "org/embed")["meta"]["architecture"] == "BertModel"
            assert embed(h, "org/embed")[0] == 200 and content(chat(h, "tales")) == content(chat(h))
            loads = 'hearth_model_loads_total{model="tales",result="ok"}'
            shutil.copytree(RERANK, os.path.join(root, "rank"))
            shutil.rmtree(os.path.join(root, "org"))
            h.process.send_signal(signal.SIGHUP)
            h.wait_until(lambda: "rank" in states(h) and "org/embed" not in states(h), 20, "another look")
            assert rank(h) and h.metrics()[loads] == 1
            refused(embed(h, "org/embed"), 404, "model_not_found")
            shutil.copy(os.path.join(EMBED, "config.json"), os.path.join(root, "tales"))
            refused(h.get("/v1/models?reload=1"), 404, "unknown_url")
            assert h.get("/v1/models?x=preload=1&y=reload=1")[0] == 200
            h.process.send_signal(signal.SIGHUP)
            h.wait_until(lambda: entry(h, "tales")["status"].get("failed"), 20, "a model that cannot be served")
            refused(chat(h, "tales"), 400, "model_not_loaded")
            assert chat(h)[0] == 200
        # As often as one likes, for the operator.
        with Hearth("--model", f"chat={DEMO}", "--models", root, "--threads", "2", env={"HEARTH_OPERATOR_KEY": "o"}) as h:
            for value in ("1", "%31"):
                refused(h.get(f"/v1/models?reload={value}"), 401, "invalid_api_key")
            for i in range(70):
                os.rename(os.path.join(root, "rank" if i == 0 else f"rank{i - 1}"), os.path.join(root, f"rank{i}"))
                assert h.get("/v1/models?reload=1", {"Authorization": "Bearer o"})[0] == 200
                h.wait_until(lambda i=i: [n for n in states(h) if "rank" in n] == [f"rank{i}"], 20, "the new name")


def test_a_name_twice():
    """Given twice, in every place that names come from: shown and found once."""
    with tempfile.TemporaryDirectory() as root, tempfile.NamedTemporaryFile("w", suffix=".ini") as f:
        for name in ("m\udcfe", "m\udcff"):
            shutil.copytree(DEMO, os.path.join(root, name))
        f.write(f"[model chat]\nmodel = {DEMO}\nalias = gpt, chat, gpt\n")
        f.flush()
        with Hearth("--config", f.name, "--models", root, "--threads", "2", *OPERATOR) as h:
            assert states(h) == {"chat": "loaded", "gpt": "loaded", "m?": "unloaded"}, states(h)
            assert entry(h, "chat")["aliases"] == ["gpt"] and entry(h, "gpt")["id"] == "gpt"
            assert entry(h, "m%3F")["id"] == "m?"
            assert "chat has the name 'gpt' twice" in h.wait_log("'gpt' twice")
            assert "another model answers to the name 'm?'" in h.wait_log("is left out")
            status, _, body = h.post("/models/load", {"replace": "chat", "alias": ["a", "b", "a"], "wait": "drained"})
            assert status == 200 and body["model"] == "a", body
            assert entry(h, "a")["aliases"] == ["b"] and entry(h, "b")["id"] == "b"
        status, _, err = run("serve", "--model", f"a={DEMO}", "--model", f"a={EMBED}", "--port", "0")
        assert status == 2 and f"model a is '{DEMO}' and '{EMBED}'" in err, err
    with Hearth("--alias", "a,a", "--threads", "2") as h:
        assert entry(h, "a")["id"] == "a" and len(h.get("/v1/models")[2]["data"]) == 1


def look_again(h, wanted, gone=()):
    """The folder is read once more, until these names are there or gone."""
    h.process.send_signal(signal.SIGHUP)
    h.wait_until(lambda: set(wanted) <= set(states(h)) and not set(gone) & set(states(h)), 20, "another look")


def test_a_found_model_that_is_swapped():
    """It keeps its name, whatever is looked up in the folder later."""
    with tempfile.TemporaryDirectory() as root, Other() as other:
        shutil.copytree(DEMO, os.path.join(root, "org", "tales"))
        with Hearth("--model", f"chat={DEMO}", "--models", root, "--threads", "2", *OPERATOR) as h:
            first = content(chat(h))
            for alias, name in ((None, "org/tales"), ("new", "new")):
                swap = {"model": other.dir, "replace": "org/tales", "wait": "drained", **({"alias": alias} if alias else {})}
                assert h.post("/models/load", swap)[2]["model"] == name
                for i in range(2):
                    marker = f"{name[:3]}{i}"
                    shutil.copytree(RERANK, os.path.join(root, marker))
                    look_again(h, ["chat", name, marker])
                    assert content(chat(h, name)) != first
                os.utime(os.path.join(root, "org", "tales", "config.json"))  # another digest
                shutil.rmtree(os.path.join(root, marker))
                look_again(h, [name], [marker])
                assert content(chat(h, name)) != first
                # Without a directory: that of the folder.
                body = h.post("/models/load", {"replace": name, "wait": "drained"})[2]
                assert body["success"] and body["model"] == "org/tales" and content(chat(h, "org/tales")) == first, body
            shutil.rmtree(os.path.join(root, "org"))
            look_again(h, ["chat"], ["org/tales"])


def test_a_found_default_that_vanishes():
    """Nobody answers for it, however many others come; once it is back it answers again."""
    with tempfile.TemporaryDirectory() as root:
        shutil.copytree(EMBED, os.path.join(root, "tales"))
        with Hearth("--model", f"chat={DEMO}", "--models", root, "--default-model", "tales", "--threads", "2", *OPERATOR) as h:
            want = vector(h.post("/v1/embeddings", {"input": "a cat"}))
            before = "tales"
            for i in range(66):
                os.rename(os.path.join(root, before), os.path.join(root, f"m{i}"))
                look_again(h, [f"m{i}"], [before])
                before = f"m{i}"
            message = refused(h.post("/v1/embeddings", {"input": "a cat"}), 404, "model_not_found")
            assert message == f"The model 'tales' does not exist; this server serves 'chat', '{before}'.", message
            assert content(chat(h)) and vector(embed(h, before)) == want
            shutil.rmtree(os.path.join(root, before))
            look_again(h, ["chat"], [before])
            refused(h.post("/v1/chat/completions", CHAT), 404, "model_not_found")
            assert content(chat(h)) and chat(h, "nope")[0] == 404
            # One model is left, which operators need not name.
            assert h.post("/models/unload", {"wait": "drained"})[2]["model"] == "chat"
            assert h.post("/models/load", {"alias": "one"})[2]["model"] == "one"
            shutil.copytree(EMBED, os.path.join(root, "tales"))
            look_again(h, ["tales"])
            assert vector(h.post("/v1/embeddings", {"input": "a cat"})) == want


# ---- failures -----------------------------------------------------------------------------------------

def test_a_model_that_cannot_be_loaded():
    """Its waiters hear why; the others live; after the repair an operator may load it at once."""
    with DemoCopy() as m:
        m.weights(not_numbers)
        with Hearth("--model", f"embed={EMBED}", "--model", f"bad={m.dir}", *ONE_FITS, *OPERATOR) as h:
            status, head, body = chat(h, "bad")
            assert status == 503 and body["error"]["code"] == "model_failed" and "not finite" in body["error"]["message"]
            assert int(head["retry-after"]) == 30 and entry(h, "bad")["status"] == {"value": "unloaded", "failed": True}
            refused(chat(h, "bad"), 503, "model_failed")
            assert h.metrics()['hearth_model_loads_total{model="bad",result="failed"}'] == 1
            assert embed(h)[0] == 200
            refused(h.post("/models/load", {"model": "bad"}), 400, "model_invalid")
            shutil.copy(os.path.join(DEMO, "model.safetensors"), m.dir)
            assert h.post("/models/load", {"model": "bad"})[0] == 200 and chat(h, "bad")[0] == 200
            assert h.post("/models/unload", {"model": "bad", "wait": "drained"})[0] == 200
            os.rename(m.path("tokenizer.json"), m.path("config"))
            for _ in range(2):  # any client hears no path, the operator and the log do
                message = refused(chat(h, "bad"), 503, "model_failed")
                assert message.endswith("could not be loaded: the server's log says why"), message
            assert m.dir in refused(h.post("/models/load", {"model": "bad"}), 400, "model_invalid")
            h.wait_log(f"bad cannot be loaded: tokenizer: {m.dir}")
            shutil.rmtree(m.dir)
            assert embed(h)[0] == 200
            refused(chat(h, "bad"), 503, "model_failed")
            os.makedirs(m.dir)


def test_waiting_and_leaving():
    """Time is up, too many wait, clients leave; a load for which nobody waits is given up."""
    with Hearth(*TWO, *ONE_FITS, "--debug-hooks", "on", "--load-wait-ms", "500", "--max-queue", "2", *SMALL) as h:
        busy = hold_a_stream(h)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = [a.result() for a in [pool.submit(embed, h) for _ in range(6)]]
        for status, head, body in answers:
            assert status == 503 and body["error"]["code"] == "model_loading" and int(head["retry-after"]) >= 1, body
        h.resume_engine()
        busy.close()
    with Hearth(*TWO, *ONE_FITS, "--debug-hooks", "on", *SMALL) as h:
        busy = hold_a_stream(h)
        gone = start_request(h, "/v1/embeddings", {"model": "embed", "input": "a"})
        h.wait_until(lambda: entry(h, "embed")["in_flight"] == 1, 10, "a waiter")
        gone.close()
        h.wait_until(lambda: entry(h, "embed")["in_flight"] == 0, 10, "nobody who waits")
        h.resume_engine()
        busy.close()
        assert embed(h)[0] == 200


def test_places_of_keys():
    """One key's requests leave half of the places to others; a key alone, or clients without one, have all."""
    def ask(h, key, i):
        return start_request(h, "/v1/embeddings", {"model": "embed", "input": f"{key} {i}"},
                             headers={"Authorization": f"Bearer {key}"} if key else {})

    for keys, most in (("a,b", {"a": 2, "b": 2}), ("a,a", {"a": 4}), (None, {None: 4})):
        with Hearth(*TWO, *ONE_FITS, "--debug-hooks", "on", "--max-queue", "2", *SMALL,
                    env={"HEARTH_API_KEY": keys} if keys else {}) as h:
            headers = {"Authorization": "Bearer a"}

            def waiting(h=h, headers=headers):
                return h.get("/v1/models/embed", headers)[2]["in_flight"]
            h.pause_engine()
            busy = start_request(h, "/v1/chat/completions", {**CHAT, "model": "chat"}, headers=headers)
            h.wait_until(lambda: h.get("/v1/models/chat", headers)[2]["in_flight"] == 1, 10, "a busy model")
            sockets, n = [], 0
            for key, places in most.items():
                for i in range(places):
                    sockets.append(ask(h, key, i))
                    n += 1
                    h.wait_until(lambda n=n: waiting() == n, 10, "one more waiter")
                with contextlib.closing(ask(h, key, "too many")) as s:
                    assert b"503" in (answer := read_all(s)) and b"model_loading" in answer, answer
            assert waiting() == 4
            h.resume_engine()
            for s in [busy, *sockets]:
                assert b"200 OK" in s.recv(4096)
                s.close()


def test_streams_hear_that_they_wait():
    with Hearth(*TWO, *ONE_FITS, "--debug-hooks", "on", "--heartbeat-ms", "100", *SMALL, "--model",
                f"other={DEMO}") as h:
        busy = hold_a_stream(h)
        body = {**CHAT, "model": "other", "stream": True}
        bad = {**body, "temperature": "hot"}
        waiting = [(name, start_request(h, path, {**fields, "input": "Hi", "prompt": "Hi"})) for name, path, fields in (
            ("good", "/v1/chat/completions", body), ("chat", "/v1/chat/completions", bad),
            ("completions", "/v1/completions", bad), ("responses", "/v1/responses", bad), ("messages", "/v1/messages", bad))]
        heard = {}
        for name, s in waiting:
            heard[name] = b""
            while b": keep-alive\n" not in heard[name]:
                heard[name] += s.recv(4096)
            assert b" 200 OK" in heard[name]
        h.resume_engine()
        busy.close()
        for name, s in waiting:
            while part := s.recv(65536):
                heard[name] += part
            s.close()
        assert b'"content"' in heard["good"] and b"[DONE]" in heard["good"], heard
        # The error is an event of the dialect, and the last one.
        text = {name: re.sub(r"\r\n[0-9A-Fa-f]+\r\n", "", data.decode()).partition(": keep-alive\n")[2].replace(": keep-alive\n", "")
                for name, data in heard.items()}
        for name in ("chat", "completions"):
            assert "\ndata: [DONE]\n" in text[name] and '"code":"invalid_type"' in text[name], text[name]
        for name, code in (("responses", "invalid_type"), ("messages", "invalid_request_error")):
            assert text[name].count("event: ") == text[name].count("data: ") == 1 and "event: error\n" in text[name], text[name]
            event = json.loads(text[name].partition("data: ")[2].partition("\n")[0])
            assert event["type"] == "error" and code in json.dumps(event) and "'temperature'" in json.dumps(event), event
            if name == "responses":
                assert (event["sequence_number"], event["param"], event["code"]) == (0, "temperature", code), event


def test_the_server_ends_while_requests_wait():
    with Hearth(*TWO, *ONE_FITS, "--debug-hooks", "on", *OPERATOR, "--drain-timeout-ms", "1000", *SMALL) as h:
        busy = hold_a_stream(h)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            waits = [pool.submit(embed, h), pool.submit(h.post, "/models/load", {"model": "embed"})]
            h.wait_until(lambda: entry(h, "embed")["in_flight"] == 2, 10, "waiters")
            waits.append(pool.submit(h.post, "/models/unload", {"model": "chat", "wait": "drained"}))
            h.wait_until(lambda: "draining" in h.get("/slots?model=chat")[2], 10, "the draining")
            assert h.stop(signal.SIGTERM) == 0
            for w in waits[:2]:
                refused(w.result(), 503, "shutting_down")
            assert waits[2].result()[0] == 200
        busy.close()


def test_many_waiters_for_many_models():
    """Requests for 40 models, of which one fits: each is served, and those that wait together by one load."""
    with tempfile.TemporaryDirectory() as root:
        for i in range(40):
            os.mkdir(os.path.join(root, f"m{i}"))
            for name in os.listdir(DEMO):
                os.symlink(os.path.join(DEMO, name), os.path.join(root, f"m{i}", name))
        with Hearth("--model", f"chat={DEMO}", "--models", root, *ONE_FITS, "--max-connections", "300", "--debug-hooks", "on") as h:
            want = content(chat(h))
            busy = hold_a_stream(h)
            with concurrent.futures.ThreadPoolExecutor(200) as pool:
                answers = [pool.submit(chat, h, f"m{i % 40}") for i in range(200)]
                h.wait_until(lambda: h.metrics()["hearth_http_requests_open"] == 202, what="all wait")  # the stream and the question
                h.resume_engine()
                busy.close()
                for answer in answers:
                    assert content(answer.result()) == want
            metrics = h.metrics()
            loads = sum(metrics['hearth_model_loads_total{model="m%d",result="ok"}' % i] for i in range(40))
            assert loads == 40, loads


def test_hostile_names():
    """Unknown names leave nothing behind, load nothing, and are refused whatever they look like."""
    with Hearth(*TWO, *ONE_FITS) as h:
        before = h.memory_kib()
        for i in range(1000):
            assert embed(h, f"nope{i}")[0] == 404
        with contextlib.suppress(BrokenPipeError, ConnectionResetError): # refused before it is read to its end
            assert embed(h, "x" * 3_000_000)[0] in (404, 413)
        for name in ("x" * 100_000, "../embed", "embed%00", "embed\u0000"):
            assert embed(h, name)[0] in (400, 404), name[:20]
        for name in ([], {}, 1, True):
            refused(chat(h, name), 400, "invalid_type")
        assert content(chat(h, "")) == content(chat(h, None)) == content(chat(h, "default"))
        assert states(h) == {"chat": "loaded", "embed": "unloaded"}
        assert os.environ.get("HEARTH_SLOW") or h.memory_kib() < before + 20_000


def test_unload_and_load_from_many():
    """Operators who load and unload in a loop next to clients: every request is served."""
    with Hearth(*TWO, *ONE_FITS, *OPERATOR, "--max-queue", "20") as h:
        want = vector(embed(h))

        def client(i):
            for k in range(6):
                if i % 4 == 0:
                    status = h.post("/models/unload", {"model": "embed"})[0]
                    assert status in (200, 400), status
                elif i % 4 == 1:
                    assert h.post("/models/load", {"model": "embed"})[0] == 200
                else:
                    assert vector(embed(h)) == want, k
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for result in [pool.submit(client, i) for i in range(16)]:
                result.result()


def test_checks_at_the_start():
    for args, says in ((["--memory", "70M"], "limit is"), (["--default-model", "nope"], "default-model")):
        status, _, err = run("serve", *TWO, "--port", "0", *args)
        assert status == 1 and says in err, (args, err)
    with Hearth(*TWO, "--models-max", "1", "--threads", "2") as h:
        assert states(h) == {"chat": "loaded", "embed": "unloaded"}
        embed(h)
        assert states(h) == {"chat": "unloaded", "embed": "loaded"}

if __name__ == "__main__":
    run_cases(globals())
