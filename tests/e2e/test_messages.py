#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Messages before anything runs: --check-config, --help, warnings about the environment, and messages
that name the next step."""
import json
import os
import pty
import pwd
import re
import select
import shutil
import subprocess
import tempfile

from hearth_server import BIN, DEMO, START_SECONDS, Hearth, make_certificate, run, run_cases
from tiny_models import demo_without

LINKS = {"HEARTH_PORT": "tcp://10.96.36.139:80", "HEARTH_METRICS_PORT": "tcp://10.96.36.140:9090",
         "HEARTH_SERVICE_HOST": "10.96.36.139", "HEARTH_SERVICE_PORT": "80", "HEARTH_SERVICE_PORT_HTTP": "80",
         "HEARTH_PORT_80_TCP": "tcp://10.96.36.139:80", "HEARTH_PORT_80_TCP_PROTO": "tcp",
         "HEARTH_PORT_80_TCP_PORT": "80", "HEARTH_PORT_80_TCP_ADDR": "10.96.36.139",
         "HEARTH_METRICS_SERVICE_HOST": "10.96.36.140", "HEARTH_METRICS_PORT_9090_TCP": "tcp://10.96.36.140:9090",
         "HEARTH_PROXY_PORT": "tcp://10.96.36.141:80"}


# ---- --check-config -------------------------------------------------------------------------------------

def test_check_config_finds_what_serve_finds():
    assert run("serve", "--check-config")[:2] == (0, "the configuration is valid\n")
    with tempfile.TemporaryDirectory() as d:
        empty_keys = os.path.join(d, "keys")
        with open(empty_keys, "w", encoding="ascii") as f:
            f.write("# none\n")
        os.chmod(empty_keys, 0o600)
        bad = ((["--model", "/nonexistent/model"], "/nonexistent/model", 1),
               (["--model", d], "config.json", 1),
               (["--host", "0.0.0.0"], "--allow-public-without-key", 2),
               (["--api-key-file", empty_keys], "holds no key", 1),
               (["--api-key-file", "/nonexistent/keys"], "/nonexistent/keys", 1),
               (["--tls-cert-file", "/nonexistent/cert", "--tls-key-file", empty_keys], "/nonexistent/cert", 1),
               (["--tls-cert-file", empty_keys, "--tls-key-file", empty_keys], "certificate", 1),
               (["--chat-template-file", "/nonexistent/template"], "/nonexistent/template", 1),
               (["--ctx-size", "1000000"], "exceeds the model's", 1),
               (["--memory", "1M"], "the memory limit is 1 MiB", 1),
               (["--memory", "50M"], "but the limit is 50 MiB", 1),
               (["--kv-memory", "2K"], "a KV cache of 2 KiB holds 0 tokens, fewer than the context of 1", 1),
               (["--numerics", "exact", "--kv-dtype", "int8"], "not supported with numerics exact", 1),
               (["--numerics", "int8", "--gemm", "blas"], "--gemm blas needs --numerics exact", 1),
               (["--kernels", "neon" if "x86" in os.uname().machine else "avx2"], "cannot run on this CPU; it runs c", 1),
               (["--unix-socket", "/" + 120 * "x"], "longer than 107 bytes", 1),
               (["--metrics-port", "0", "--metrics-host", "256.1.1.1"], "host '256.1.1.1': ", 1))
        for args, says, wanted in bad:
            status, out, err = run("serve", "--port", "0", "--check-config", *args)
            assert status == wanted and says in err and not out, (args, status, out, err)
            assert len(err.splitlines()) == 1, err
            status, _, err = run("serve", "--port", "0", *args)
            assert status == wanted and says in err, (args, status, err)
    with demo_without("model.safetensors") as d:
        status, _, err = run("serve", "--check-config", "--model", d)
        assert status == 1 and "model.safetensors" in err, err


def test_check_config_of_other_subcommands():
    assert run("generate", "--check-config")[0] == 0
    assert run("healthcheck", "--check-config")[0] == 0
    for command in ("generate", "bench"):
        status, _, err = run(command, "--check-config", "--model", "/nonexistent/model")
        assert status == 1 and "/nonexistent/model" in err, err


def test_check_config_tells_of_secrets_that_others_can_read():
    with tempfile.TemporaryDirectory() as d:
        files = make_certificate(d)
        if not files:
            return
        key, cert = files
        for mode, wanted in ((0o644, 1), (0o600, 0)):
            os.chmod(key, mode)
            status, _, err = run("serve", "--check-config", "--tls-cert-file", cert, "--tls-key-file", key)
            lines = [l for l in err.splitlines() if "readable by every user" in l]
            assert status == 0 and len(lines) == wanted and all(key in l for l in lines), err


# ---- the environment ----------------------------------------------------------------------------------------

def test_variables_of_a_kubernetes_service():
    """A Service named hearth (or hearth-metrics) must not end the server, nor be taken for typing mistakes."""
    status, out, err = run("serve", "--print-config", **LINKS)
    assert status == 0 and "port = 8080" in out and "metrics-port = -1" in out, (status, err)
    lines = err.splitlines()
    assert len(lines) == 2 and all("Kubernetes" in l and "enableServiceLinks" in l for l in lines), err
    assert "HEARTH_PORT=tcp://10.96.36.139:80 is ignored" in err, err
    status, _, err = run("serve", "--print-config", HEARTH_PORT="eighty")
    assert status == 2 and "HEARTH_PORT" in err, err
    with Hearth(env=LINKS) as h:
        assert sum("is ignored" in l for l in h.log) == 2, h.log


def test_unknown_variables_are_named():
    status, _, err = run("serve", "--check-config", HEARTH_PARALEL="2", HEARTH_FROBNICATE="x")
    assert status == 0, err
    lines = sorted(err.splitlines())
    assert len(lines) == 2 and "HEARTH_FROBNICATE" in lines[0] and "did you mean" not in lines[0], err
    assert "HEARTH_PARALEL" in lines[1] and "did you mean HEARTH_PARALLEL?" in lines[1], err
    with Hearth(env={"HEARTH_PARALEL": "2"}) as h:
        assert any("warning" in l and "HEARTH_PARALLEL?" in l for l in h.log), h.log
    with Hearth() as h:
        assert not any("HEARTH_" in l for l in h.log), h.log


# ---- names that are near ---------------------------------------------------------------------------------------

def test_did_you_mean():
    near = ((["serve", "--modle", "x"], "--model"), (["--ctxsize", "5"], "--ctx-size"), (["serev"], "serve"),
            (["generate", "--promt", "x"], "--prompt"), (["inspec"], "inspect"), (["--no-prefix-cach"], "--no-prefix-cache"),
            (["serve", "--max-num-sqs", "3"], "--max-num-seqs"), (["./some/model"], "hearth serve ./some/model"))
    for args, wanted in near:
        status, _, err = run(*args)
        assert status == 2 and re.search(f"did you mean '?{re.escape(wanted)}'?\\?", err), (args, err)
    for args in (["--frobnicate"], ["dance"], ["generate", "--prot", "1"], ["-z"]):
        status, _, err = run(*args)
        assert status == 2 and "did you mean" not in err, (args, err)
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as f:
        f.write("[compute]\nparalell = 3\n")
        f.flush()
        status, _, err = run("--config", f.name, "--check-config")
        assert status == 2 and "did you mean 'parallel'?" in err, err


def test_did_you_mean_a_path():
    with Hearth() as h:
        for path, wanted in (("/v1/chat/completion", "/v1/chat/completions"), ("/v1/modles", "/v1/models")):
            status, _, body = h.get(path)
            assert status == 404 and f"did you mean {wanted}?" in body["error"]["message"], body
        for path in ("/similarity", "/v1/audio/speech", "/x"):
            status, _, body = h.get(path)
            assert status == 404 and "did you mean" not in body["error"]["message"], body


# ---- the next step ---------------------------------------------------------------------------------------------

def test_models_that_are_not_there():
    with tempfile.TemporaryDirectory() as d:
        status, _, err = run("serve", "--port", "0", "--model", "some/model", HF_HOME=d)
        assert status == 1 and "hearth pull some/model" in err, err
        gguf = os.path.join(d, "tiny.Q4_K_M.gguf")
        with open(gguf, "wb") as f:
            f.write(b"GGUF")
        for model in (d, gguf):
            for command in ("serve", "generate", "inspect"):
                status, _, err = run(command, "--model", model)
                assert status == 1 and f"{gguf}: is not a GGUF file" in err, (command, err)
    with demo_without("config.json") as no_config, demo_without("model.safetensors") as no_weights:
        for d in (no_config, no_weights):
            status, _, err = run("serve", "--port", "0", "--model", d)
            assert status == 1 and "listening" not in err and len(err.splitlines()) == 1, err


def demo_copy(directory, mode):
    """A model in a folder of this mode."""
    folder = os.path.join(directory, "models")
    shutil.copytree(DEMO, os.path.join(folder, "demo"))
    os.chmod(directory, 0o755)
    os.chmod(folder, mode)
    return folder, os.path.join(folder, "demo")


def test_permission_denied_names_path_user_and_mode():
    root = os.geteuid() == 0
    as_user = ["--user", "nobody"] if root else []
    user, owner = ("nobody", "root") if root else (2 * (pwd.getpwuid(os.geteuid()).pw_name,))
    with tempfile.TemporaryDirectory() as d:
        folder, model = demo_copy(d, 0o700 if root else 0o600)
        try:
            denied = f"permission denied: user {user} may not enter {folder} (mode {'0700' if root else '0600'}, owner {owner})"
            status, out, err = run("serve", "--check-config", "--model", model, *as_user)
            assert status == 1 and not out and f"model '{model}': {denied}; chmod or chgrp changes that" in err, err
            os.chmod(folder, 0o755)
            status, out, err = run("serve", "--check-config", "--model", model, *as_user)
            assert (status, out, err) == (0, f"the configuration is valid{' for user nobody' * root}\n", ""), (out, err)
            os.chmod(model, 0o744)
            status, _, err = run("serve", "--check-config", "--model", model, *as_user)
            assert not root or (status == 1 and f"may not enter {model} (mode 0744" in err), err
            os.chmod(model, 0o755)
            weights = os.path.join(model, "model.safetensors")
            os.chmod(weights, 0o200)
            status, _, err = run("serve", "--check-config", "--model", model, *as_user)
            assert status == 1 and f"user {user} may not read {weights} (mode 0200, owner {owner})" in err, err
        finally:
            os.chmod(folder, 0o755)


def test_check_config_as_the_service():
    if os.geteuid() != 0:
        print("  (left out: only root checks for another user)")
        return
    with tempfile.TemporaryDirectory() as d:
        _, model = demo_copy(d, 0o700)
        ini, passwd = (os.path.join(d, name) for name in ("hearth.ini", "passwd"))
        with open(ini, "w", encoding="utf-8") as f:
            f.write(f"[model]\nmodel = {model}\n")
        with open("/etc/passwd", encoding="utf-8") as f, open(passwd, "w", encoding="utf-8") as to:
            to.write(f.read() + "hearth:x:4321:4321::/:/usr/sbin/nologin\n")
        status, out, err = run("serve", "--check-config", "--config", ini)
        assert status == 0 and "--user NAME" in err and len(err.splitlines()) == 1, (out, err)

        def installed(*args):
            p = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c",
                                'mount --bind "$0" /etc/passwd && exec "$@"', passwd, BIN, "serve", "--check-config", *args],
                               capture_output=True, text=True, check=False, timeout=60)
            return p.returncode, p.stdout, p.stderr
        status, out, err = installed("--config", ini)
        assert status == 1 and "user hearth may not enter" in err, (out, err)
        os.chmod(os.path.dirname(model), 0o755)
        assert installed("--config", ini) == (0, "the configuration is valid for user hearth\n", "")
        os.chmod(ini, 0o600)
        status, out, err = installed("--config", ini)
        assert status == 1 and f"{ini}: permission denied: user hearth may not read {ini} (mode 0600, owner root)" in err, err
        assert run("serve", "--check-config", "--config", ini, "--user", "nosuchuser")[0] == 2
        status, _, err = run("serve", "--user", "nobody")
        assert status == 2 and "--check-config alone" in err, err


def test_check_config_of_a_model_that_is_fetched_at_the_start():
    with tempfile.TemporaryDirectory() as d:
        status, out, err = run("serve", "--check-config", "--model", "acme/none", "--pull", "--cache-dir", d)
        assert status == 0 and out == "the configuration is valid\n" and "acme/none is fetched at the start" in err, (out, err)
        status, _, err = run("serve", "--check-config", "--model", "a/b/c", "--pull", "--cache-dir", d)
        assert status == 1 and "a/b/c" in err, err
        status, _, err = run("serve", "--model", "/nonexistent/model", "--pull", "--cache-dir", d)
        assert status == 1 and "/nonexistent/model" in err and "not a model name" not in err, err


def test_permission_denied_says_no_more():
    status, _, err = run("serve", "--check-config", "--api-key-file", "/nonexistent/keys")
    assert status == 1 and "No such file" in err and "bytes" not in err, err
    with tempfile.NamedTemporaryFile() as f:
        f.write(b"x" * (2 << 20))
        f.flush()
        status, _, err = run("serve", "--check-config", "--config", f.name)
        assert status == 2 and "2097152 bytes, the limit is 1048576" in err, err


def test_one_model_is_taken():
    status, _, err = run("inspect", DEMO, "/other/model")
    assert status == 2 and "/other/model" in err and DEMO in err, err


def test_help_begins_with_examples():
    status, out, _ = run("serve", "--help")
    head = out.split("[options]")[0]
    assert status == 0 and len(re.findall(r"^  hearth serve", head, re.M)) >= 3, head


def test_options_that_would_do_nothing_are_refused():
    """No subcommand takes an option that it does not use."""
    unused = {"generate": ["--parallel=2", "--no-prefix-cache"], "bench": ["--parallel=2", "--ctx-size=512", "--no-prefix-cache"],
              "inspect": ["--threads=2", "--numerics=exact"], "healthcheck": ["--model=x"]}
    for command, options in unused.items():
        for option in options:
            status, _, err = run(command, option)
            assert status == 2 and f"not an option of '{command}'" in err, (command, option, err)
            assert option.split("=")[0].replace("--no-", "--") + " " not in run(command, "--help")[1]


# ---- inputs and outputs ----------------------------------------------------------------------------------------

def test_generate_reads_the_prompt_from_stdin():
    plain = run("generate", "--prompt", "Once upon a time", "-n", "8")
    piped = run("generate", "--prompt", "-", "-n", "8", stdin="Once upon a time\n")
    assert plain[0] == piped[0] == 0 and plain[1] == piped[1], (plain, piped)
    chat = run("generate", "--chat", "--prompt", "-", "-n", "8", stdin="What is 2+2?")
    assert chat[:2] == run("generate", "--chat", "--prompt", "What is 2+2?", "-n", "8")[:2]
    status, _, err = run("generate", "--prompt", "-", stdin="a " * 5000)
    assert status == 1 and "2048" in err, err


def test_inspect_json():
    status, out, err = run("inspect", "--json", DEMO)
    assert status == 0, err
    report = json.loads(out)
    assert report["can_be_served"] is True and report["problems"] == [], report
    assert report["architecture"] == "LlamaForCausalLM" and report["parameters"] == 1115520, report
    names = {t["name"]: t for t in report["tensors"]}
    assert names["model.embed_tokens.weight"]["shape"] == [1024, 128], names["model.embed_tokens.weight"]
    assert names["model.embed_tokens.weight"]["dtype"] == "BF16"
    assert names["model.embed_tokens.weight"]["bytes"] == 2 * 1024 * 128
    assert report["tokenizer"]["tokens"] == 1024 and report["chat_template"]["system_role"] is True, report
    assert {"exact", "bf16", "int8", "int4"} == {n["name"] for n in report["numerics"]}
    with demo_without("model.safetensors", "tokenizer_config.json") as d:
        status, out, err = run("inspect", "--json", d)
        report = json.loads(out)
        assert status == 1 and not report["can_be_served"], report
        assert any("model.safetensors" in p for p in report["problems"]) and "safetensors" in err, (report, err)


# ---- a terminal ------------------------------------------------------------------------------------------------

def on_terminal(*args, until, ask=None):
    """The server's log on a terminal, up to a line that matches, which `ask(port)` may cause; and the process."""
    parent, child = pty.openpty()
    p = subprocess.Popen([BIN, "serve", "--port", "0", *args], stdin=subprocess.DEVNULL, stderr=child)
    os.close(child)
    text = b""
    while not re.search(until, text):
        found = re.search(rb"ready on http://127.0.0.1:(\d+) .*\n", text)
        if ask and found:
            ask(int(found.group(1)))
            ask = None
        if not select.select([parent], [], [], START_SECONDS)[0]:
            break  # the caller shows what came
        try:
            text += os.read(parent, 4096)
        except OSError:
            break  # the server has ended
    os.close(parent)
    return text.decode(), p


def test_a_request_on_a_terminal_is_one_short_line():
    def ask(port):
        base = f"http://127.0.0.1:{port}"
        for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}),
                           ("/v1/" + 200 * "x", {}), ("/v1/completions", {"prompt": "x", "max_tokens": -7})):
            subprocess.run(["curl", "-s", base + path, "-H", "Content-Type: application/json", "-d", json.dumps(body)],
                           check=True, stdout=subprocess.DEVNULL, timeout=60)
    text, p = on_terminal("--page", "off", until=rb"\n[^\n]* 400 POST [^\n]*\n", ask=ask)
    try:
        rows = [row for row in text.replace("\r", "").splitlines() if " POST " in row and "curl" not in row]
        assert len(rows) == 3 and all(len(row) <= 100 for row in rows), rows
        shown = r"\d\d:\d\d:\d\d 200 POST /v1/chat/completions, \d+ \+ 3 tokens, first \d+\.\d{3} s, all \d+\.\d{3} s, length"
        assert re.fullmatch(shown, rows[0]), rows
        assert re.search(r"^\S+ 404 POST /v1/x+, all .*, req_\w+$", rows[1]), rows
    finally:
        p.terminate()
        p.wait(30)
    with Hearth("--log-format", "text") as h:  # what is collected stays as it is
        h.get("/v1/models")
        h.wait_until(lambda: any(" method=GET " in line for line in h.log), 5, "the access line")


def test_words_of_other_programs():
    for word, says in (("ls", "hearth list"), ("show", "hearth inspect"), ("ps", "/v1/models"), ("stop", "systemctl stop")):
        status, _, err = run(word, "x")
        assert status == 2 and f"there is no '{word}' here: " in err and says in err, err
    for flags in (["-ngl", "99"], ["--n-gpu-layers", "99"], ["--flash-attn"], ["-fa", "on"], ["--tensor-parallel-size=2"]):
        status, _, err = run("serve", *flags)
        assert status == 2 and "there is no GPU" in err, err
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as f:
        f.write("[compute]\nflash-attn = on\n")
        f.flush()
        status, _, err = run("serve", "--config", f.name)
        assert status == 2 and f"{f.name}:2: 'flash-attn': there is no GPU" in err, err


def test_first_call_on_a_terminal():
    try:
        for fd in pty.openpty():
            os.close(fd)
    except OSError as e:
        print(f"  (no pseudo terminal: {e}; mount /dev/pts)")
        return
    with tempfile.TemporaryDirectory() as d:
        for args, page in (((), rb"hearth: chat in a browser: http://127.0.0.1:\d+/\r\n$"), (("--page", "off"), None),
                           (("--unix-socket", os.path.join(d, "h.sock")), None)):
            text, p = on_terminal(*args, until=page or rb"curl .*\n$")
            try:
                assert not page or re.search(page, text.encode()), text
                assert ("browser" in text) == bool(page), text
                command = re.search(r"curl .*", text).group().strip()
                answer = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
                assert "choices" in json.loads(answer.stdout), (command, answer)
            finally:
                p.terminate()
                p.wait(30)
    with Hearth() as h:
        assert not any("curl" in l for l in h.log), h.log  # not in a log that is collected


if __name__ == "__main__":
    run_cases(globals())
