#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Words after the keys of a key file, at length: 1,000 streams cut between swaps and loads that fail, the file read again beside
1,000 running answers, a folder of models that loses one, and the SDKs.

By hand; openai and anthropic for Python are needed, $NODE_SDKS names a node_modules with both (skipped without), $LITELLM the
program of LiteLLM's proxy (skipped without).
"""
import contextlib
import itertools
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request

from hearth_server import DEMO, Hearth, leave, run_cases, start_request
from test_on_demand import ONE_FITS, not_numbers
from test_swap import SWAP, Other, load_ok
from tiny_models import DemoCopy, write_file

ALL, NARROW, MASTER = "all-0123456789", "narrow-0123456789", "master-0123456789"
SHORT = {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
LONG = dict(SHORT, max_tokens=1900, temperature=0, ignore_eos=True, stream=True)


def key(name):
    return {"Authorization": "Bearer " + name}


def jobs(h, label="kitchen"):
    found = h.metrics()
    return tuple(int(found[f'hearth_key_{what}{{key="{label}"}}']) for what in ("running", "waiting"))


class Server(Hearth):
    """One whose key file is `path`."""

    def __init__(self, words, *args):
        self.key_folder = tempfile.TemporaryDirectory()
        self.key_file = os.path.join(self.key_folder.name, "keys")
        self.write(words)
        operators = os.path.join(self.key_folder.name, "operators")
        write_file(operators, MASTER + "\n")
        super().__init__(*args, "--api-key-file", self.key_file, "--operator-key-file", operators)
        self.headers = key(ALL)

    def write(self, words):
        write_file(self.key_file, f"{ALL}\n{NARROW} {words}\n")

    def hang_up(self, says):
        lines = len(self.log)
        self.process.send_signal(signal.SIGHUP)
        self.wait_until(lambda: any(says in line for line in self.log[lines:]), 30)

    def __exit__(self, *args):
        super().__exit__(*args)
        self.key_folder.cleanup()


def cut_streams(h, n, models, between):
    """Cuts n streams at any moment; calls between() after each 25."""
    rng = random.Random(3)
    for i in range(n):
        body = dict(LONG, model=rng.choice(models), max_tokens=rng.choice([1, 8, 300]), n=rng.choice([1, 3]))
        s = start_request(h, "/v1/chat/completions", body, headers=key(NARROW))
        if i % 3:
            s.recv(rng.choice([1, 400, 4000]))
        leave(s, rng.random() < 0.5)
        if i % 4 == 3:  # else the bound of its queue refuses most
            h.wait_until(lambda: sum(jobs(h)) < 5, 60)
        if i % 25 == 24:
            between()
    h.wait_until(lambda: jobs(h) == (0, 0), 60)
    assert h.post("/v1/chat/completions", SHORT, key(NARROW))[0] == 200


def test_streams_cut_between_swaps():
    with Other() as other, Server("name=kitchen slots=2", "--model", f"chat={DEMO}", *SWAP, "--parallel", "4") as h:
        turns = itertools.cycle([other.dir, DEMO])
        cut_streams(h, 500, ["chat"], lambda: load_ok(h, next(turns), headers=key(MASTER)))


def test_streams_cut_between_loads_that_fail():
    with DemoCopy() as bad:
        bad.weights(not_numbers)
        with Server("name=kitchen slots=2", "--model", f"chat={DEMO}", "--model", f"bad={bad.dir}", *ONE_FITS) as h:
            failed = []
            def fail():
                failed.append(h.post("/v1/chat/completions", dict(SHORT, model="bad"), key(NARROW))[2]["error"]["code"])
            cut_streams(h, 500, ["chat"] * 7 + ["bad"], fail)
            assert failed == ["model_failed"] * 20, failed


def test_the_file_is_read_again_beside_1000_running():
    with Server("name=kitchen slots=1000", "--model", f"chat={DEMO}", "--parallel", "1000", "--ctx-size", "256",
                "--max-queue", "1000") as h:
        streams = [start_request(h, "/v1/chat/completions", dict(LONG, max_tokens=200), headers=key(NARROW)) for _ in range(1000)]
        h.wait_until(lambda: sum(jobs(h)) >= 900, 60)
        most = jobs(h)
        h.write("name=kitchen slots=3")
        h.hang_up("read the API keys again")
        after = jobs(h)
        print("before SIGHUP", most, "after", after)
        texts = set()
        for s in streams:
            s.settimeout(300)
            data = b""
            while b"[DONE]" not in data:
                part = s.recv(65536)
                assert part, data[-300:]
                data += part
            s.close()
            events = [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: {")]
            texts.add("".join(c["delta"].get("content") or "" for e in events for c in e.get("choices", [])))
        assert len(texts) == 1, len(texts)
        h.wait_until(lambda: jobs(h) == (0, 0), 60)
        assert h.post("/v1/chat/completions", SHORT, key(NARROW))[0] == 200


def test_a_folder_that_loses_a_permitted_model():
    with tempfile.TemporaryDirectory() as folder:
        for name in ("one", "two"):
            shutil.copytree(DEMO, os.path.join(folder, name))
        with Server("name=kitchen models=one", "--models", folder, "--parallel", "2") as h:
            def ask(model):
                status, _, body = h.post("/v1/chat/completions", dict(SHORT, model=model), key(NARROW))
                return status, body.get("error", {}).get("code")
            assert ask("one")[0] == 200 and ask("two") == (404, "model_not_found")
            os.rename(os.path.join(folder, "one"), os.path.join(folder, ".one"))
            h.hang_up("read the API keys again")
            h.wait_until(lambda: ask("one") == (404, "model_not_found"), 30)
            assert ask("two") == (404, "model_not_found") and ask("") == (404, "model_not_found")
            assert h.get("/v1/models", key(NARROW))[2]["data"] == []
            os.rename(os.path.join(folder, ".one"), os.path.join(folder, "one"))
            h.hang_up("read the API keys again")
            h.wait_until(lambda: ask("one")[0] == 200, 30)


def busy(h):
    """Fills the slot of the key and its queue."""
    streams = [start_request(h, "/v1/chat/completions", dict(LONG, n=16), headers=key(NARROW)) for _ in range(5)]
    h.wait_until(lambda: jobs(h) == (1, 4), 30)
    return streams


def test_sdks():
    import anthropic
    import openai
    with Server("name=kitchen models=chat slots=1", "--model", f"chat={DEMO}", "--model", f"other={DEMO}",
                "--parallel", "2") as h:
        one = openai.OpenAI(base_url=h.url + "/v1", api_key=NARROW, max_retries=0)
        two = anthropic.Anthropic(base_url=h.url, api_key=NARROW, max_retries=0)
        talk = SHORT["messages"]
        calls = [lambda m: one.chat.completions.create(model=m, messages=talk, max_tokens=2),
                 lambda m: one.responses.create(model=m, input="Hi", max_output_tokens=2),
                 lambda m: two.messages.create(model=m, messages=talk, max_tokens=2)]
        for module, call in zip((openai, openai, anthropic), calls):
            call("chat")
            try:
                call("other")
                raise AssertionError("a hidden model was found")
            except module.NotFoundError as e:
                assert "other" in str(e), e
        ask_node = by_node if "NODE_SDKS" in os.environ else None
        with proxy_of(h, "chat", "other") if "LITELLM" in os.environ else contextlib.nullcontext() as ask_proxy:
            streams = busy(h)
            for module, call in zip((openai, openai, anthropic), calls):
                try:
                    call("chat")
                    raise AssertionError("a queue had no bound")
                except module.RateLimitError as e:
                    assert int(e.response.headers["retry-after"]) >= 1, e
            elsewhere(h, ask_node, ask_proxy, "chat", 429)
            for s in streams:
                leave(s, True)
            h.wait_until(lambda: jobs(h) == (0, 0), 30)
            elsewhere(h, ask_node, ask_proxy, "chat", 200)
            elsewhere(h, ask_node, ask_proxy, "other", 404)


def elsewhere(h, ask_node, ask_proxy, name, status):
    if ask_node:
        ask_node(h, name, status)
    found = ask_proxy(name) if ask_proxy else status
    assert found == status, (found, status)


def by_node(h, name, status):
    code = """const [url, key, model] = process.argv.slice(1), talk = [{role: 'user', content: 'Hi'}];
        const {default: OpenAI} = await import('%(at)s/openai/index.mjs');
        const {default: Anthropic} = await import('%(at)s/@anthropic-ai/sdk/index.mjs');
        const a = new OpenAI({baseURL: url + '/v1', apiKey: key, maxRetries: 0});
        const b = new Anthropic({baseURL: url, apiKey: key, maxRetries: 0});
        for (const call of [() => a.chat.completions.create({model, messages: talk, max_tokens: 2}),
                            () => b.messages.create({model, messages: talk, max_tokens: 2})])
            try { await call(); console.log(200); } catch (e) { console.log(e.status); }
        """ % {"at": os.environ["NODE_SDKS"]}
    out = subprocess.run(["node", "--input-type=module", "-e", code, h.url, NARROW, name], text=True, timeout=60, check=True,
                         capture_output=True).stdout.split()
    assert out == [str(status)] * 2, (out, status)


@contextlib.contextmanager
def proxy_of(h, *names):
    """LiteLLM's proxy with these models of h: a function that gives the status of a request for one."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as d:
        file, master = os.path.join(d, "proxy.yaml"), "sk-" + secrets.token_hex(32)
        entries = [{"model_name": n, "litellm_params": {"model": "openai/" + n, "api_base": h.url + "/v1", "api_key": NARROW}}
                   for n in names]
        write_file(file, {"model_list": entries, "router_settings": {"num_retries": 0}, "litellm_settings": {"telemetry": False}})
        env = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": master}
        proxy = subprocess.Popen([os.environ["LITELLM"], "--config", file, "--port", str(port), "--host", "127.0.0.1"],
                                 env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def ask(path, body=None):
            data = json.dumps(body).encode() if body else None
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json", **key(master)})
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return answer.status
            except urllib.error.HTTPError as e:
                return e.code
            except OSError:
                assert proxy.poll() is None, "the proxy has ended"
                return None
        try:
            h.wait_until(lambda: ask("/health/liveliness") == 200, 120)
            yield lambda name: ask("/v1/chat/completions", dict(SHORT, model=name))
        finally:
            proxy.terminate()
            proxy.wait(30)


if __name__ == "__main__":
    run_cases(globals())
