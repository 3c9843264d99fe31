#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Facts of a model that several of its files hold: which tokens end, begin and fill, which template. Standard
library only."""
import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hearth_server import DEMO, ROOT, Hearth, run, run_cases  # noqa: E402
from tiny_models import DemoCopy  # noqa: E402

EMBED = os.path.join(ROOT, "deploy", "demo-embed")
CHAT = {"messages": [{"role": "user", "content": "What is 2+2?"}], "temperature": 0, "max_tokens": 64}


def read(name):
    with open(os.path.join(DEMO, name), encoding="utf-8") as f:
        return json.load(f)


def changed(name, without=(), **members):
    return {k: v for k, v in {**read(name), **members}.items() if k not in without}


def ends(h):
    status, _, answer = h.post("/v1/chat/completions", CHAT)
    assert status == 200, answer
    return answer["choices"][0]["finish_reason"], answer["choices"][0]["message"]["content"]


def test_end_tokens_are_one_set():
    """Whichever file names the token that ends a turn, the answer is the same."""
    with Hearth("--threads", "2") as h:
        want = ends(h)
    assert want[0] == "stop", want
    only = {"config.json": [("generation_config.json", {"eos_token_id": 0})],
            "generation_config.json": [("config.json", {"eos_token_id": 0})],
            "tokenizer_config.json": [("config.json", {"eos_token_id": 0}),
                                      ("generation_config.json", {"eos_token_id": 0})]}
    for keeps, changes in only.items():
        with DemoCopy() as m:
            for name, members in changes:
                m.put(name, changed(name, **members))
            if keeps != "tokenizer_config.json":
                m.put("tokenizer_config.json", changed("tokenizer_config.json", eos_token="<|endoftext|>"))
            with Hearth("--model", m.dir, "--threads", "2") as h:
                assert ends(h) == want, (keeps, ends(h))
                added = [line for line in h.log if "ends a sequence too" in line]
                assert len(added) == (keeps == "tokenizer_config.json"), h.log
            ids = json.loads(run("inspect", "--model", m.dir, "--json")[1])["eos_ids"]
            assert sorted(ids) == [0, 2], (keeps, ids)
            status, out, err = run("generate", "--model", m.dir, "--prompt", "What is 2+2?", "--chat",
                                   "--temperature", "0", "--max-tokens", "64")
            assert status == 0 and out.strip() == want[1].strip(), (keeps, out, err)


def differences(m):
    with Hearth("--model", m.dir, "--threads", "2") as h:
        return [line for line in h.log if "name different" in line or "is another one" in line]


def test_files_that_differ_are_logged():
    with DemoCopy() as m:
        assert not differences(m)
        m.put("config.json", changed("config.json", bos_token_id=0, pad_token_id=2))
        m.put("chat_template.jinja", "{{ messages[0]['content'] }}")
        bos, pad, template = differences(m)
        assert "bos tokens: 0 in config.json, 1 in generation_config.json, 1 in tokenizer_config.json, 1 in " \
               "special_tokens_map.json; 1 is used" in bos, bos
        assert "pad tokens: 2 in config.json, 0 in gen" in pad and "; 2 is used" in pad, pad
        assert "chat_template.jinja is used" in template, template
        m.put("config.json", read("config.json"))
        m.put("chat_template.jinja", read("tokenizer_config.json")["chat_template"] + "\n")
        m.put("special_tokens_map.json", {"eos_token": {"content": "<|endoftext|>"}})
        eos, = differences(m)
        assert "eos tokens: 2 in tokenizer_config.json, 0 in special_tokens_map.json; 2 is used" in eos, eos


def test_adapters_are_not_passed_over():
    adapter = {"base_model_name_or_path": "org/base"}
    with tempfile.TemporaryDirectory() as folder, DemoCopy() as m:
        m.put("adapter_config.json", adapter)
        os.mkdir(os.path.join(folder, "tuned"))
        with open(os.path.join(folder, "tuned", "adapter_config.json"), "w", encoding="utf-8") as f:
            json.dump(adapter, f)
        with Hearth("--model", m.dir, "--models", folder, "--threads", "2") as h:
            h.wait_log("the adapter of org/base beside the model is not applied")
            h.wait_log("models: tuned is left out: it is an adapter of org/base")


def lengths(h, name, loaded=True):
    """Every place that says how long a text may be, of a model that is loaded or not."""
    entry, = (m for m in h.get("/v1/models")[2]["data"] if m["id"] == name)
    assert (entry["status"]["value"] == "loaded") == loaded, entry
    found = {entry["max_model_len"], entry["meta"]["n_ctx"], h.get(f"/v1/models/{name}")[2]["max_model_len"],
             h.get(f"/v1/models/{name}", {"anthropic-version": "2023-06-01"})[2]["max_input_tokens"]}
    if loaded:
        props = h.get("/props?model=" + name)[2]
        found |= {props["n_ctx"], props["default_generation_settings"]["n_ctx"],
                  h.post("/tokenize", {"model": name, "prompt": "a"})[2]["max_model_len"]}
    return found


def too_long(h, name, n):
    """The refusal of a text of n + 1 tokens; one of n is read."""
    ids = [5] * n
    assert h.post("/v1/embeddings", {"model": name, "input": ids})[0] == 200, (name, n)
    status, _, answer = h.post("/v1/embeddings", {"model": name, "input": ids + [5]})
    assert status == 400 and answer["error"]["n_ctx"] == n, answer
    return answer["error"]["message"]


def test_the_longest_text_is_the_same_everywhere():
    with tempfile.TemporaryDirectory() as folder:
        for name, most in (("short", 64), ("plain", None)):
            directory = os.path.join(folder, name)
            shutil.copytree(EMBED, directory)
            path = os.path.join(directory, "sentence_bert_config.json")
            os.remove(path)
            if most:
                with open(path, "w", encoding="utf-8") as f:
                    json.dump({"max_seq_length": most}, f)
        with Hearth("--model", f"chat={DEMO}", "--models", folder, "--ctx-size", "128", "--threads", "2") as h:
            assert lengths(h, "chat") == {128}
            assert lengths(h, "short", False) == {64} and lengths(h, "plain", False) == {128}
            message = too_long(h, "plain", 128)
            assert "maximum context length is 128 tokens on this server (--ctx-size; its files allow 256)" in message
            assert lengths(h, "plain") == {128}
            message = too_long(h, "short", 64)
            assert "This model's maximum context length is 64 tokens. However" in message, message
            assert lengths(h, "short") == {64}
        with Hearth("--model", os.path.join(folder, "short"), "--threads", "2") as h:
            assert "ctx=64 " in h.wait_log("ready on"), h.log


def test_inspect_counts_what_serve_takes():
    """Weights and RoPE's tables, one sum."""
    report = json.loads(run("inspect", "--model", DEMO, "--json")[1])["numerics"]
    assert len(report) == 4, report
    for path in report:
        with Hearth("--numerics", path["name"], "--threads", "2") as h:
            memory = h.get("/props")[2]["memory"]
            spare = path["weights_bytes"] - memory["weights_bytes"]  # bf16 weights may take less than was planned
            assert spare == 0 or (path["name"] in ("exact", "bf16") and spare > 0), (path, memory)


if __name__ == "__main__":
    run_cases(globals())
