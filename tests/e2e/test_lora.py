#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""LoRA adapters over HTTP: as a model's name, in the field `lora`, loaded and unloaded, more of them than memory holds.

Every answer is compared with the tokens that the engine gives alone for that adapter, which the golden tests compare with
PEFT. Standard library only.
"""
import concurrent.futures
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hearth_server import DEMO, FILTER, Hearth, chunks, roomy_folder, run, run_cases  # noqa: E402
from tiny_models import pack, write_file  # noqa: E402

WIDTHS = {"q_proj": (128, 128), "v_proj": (128, 64), "down_proj": (384, 128)}
PROMPT = list(range(300, 340))
TOKENS = 12
TMP = SERVER = None
OPERATOR = {"Authorization": "Bearer operator-0123456789", "Content-Type": "application/json"}


def write_adapter(name, seed, rank=4, folder="dir", **config):
    """An adapter of the demo model with random numbers; returns its directory."""
    directory = os.path.join(TMP, folder, name)
    os.makedirs(directory, exist_ok=True)
    rng, header, data = random.Random(seed), {}, b""
    for layer in range(5):
        for module, (n_in, n_out) in WIDTHS.items():
            block = "mlp" if module == "down_proj" else "self_attn"
            for part, shape in (("A", [rank, n_in]), ("B", [n_out, rank])):
                raw = b"".join((0x3c00 + (rng.getrandbits(1) << 15) + rng.getrandbits(9)).to_bytes(2, "little")
                               for _ in range(shape[0] * shape[1]))
                header[f"base_model.model.model.layers.{layer}.{block}.{module}.lora_{part}.weight"] = {
                    "dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
                data += raw
    write_file(os.path.join(directory, "adapter_model.safetensors"), pack(header, data))
    write_file(os.path.join(directory, "adapter_config.json"), {
        "peft_type": "LORA", "base_model_name_or_path": "hearth-demo", "r": rank, "lora_alpha": 400 * rank,
        "target_modules": list(WIDTHS), **config})
    return directory


def alone(*adapters, prompt=None):
    """The ids that the engine gives for {directory: scale} alone."""
    lines = "".join(json.dumps({"ids": prompt or PROMPT, "greedy": TOKENS, "lora": a}) + "\n" for a in adapters)
    p = subprocess.run([FILTER, "score", "--model", DEMO, "--threads", "1"], input=lines, text=True, capture_output=True, check=True)
    return [json.loads(line)["greedy_ids"] for line in p.stdout.splitlines()]


def body(model=None, **fields):
    return {"prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "return_token_ids": True,
            **({"model": model} if model else {}), **fields}


def ids(h, *args, headers=None, **fields):
    status, _, answer = h.post("/v1/completions", body(*args, **fields), headers)
    assert status == 200, answer
    return answer["choices"][0]["token_ids"]


def error(answer):
    status, _, e = answer
    return status, e["error"]["code"], e["error"]["message"]


def load(h, path, headers=None, **fields):
    return h.post(path, fields, headers or OPERATOR)


def test_names_and_fields():
    """An adapter answers under its name and by its id; rows without one have the bits of a server without adapters."""
    a, b = os.path.join(TMP, "dir", "a"), os.path.join(TMP, "dir", "b")
    base, with_a, with_b, half, both = alone({}, {a: 1}, {b: 1}, {a: 0.5}, {a: 1, b: -0.5})
    assert len({tuple(x) for x in (base, with_a, with_b, half, both)}) == 5
    h = SERVER
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        for _ in range(3):
            got = list(pool.map(lambda f: ids(h, **f), (
                {}, {"model": "sql"}, {"model": "b"}, {"lora": [{"id": 0, "scale": 0.5}]},
                {"lora": [{"id": 1, "scale": -0.5}, {"id": 0, "scale": 1}]}, {"lora": [{"id": 0, "scale": 0}]},
                {"lora": []}, {"model": "hearth-demo"})))
            assert got == [base, with_a, with_b, half, both, base, base, base], got
    answer = h.post("/v1/chat/completions", {"model": "sql", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2})[2]
    assert answer["model"] == "sql", answer
    assert h.metrics()["hearth_requests_finished_total{reason=\"error\"}"] == 0
    models = {m["id"]: m for m in h.get("/v1/models")[2]["data"]}
    assert models["sql"]["parent"] == "hearth-demo" and models["sql"]["root"] == a and models["hearth-demo"]["parent"] is None
    assert models["sql"]["status"] == {"value": "loaded"} and h.get("/v1/models/sql")[2]["id"] == "sql"
    listed = h.get("/lora-adapters")[2]
    assert listed[0] == {"id": 0, "name": "sql", "path": a, "scale": 0} and listed[1]["name"] == "b", listed


def test_cached_tokens_do_not_cross():
    """The prefix cache holds nothing of one adapter for another, another scale or the base."""
    prompt = list(range(400, 500))
    uses = [{}, {"model": "sql"}, {"model": "b"}, {"lora": [{"id": 0, "scale": 0.25}]}, {"lora": [{"id": 0, "scale": 0.125}]}]
    cached = [[SERVER.post("/v1/completions", body(**u, prompt=prompt))[2]["usage"]["prompt_tokens_details"]["cached_tokens"]
               for u in uses] for _ in range(2)]
    assert cached[0] == [0] * 5 and all(n >= 64 for n in cached[1]), cached


def digest(h):
    """SHA-256 of answers without an adapter: texts, log-probabilities, several choices and a seed."""
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        asks = [body("hearth-demo", prompt=list(range(300 + i, 320 + 5 * i)), temperature=0.8, seed=i, n=1 + i % 2, logprobs=5)
                for i in range(8)]
        choices = list(pool.map(lambda ask: h.post("/v1/completions", ask)[2]["choices"], asks))
    return hashlib.sha256(json.dumps(choices).encode()).hexdigest()


def test_rows_without_adapter():
    """Answers with log-probabilities are those of a server that was started without adapters, while others use adapters."""
    with Hearth("--threads", "1") as plain:
        want = digest(plain)
        assert error(plain.post("/v1/completions", body(lora=[{"id": 0, "scale": 1}])))[:2] == (400, "unsupported_parameter")
        assert plain.get("/lora-adapters")[2] == [] and ids(plain, lora=[]) == alone({})[0]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(lambda m: [ids(SERVER, m, max_tokens=100) for _ in range(3)], m) for m in ("sql", "b")]
        assert [digest(SERVER), digest(SERVER)] == [want, want]
        for b in busy:
            b.result()


def test_disk_pages_do_not_cross():
    """Pages of --kv-disk are of one adapter, too."""
    prompt = [300 + i % 700 for i in range(1100)]
    with roomy_folder() as disk:
        folder = os.path.join(TMP, "dir")
        options = ("--threads", "1", "--kv-disk", disk, "--lora", f"sql={folder}/a", "--lora", f"b={folder}/b")

        def ask(h, model):
            answer = h.post("/v1/completions", body(model, prompt=prompt, max_tokens=4))[2]
            return answer["choices"][0]["token_ids"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        with Hearth(*options) as h:
            before, cached = ask(h, "sql")
            assert cached == 0
        with Hearth(*options) as h:
            after, cached = ask(h, "sql")  # nothing was computed that could be faster than the disk
            assert after == before and cached >= 1024, cached
            assert ask(h, "b")[1] == ask(h, "hearth-demo")[1] == 0


def test_trained():
    """The adapter of tests/golden/lora, trained on the demo, begins answers with a word, and adds as before."""
    asked = {"What is 23+45?": "68", "What is 5+7?": "12", "Hello!": "", "What is the capital of France?": "", "Tell me a story.": ""}
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "lora")
    with Hearth("--threads", "1", "--lora", f"ahoy={folder}") as h:
        for text, right in asked.items():
            ask = {"messages": [{"role": "user", "content": text}], "max_tokens": 60, "temperature": 0}
            says = {m: h.post("/v1/chat/completions", {"model": m, **ask})[2]["choices"][0]["message"]["content"] for m in ("hearth-demo", "ahoy")}
            assert says["ahoy"].startswith("Ahoy! ") and "Ahoy" not in says["hearth-demo"], says
            assert all(right in s for s in says.values()), says


def test_refused_requests():
    h = SERVER
    for fields, code, says in (
            ({"lora": [{"id": 7, "scale": 1}]}, "invalid_value", "/lora-adapters"),
            ({"lora": [{"id": 2147483648, "scale": 1}]}, "invalid_value", "/lora-adapters"),
            ({"lora": [{"id": 0, "scale": 1}] * 2}, "invalid_value", "twice"),
            ({"lora": [{"id": 0, "scale": 1e30}]}, "invalid_value", "-100 to 100"),
            ({"lora": [{"id": 0}]}, "invalid_value", "scale"), ({"lora": [1]}, "invalid_value", "id"),
            ({"lora": [{"id": 0, "scale": 1}] * 9}, "invalid_value", "At most 8"),
            ({"lora": "a"}, "invalid_type", "an array"),
            ({"lora": [{"id": 0, "scale": 1}], "model": "sql"}, "invalid_value", "together")):
        status, got, message = error(h.post("/v1/completions", body(**fields)))
        assert (status, got) == (400, code) and says in message, (fields, message)
    for name in ("../dir/a", ".", "a/", "nosuch"):
        assert error(h.post("/v1/completions", body(name)))[:2] == (404, "model_not_found"), name


def test_load_and_unload():
    """vLLM's calls and their texts; a stream ends with the adapter that it began with."""
    h = SERVER
    path = write_adapter("late", 5)
    old, new = alone({path: 1}, {os.path.join(TMP, "dir", "b"): 1})
    assert error(load(h, "/v1/load_lora_adapter", {"Authorization": "Bearer user-0123456789"}, lora_name="x", lora_path=path))[0] == 401
    status, head, text = load(h, "/v1/load_lora_adapter", lora_name="x", lora_path=path)
    assert (status, text) == (200, b"Success: LoRA adapter 'x' added successfully.") and head["content-type"].startswith("text/plain")
    assert ids(h, "x") == old
    for fields, status, says in (
            ({"lora_name": "x", "lora_path": path}, 400, "has already been loaded"), ({"lora_name": "x"}, 400, "must be provided"),
            ({"lora_path": path}, 400, "must be provided"), ({"lora_name": "hearth-demo", "lora_path": path}, 400, "conflicts with a served base model"),
            ({"lora_name": "y", "lora_path": "/etc"}, 404, "--lora-dir"), ({"lora_name": "y", "lora_path": path + "/../../other/c"}, 404, "--lora-dir"),
            ({"lora_name": "y", "lora_path": os.path.join(TMP, "dir")}, 404, "--lora-dir"), ({"lora_name": "y", "lora_path": "org/none"}, 404, "neither"),
            ({"lora_name": "y", "lora_path": write_adapter("dora", 1, use_dora=True)}, 400, "use_dora")):
        got = error(load(h, "/v1/load_lora_adapter", **fields))
        assert got[0] == status and says in got[2], (fields, got)
    firsts = []

    def begin():
        streams = [h.stream("/v1/completions", body("x", max_tokens=300, stream=True)) for _ in range(3)]
        firsts[:] = [next(s) for s in streams]
        return streams
    streams = h.hold_running(begin, 3)
    assert any(m.startswith("vllm:lora_requests_info") and 'running_lora_adapters="x"' in m for m in h.metrics())
    assert load(h, "/v1/load_lora_adapter", lora_name="x", lora_path=os.path.join(TMP, "dir", "b"), load_inplace=True)[0] == 200
    h.resume_engine()
    assert ids(h, "x") == new
    status, _, text = load(h, "/v1/unload_lora_adapter", lora_name="x", lora_int_id=None)
    assert (status, text) == (200, b"Success: LoRA adapter 'x' removed successfully.")
    assert error(load(h, "/v1/unload_lora_adapter", lora_name="x"))[0] == 404
    assert error(load(h, "/v1/unload_lora_adapter"))[0] == 400
    assert error(h.post("/v1/completions", body("x")))[0] == 404
    for first, stream in zip(firsts, streams):
        events = [first, *stream]
        tokens = [t for _, e in events if e != "[DONE]" for t in json.loads(e)["choices"][0].get("token_ids") or []]
        assert len(tokens) == 300 and tokens[:TOKENS] == old, tokens[:TOKENS]


def test_usual_adapters():
    """What an operator sets is used by requests that name none, and by no others."""
    h, set_to = SERVER, lambda *items: SERVER.post("/lora-adapters", json.dumps(items), OPERATOR)
    base, half, with_b = alone({}, {os.path.join(TMP, "dir", "a"): 0.5}, {os.path.join(TMP, "dir", "b"): 1})
    assert h.post("/lora-adapters", "[]")[0] == 401 and set_to({"id": 9, "scale": 1})[0] == 400
    assert set_to({"id": 0, "scale": 0.5})[2] == {"success": True} and h.get("/lora-adapters")[2][0]["scale"] == 0.5
    assert [ids(h), ids(h, "b"), ids(h, lora=[])] == [half, with_b, base]
    assert set_to()[0] == 200 and ids(h) == base


def test_more_than_memory_holds():
    """Adapters in turn through memory for some of them, with clients at once; one that never fits, and what a start refuses."""
    names = [f"n{i}" for i in range(12)]
    want = dict(zip(names, alone(*({write_adapter(n, i + 10, folder="many"): 1} for i, n in enumerate(names)))))
    large = write_adapter("large", 1, rank=200, folder="many")
    folder = os.path.join(TMP, "many")
    # those of three clients fit at once, in f32 too, and not all
    with Hearth("--threads", "2", "--lora-dir", folder, "--lora-memory", "1M", "--lora-max-rank", "256",
                "--parallel", "2") as h:
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            asked = names * 3
            random.Random(1).shuffle(asked)
            wrong = [a for a in pool.map(lambda n: (n, ids(h, n), want[n]), asked) if a[1] != a[2]]
            assert not wrong, wrong
        loaded = [m for m in h.get("/v1/models")[2]["data"] if m["parent"] and m["status"]["value"] == "loaded"]
        assert 1 <= len(loaded) < len(names), len(loaded)
        assert error(h.post("/v1/completions", body("large")))[:2] == (400, "model_not_loaded")
    for lora, says in ((f"big={large}", "--lora-memory"), ("x", "NAME=DIR"), (f"hearth-demo={large}", "is taken"),
                       (f"x={TMP}", "adapter_config.json"), (f"x={os.path.join(TMP, 'dir', 'dora')}", "use_dora")):
        status, _, err = run("serve", "--port", "0", "--threads", "1", "--lora-memory", "512K", "--lora-max-rank", "256", "--lora", lora)
        assert status == 1 and says in err, (lora, err)
    status, _, err = run("serve", "--port", "0", "--model", large)
    assert status == 1 and f"--model hearth-demo --lora NAME={large}" in err, err


def test_keys_that_may_use_some_models():
    """An adapter counts by its own name, in the field `lora` too; a key for it alone gets it without a name."""
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "keys")
        write_file(path, "all-0123456789\nbase-0123456789 models=hearth-demo\nsql-0123456789 models=sql\n")
        a = os.path.join(TMP, "dir", "a")
        base, with_a = alone({}, {a: 1})
        with Hearth("--threads", "1", "--lora", f"sql={a}", "--api-key-file", path) as h:
            key = lambda name: {"Authorization": f"Bearer {name}-0123456789", "Content-Type": "application/json"}
            assert ids(h, "sql", headers=key("sql")) == ids(h, headers=key("sql")) == with_a and ids(h, headers=key("base")) == base
            assert h.post("/v1/completions", body("sql"), key("base"))[0] == 404
            assert h.post("/v1/completions", body("hearth-demo"), key("sql"))[0] == 404
            assert h.post("/v1/completions", body(lora=[{"id": 0, "scale": 1}]), key("base"))[0] == 400
            assert [m["id"] for m in h.get("/v1/models", key("sql"))[2]["data"]] == ["sql"]
            assert h.get("/lora-adapters", key("base"))[2] == []


def main():
    global TMP, SERVER
    with tempfile.TemporaryDirectory() as TMP:
        a, b = write_adapter("a", 1), write_adapter("b", 2, rank=8)
        write_adapter("c", 3, folder="other")
        keys, operator = os.path.join(TMP, "keys"), os.path.join(TMP, "operator")
        write_file(keys, "user-0123456789\n")
        write_file(operator, "operator-0123456789\n")
        with Hearth("--threads", "2", "--lora", f"sql={a}", "--lora-dir", os.path.dirname(b), "--lora", f"b={b}",
                    "--api-key-file", keys, "--operator-key-file", operator, "--debug-hooks", "on") as SERVER:
            SERVER.headers = {"Authorization": "Bearer user-0123456789", "Content-Type": "application/json"}
            return run_cases(globals())


if __name__ == "__main__":
    sys.exit(main())
