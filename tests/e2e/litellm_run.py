#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run by hand: LiteLLM's proxy in front of the demo model, asked in three dialects.

    litellm_run.py --program VENV/bin/litellm        # pip install 'litellm[proxy]'

The proxy turns Anthropic calls into Responses calls and passes chats and Responses on. Every answer must
be the one the server gives without the proxy. test_dialects.py holds the calls it sends.
"""
import argparse
import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile

from hearth_server import Hearth

QUESTION = [{"role": "user", "content": "What is 2+2?"}]
TALK = QUESTION + [{"role": "assistant", "content": "2+2=4."}, {"role": "user", "content": "What is 3+3?"}]
CONFIG = """model_list:
  - model_name: demo
    litellm_params: {{model: openai/hearth-demo, api_base: "{url}/v1", api_key: none}}
litellm_settings: {{telemetry: false, num_retries: 0}}
"""


class Proxy(Hearth):
    """The running proxy, with the helpers of the server for requests to it."""

    def __init__(self, program, config, key):
        with socket.create_server(("127.0.0.1", 0)) as s:
            self.port = s.getsockname()[1]
        self.host = "127.0.0.1"
        self.headers = {"Authorization": "Bearer " + key, "anthropic-version": "2023-06-01"}
        env = dict(os.environ, LITELLM_MASTER_KEY=key, LITELLM_LOCAL_MODEL_COST_MAP="True", NO_PROXY="127.0.0.1")
        command = [program, "--config", config, "--host", self.host, "--port", str(self.port)]
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def is_up(self):
        assert self.process.poll() is None, "the proxy did not start"
        with contextlib.suppress(OSError):
            return self.request("GET", "/health/liveliness")[0] == 200
        return False

    def end(self):
        self.process.terminate()
        self.process.wait(20)


def text_of_messages(answer):
    return "".join(b["text"] for b in answer["content"])


def check_messages(proxy, server):
    for messages, extra in ((QUESTION, {}), (TALK, {"system": "Be brief."}), (QUESTION, {"stop_sequences": ["4"]}),
                            ([{"role": "user", "content": [{"type": "text", "text": "What is 2+2?"}]}], {})):
        body = {"messages": messages, "max_tokens": 32, "temperature": 0, **extra}
        plain = text_of_messages(server.post("/v1/messages", body)[2])
        body["model"] = "demo"
        status, _, answer = proxy.post("/v1/messages", body, proxy.headers)
        assert status == 200 and answer["role"] == "assistant", answer
        if "stop_sequences" not in extra:  # the Responses dialect has no stop strings
            assert text_of_messages(answer) == plain, (answer, plain)
        assert answer["usage"]["output_tokens"] > 0
        events = [json.loads(d) for _, d in proxy.stream("/v1/messages", dict(body, stream=True), proxy.headers)]
        text = "".join(e["delta"].get("text", "") for e in events if e["type"] == "content_block_delta")
        assert text == text_of_messages(answer) and events[-1]["type"] == "message_stop", events


def check_chat(proxy, server):
    body = {"messages": TALK, "temperature": 0, "max_tokens": 32}
    plain = server.post("/v1/chat/completions", body)[2]["choices"][0]["message"]["content"]
    body["model"] = "demo"
    status, _, answer = proxy.post("/v1/chat/completions", body, proxy.headers)
    assert status == 200 and answer["choices"][0]["message"]["content"] == plain, answer
    events = [d for _, d in proxy.stream("/v1/chat/completions", dict(body, stream=True), proxy.headers)]
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in map(json.loads, events[:-1]) if c["choices"])
    assert text == plain and events[-1] == "[DONE]", events


def check_responses(proxy, server):
    body = {"input": "What is 2+2?", "temperature": 0, "max_output_tokens": 32}
    plain = server.post("/v1/responses", body)[2]["output"][0]["content"][0]["text"]
    body["model"] = "demo"
    status, _, answer = proxy.post("/v1/responses", body, proxy.headers)
    assert status == 200 and answer["output"][0]["content"][0]["text"] == plain, answer
    data = [d for _, d in proxy.stream("/v1/responses", dict(body, stream=True), proxy.headers) if d != "[DONE]"]
    events = [json.loads(d) for d in data]
    assert "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta") == plain, events


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--program", default="litellm")
    a = p.parse_args()
    failed = 0
    with Hearth() as server, tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        config.write(CONFIG.format(url=server.url))
        config.flush()
        proxy = Proxy(a.program, config.name, "sk-" + secrets.token_hex(32))
        try:
            server.wait_until(proxy.is_up, 120, "the proxy is up")
            for check in (check_messages, check_chat, check_responses):
                try:
                    check(proxy, server)
                    print(f"{check.__name__}: ok")
                except AssertionError as e:
                    print(f"{check.__name__}: FAILED: {str(e)[:600]}")
                    failed += 1
        finally:
            proxy.end()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
