#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Subcommands for people on the demo model: bench, generate, inspect, healthcheck, and what they refuse."""
import json
import os
import re
import socket
import tempfile
import threading

from hearth_server import DEMO, Hearth, run, run_cases
from tiny_models import DemoCopy, demo_without


def bench(*args):
    status, out, err = run("bench", "--json", "--reps", "2", *args)
    assert status == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_bench():
    rows = bench("--prefill", "8,64", "--decode", "4", "--batch", "1,3", "--context", "0,40")
    assert [(r["test"], r["tokens"], r["batch"], r["context"]) for r in rows] == [
        ("prefill", 8, 1, 0), ("prefill", 64, 1, 0), ("decode", 4, 1, 0), ("decode", 4, 3, 0),
        ("decode", 4, 1, 40), ("decode", 4, 3, 40)], rows
    assert all(0 < r["min"] <= r["tok_s"] <= r["max"] for r in rows), rows


def test_bench_for_people():
    status, out, _ = run("bench", "--prefill", "16", "--decode", "4", "--reps", "1")
    assert status == 0 and "tok/s" in out, out


def test_bench_refuses():
    for args, says in ((["--prefill", "x"], "--prefill"), (["--batch", "100000"], "--batch"),
                       (["--prefill", "100000"], "2048"), (["--context", "-1"], "--context"),
                       (["--prefill", ",".join(["1"] * 500)], "--prefill"),
                       (["--model", "/nonexistent/model"], "/nonexistent/model")):
        status, _, err = run("bench", *args)
        assert status > 0 and says in err, (args, err)


def test_generate():
    args = ("generate", "--prompt", "Once upon a time", "-n", "12", "--temperature", "0")
    status, out, err = run(*args)
    assert status == 0 and len(out.split()) > 3, err
    assert re.search(r"12 generated", err), err
    assert run(*args)[1] == out, "greedy and yet another text"
    seeded = [run("generate", "--prompt", "Once", "-n", "12", "--temperature", "1", "--seed", s)[1] for s in "556"]
    assert seeded[0] == seeded[1] != seeded[2], seeded


def test_generate_bound_to_a_grammar():
    with tempfile.TemporaryDirectory() as d:
        def written(name, text):
            path = os.path.join(d, name)
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            return path
        schema = written("schema.json", '{"enum": ["yes", {"a": [1, true]}]}')
        grammar = written("x.gbnf", 'root ::= "a" [bc]+ "."')
        status, out, err = run("generate", "--prompt", "Once", "--json-schema", schema)
        assert status == 0 and json.loads(out) in ("yes", {"a": [1, True]}) and "finish reason: stop" in err, (out, err)
        status, out, err = run("generate", "--prompt", "Once", "--regex", "[0-9]{2}-x", "--temperature", "1")
        assert status == 0 and re.fullmatch(r"[0-9]{2}-x\n", out), (out, err)
        status, out, err = run("generate", "--prompt", "Once", "--grammar", grammar, "-n", "40")
        assert status == 0 and re.match(r"a[bc]+", out), (out, err)
        for args, said in ((("--regex", "("), "regex"), (("--regex", "a", "--grammar", grammar), "--json-schema"),
                           (("--json-schema", os.path.join(d, "none")), "none"),
                           (("--grammar", schema), "grammar line 1")):
            status, out, err = run("generate", "--prompt", "Once", *args)
            assert status == 1 and said in err and not out, (args, err)


def test_generate_has_defaults_of_its_own():
    """The likeliest tokens, 128 of them; with --generation-config the model's values, and flags before both."""
    def generate(*args):
        status, out, err = run("generate", "--prompt", "Once", *args)
        assert status == 0, err
        return out, err
    greedy = generate("-n", "20", "--temperature", "0")[0]
    assert generate("-n", "20")[0] == greedy and generate("--max-tokens", "20", "--seed", "3")[0] == greedy
    whole = generate()[1]
    assert re.search(r"128 generated|finish reason: stop", whole), whole
    drawn = generate("-n", "20", "--temperature", "1", "--seed", "0")[0]
    assert generate("-n", "20", "--temperature", "1")[0] == drawn
    with demo_without("generation_config.json") as directory:
        with open(os.path.join(directory, "generation_config.json"), "w", encoding="utf-8") as f:
            json.dump({"temperature": 1, "top_k": 1, "eos_token_id": 2}, f)
        own = ("--model", directory, "--generation-config", "-n", "20")
        assert generate(*own)[0] == greedy  # top_k 1 of the file
        assert generate(*own, "--top-k", "0")[0] == drawn
        assert generate(*own, "--top-k", "0", "--temperature", "0")[0] == greedy


def test_generate_chat():
    status, out, err = run("generate", "--chat", "--prompt", "What is 2+2?", "-n", "40", "--temperature", "0")
    assert status == 0 and "4" in out, (out, err)


def test_errors_say_what_to_do():
    with DemoCopy() as unknown, demo_without("tokenizer.json") as other_format, \
            tempfile.NamedTemporaryFile("w", suffix=".ini") as ini:
        unknown.config(architectures=["FooForCausalLM"])
        with open(os.path.join(other_format, "tokenizer.model"), "wb") as f:
            f.write(b"\n")
        ini.write("[servr]\nport = 1\n")
        ini.flush()
        for args, parts in (
                (["serve", "--port", "0", "--ctx-size", "100000"], ["100000", "2048", "--ctx-size"]),
                (["serve", "--port", "0", "--memory", "13M", "--ctx-size", "2048"], ["limit is 13 MiB; ", "--memory"]),
                (["serve", "--port", "0", "--kv-memory", "1M", "--ctx-size", "2k"], ["2048", "--kv-memory", "--ctx-size"]),
                (["serve", "--config", ini.name], ["[servr]", "sections are: model compute listen"]),
                (["serve", "--check-config", "--model", unknown.dir], [unknown.dir, "FooForCausalLM", "LlamaForCausalLM"]),
                (["generate", "--prompt", "a", "--model", unknown.dir], [unknown.dir, "FooForCausalLM"]),
                (["generate", "--prompt", "a", "--model", other_format], [other_format, "tokenizer.model", "tokenizer.json"]),
                (["generate"], ["--prompt TEXT"])):
            status, _, err = run(*args)
            line = err.strip().splitlines()[-1]
            assert status > 0 and all(p in line for p in parts), (args, line)
    levels = ["avx512amx", "neonbf16", "avx2vnni", "neon"]
    errors = [run("generate", "--prompt", "a", "--kernels", level)[2] for level in levels]
    assert any("cannot run on this CPU; it runs c" in e for e in errors), errors
    assert run("serve", "--check-config", "--ctx-size", "1k")[0] == 0


def test_generate_refuses():
    for args, says in ((["--prompt", ""], "no tokens"), (["--prompt", "a " * 5000], "2048"),
                       (["--prompt", "a", "--model", "/nonexistent/model"], "/nonexistent/model"),
                       (["--prompt", "a", "--chat", "--chat-template-file", "/nonexistent/file"], "/nonexistent/file"),
                       (["--prompt", "a", "--top-p", "7"], "top-p"), (["--prompt", b"\xff"], "UTF-8")):
        status, out, err = run("generate", *args)
        assert status > 0 and says in err and not out, (args, out, err)
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
        f.write("{{ raise_exception('not today') }}")
        f.flush()
        status, _, err = run("generate", "--chat", "--prompt", "a", "--chat-template-file", f.name)
        assert status > 0 and "not today" in err, err


def test_inspect():
    status, out, err = run("inspect", DEMO)
    assert status == 0 and not err and out.startswith("verdict: can be served\nfamily: Llama: 5 layers, tied\narchitecture: "), out
    for part in ("LlamaForCausalLM", "model.embed_tokens.weight BF16 [1024, 128]", "tokenizer", "chat template"):
        assert part in out, (part, out)
    with demo_without("model.safetensors") as directory:
        status, out, err = run("inspect", directory)
        first = out.splitlines()[0]
        assert status == 1 and first.startswith("verdict: cannot be served: ") and first[27:] in err, (out, err)
        assert f"problem: {first[27:]}\n" in out and out.count("verdict") == 1, out


def test_inspect_without_a_template():
    with demo_without("tokenizer_config.json", "chat_template.jinja") as directory:
        status, out, err = run("inspect", directory)
        assert status == 0 and "template" in out and "can be served" in out, (out, err)


def serve_once(answer):
    """A socket that answers one request so; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def work():
        s, _ = listener.accept()
        with s, listener:
            s.recv(4096)
            s.sendall(answer)
    threading.Thread(target=work, daemon=True).start()
    return listener.getsockname()[1]


def test_healthcheck():
    with Hearth() as h:
        for url in (h.url, h.url + "/healthz", f"{h.host}:{h.port}/readyz"):
            assert run("healthcheck", url)[0] == 0, url
        assert run("healthcheck", HEARTH_PORT=str(h.port))[0] == 0
        for url in (h.url + "/nothing", "https://" + h.url[7:], "http://", "unix:/nonexistent/socket",
                    "unix:/" + "x" * 200, "http://[::1", "http://127.0.0.1:1/", "http://" + "a" * 600):
            status, _, err = run("healthcheck", url)
            assert status > 0 and err, url
    for answer in (b"", b"nonsense\r\n", b"HTTP/1.1 503 no\r\n\r\n", b"HTTP/1.1 2"):
        status, _, err = run("healthcheck", f"http://127.0.0.1:{serve_once(answer)}/")
        assert status > 0 and err, answer


def test_healthcheck_of_a_socket_file():
    with Hearth(unix_socket=True) as h:
        assert run("healthcheck", h.url)[0] == 0
        assert run("healthcheck", HEARTH_UNIX_SOCKET=h.path)[0] == 0


if __name__ == "__main__":
    run_cases(globals())
