#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Models in GGUF: the demo model as a file and as a set of splits, wherever a model is named.

What the file says of text is checked by tests/golden/test_gguf_tokens.py, its weights by tests/golden/test_gguf.py,
pulling by test_pull.py. Standard library only.
"""
import contextlib
import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from draft_models import SIBLING  # noqa: E402
from gguf_files import CONTROL, USER_DEFINED, demo, gguf, splits  # noqa: E402
from hearth_server import DEMO, Hearth, run, run_cases  # noqa: E402

KEYS, TENSORS = demo(DEMO)
Q4_0 = 2
CHAT = {"messages": [{"role": "user", "content": "What is your name?"}], "max_tokens": 24, "temperature": 0}


def without(*names):
    return [k for k in KEYS if k[0] not in names]


def write(path, keys=None, tensors=None):
    with open(path, "wb") as f:
        f.write(gguf(KEYS if keys is None else keys, TENSORS if tensors is None else tensors))
    return path


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory() as d:
        yield d


def answer(h, **fields):
    status, _, body = h.post("/v1/chat/completions", {**CHAT, **fields})
    assert status == 200, body
    choice = body["choices"][0]
    return choice["message"]["content"], choice["finish_reason"], body["usage"]["prompt_tokens"]


def write_set(d):
    for i, data in enumerate(splits(KEYS, TENSORS, 3)):
        with open(os.path.join(d, f"demo-Q8_0-{i + 1:05}-of-00003.gguf"), "wb") as f:
            f.write(data)
    return os.path.join(d, "demo-Q8_0-00002-of-00003.gguf")


def test_a_file_is_served_as_its_model():
    with Hearth() as h:
        wanted = answer(h)
        assert h.get("/props")[2]["weights"]["format"] == "safetensors"
    with folder() as d:
        with Hearth("--model", write(os.path.join(d, "my-demo.Q8_0.gguf"))) as h:
            assert answer(h) == wanted
            props = h.get("/props")[2]
            assert props["weights"]["format"] == "gguf" and props["model"] == "my-demo.Q8_0", props
            h.wait_log("gguf: llama, Q8_0 (36 matrices); tokenizer by rule smollm; numerics file")
    with folder() as d:
        write_set(d)
        with Hearth("--model", d) as h:
            assert answer(h) == wanted and h.get("/props")[2]["model"] == os.path.basename(d)


def test_a_matrix_of_two_types():
    """Gate and up go through one product: of two types they are rounded again, which the log says."""
    q4_0 = b"\x00\x20" + bytes(range(16))  # a block: the scale 1/128, 32 numbers
    tensors = [(name, dims, Q4_0, q4_0 * (dims[0] * dims[1] // 32)) if name == "blk.1.ffn_up.weight" else (name, dims, kind, data)
               for name, dims, kind, data in TENSORS]
    with folder() as d, Hearth("--model", write(os.path.join(d, "m.gguf"), tensors=tensors)) as h:
        h.wait_log("gguf: matrices that are int8, as their rows have several types: 1")
        answer(h)


def test_which_file_is_meant():
    with folder() as d:
        part = write_set(d)
        status, out, err = run("inspect", "--model", part)
        assert status == 0 and "00003-of-00003.gguf as model.norm.weight" in out, (out, err)
        assert "format: GGUF 3," in out and "tokenizer: 1024 tokens, by rule smollm" in out, out
        assert "of tokenizer.chat_template;" in out and "contents: llama, Q8_0 (36 matrices)" in out, out
        os.remove(part)
        status, _, err = run("inspect", "--model", d)
        assert status == 1 and "demo-Q8_0-00002-of-00003.gguf" in err, err
    with folder() as d:
        for name in ("a.gguf", "b.gguf", "mmproj-F16.gguf"):
            write(os.path.join(d, name))
        status, _, err = run("inspect", "--model", d)
        assert status == 1 and "holds several models in GGUF: a.gguf, b.gguf; name one" in err, err
        status, _, err = run("inspect", "--model", os.path.join(d, "c.gguf"))
        assert status == 1 and "there is no such file" in err, err


def test_tokenizer_and_template_from_beside():
    """The folder's files count if the file is its only model; an option names another folder."""
    with folder() as d, folder() as other:
        write(os.path.join(d, "m.gguf"), without("tokenizer.ggml.pre", "tokenizer.chat_template"))
        status, _, err = run("inspect", "--model", d)
        assert status == 1 and "tokenizer.ggml.pre is missing" in err and "--tokenizer org/name" in err, err
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            shutil.copy(os.path.join(DEMO, name), other)
        for args in (["--tokenizer", other], ["--tokenizer", DEMO]):
            status, out, err = run("inspect", "--json", "--model", d, *args)
            report = json.loads(out)
            assert status == 0 and report["tokenizer"]["source"] == "tokenizer.json", (out, err)
            assert report["chat_template"]["file"] == "tokenizer_config.json", report["chat_template"]
        with Hearth("--model", d, "--tokenizer", other, "--generation-config", "on") as h:
            with Hearth("--generation-config", "on") as plain:
                assert answer(h) == answer(plain)
        shutil.copy(os.path.join(DEMO, "tokenizer.json"), d)
        status, out, _ = run("inspect", "--model", d)
        assert status == 0 and "by tokenizer.json" in out and "chat template: none" in out, out
        with open(os.path.join(d, "tokenizer.json"), encoding="utf-8") as f:
            text = f.read()
        with open(os.path.join(d, "tokenizer.json"), "w", encoding="utf-8") as f:
            f.write(text.replace('<|im_end|>', '<|im_END|>'))
        status, _, err = run("inspect", "--model", d)
        assert status == 1 and 'is of another model: id 2 is "<|im_END|>", in the file "<|im_end|>"' in err, err
        write(os.path.join(d, "n.gguf"))
        status, out, err = run("inspect", "--model", os.path.join(d, "n.gguf"))
        assert status == 0 and "by rule smollm" in out, (out, err)
        status, _, err = run("inspect", "--model", d + "/n.gguf", "--tokenizer", os.path.join(d, "none"))
        assert status == 1 and "tokenizer: " in err, err


def test_named_ends():
    """Tokens that end a turn whatever the keys say; Gemma 4's last is typed as text to be shown."""
    own = {"tokenizer.ggml.tokens": ["<turn|>", "<|tool_response>"], "tokenizer.ggml.token_type": [CONTROL, USER_DEFINED]}
    keys = [(name, kind, own[name] + value[2:] if name in own else value) for name, kind, value in KEYS]
    with folder() as d:
        status, out, err = run("inspect", "--json", "--model", write(os.path.join(d, "m.gguf"), keys))
        assert status == 0 and sorted(json.loads(out)["eos_ids"]) == [0, 1, 2], (out, err)


def test_files_of_a_folder_of_models():
    with folder() as d:
        os.mkdir(os.path.join(d, "sub"))
        write(os.path.join(d, "one.gguf"))
        write(os.path.join(d, "adapter.gguf"), [("general.type", "str", "adapter"), *without("general.type")])
        write(os.path.join(d, "bad.gguf"), without("llama.block_count"))
        write_set(os.path.join(d, "sub"))
        with Hearth("--models", d) as h:
            assert answer(h, model="one")[0] == answer(h, model="sub/demo-Q8_0")[0] == answer(h)[0]
            names = {m["id"]: m["status"]["value"] for m in h.get("/v1/models")[2]["data"]}
            assert set(names) == {"hearth-demo", "one", "sub/demo-Q8_0", "bad"}, names
            h.wait_log("adapter.gguf is passed over: it is of type adapter, not a model")
            status, _, body = h.post("/v1/chat/completions", {**CHAT, "model": "bad"})
            assert status == 400 and body["error"]["code"] == "model_not_loaded", (status, body)
            h.wait_log("models: found bad: ")


def test_a_file_drafts_and_is_drafted_for():
    with folder() as d, folder() as small:
        for name in os.listdir(SIBLING):
            os.symlink(os.path.join(SIBLING, name), os.path.join(small, name))
        os.symlink(os.path.join(DEMO, "tokenizer_config.json"), os.path.join(small, "tokenizer_config.json"))
        main, drafter = write(os.path.join(d, "main.gguf")), write(os.path.join(d, "small.gguf"), *demo(small))
        def story(h):
            status, _, body = h.post("/v1/completions", {"prompt": "Once", "max_tokens": 1500, "temperature": 0, "ignore_eos": True})
            assert status == 200, body
            return body["choices"][0]["text"]
        with Hearth() as plain, Hearth("--model", main) as h:
            wanted = {DEMO: story(plain), main: story(h)}
        for model, draft in ((DEMO, drafter), (main, SIBLING), (main, drafter)):
            with Hearth("--model", model, "--draft-model", draft, "--speculate", "always") as h:
                h.wait_until(lambda: h.get("/props")[2]["draft_model"]["state"] == "on", what="the draft model")

                def drafts():
                    assert story(h) == wanted[model], model
                    return h.settled_metrics()['hearth_accepted_draft_tokens_total{source="model"}'] > 0
                # where the twin's drafts take less time, a model's is tried every few hundred steps
                h.wait_until(drafts, 200, "drafts by the model")


def test_swaps():
    with folder() as d:
        path = write(os.path.join(d, "m.gguf"))
        with Hearth("--swap", "on") as h:
            wanted = answer(h)
            status, _, body = h.post("/models/load", {"model": path})
            assert status == 200, body
            h.wait_until(lambda: h.get("/props")[2]["weights"]["format"] == "gguf", what="the other model")
            assert answer(h) == wanted


if __name__ == "__main__":
    sys.exit(run_cases(globals()))
