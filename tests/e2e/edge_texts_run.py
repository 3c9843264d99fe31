#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Mostly valid bodies with edge texts in every text field of every route at once, to every kind of model, by hand for long.

    HEARTH_BIN=build-asan/hearth tests/e2e/edge_texts_run.py [--seconds 600] [--seed N] [--clients 4] [--only MODEL]

Edge texts are empty, a blank, special tokens alone, what a normalizer takes away, the longest allowed, surrogates, NUL and
the like. Every answer has a status of its route and is well-formed: no 500, and no report of a sanitizer in the log. What is
wrong is printed once with the seed and the body; a server that has ended is started again. Exits 1 if anything was wrong.
test_edge_texts.py does this for 8 seconds. Standard library only.
"""
import argparse
import contextlib
import http.client
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from draft_models import SIBLING  # noqa: E402
from hearth_server import DEMO, ROOT, Hearth, parse_events  # noqa: E402
from test_classify import classifier  # noqa: E402
from test_tools import HERMES  # noqa: E402
from tiny_models import DemoCopy, hybrid_model, pack, read_weights, write_file  # noqa: E402

CTX = 512  # of those that make text; the encoders have half of it
REPORT = re.compile(r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error:|Assertion `")
FINE = (200, 400, 413)

# ---- models -----------------------------------------------------------------------------------------------------------


def copy_of(name, folder, tokenizer=None, **files):
    """A copy of a model of deploy/, its tokenizer.json changed and with other files."""
    shutil.copytree(os.path.join(ROOT, "deploy", name), folder)
    if tokenizer:
        with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
            t = json.load(f)
        t.update(tokenizer)
        write_file(os.path.join(folder, "tokenizer.json"), t)
    for file, content in files.items():
        write_file(os.path.join(folder, file.replace("__", "/").replace("_json", ".json")), content)
    return folder


def headed(folder, n_labels, **files):
    """The demo with a head of labels."""
    with DemoCopy() as m:
        shutil.copytree(classifier(m, n_labels), folder)
    for file, content in files.items():
        write_file(os.path.join(folder, file), content)
    return folder


def three_labels(folder):
    """The small cross-encoder with three labels instead of one."""
    copy_of("demo-rerank", folder)
    header, data = read_weights(folder)
    for name, row in (("classifier.weight", 96), ("classifier.bias", 1)):
        blob = data[slice(*header[name]["data_offsets"])] * 3
        header[name] = {"dtype": "BF16", "shape": [3, row] if row > 1 else [3], "data_offsets": [len(data), len(data) + len(blob)]}
        data += blob
    used = sorted((k for k in header if k != "__metadata__"), key=lambda k: header[k]["data_offsets"])
    out, blobs = {}, b""
    for k in used:
        begin, end = header[k]["data_offsets"]
        out[k] = dict(header[k], data_offsets=[len(blobs), len(blobs) + end - begin])
        blobs += data[begin:end]
    write_file(os.path.join(folder, "model.safetensors"), pack(out, blobs))
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    write_file(os.path.join(folder, "config.json"), {**config, "id2label": {"0": "a", "1": "", "2": "\u2028"}, "label2id": {}})
    return folder


def make_models(d):
    """{name: ({what it does}, directory, more keys)} of every kind."""
    def at(name):
        return os.path.join(d, name)
    bare_template, hermes = at("bare.txt"), at("hermes.jinja")
    write_file(bare_template, "{query}{document}")
    write_file(hermes, HERMES)
    bos = {"normalizer": {"type": "Sequence", "normalizers": [
               {"type": "NFC"}, {"type": "Replace", "pattern": {"String": "x"}, "content": ""}, {"type": "Strip", "strip_left": True, "strip_right": True}]},
           "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                              "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                              "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}}}}
    prompts = {"prompts": {"query": "Q: ", "document": ""}, "default_prompt_name": "query"}
    with open(os.path.join(ROOT, "deploy", "demo-embed", "1_Pooling", "config.json"), encoding="utf-8") as f:
        pooling = {**json.load(f), "include_prompt": False}
    os.mkdir(at("hybrid"))
    judge = {"rerank-tokens": "y,n"}
    return {
        "chat": ({"text", "holes", "vectors"}, DEMO, {"draft-model": SIBLING, "fim-marks": "<|im_start|>,<|im_end|>,<|endoftext|>"}),
        "tools": ({"text", "vectors"}, DEMO, {"chat-template-file": hermes}),
        "bos": ({"text", "holes", "vectors"}, copy_of("demo", at("bos"), bos), {"fim-marks": "<|im_start|>,<|im_end|>,<|endoftext|>,<|endoftext|>,<|endoftext|>,spm"}),
        "hybrid": ({"text"}, hybrid_model(at("hybrid")), {}),
        "embed": ({"vectors"}, os.path.join(ROOT, "deploy", "demo-embed"), {}),
        "embed-prompts": ({"vectors"}, copy_of("demo-embed", at("embed-prompts"), config_sentence_transformers_json=prompts, **{"1_Pooling__config_json": pooling}), {}),
        "embed-bare": ({"vectors"}, copy_of("demo-embed", at("embed-bare"), {"post_processor": None}), {}),
        "cross": ({"pairs", "labels"}, os.path.join(ROOT, "deploy", "demo-rerank"), {}),
        "cross-bare": ({"pairs", "labels"}, copy_of("demo-rerank", at("cross-bare"), {"post_processor": None}), {}),
        "cross-template": ({"pairs", "labels"}, copy_of("demo-rerank", at("cross-template")), {"rerank-template": bare_template}),
        "labels": ({"labels"}, three_labels(at("labels")), {}),
        "head": ({"pairs", "labels"}, headed(at("head"), 1), {}),
        "head-labels": ({"labels"}, headed(at("head-labels"), 3), {}),
        "judge": ({"pairs", "text", "vectors"}, DEMO, judge),
        "judge-bare": ({"pairs", "text", "vectors"}, copy_of("demo", at("judge-bare"), bos), {**judge, "rerank-template": bare_template}),
    }


# ---- texts ------------------------------------------------------------------------------------------------------------

EDGES = ["", "", " ", "\n", "\t\r\n", "\0", "a\0b", "\u3000", "x", "xx", "<|endoftext|>", "<|im_start|>", "<|im_end|><|im_start|>", "[CLS]", "[SEP][SEP]", "[UNK]",
         "<think>", "</think>", "<tool_call>", "</tool_call>", "\u200b", "\ufeff", "\u00ad", "\u0301", "\ufffd", "\x01\x7f", "\u0085\u2028",
         "{query}", "{document}", "{{ x }}", "x-anthropic-a: b", "x-anthropic-a: b\n", "x-anthropic-a: b\n \n", "\U0001f600\u200d\U0001f600", "\ud83d\ude00", "\u202e", "##", "1", "null", "[]", '"']
SURROGATES = ["\ud800", "a\udc00b", "\udfff\ud800"]  # which no JSON may hold, so that most bodies have none
PLAIN = ["a", "The cat", "Once upon a time, there was", "city", "ünï", "get_weather", "user"]
PATTERNS = ["a|b", "[0-9]{1,3}", ".*", "", "(", "a{0}", "\\b", "\u3000+", "[^\x00-\uffff]"]


class Draw(random.Random):
    """What goes into a body. `edge` is the share of edge texts in it; `same` is all of its texts, in some bodies."""

    def __init__(self, seed):
        super().__init__(seed)
        self.edge = self.choice((0.3, 0.7, 1))
        self.same = self.choice(EDGES) if self.random() < 0.2 else None
        self.edges = EDGES + SURROGATES if self.random() < 0.04 else EDGES

    def text(self):
        if self.same is not None:
            return self.same
        if self.random() > self.edge:
            return self.choice(PLAIN)
        if self.random() < 0.03:
            return " a" * (self.choice((CTX // 2, CTX, 3 * CTX)) - self.choice((-1, 0, 1, 2, 3, 24)))
        return self.choice(self.edges) if self.random() < 0.85 else "".join(self.choice(self.edges + PLAIN) for _ in range(self.randrange(4)))

    def texts(self, low, high):
        return [self.text() for _ in range(self.randint(low, high))]

    def ids(self):
        return [self.choice((0, 1, 2, 3, 5, 300, 1023)) for _ in range(self.choice((0, 1, 1, 3)))]

    def maybe(self, share=0.25, **fields):
        """Some of the fields; a value that is a function is called for those alone."""
        return {k: v() if callable(v) else v for k, v in fields.items() if self.random() < share}

    def one_of(self, *values):
        value = self.choice(values)
        return value() if callable(value) else value

    def flag(self):
        return self.random() < 0.5


def schema(d):
    value = {"type": d.choice(("string", "integer", "array"))}
    value.update(d.maybe(0.2, description=d.text, enum=lambda: d.texts(1, 3), const=d.text, pattern=lambda: d.choice(PATTERNS), title=d.text, default=d.text))
    return {"type": "object", "properties": {d.text(): value, "a": {"type": "string", "maxLength": 3}}, **d.maybe(0.3, required=lambda: d.texts(0, 2), additionalProperties=d.flag)}


def generation(d, stop="stop"):
    """Fields that all routes of generation have."""
    return {"max_tokens": d.choice((1, 1, 2, 3)), **d.maybe(
        0.12, **{stop: lambda: d.one_of(d.text, lambda: d.texts(0, 4))}, stream=True, temperature=lambda: d.choice((0, 1, 2)), seed=1, user=d.text, cache_salt=d.text,
        prompt_cache_key=d.text, request_id=d.text, return_cache_report=True, metadata=lambda: {d.text(): d.text()}, logit_bias=lambda: {d.choice(("0", "1", "1023")): 1},
        speculate=d.flag, return_token_ids=True, ignore_eos=True, prompt_cache_retention=lambda: d.choice(("24h", "in_memory")), skip_special_tokens=False,
        include_stop_str_in_output=True, prompt_cache_options=lambda: {"mode": d.choice(("explicit", "implicit"))}, stop_token_ids=d.ids, allowed_token_ids=d.ids)}


def guides(d):
    """At most one guide."""
    if d.random() > 0.2:
        return {}
    return d.one_of(lambda: {"response_format": {"type": "json_schema", "json_schema": {"name": d.text(), "schema": schema(d), **d.maybe(strict=True, description=d.text)}}},
                    {"response_format": {"type": "json_object"}}, lambda: {"structured_outputs": {"choice": d.texts(1, 4)}}, lambda: {"guided_choice": d.texts(1, 4)},
                    lambda: {"guided_regex": d.choice(PATTERNS)}, lambda: {"structured_outputs": {"regex": d.text()}}, lambda: {"grammar": d.text()},
                    lambda: {"guided_grammar": 'root ::= ' + json.dumps(d.text(), ensure_ascii=False)}, lambda: {"guided_json": schema(d)})


def parts(d, kind="text"):
    """A text, or parts of texts with marks of the cache."""
    if d.flag():
        return d.text()
    return [{"type": kind, "text": d.text(), **d.maybe(0.2, cache_control={"type": "ephemeral"}, prompt_cache_breakpoint={})} for _ in range(d.randint(0, 3))]


def messages(d):
    out = []
    if d.flag():
        out.append({"role": d.choice(("system", "developer")), "content": parts(d)})
    for _ in range(d.randint(0, 2)):
        out.append({"role": "user", "content": parts(d), **d.maybe(0.1, name=d.text)})
        call = {"id": d.text(), "type": "function", "function": {"name": d.choice(("f", d.text())), "arguments": d.choice(("{}", "", d.text(), '{"a": ""}'))}}
        out.append({"role": "assistant", "content": d.one_of(None, lambda: parts(d)), **d.maybe(0.2, reasoning_content=d.text, refusal=None, tool_calls=lambda: [call])})
        if "tool_calls" in out[-1]:
            out.append({"role": "tool", "tool_call_id": call["id"], "content": parts(d), **d.maybe(name=d.text)})
    if d.random() < 0.9:
        out.append({"role": "user", "content": parts(d)})
    return out


def tools(d):
    if d.random() > 0.25:
        return {}
    other = d.choice(("get_weather", "get_weather", d.text()))
    functions = [{"name": name, **d.maybe(0.5, description=d.text, parameters=lambda: schema(d), strict=True)} for name in ["f", other][:d.randint(1, 2)]]
    choice = d.choice(("auto", "none", "required", {"type": "function", "function": {"name": "f"}}))
    return {"tools": [{"type": "function", "function": f} for f in functions], **d.maybe(0.5, tool_choice=choice, parallel_tool_calls=d.flag)}


def chat(d):
    return {"messages": messages(d), **generation(d), **guides(d), **tools(d), **d.maybe(
        0.1, n=2, logprobs=True, top_logprobs=2, prompt_logprobs=1, choice_probabilities=True, reasoning_effort=lambda: d.choice(("low", "none", d.text())),
        chat_template_kwargs=lambda: {d.text(): d.text(), "enable_thinking": d.flag()}, prediction=lambda: {"type": "content", "content": parts(d)}, service_tier=d.text,
        reasoning_format=lambda: d.choice(("none", "auto", d.text())), thinking_token_budget=0, stream_options=lambda: {"include_usage": d.flag()}),
            **d.one_of({}, {}, {}, {"add_generation_prompt": False}, {"add_generation_prompt": False, "continue_final_message": True})}


def completions(d):
    prompt = d.one_of(d.text, lambda: d.texts(1, 4), d.ids, lambda: [d.ids(), d.ids()])
    return {"prompt": prompt, **generation(d), **guides(d), **d.maybe(
        0.12, echo=True, logprobs=1, n=2, prompt_logprobs=1, add_special_tokens=False, return_progress=True, min_tokens=1), **d.maybe(0.03, suffix=d.text, best_of=2)}


def native(d):
    return {"prompt": d.one_of(d.text, d.ids, lambda: d.texts(1, 2)), **generation(d), **guides(d), **d.maybe(0.1, n_cmpl=2, t_max_predict_ms=1, n_indent=1, timings=True)}


def infill(d):
    return {"input_prefix": d.text(), "input_suffix": d.text(), **generation(d), **d.maybe(
        0.4, prompt=d.text, input_extra=lambda: [{"text": d.text(), **d.maybe(filename=d.text)} for _ in range(d.randint(0, 3))], repo_name=d.text, filename=d.text, n_cmpl=2, n_indent=1)}


def fim(d):
    return {"prompt": d.text(), "suffix": d.text(), **generation(d)}


def block(d, role):
    mark = d.maybe(0.2, cache_control=lambda: {"type": "ephemeral", **d.maybe(ttl=lambda: d.choice(("5m", "1h", "")))})
    own = {"assistant": [{"type": "thinking", "thinking": d.text(), "signature": d.text()}, {"type": "tool_use", "id": d.text(), "name": d.choice(("f", d.text())), "input": {d.text(): d.text()}}],
           "user": [{"type": "tool_result", "tool_use_id": d.text(), "content": d.one_of(d.text, lambda: parts(d), None), **d.maybe(is_error=True)},
                    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": d.text()}, **d.maybe(title=d.text, context=d.text)},
                    {"type": "search_result", "source": d.text(), "title": d.text(), "content": [{"type": "text", "text": d.text()}]}]}[role]
    return {**(d.choice(own) if d.random() < 0.4 else {"type": "text", "text": d.text()}), **mark}


def anthropic(d):
    turns = [{"role": role, "content": d.one_of(d.text, lambda r=role: [block(d, r) for _ in range(d.randint(0, 3))])} for role in ("user", "assistant") * d.randint(0, 2)]
    turns.append({"role": d.choice(("user", "user", "system", "assistant")), "content": parts(d)})
    made = [{"name": f["function"]["name"], "input_schema": f["function"].get("parameters", {"type": "object"}), **d.maybe(0.4, description=d.text)} for f in tools(d).get("tools", [])]
    return {"messages": turns, **generation(d, "stop_sequences"), **({"tools": made} if made else {}), **d.maybe(
        0.3, system=lambda: parts(d), cache_control={"type": "ephemeral"}, metadata=lambda: {"user_id": d.text()}, output_config=lambda: {"format": {"type": "json_schema", "schema": schema(d)}},
        thinking=lambda: {"type": d.choice(("disabled", "adaptive"))})}


def responses(d):
    def item():
        return d.one_of(lambda: {"role": d.choice(("user", "assistant", "system", "developer")), "content": d.one_of(d.text, lambda: parts(d, "input_text"))},
                        lambda: {"type": "function_call", "call_id": d.text(), "name": d.choice(("f", d.text())), "arguments": d.choice(("{}", d.text()))},
                        lambda: {"type": "function_call_output", "call_id": d.text(), "output": d.one_of(d.text, lambda: parts(d, "input_text"))},
                        lambda: {"type": "reasoning", "summary": [{"type": "summary_text", "text": d.text()}], **d.maybe(content=lambda: [{"type": "reasoning_text", "text": d.text()}])})
    body = {"input": d.one_of(d.text, lambda: [item() for _ in range(d.randint(0, 4))]), **generation(d)}
    body["max_output_tokens"] = body.pop("max_tokens") or 16
    made = [{"type": "function", **f["function"]} for f in tools(d).get("tools", [])]
    return {**body, **({"tools": made} if made else {}), **d.maybe(
        0.2, instructions=lambda: parts(d), text=lambda: {"format": {"type": "json_schema", "name": d.text(), "schema": schema(d)}}, reasoning=lambda: {"effort": d.choice(("low", "none", d.text()))},
        truncation="auto", include=lambda: [d.text()], safety_identifier=d.text, top_logprobs=1)}


def tokenize(d):
    return d.one_of(lambda: {"content": d.text(), **d.maybe(0.4, with_pieces=True, add_special=True, parse_special=False)},
                    lambda: {"prompt": d.text(), **d.maybe(0.4, return_token_strs=True, add_special_tokens=False)}, lambda: {"inputs": d.text()},
                    lambda: {"messages": messages(d), **d.maybe(0.3, return_token_strs=True, chat_template_kwargs=lambda: {d.text(): d.text()}), **tools(d)})


def detokenize(d):
    return {"tokens": d.ids()}


def template(d):
    return {"messages": messages(d), **tools(d), **d.maybe(chat_template_kwargs=lambda: {d.text(): d.text()})}


def choose(d):
    front = d.one_of(lambda: {"prompt": d.one_of(d.text, d.ids)}, lambda: {"messages": messages(d)})
    choices = [*dict.fromkeys(["b", "The dog", *d.texts(0, 4)]), *([d.ids()] if d.random() < 0.1 else [])]
    d.shuffle(choices)
    return {**front, "choices": choices[:d.randint(2, 5)],
            **d.maybe(ends=d.flag, normalise=lambda: d.choice(("mean", "sum")), top=1, add_special_tokens=False, add_generation_prompt=False)}


def lengths(d):
    return d.maybe(0.15, truncate_prompt_tokens=lambda: d.choice((-1, 1, 2, 3, 4, 5, CTX)), truncation_side=lambda: d.choice(("left", "right")), truncate=d.flag, user=d.text)


def fronts(d):
    """At most one text in front of the others."""
    if d.flag():
        return {}
    return {d.choice(("prompt_name", "input_type", "task", "instruction", "prompt", "prefix")): d.one_of(d.text, "query", "document")}


def inputs(d):
    return d.one_of(d.text, lambda: d.texts(1, 5), d.ids, lambda: [d.ids(), d.ids()])


def embed(field):
    def body(d):
        return {field: d.text() if field == "prompt" else inputs(d), **fronts(d), **lengths(d), **d.maybe(0.1, encoding_format="base64", dimensions=lambda: d.choice((1, 8)), normalize=d.flag, embd_normalize=-1)}
    return body


def cohere_embed(d):
    return {"texts": d.texts(1, 4), "input_type": d.choice(("search_query", "search_document", "classification", d.text())),
            **d.maybe(truncate=lambda: d.choice(("NONE", "START", "END")), embedding_types=lambda: [d.choice(("float", "base64", d.text()))])}


def rerank(documents):
    def body(d):
        texts = [d.one_of(d.text, lambda: {"text": d.text()}) for _ in range(d.randint(1, 4))]
        return {"query": d.text(), documents: texts, **lengths(d), **d.maybe(
            0.3, instruction=d.text, max_tokens_per_doc=lambda: d.choice((1, 2, 3, CTX)), top_n=1, return_documents=d.flag, return_text=d.flag, raw_scores=d.flag, truncation=d.flag)}
    return body


def score(d):
    left, right = d.choice((("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2")))
    n = d.randint(1, 3)
    return {left: d.one_of(d.text, lambda: d.texts(n, n)), right: d.texts(n, n), **lengths(d), **d.maybe(instruction=d.text, max_tokens_per_doc=1, raw_scores=True)}


def classify(d):
    return {"input": inputs(d), **lengths(d), **d.maybe(use_activation=d.flag)}


def named(d):
    return {"model": d.text()}


ROUTES = [  # path, body, what a model is to do
    ("/v1/chat/completions", chat, "text"), ("/v1/chat/completions/input_tokens", chat, "text"), ("/v1/completions", completions, "text"), ("/completion", native, "text"),
    ("/infill", infill, "holes"), ("/v1/fim/completions", fim, "holes"), ("/v1/messages", anthropic, "text"), ("/v1/messages/count_tokens", anthropic, "text"),
    ("/v1/responses", responses, "text"), ("/v1/responses/input_tokens", responses, "text"), ("/v1/choose", choose, "text"), ("/tokenize", tokenize, None),
    ("/detokenize", detokenize, None), ("/apply-template", template, "text"), ("/v1/embeddings", embed("input"), "vectors"), ("/embed", embed("inputs"), "vectors"),
    ("/", embed("inputs"), "vectors"), ("/embedding", embed("content"), "vectors"), ("/v2/embed", cohere_embed, "vectors"), ("/api/embed", embed("input"), "vectors"),
    ("/api/embeddings", embed("prompt"), "vectors"), ("/v1/rerank", rerank("documents"), "pairs"), ("/rerank", rerank("texts"), "pairs"),
    ("/v2/rerank", rerank("documents"), "pairs"), ("/v1/score", score, "pairs"), ("/classify", classify, "labels"),
    ("/models/load", named, None), ("/models/unload", named, None)]
READS = ["/health", "/metrics", "/v1/models", "/props", "/slots", "/openapi.json", "/v1/models/"]
RARE = {"/detokenize": 0.2, "/models/load": 0.1, "/models/unload": 0.1}


def make_request(d, models):
    """(method, path, headers, body bytes)"""
    headers = d.maybe(0.05, **{"anthropic-beta": "cache-diagnosis-2026-04-07", "x-session-id": "a" * 70, "x-request-id": "", "anthropic-version": "1"})
    if d.random() < 0.04:
        name = urllib.parse.quote(d.one_of(d.text, lambda: d.choice(list(models))), errors="surrogatepass")
        return "GET", d.choice(READS) + (name if d.flag() else "?model=" + name), headers, None
    path, make, task = d.choices(ROUTES, [RARE.get(r[0], 1) for r in ROUTES])[0]
    fitting = [n for n, m in models.items() if task is None or task in m[0]]
    body = make(d)
    body.setdefault("model", d.choice(fitting) if fitting and d.random() < 0.96 else d.one_of(d.text, lambda: d.choice(list(models))))
    if d.random() < 0.9:
        return "POST", path, headers, json.dumps(body).encode()
    return "POST", path, headers, json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")


# ---- judging ----------------------------------------------------------------------------------------------------------

def well_formed(text):
    """Raises ValueError for text that is no JSON, or JSON that some parsers refuse."""
    def unique(pairs):
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key twice")
        return dict(pairs)

    def refuse(word):
        raise ValueError(word)
    value = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    json.dumps(value, ensure_ascii=False).encode()  # no lone surrogates
    return value


def fault_of(method, path, status, kind, data):
    """What is wrong with an answer, or None."""
    known = FINE + (401, 403, 404) if method == "GET" or "/models/" in path or b"model_not_found" in data or b"does not exist" in data else FINE
    if status not in known:
        return f"status {status}: {data[:200]}"
    try:
        if "json" in kind:
            well_formed(data.decode())
        elif kind.startswith("text/event-stream"):
            for _, event in parse_events(data.splitlines(True)):
                if event != "[DONE]" and "internal_error" in json.dumps(well_formed(event)):
                    return "internal error in a stream"
        elif method == "POST":
            return f"content type {kind}"
    except ValueError as e:
        return f"not well-formed: {e}"
    return None


class Run:
    """Clients that ask one server after another until time is over; `faults`: {what: (request, its number)}."""

    def __init__(self, models, seed, seconds, n_clients):
        self.models, self.seed, self.n_clients = models, seed, n_clients
        self.end = time.monotonic() + seconds
        self.faults, self.statuses, self.routes, self.n = {}, {}, {}, 0
        self.begun = [0] * n_clients
        self.lock = threading.Lock()

    def note(self, what, request):
        with self.lock:
            self.faults.setdefault(re.sub(r"==\d+==|0x[0-9a-f]+|req_[0-9a-f]+|\d{4,}", "", what), request)

    def client(self, h, k):
        c = None
        while time.monotonic() < self.end and h.process.poll() is None:
            number = f"{self.seed}/{k}/{self.begun[k]}"
            self.begun[k] += 1
            method, path, headers, body = request = make_request(Draw(number), self.models)
            self.inside[k] = (number, request)
            try:
                c = c or h.connect(120)
                c.request(method, path, body, {"Content-Type": "application/json", **headers})
                r = c.getresponse()
                data = r.read()
            except (OSError, http.client.HTTPException) as e:
                c = None
                try:
                    h.process.wait(20)  # a sanitizer takes a while for its report
                except subprocess.TimeoutExpired:
                    self.note(f"{path.split('?')[0]}: {type(e).__name__} {e}", (number, request))
                continue
            fault = fault_of(method, path, r.status, r.getheader("content-type", ""), data)
            if fault:
                self.note(f"{path.split('?')[0]}: {fault}", (number, request))
            with self.lock:
                self.n += 1
                self.statuses[r.status] = self.statuses.get(r.status, 0) + 1
                ok, of = self.routes.get(path.split("?")[0], (0, 0))
                self.routes[path.split("?")[0]] = (ok + (r.status == 200), of + 1)
            self.inside[k] = None
            if r.will_close:
                c = None

    def one_server(self, *args):
        self.inside = [None] * self.n_clients
        h = Hearth(*args)
        h.start()
        clients = [threading.Thread(target=self.client, args=(h, k)) for k in range(self.n_clients)]
        for c in clients:
            c.start()
        for c in clients:
            c.join()
        died = h.process.poll() is not None
        status = h.stop()
        told = [line.strip() for line in h.log if REPORT.search(line)] + [line.strip() for line in h.log if line.startswith("SUMMARY: ")]
        for line in told:
            self.note(line, [i for i in self.inside if i])
        if status != 0 and not told:
            self.note(f"the server ends with {status}", [i for i in self.inside if i] if died else h.log[-5:])

    def all(self, *args):
        while time.monotonic() < self.end and len(self.faults) < 20:
            self.one_server(*args)
        return self.faults


@contextlib.contextmanager
def every_model(only=None):
    """(models, arguments of a server that has them all)"""
    with tempfile.TemporaryDirectory() as d:
        models = {n: m for n, m in make_models(d).items() if not only or n == only}
        lines = []
        for name, (does, directory, more) in models.items():
            lines += [f"[model {name}]", f"model = {directory}", *(f"{k} = {v}" for k, v in more.items()), *([f"ctx-size = {CTX}"] if "text" in does else [])]
        write_file(os.path.join(d, "hearth.ini"), "\n".join(lines) + "\n")
        yield models, ["--config", os.path.join(d, "hearth.ini")]


def run(seconds, seed, n_clients=4, only=None):
    """Prints what is wrong; returns how many things are."""
    with every_model(only) as (models, args):
        r = Run(models, seed, seconds, n_clients)
        r.all(*args)
        print(f"{r.n} requests to {len(models)} models, answers by status {dict(sorted(r.statuses.items()))}, seed {seed}")
        posts = {path: r.routes.get(path, (0, 0)) for path, _, _ in ROUTES}
        print("  share of 200: " + ", ".join(f"{path} {100 * ok // (of or 1)} % of {of}" for path, (ok, of) in posts.items()))
        for what, where in r.faults.items():
            print(f"FAULT {what}\n  {repr(where)[:6000]}")
        return len(r.faults)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("--clients", type=int, default=4)
    p.add_argument("--only")
    a = p.parse_args()
    seed = random.randrange(10 ** 9) if a.seed is None else a.seed
    print(f"seed {seed}", flush=True)
    sys.exit(1 if run(a.seconds, seed, a.clients, a.only) else 0)


if __name__ == "__main__":
    main()
