#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Scoring through /v1/completions with the official Python client: echo, logprobs and max_tokens 0 give the
log-probabilities of the reference implementation ($HEARTH_REFERENCE/goldens/logits) within 1e-3 (2e-3 on the
long `far` prompts), asked for as ids, as text, as an array of all prompts, and as `prompt_logprobs`.

Runs itself with the interpreter of $HEARTH_VENV, where tests/run.sh installed the client; skipped without.
"""
import json
import math
import os
import sys

from hearth_server import Hearth, enter_clients_venv, reference, reference_model

enter_clients_venv()

try:
    import openai
except ImportError as e:
    print(e)
    sys.exit(77)


def far_from(got, want):
    """The largest difference; the first value has no log-probability."""
    assert got[0] is None and len(got) == len(want) + 1, f"{len(got)} values for {len(want)}"
    return max((abs(a - b) for a, b in zip(got[1:], want)), default=0.0)


class Model:
    """A served model and its reference answers; `worst` is the largest difference met."""

    def __init__(self, client, golden):
        self.client, self.cases, self.worst = client, golden["cases"], 0.0

    def score(self, prompt, **more):
        return self.client.completions.create(model="default", prompt=prompt, max_tokens=0, echo=True,
                                              logprobs=2, temperature=0, **more)

    def compare(self, case, values, how):
        far = far_from(values, case["prompt_logprobs"])
        self.worst = max(self.worst, far)
        limit = 2e-3 if case["name"] == "far" else 1e-3
        assert far < limit, f"{case['name']} as {how}: differs by {far}"

    def check_choice(self, case, choice, how):
        logs = choice.logprobs
        self.compare(case, logs.token_logprobs, how)
        assert choice.finish_reason == "length"
        assert len(logs.tokens) == len(logs.top_logprobs) == len(logs.text_offset) == len(case["ids"])
        assert logs.top_logprobs[0] is None
        for own, top in zip(logs.token_logprobs[1:], logs.top_logprobs[1:]):
            best = max(top.values())
            assert 1 <= len(top) <= 3 and own <= best + 1e-6, f"{case['name']}: {own} of {top}"

    def check_ids(self):
        for case in self.cases:
            answer = self.score(case["ids"])
            assert answer.usage.prompt_tokens == len(case["ids"]) and answer.usage.completion_tokens == 0
            self.check_choice(case, answer.choices[0], "ids")
            values = answer.choices[0].logprobs.token_logprobs[1:]
            if values and case["perplexity"]:
                perplexity = math.exp(-sum(values) / len(values))
                assert abs(perplexity / case["perplexity"] - 1) < 2e-3, f"{case['name']}: {perplexity}"

    def check_text(self):
        """Cases that are the encoding of a text, special tokens added; returns how many."""
        cases = [c for c in self.cases if c.get("text")]
        for case in cases:
            answer = self.score(case["text"])
            self.check_choice(case, answer.choices[0], "text")
            assert answer.choices[0].text == case["text"]
        return len(cases)

    def check_array(self):
        cases = [c for c in self.cases if len(c["ids"]) < 200]
        answer = self.score([c["ids"] for c in cases])
        assert [c.index for c in answer.choices] == list(range(len(cases)))
        for case, choice in zip(cases, answer.choices):
            self.check_choice(case, choice, "array")

    def check_prompt_logprobs(self):
        """The same numbers by id, with rank, of a generated token."""
        for case in self.cases:
            answer = self.client.completions.create(model="default", prompt=case["ids"], max_tokens=1,
                                                    temperature=0, extra_body={"prompt_logprobs": 1})
            rows = answer.choices[0].model_extra["prompt_logprobs"]
            values = [None] + [row[str(i)]["logprob"] for row, i in zip(rows[1:], case["ids"][1:])]
            assert rows[0] is None
            self.compare(case, values, "prompt_logprobs")


def check_model(name, path):
    with open(path, encoding="utf-8") as f:
        golden = json.load(f)
    with Hearth("--model", reference_model(name), "--numerics", "exact") as h:
        client = openai.OpenAI(base_url=h.url + "/v1", api_key="none", max_retries=0)
        model = Model(client, golden)
        model.check_ids()
        n_texts = model.check_text()
        model.check_array()
        model.check_prompt_logprobs()
    print(f"{name}: {len(golden['cases'])} cases, {n_texts} as text, worst difference {model.worst:.1e}")


def main():
    logits = reference("goldens", "logits")
    names = sorted(n for n in os.listdir(logits) if os.path.exists(os.path.join(logits, n, "golden.json")))
    failed = 0
    for name in names:
        try:
            check_model(name, os.path.join(logits, name, "golden.json"))
        except (AssertionError, openai.OpenAIError) as e:
            print(f"{name}: FAILED: {e}")
            failed += 1
    print(f"{len(names) - failed} of {len(names)} models agree")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
