#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""/v1/choose: probabilities of a closed list, the same numbers as scoring by echo."""
import json
import math
import os
import random

from hearth_server import ROOT, Hearth, run_cases

SERVER = None
LIMIT = 1e-6  # numbers have nine digits


def choose(**body):
    status, _, answer = SERVER.post("/v1/choose", body)
    assert status == 200, (status, answer)
    return answer


def refused(*words, status=400, param=None, **body):
    got, _, answer = SERVER.post("/v1/choose", body)
    assert got == status, (got, answer)
    assert all(word in answer["error"]["message"] for word in words), answer
    assert param in (None, answer["error"]["param"]), answer


def tokens(text, special=True):
    return SERVER.post("/tokenize", {"content": text, "add_special": special})[2]["tokens"]


def echo(ids):
    """The log-probabilities of ids, None for the first."""
    status, _, answer = SERVER.post("/v1/completions", {"prompt": ids, "echo": True, "max_tokens": 0, "logprobs": 0})
    assert status == 200, answer
    return answer["choices"][0]["logprobs"]["token_logprobs"]


def expected(prompt, choices):
    """Sums from the first id in which any joined text differs from the prompt's own ids."""
    own, joined = tokens(prompt), [tokens(prompt + c) for c in choices]
    same = min(next((i for i, (a, b) in enumerate(zip(own + [None], j + [None])) if a != b), len(own)) for j in joined)
    return same, [len(j) - same for j in joined], [sum(echo(j)[same:]) for j in joined]


def with_end(prompt, ids):
    """The log-probability of ids behind the prompt and then of any end id."""
    with open(os.path.join(ROOT, "deploy", "demo", "generation_config.json"), encoding="utf-8") as f:
        ends = json.load(f)["eos_token_id"]
    rows = [echo(prompt + ids + [end])[len(prompt):] for end in (ends if isinstance(ends, list) else [ends])]
    return sum(rows[0][:-1]) + math.log(sum(math.exp(row[-1]) for row in rows))


def check(answer, logprobs):
    assert [c["index"] for c in answer["choices"]] == list(range(len(logprobs)))
    for c, want in zip(answer["choices"], logprobs):
        assert math.isclose(c["logprob"], want, rel_tol=LIMIT, abs_tol=LIMIT), (c, want)
    weights = [math.exp(v - max(logprobs)) for v in logprobs]
    for c, weight in zip(answer["choices"], weights):
        assert abs(c["probability"] - weight / sum(weights)) < 1e-6, c
    assert abs(sum(c["probability"] for c in answer["choices"]) - 1) < 1e-6
    entropy = -sum(c["probability"] * math.log(c["probability"]) for c in answer["choices"] if c["probability"] > 0)
    assert abs(answer["entropy"] - entropy) < 1e-5
    assert answer["best"] == answer["choices"][logprobs.index(max(logprobs))]["text"]


def test_equal_to_scoring_by_echo():
    lists = [("The capital of Norway is", [" Oslo", " Bergen", " a city of the north"]), ("It is war", ["m", "mer", "t", " and peace"]),
             ("Answer:", [" yes", " no"]), ("x" * 40 + " y", ["z", "zz", " z"]), ("Über Größe", [" wäre", "n", "\n\n😀"])]
    for prompt, choices in lists:
        same, lengths, logprobs = expected(prompt, choices)
        answer = choose(prompt=prompt, choices=choices)
        assert answer["usage"]["prompt_tokens"] == same and answer["usage"]["scored_tokens"] == sum(lengths), answer["usage"]
        assert [c["tokens"] for c in answer["choices"]] == lengths
        check(answer, logprobs)


def test_random_lists_of_ids():
    draw = random.Random(5)
    for _ in range(12):
        prompt = [draw.randrange(20, 1000) for _ in range(draw.randrange(1, 90))]
        choices = [[draw.randrange(20, 1000) for _ in range(draw.choice((1, 1, 2, 3, 9)))] for _ in range(draw.randrange(2, 25))]
        choices = [list(c) for c in dict.fromkeys(map(tuple, choices))]
        check(choose(prompt=prompt, choices=choices), [sum(echo(prompt + c)[len(prompt):]) for c in choices])


def test_ends_are_scored():
    prompt, choices = tokens("Is it warm?"), [tokens(t, special=False) for t in ("no", "none", "yes, it is")]
    check(choose(prompt=prompt, choices=choices, ends=True), [with_end(prompt, c) for c in choices])
    assert choose(prompt=prompt, choices=choices, ends=True)["usage"]["scored_tokens"] == sum(map(len, choices)) + 3


def test_messages_end_by_default():
    messages = [{"role": "user", "content": "Is it warm?"}]
    ended = choose(messages=messages, choices=["yes", "no"])
    assert ended["usage"]["scored_tokens"] == sum(c["tokens"] + 1 for c in ended["choices"])
    text = SERVER.post("/apply-template", {"messages": messages})[2]["prompt"]
    prompt = tokens(text)
    check(ended, [with_end(prompt, tokens(c, special=False)) for c in ("yes", "no")])
    assert ended["choices"] != choose(messages=messages, choices=["yes", "no"], ends=False)["choices"]


def test_mean_and_top():
    choices = [" a", " a very long way to say it", " b"]
    plain, mean = (choose(prompt="This is", choices=choices, normalise=n) for n in ("sum", "mean"))
    means = [c["logprob"] / c["tokens"] for c in plain["choices"]]
    assert mean["best"] == choices[means.index(max(means))]
    weights = [math.exp(m) for m in means]
    for c, weight in zip(mean["choices"], weights):
        assert abs(c["probability"] - weight / sum(weights)) < 1e-6
    top = choose(prompt="This is", choices=choices, top=2)
    best = sorted(plain["choices"], key=lambda c: -c["logprob"])[:2]
    assert top["choices"] == best and top["best"] == best[0]["text"]


def test_thousand_choices_that_are_prefixes_of_each_other():
    ids = [20 + i % 900 for i in range(200)]
    choices = [ids[:n] for n in range(1, 201)] + [ids[:n] + [19] for n in range(200)] + [[i] for i in range(30, 630)]
    choices = [list(c) for c in dict.fromkeys(map(tuple, choices))][:1000]
    answer = choose(prompt=[5, 6, 7], choices=choices)
    assert abs(sum(c["probability"] for c in answer["choices"]) - 1) < 1e-6
    whole = echo([5, 6, 7] + ids)
    for n in (1, 2, 50, 200):
        assert math.isclose(answer["choices"][n - 1]["logprob"], sum(whole[3:3 + n]), rel_tol=LIMIT)


def test_special_tokens_in_a_choice_are_text():
    answer = choose(prompt="Say", choices=["<|im_end|>", " it"])
    assert answer["choices"][0]["tokens"] > 1


def test_the_same_beside_other_requests_and_from_the_cache():
    body = {"prompt": "word " * 100, "choices": [" one", " two", " three and more"]}
    first, second = choose(**body), choose(**body)
    assert first["choices"] == second["choices"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_refusals():
    refused("'choices'", prompt="x", param="choices")
    refused("2 to 1000", prompt="x", choices=["a"])
    refused("2 to 1000", prompt="x", choices=[[i] for i in range(1001)])
    refused("same tokens", prompt="x", choices=[" a", " b", " a"])
    refused("choices[1]", "1 to 256", prompt="x", choices=[" a", ""])
    refused("choices[0]", "1 to 256", prompt="x", choices=[[5] * 257, [6]])
    refused("choices[1]", prompt="x", choices=["a", 5])
    refused("0 to 1023", prompt="x", choices=[[1024], [5]])
    refused("Exactly one", choices=["a", "b"])
    refused("Exactly one", prompt="x", messages=[{"role": "user", "content": "x"}], choices=["a", "b"])
    refused("'normalise'", prompt="x", choices=["a", "b"], normalise="prior")
    refused("stays the same", prompt=[], choices=["a", "b"])
    refused("bytes to tokenize", "ids", prompt="word " * 10000, choices=[f" {i}" for i in range(1000)])
    refused("context length", prompt=[5] * 2047, choices=[[5], [6, 7]])
    refused("no such", status=404, prompt="x", choices=["a", "b"], model="no such")


MESSAGES = [{"role": "user", "content": "Is it warm?"}]
TEXTS = ["yes", "no", "none of these, <|im_end|> neither"]


def chat(**body):
    return SERVER.post("/v1/chat/completions", {"messages": MESSAGES, "choice_probabilities": True, **body})[::2]


def test_chat_shows_the_same_list_and_answers_the_best():
    plain = choose(messages=MESSAGES, choices=TEXTS)
    asked = {"structured_outputs": {"choice": TEXTS}, "seed": 5, "temperature": 2, "max_tokens": 1}
    for body in (asked, {"guided_choice": TEXTS, "logit_bias": {"5": 100}}, {**asked, "cache_salt": "a", "cache_prompt": False}):
        status, answer = chat(**body)
        assert status == 200 and answer["object"] == "chat.completion" and answer["id"].startswith("chatcmpl-"), answer
        choice = answer["choices"][0]
        assert choice["choice_probabilities"] == plain["choices"] and len(answer["choices"]) == 1, answer
        assert choice["message"] == {"role": "assistant", "content": plain["best"], "refusal": None}
        assert (choice["index"], choice["logprobs"], choice["finish_reason"]) == (0, None, "stop")
        same = ("prompt_tokens", "completion_tokens", "total_tokens")
        assert [answer["usage"][k] for k in same] == [plain["usage"][k] for k in same]
    told = chat(**asked, timings=True, return_cache_report=True)[1]
    assert told["timings"]["prompt_n"] + told["timings"]["cache_n"] == plain["usage"]["prompt_tokens"]
    assert "cache_report" in told["usage"]
    assert "choice_probabilities" not in chat(**{**asked, "choice_probabilities": False})[1]["choices"][0]


def test_chat_keeps_salts_apart():
    body = {"messages": [{"role": "user", "content": "salted " * 60}], "guided_choice": TEXTS}
    cached = [chat(**body, cache_salt=salt)[1]["usage"]["prompt_tokens_details"]["cached_tokens"] for salt in "aba"]
    assert cached[1] < cached[2] and cached[2] > 0, cached


def test_chat_refusals():
    listed = {"structured_outputs": {"choice": TEXTS}}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    for param, body in (("stream", {**listed, "stream": True}), ("n", {**listed, "n": 2}), ("logprobs", {**listed, "logprobs": True}),
                        ("prompt_logprobs", {**listed, "prompt_logprobs": 0}), ("return_token_ids", {**listed, "return_token_ids": True}),
                        ("tools", {**listed, "tools": [tool]}), ("structured_outputs.choice", {}),
                        ("structured_outputs.choice", {"structured_outputs": {"regex": "a"}}),
                        ("structured_outputs.choice", {"structured_outputs": {"choice": ["a"]}}),
                        ("structured_outputs.choice", {"structured_outputs": {"choice": ["a", "b", "a"]}}),
                        ("guided_choice[1]", {"guided_choice": ["a", [5]]}), ("guided_choice[0]", {"guided_choice": ["", "a"]}),
                        ("messages", {**listed, "messages": [{"role": "user", "content": "x y " * 1020}]})):
        status, answer = chat(**body)
        assert status == 400 and answer["error"]["param"] == param, (param, status, answer)


def main():
    global SERVER
    with Hearth("--strict-model") as SERVER:
        run_cases(globals())


if __name__ == "__main__":
    main()
