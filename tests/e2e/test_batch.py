#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`hearth batch`: a file of requests to a file of answers. The answers are those of the same requests over HTTP; lines
that cannot run are answered in their place; a run that was killed goes on with --resume."""
import hashlib
import http.server
import json
import os
import random
import re
import resource
import subprocess
import tempfile
import threading

from hearth_server import BIN, ROOT, Hearth, run, run_cases

MODELS = ["--model", "chat=demo", "--model", "embed=demo-embed", "--model", "rank=demo-rerank"]
# of an answer, what tells one request from an equal one
OWN = {"id", "item_id", "request_id", "created", "created_at", "completed_at", "timings", "prompt_tokens_details",
       "input_tokens_details", "cache_read_input_tokens", "cache_creation_input_tokens", "tokens_cached", "cache", "usage", "total_duration", "load_duration", "prompt_eval_duration",
       "eval_duration"}
ASK = [{"role": "user", "content": "What is 2+2?"}]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {"type": "integer"}},
                                                                         "required": ["a"]}}}
# every route that takes POST but the operators', and some that fail
BODIES = [
    ("/v1/completions", {"model": "chat", "prompt": "Once upon a time", "max_tokens": 12, "logprobs": 2, "seed": 7}),
    ("/v1/completions", {"model": "chat", "prompt": ["One", "Two"], "n": 2, "seed": 3, "max_tokens": 8}),
    ("/v1/chat/completions", {"model": "chat", "messages": ASK, "max_tokens": 30, "temperature": 0}),
    ("/v1/chat/completions", {"model": "chat", "messages": ASK, "max_tokens": 40, "response_format": SCHEMA, "seed": 1}),
    ("/v1/chat/completions", {"model": "chat", "messages": ASK, "max_tokens": 30, "seed": 1, "tools": [TOOL]}),
    ("/v1/chat/completions/input_tokens", {"model": "chat", "messages": ASK}),
    ("/v1/responses", {"model": "chat", "input": "Hello", "max_output_tokens": 12, "temperature": 0}),
    ("/v1/responses/input_tokens", {"model": "chat", "input": "Hello"}),
    ("/v1/messages", {"model": "chat", "messages": ASK, "max_tokens": 20, "temperature": 0}),
    ("/v1/messages/count_tokens", {"model": "chat", "messages": ASK}),
    ("/v1/fim/completions", {"model": "chat", "prompt": "a", "suffix": "b"}),
    ("/infill", {"model": "chat", "input_prefix": "a", "input_suffix": "b"}),
    ("/completion", {"model": "chat", "prompt": "Once", "n_predict": 8, "temperature": 0}),
    ("/v1/choose", {"model": "chat", "prompt": "2+2=", "choices": ["4", "5"]}),
    ("/tokenize", {"model": "chat", "prompt": "Once upon"}),
    ("/detokenize", {"model": "chat", "tokens": [5, 6]}),
    ("/apply-template", {"model": "chat", "messages": ASK}),
    ("/v1/embeddings", {"model": "embed", "input": ["one", "two"]}),
    ("/api/embed", {"model": "embed", "input": "one"}),
    ("/api/chat", {"model": "chat", "messages": ASK, "stream": False, "options": {"num_predict": 20, "temperature": 0}}),
    ("/api/generate", {"model": "chat", "prompt": "Once", "raw": True, "stream": False, "options": {"num_predict": 8, "seed": 5}}),
    ("/api/generate", {"model": "chat", "stream": False}),
    ("/api/show", {"model": "embed:latest"}),
    ("/api/pull", {"model": "chat"}),
    ("/api/embeddings", {"model": "embed", "prompt": "one"}),
    ("/embed", {"model": "embed", "inputs": "one"}),
    ("/v2/embed", {"model": "embed", "texts": ["one"], "input_type": "search_query", "embedding_types": ["float"]}),
    ("/v1/rerank", {"model": "rank", "query": "one", "documents": ["two", "one"]}),
    ("/v2/rerank", {"model": "rank", "query": "one", "documents": ["two", "one"]}),
    ("/v1/score", {"model": "rank", "text_1": "one", "text_2": ["two", "one"]}),
    ("/v1/classify", {"model": "rank", "input": "one"}),
    ("/v1/completions", {"model": "chat", "prompt": 5}),
    ("/v1/completions", {"model": "none", "prompt": "a"}),
    ("/v1/messages", {"model": "chat", "messages": []}),
    ("/v1/embeddings", {"model": "embed", "input": []}),
]


def line(custom_id, url, body):
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body})


def write(directory, lines, name="in.jsonl", end="\n"):
    path = os.path.join(directory, name)
    with open(path, "w", encoding="utf-8", newline="") as f:
        f.write(end.join(lines) + end)
    os.utime(path, (1000000000, 1000000000))
    return path


def answers(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(text) for text in f.read().split("\n")[:-1]]


def plain(value):
    """An answer without what is its own."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in OWN}
    return [plain(v) for v in value] if isinstance(value, list) else value


def many(n):
    return [line(f"line {i}", "/v1/completions", {"prompt": f"Story {i}:", "max_tokens": 4 + i % 9}) for i in range(n)]


def test_as_over_http():
    with tempfile.TemporaryDirectory() as d, Hearth(*MODELS) as h:
        path, out = write(d, [line(str(i), *b) for i, b in enumerate(BODIES)]), os.path.join(d, "out.jsonl")
        status, _, err = run("batch", path, "-o", out, *MODELS)
        rows = answers(out)
        assert status == 3 and [r["custom_id"] for r in rows] == [str(i) for i in range(len(BODIES))], err
        for row, (url, body) in zip(rows, BODIES):
            code, _, wanted = h.post(url, body)
            got = row["response"]
            assert got["status_code"] == code, (url, body, got, wanted)
            assert plain(got["body"]) == plain(wanted), (url, body, got["body"], wanted)
            assert row["error"] is None and row["id"].startswith("batch_req_") and got["request_id"].startswith("req_")
        failed = sum(r["response"]["status_code"] >= 300 for r in rows)
        assert 3 < failed < len(rows) / 2 and f"{len(rows)} lines, {failed} failed" in err, err


def test_lines_that_cannot_run():
    good = line("good", "/v1/completions", {"prompt": "a", "max_tokens": 2})
    bad = [("no JSON", "not a JSON object"), ("[1]", "not a JSON object"), ('{"a": 1} x', "not a JSON object"),
           (good.replace('"good"', "5"), "'custom_id' is missing"), (good.replace('"good"', '""'), "1 to 512"),
           (good.replace('"good"', '"' + "x" * 513 + '"'), "513 characters"), (good, "an earlier line"),
           (good.replace("good", "m").replace("POST", "GET"), "'method'"), (good.replace("good", "u").replace("/v1/c", "/v1/x"), "'url'"),
           (line("o", "/v1/models/load", {"model": "x"}), "'url'"), (line("g", "/v1/models", {}), "'url'"),
           (line("b", "/v1/completions", []), "'body'"), ('{"custom_id":"n","method":"POST","url":"/v1/completions"}', "'body'"),
           (line("s", "/v1/completions", {"prompt": "a", "stream": True}), "'stream'"),
           (line("\ud800", "/v1/completions", {}), "not a JSON object")]
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "out.jsonl")
        path = write(d, ["\ufeff" + good, "", *[text for text, _ in bad], "  ", line("last", "/v1/completions", {"prompt": "a"})], end="\r\n")
        status, _, err = run("batch", path, "-o", out)
        rows = answers(out)
        assert status == 3 and len(rows) == len(bad) + 3, (err, len(rows))  # blanks are no empty line
        assert rows[0]["response"]["status_code"] == 200 and rows[-1]["custom_id"] == "last", rows[0]
        for row, (text, says) in zip(rows[1:], bad):
            error = row["response"]["body"]["error"]
            assert row["response"]["status_code"] == 400 and says in error["message"], (text, row)
            assert error["type"] == "invalid_request_error", row


def test_the_same_bytes_again():
    """Ids, seed and times are of the line and the file: a run gives the same bytes, at any width."""
    with tempfile.TemporaryDirectory() as d:
        path, outs = write(d, many(40)), [os.path.join(d, f"{i}.jsonl") for i in range(3)]
        for out, options in zip(outs, (["--parallel", "1"], ["--parallel", "8"], ["--threads", "1"])):
            status, _, err = run("batch", path, "-o", out, "--temperature", "1", *options)
            assert status == 0, err
        first, *others = [open(out, "rb").read() for out in outs]
        assert all(other == first for other in others)
        rows = answers(outs[0])
        assert rows[0]["response"]["body"]["created"] == 1000000000
        assert len({json.dumps(r["response"]["body"]["choices"]) for r in rows}) > 30, "each line has a seed of its own"
        with open(path, "rb") as f:
            status, piped, _ = run("batch", "-", "-o", "-", "--temperature", "1", stdin=f.read().decode())
        assert status == 0 and plain([json.loads(text) for text in piped.split("\n")[:-1]]) == plain(rows)


def test_going_on_after_a_kill():
    with tempfile.TemporaryDirectory() as d:
        path, out, whole = write(d, many(300)), os.path.join(d, "out.jsonl"), os.path.join(d, "whole.jsonl")
        assert run("batch", path, "-o", whole)[0] == 0
        with open(whole, "rb") as f:
            wanted = f.read()
        for cut in (0, 1, len(wanted) // 3, len(wanted) - 1):  # as a kill leaves it
            with open(out, "wb") as f:
                f.write(wanted[:cut])
            with open(path, "rb") as f, open(out + ".hearth", "w", encoding="ascii") as side:
                side.write(hashlib.sha256(f.read()).hexdigest())
            status, _, err = run("batch", path, "-o", out)
            assert status == 1 and "--resume" in err, err
            status, _, err = run("batch", path, "-o", out, "--resume")
            assert status == 0, err
            with open(out, "rb") as f:
                assert f.read() == wanted, cut
            assert not os.path.exists(out + ".hearth")
        p = subprocess.Popen([BIN, "batch", path, "-o", out], stderr=subprocess.DEVNULL)
        while not os.path.exists(out) or not os.path.getsize(out):  # one answer at least is there
            assert p.poll() is None or os.path.getsize(out)
        p.kill()
        p.wait()
        if os.path.exists(out + ".hearth"):
            assert run("batch", path, "-o", out, "--resume")[0] == 0
        with open(out, "rb") as f:
            assert f.read() == wanted


def read(*paths):
    return [open(path, "rb").read() if os.path.exists(path) else None for path in paths]


def test_failures_in_a_file_of_their_own():
    """Each line is in one of the two files, once, wherever a kill comes."""
    with tempfile.TemporaryDirectory() as d:
        bad = [line("b1", "/none", {}), line("b2", "/v1/completions", {"prompt": 5})]
        lines = many(3) + bad[:1] + many(5)[3:] + bad[1:]
        path, out, errors, whole = write(d, lines), *(os.path.join(d, name) for name in ("out.jsonl", "err.jsonl", "whole.jsonl"))
        side = out + ".hearth"
        assert run("batch", path, "-o", whole)[0] == 3
        status, _, err = run("batch", "-i", path, "-o", out, "--errors", errors)
        assert status == 3, err
        assert [r["custom_id"] for r in answers(out)] == [f"line {i}" for i in range(5)]
        assert [r["custom_id"] for r in answers(errors)] == ["b1", "b2"]
        wanted = read(out, errors)
        rows = read(whole)[0].splitlines(keepends=True)
        assert sorted(b"".join(wanted).splitlines(keepends=True)) == sorted(rows)
        with open(path, "rb") as f:
            begun = hashlib.sha256(f.read() + b"e").hexdigest()
        for k in range(len(rows) + 1):  # a kill in the middle of a line, or after the last one
            halves = rows[:k] + [row[:40] for row in rows[k:k + 1]]
            for name, status in ((out, True), (errors, False)):
                with open(name, "wb") as f:
                    f.write(b"".join(row for row, whole in zip(halves, rows) if (b'"status_code":2' in whole) == status))
            with open(side, "w", encoding="ascii") as f:
                f.write(begun)
            status, _, err = run("batch", path, "-o", out, "--errors", errors, "--resume")
            assert status == 3 and read(out, errors, side) == [*wanted, None], (k, err)
        with open(side, "w", encoding="ascii") as f:
            f.write(begun)
        assert "without --errors" not in err and "with --errors" in run("batch", path, "-o", out, "--resume")[2]
        os.remove(side)
        status, text, _ = run("batch", path, "-o", "-", "--errors", errors)
        assert status == 3 and [text.encode(), *read(errors)] == wanted


def go_on_until_killed(path, files, limit, *options):
    """A run that the kernel kills where a file would get longer than `limit` bytes, None: nowhere. Returns its status; -n: a signal."""
    def prepare():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit or resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.path.exists(files[0] + ".hearth") and os.path.getsize(files[0] + ".hearth") == 64:
        options = ["--resume", *options]
    return subprocess.run([BIN, "batch", path, "-o", files[0], *(["--errors", *files[1:]] if files[1:] else []), *options],
                          preexec_fn=prepare, capture_output=True, check=False, timeout=120).returncode


def test_killed_at_bytes_of_chance():
    with tempfile.TemporaryDirectory() as d:
        draw, bad = random.Random(3), [line(f"b{i}", "/v1/completions", {"prompt": i}) for i in range(40)]
        path = write(d, [text for pair in zip(many(40), bad) for text in pair])
        whole, files = [os.path.join(d, name) for name in ("w", "x")], [os.path.join(d, name) for name in ("out", "errors")]
        assert go_on_until_killed(path, whole, None) == 3
        limit, n_killed = 40, 0
        while (status := go_on_until_killed(path, files, limit)) < 0:
            limit += draw.randrange(1, 900)
            n_killed += 1
        assert status == 3 and n_killed > 10 and read(*files) == read(*whole) and not os.path.exists(files[0] + ".hearth"), (status, n_killed)


def test_lines_of_like_beginnings_together():
    """--order prefix changes what is computed of the prompts, and no byte of the answers."""
    with tempfile.TemporaryDirectory() as d:
        def chat(i):
            return [{"role": "system", "content": f"{i * 7 % 8}" + " be kind" * 150}, {"role": "user", "content": f"Say {i}"}]
        path = write(d, [line(str(i), "/v1/chat/completions", {"messages": chat(i), "max_tokens": 2}) for i in range(24)])
        # each process holds the pages of two such prompts
        sizes, cached = ("--parallel", "1", "--ctx-size", "1K", "--kv-memory", "1400K", "--numerics", "bf16"), {}
        for order in ("input", "prefix"):
            out = os.path.join(d, order)
            status, _, err = run("batch", path, "-o", out, "--order", order, *sizes)
            assert status == 0, err
            usage = [r["response"]["body"]["usage"] for r in answers(out)]
            cached[order] = sum(u["prompt_tokens_details"]["cached_tokens"] for u in usage)
        assert plain(answers(os.path.join(d, "input"))) == plain(answers(os.path.join(d, "prefix")))
        assert cached["prefix"] > 2 * cached["input"], cached


def test_lines_of_anthropic():
    body = {"messages": ASK, "max_tokens": 12, "temperature": 0}
    with tempfile.TemporaryDirectory() as d:
        lines = [json.dumps({"custom_id": "a \u00e9", "params": body}), json.dumps({"params": {**body, "stream": True}, "custom_id": "s"}),
                 line("o", "/v1/messages", body), json.dumps({"custom_id": "n", "params": 5}), '{"custom_id": "x", "params": {']
        out = os.path.join(d, "out.jsonl")
        status, _, err = run("batch", write(d, lines), "-o", out)
        first, stream, other, *bad = answers(out)
        assert status == 3 and first["custom_id"] == "a \u00e9" and first["response"]["body"]["type"] == "message", err
        assert plain(first["response"]["body"]) == plain(other["response"]["body"])
        assert [r["response"]["status_code"] for r in (stream, *bad)] == [400] * 3, bad


class Scripted(http.server.BaseHTTPRequestHandler):
    """Answers each prompt by what it says: a list of (status, headers, text), one for each try; the last one stays."""
    protocol_version = "HTTP/1.1"
    tries, seen = {}, []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        n = self.tries[body["prompt"]] = self.tries.get(body["prompt"], 0) + 1
        script = body["script"]
        status, headers, text = script[min(n, len(script)) - 1]
        self.seen.append((self.path, self.headers["Authorization"]))
        self.close_connection = "Content-Length" in headers  # and the answer is not whole
        self.send_response(status)
        for name, value in {"Content-Length": str(len(text.encode())), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args):
        pass


def test_a_server_elsewhere():
    good, at_once = (200, {"x-request-id": "theirs"}, '{\n  "a": "b\\nc",\r\n\t"usage": {"total_tokens": 7}\n}'), {"Retry-After": "0"}
    full, broken = (429, at_once, '{"error": {"message": "full"}}'), (502, at_once, "<html>bad gateway</html>")
    scripts = {"good": [good], "full": [full] * 6 + [good], "loading": [(503, at_once, "{}"), good], "broken": [broken, broken, good],
               "gone": [broken], "refused": [(400, {}, '{"error": {"message": "no"}}')], "cut": [(200, {"Content-Length": "100"}, "{}"), good], "text": [(200, {}, "hello")]}
    with tempfile.TemporaryDirectory() as d, http.server.ThreadingHTTPServer(("127.0.0.1", 0), Scripted) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url, out = f"http://127.0.0.1:{server.server_address[1]}/v1", os.path.join(d, "out.jsonl")
        lines = [line(name, "/v1/completions", {"prompt": name, "script": script}) for name, script in scripts.items()]
        path = write(d, [*lines, line("tokens", "/tokenize", {"prompt": "tokens", "script": [good]}), "no JSON"])
        status, _, err = run("batch", path, "-o", out, "--url", url, "--parallel", "3", HEARTH_API_KEY="sk-1")
        rows = {r["custom_id"]: r["response"] for r in answers(out)}
        codes = [r["response"]["status_code"] for r in answers(out)]
        assert status == 3 and codes == [200, 200, 200, 200, 502, 400, 200, 502, 200, 400], (codes, err)
        assert rows["good"]["body"] == {"a": "b\nc", "usage": {"total_tokens": 7}} and rows["good"]["request_id"] == "theirs"
        assert "42 tokens" in err and "trying again" in err, err
        assert Scripted.tries == {"good": 1, "full": 7, "loading": 2, "broken": 3, "gone": 4, "refused": 1, "cut": 2, "text": 1, "tokens": 1}
        assert set(Scripted.seen) == {("/v1/completions", "Bearer sk-1"), ("/tokenize", "Bearer sk-1")}
        assert rows["refused"]["body"] == {"error": {"message": "no"}} and "not JSON" in rows["text"]["body"]["error"]["message"]
        server.shutdown()
    with tempfile.TemporaryDirectory() as d:
        status, _, err = run("batch", write(d, many(2)), "-o", os.path.join(d, "out.jsonl"), "--url", url)
        assert status == 1 and url in err, err


def test_the_page_on_labels():
    """Its commands in a folder of their own, with the demo model."""
    with open(os.path.join(ROOT, "docs", "labels.md"), encoding="utf-8") as f:
        commands = [block for kind, block in re.findall(r"^```(\w*)\n(.*?)^```", f.read(), re.M | re.S) if not kind]
    script = "".join(commands[:2]).replace("--pull --model HuggingFaceTB/SmolLM2-135M-Instruct", "").replace("hearth batch", f"{BIN} batch")
    with tempfile.TemporaryDirectory() as d:
        subprocess.run(["bash", "-ec", script], cwd=d, check=True, timeout=120)
        with open(os.path.join(d, "labels.csv"), encoding="utf-8") as f:
            rows = f.read().splitlines()
        assert len(rows) == 5 and all(re.search(r",(positive|negative),[01]\.\d{3}$", row) for row in rows[1:]), rows


def test_what_cannot_be_gone_on_with():
    with tempfile.TemporaryDirectory() as d:
        path, other, out = write(d, many(2)), write(d, many(3), "other.jsonl"), os.path.join(d, "out.jsonl")
        size, link = os.path.getsize(path), os.path.join(d, "link.jsonl")
        os.symlink(path, link)
        for args, says, status in (([path], "-o", 2), (["-o", out], "file of requests", 2), ([path, path, "-o", out], "only one file", 2),
                                   ([path, "-o", out, "--resume"], "no run was begun", 1), (["/none/x", "-o", out], "/none/x", 1),
                                   ([path, "-o", "/none/y"], "/none/y", 1), (["-", "-o", out, "--resume"], "needs files", 1),
                                   ([path, "-o", "-", "--resume"], "needs files", 1), ([path, "-o", out, "--port", "1"], "not an option", 2),
                                   ([path, "-o", out, "--model", "/none/model"], "/none/model", 1), ([path, "-o", path], "of this run already", 1),
                                   ([path, "-o", out, "--errors", out], "of this run already", 1), ([path, "-o", out, "--errors", link], "of this run already", 1)):
            code, _, err = run("batch", *args)
            assert code == status and says in err, (args, code, err)
            assert not os.path.exists(out + ".hearth") and os.path.getsize(path) == size, args
            if os.path.exists(out):
                os.remove(out)
        with open(out + ".hearth", "w", encoding="ascii") as f:
            f.write("0" * 64)
        code, _, err = run("batch", other, "-o", out, "--resume")
        assert code == 1 and "another input" in err, err


if __name__ == "__main__":
    run_cases(globals())
