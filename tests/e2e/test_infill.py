#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Text with a hole: /v1/completions with a suffix, /v1/fim/completions, /infill, and llama-server's /completion."""
import json
import os
import time

from hearth_server import Hearth, SMALL_CONTEXT, run, run_cases
from tiny_models import DEMO, DemoCopy

MARKS = {"<|fim_prefix|>": 1018, "<|fim_suffix|>": 1019, "<|fim_middle|>": 1020, "<|repo_name|>": 1021, "<|file_sep|>": 1022}
PRE, SUF, MID, REPO, FILE = MARKS.values()
SERVER = None
PREFIX, SUFFIX = "Once upon a time\n there was", " the end.\n"


def tokenizer(special=False):
    """The demo's, with some of its last tokens as marks, as Qwen2.5-Coder has them: added, not special."""
    with open(os.path.join(DEMO, "tokenizer.json"), encoding="utf-8") as f:
        t = json.load(f)
    names, merges = {i: s for s, i in t["model"]["vocab"].items()}, t["model"]["merges"]
    gone = {names[i] for i in MARKS.values()}
    t["model"]["merges"] = [m for m in merges if "".join(m if isinstance(m, list) else m.split(" ")) not in gone]
    for mark, i in MARKS.items():
        del t["model"]["vocab"][names[i]]
        t["model"]["vocab"][mark] = i
        t["added_tokens"].append({"id": i, "content": mark, "single_word": False, "lstrip": False, "rstrip": False,
                                  "normalized": False, "special": special})
    return t


def post(path, **body):
    status, headers, answer = SERVER.post(path, body)
    assert status == 200, (status, answer)
    return headers, answer


def ids(text):
    return SERVER.post("/tokenize", {"content": text, "add_special": False})[2]["tokens"]


def refused(path, *words, status=400, **body):
    got, _, answer = SERVER.post(path, body)
    assert got == status and all(word in answer["error"]["message"] for word in words), (got, answer)


def completed(prompt, n=8):
    """The greedy text behind these ids, and how many tokens it has; marks between files end it."""
    c = post("/v1/completions", prompt=prompt, max_tokens=n, temperature=0, stop_token_ids=[REPO, FILE])[1]
    return c["choices"][0]["text"]


def test_suffix_of_completions():
    joined = [PRE, *ids(PREFIX), SUF, *ids(SUFFIX), MID]
    body = {"max_tokens": 8, "temperature": 0, "suffix": SUFFIX, "return_token_ids": True}
    choice = post("/v1/completions", prompt=PREFIX, **body)[1]["choices"][0]
    assert choice["prompt_token_ids"] == joined and choice["text"] == completed(joined), choice
    assert "stop_reason" not in choice, choice
    many = post("/v1/completions", prompt=[ids(PREFIX), ids("a")], **body)[1]["choices"]
    assert [c["prompt_token_ids"] for c in many] == [joined, [PRE, *ids("a"), SUF, *ids(SUFFIX), MID]]
    body["suffix"] = ""
    assert post("/beta/completions", prompt="a", **body)[1]["choices"][0]["prompt_token_ids"] == [PRE, *ids("a"), SUF, MID]
    body["suffix"] = None
    assert post("/v1/completions", prompt="a", **body)[1]["choices"][0]["prompt_token_ids"] == ids("a")
    refused("/v1/completions", "echo", prompt="a", suffix="b", echo=True)
    refused("/v1/completions", "string", prompt="a", suffix=["b"])
    refused("/v1/completions", "maximum context length", prompt="a", suffix=" b" * 3000)


def test_marks_in_texts_stay_text():
    hostile = "a<|fim_middle|>b<|file_sep|><|fim_<|fim_prefix|>"
    body = {"prompt": hostile, "suffix": hostile, "max_tokens": 1, "return_token_ids": True}
    got = post("/v1/completions", **body)[1]["choices"][0]["prompt_token_ids"]
    assert [i for i in got if i in MARKS.values()] == [PRE, SUF, MID], got
    text = SERVER.post("/detokenize", {"tokens": [i for i in got if i not in MARKS.values()]})[2]["content"]
    assert text == hostile * 2, text
    extra = {"text": hostile, "filename": hostile}
    _, a = post("/infill", input_prefix=hostile, input_suffix=hostile, input_extra=[extra], n_predict=0)
    plain = len(got) - 3
    names = ids("myproject\n") + ids("filename\n") + ids("\n")
    assert a["tokens_evaluated"] == 6 + len(names) + 2 * plain, (a, plain)


def test_mistral():
    body = {"prompt": PREFIX, "suffix": SUFFIX, "max_tokens": 8, "temperature": 0, "random_seed": 7}
    expected = completed([PRE, *ids(PREFIX), SUF, *ids(SUFFIX), MID])
    for path in ("/v1/fim/completions", "/fim/completions"):
        _, answer = post(path, **body)
        assert answer["object"] == "chat.completion" and answer["choices"][0]["message"]["content"] == expected
    events = [data for _, data in SERVER.stream("/v1/fim/completions", {**body, "stream": True})]
    assert events.pop() == "[DONE]"
    assert "".join(json.loads(e)["choices"][0]["delta"].get("content", "") for e in events) == expected
    assert post("/v1/fim/completions", prompt="a", max_tokens=1)[1]["usage"]["prompt_tokens"] == 3 + len(ids("a"))
    refused("/v1/fim/completions", "string", prompt=["a", "b"])
    refused("/v1/fim/completions", "required")


def test_llama_vscode():
    extra = [{"text": "one = 1\n", "time": 5, "filename": "a.py"}, {"text": "two = 2\n", "time": 6}]
    body = {"id_slot": 0, "input_prefix": PREFIX, "input_suffix": SUFFIX, "input_extra": extra, "prompt": " a",
            "n_predict": 8, "n_cmpl": 1, "top_k": 40, "top_p": 0.99, "stream": False, "temperature": 0,
            "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True, "n_indent": 0, "t_max_prompt_ms": 500,
            "t_max_predict_ms": 60000}
    joined = [REPO, *ids("myproject\n"), FILE, *ids("a.py\n"), *ids("one = 1\n"), FILE, *ids("tmp\n"), *ids("two = 2\n"),
              FILE, *ids("filename\n"), PRE, *ids(PREFIX), *ids(" a"), SUF, *ids(SUFFIX), MID]
    warm = {**body, "n_predict": 0, "samplers": [], "t_max_predict_ms": 1}
    assert post("/infill", **warm)[1]["content"] == ""
    headers, a = post("/infill", **body)
    assert a["content"] == completed(joined) and a["tokens_evaluated"] == len(joined), a
    assert "x-ignored-params" not in headers and "x-infill-cut" not in headers, headers
    assert a["stop"] and a["stop_type"] == "limit" and not a["truncated"] and a["tokens_predicted"] == 8, a
    assert a["timings"]["cache_n"] == (len(joined) - 1) // 32 * 32 > 0, a["timings"]
    _, several = post("/infill", **{**body, "n_cmpl": 3})
    assert [c["index"] for c in several] == [0, 1, 2] and all(c["content"] == a["content"] for c in several)
    named = {**body, "repo_name": "r", "filename": "f", "n_predict": 0}
    assert post("/infill", **named)[1]["tokens_evaluated"] == len(joined) - len(ids("myproject\n")) - len(ids("filename\n")) \
        + len(ids("r\n")) + len(ids("f\n"))


def test_typing_uses_the_cache():
    """Files come first, then the prefix: at the next key nine tenths of the prompt are cached."""
    files = [{"text": f"line {i} of the story\n" * 10, "filename": f"{i}.txt"} for i in range(4)]
    body = {"input_prefix": "and then there was a day\n" * 5, "input_suffix": "the end\n", "input_extra": files, "n_predict": 4}
    assert post("/infill", **body)[1]["timings"]["cache_n"] == 0
    for typed in ("a", "an", "and"):
        _, a = post("/infill", **{**body, "input_prefix": body["input_prefix"] + typed})
        assert a["timings"]["cache_n"] >= 0.9 * a["tokens_evaluated"], a


def test_infill_is_cut_to_the_context():
    """The oldest files go first, whole; then prefix and suffix keep what is next to the hole."""
    files = [{"text": f"file {i} " + " word" * 100, "filename": f"{i}"} for i in range(60)]
    body = {"input_prefix": PREFIX, "input_suffix": SUFFIX, "n_predict": 4, "temperature": 0}
    ctx = SERVER.get("/props")[2]["n_ctx"]
    headers, a = post("/infill", input_extra=files, **body)
    n = int(headers["x-infill-cut"].removeprefix("prefix=0,suffix=0,files="))
    assert 0 < n < 60 and a["truncated"], headers
    headers, b = post("/infill", input_extra=files[n:], **body)
    assert "x-infill-cut" not in headers and (a["content"], a["tokens_evaluated"]) == (b["content"], b["tokens_evaluated"])
    word = len(ids(" word"))
    headers, a = post("/infill", input_prefix=" word" * 3000, input_suffix=" word" * 3000, n_predict=4, input_extra=files)
    cut = dict(part.split("=") for part in headers["x-infill-cut"].split(","))
    kept = {side: 3000 * word - int(cut[side]) for side in ("prefix", "suffix")}
    assert int(cut["files"]) == 60 and abs(kept["prefix"] - 3 * kept["suffix"]) < 8, (cut, kept)
    assert ctx - 8 < a["tokens_evaluated"] + 4 <= ctx, a
    many = [{"text": "x", "filename": str(i)} for i in range(10000)]
    assert post("/infill", input_extra=many, **body)[1]["truncated"]
    _, whole = post("/infill", input_prefix=" word", input_suffix=" word" * 500000, n_predict=0)
    assert whole["truncated"] and whole["tokens_evaluated"] <= ctx


def test_bad_infill():
    body = {"input_prefix": "a", "input_suffix": "b", "n_predict": 1}
    refused("/infill", "input_prefix", input_suffix="b")
    refused("/infill", "input_suffix", input_prefix="b")
    refused("/infill", "string", **{**body, "input_prefix": ["a"]})
    refused("/infill", "string", **{**body, "prompt": ["a"]})
    for extra, word in (({}, "array"), ([{}], "input_extra[0]"), ([{"text": "a"}, "b"], "input_extra[1]"),
                        ([{"text": "a", "filename": 5}], "filename"), ([None], "input_extra[0]")):
        refused("/infill", word, **body, input_extra=extra)


def test_native_completion():
    """As Tabby and Continue send them: every event has content and stop, and nothing follows the last one."""
    tabby = {"seed": 5, "prompt": "Once upon", "n_predict": 12, "temperature": 0, "penalty_last_n": 0, "presence_penalty": 0}
    text = post("/v1/completions", prompt="Once upon", max_tokens=12, temperature=0)[1]["choices"][0]["text"]
    headers, a = post("/completion", **tabby)
    assert a["content"] == text and headers["x-ignored-params"] == "penalty_last_n", (a, headers)
    events = [json.loads(data) for _, data in SERVER.stream("/completion", {**tabby, "stream": True, "return_tokens": True})]
    assert "".join(e["content"] for e in events) == text and [e["stop"] for e in events] == [False] * (len(events) - 1) + [True]
    assert len([i for e in events for i in e["tokens"]]) == 12 and events[-1]["tokens_predicted"] == 12, events
    word = text.split()[1]
    a = post("/completion", **tabby, stop=[word])[1]
    assert (a["stop_type"], a["stopping_word"]) == ("word", word) and a["content"] == text[:text.index(word)], a
    assert [c["content"] for c in post("/completion", **{**tabby, "prompt": ["Once upon", "Once upon"]})[1]] == [text] * 2
    assert post("/completion", prompt=ids("Once upon"), n_predict=12, temperature=0)[1]["content"] == text
    ended = post("/completion", prompt="Once upon", logit_bias={"0": 100}, temperature=0)[1]
    assert (ended["content"], ended["stop_type"]) == ("", "eos"), ended
    refused("/completion", "n_probs", prompt="a", n_probs=3)
    refused("/completion", "prompt_logprobs", prompt="a", prompt_logprobs=3)


def test_lines_and_time():
    """n_indent ends an answer before a line that is not indented; the time does once a second line has begun."""
    def answer(grammar, **more):
        return post("/completion", **{"prompt": "a", "n_predict": 40, "temperature": 0, "grammar": f"root ::= {grammar}", **more})[1]
    text = '"x\\n  y\\n  z\\n w\\n  v"'
    whole = answer(text)
    assert whole["content"] == "x\n  y\n  z\n w\n  v" and whole["stop_type"] == "eos", whole
    cut = answer(text, n_indent=2)
    assert cut["content"].rstrip(" ") == "x\n  y\n  z\n" and cut["stop_type"] == "limit", cut
    assert answer('"x\\n\\n  y"', n_indent=2)["content"] == "x\n"
    one = answer('"x"{300}', n_predict=300, t_max_predict_ms=1)
    assert len(one["content"]) == 300, one
    start = time.monotonic()
    two = answer('"x\\n" "x"{1800}', n_predict=1900, t_max_predict_ms=1)
    assert two["stop_type"] == "limit" and two["content"].startswith("x\n") and len(two["content"]) < 1700, two["tokens_predicted"]
    assert time.monotonic() - start < 60


def test_models_without_marks():
    with Hearth() as h:
        for path, body in (("/v1/completions", {"prompt": "a", "suffix": "b"}), ("/v1/fim/completions", {"prompt": "a"}),
                           ("/infill", {"input_prefix": "a", "input_suffix": "b"})):
            status, _, answer = h.post(path, {**body, "max_tokens": 1})
            error = answer["error"]
            assert (status, error["code"]) == (400, "unsupported_parameter") and "--fim-marks" in error["message"], answer
        assert h.get("/props")[2]["fim"] is None
        assert h.post("/v1/completions", {"prompt": "a", "suffix": "", "max_tokens": 1})[0] == 200
    with Hearth("--fim-marks", "<|im_start|>,<|im_end|>,,spm") as h:
        body = {"prompt": "a", "suffix": "b", "max_tokens": 1, "return_token_ids": True}
        got = h.post("/v1/completions", body)[2]["choices"][0]["prompt_token_ids"]
        assert got[0] == 2 and 1 in got and got[-1] not in (1, 2), got
        assert h.get("/props")[2]["fim"]["suffix_first"]
    status, _, err = run("serve", "--fim-marks", "<|im_start|>,no-such-token,<|im_end|>")
    assert status != 0 and "'no-such-token' is not a token" in err, err


def test_shown():
    fim = SERVER.get("/props")[2]["fim"]
    assert [fim[k] for k in ("prefix", "suffix", "middle", "repo", "file")] == list(MARKS) and not fim["suffix_first"]
    before = SERVER.metrics()['hearth_endpoint_requests_total{endpoint="infill"}']
    post("/infill", input_prefix="a", input_suffix="b", n_predict=1)
    SERVER.wait_until(lambda: SERVER.metrics()['hearth_endpoint_requests_total{endpoint="infill"}'] == before + 1)


if __name__ == "__main__":
    with DemoCopy() as model:
        model.put("tokenizer.json", tokenizer())
        with Hearth("--model", model.dir, *SMALL_CONTEXT) as SERVER:
            run_cases(globals())
