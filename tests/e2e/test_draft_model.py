#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A smaller model drafts: answers are those without it, whatever it writes; what cannot draft is refused, or done without."""
import json
import os
import random
import tempfile
from concurrent.futures import ThreadPoolExecutor

from draft_models import SIBLING as DRAFT, every_kind, variant
from hearth_server import DEMO, Hearth, leave, run, run_cases, start_request
from selfdraft_run import KINDS, digest, make_requests

NUMERICS = ("--numerics", "int4")  # there is no twin, whose drafts may take less time
PLAIN = ("--speculate", "off", "--parallel", "1", "--threads", "1")
OFF = TMP = None


def with_draft(draft, *options):
    return Hearth("--draft-model", draft, "--parallel", "3", "--threads", "2", *options)


def await_draft(h):
    h.wait_until(lambda: h.get("/props")[2]["draft_model"]["state"] != "loading", what="the draft model")


def drafted(h):
    m = h.settled_metrics()
    return [int(m[f'hearth_{n}_total{{source="model"}}']) for n in ("draft_tokens", "accepted_draft_tokens")]


def check_answers(draft, works=True):
    requests = make_requests(random.Random(3), 2 * len(KINDS))
    with with_draft(draft, "--speculate", "always", *NUMERICS) as h:
        await_draft(h)
        assert [digest(h, r) for r in requests] == [digest(OFF, r) for r in requests]
        state = h.get("/props")[2]["draft_model"]["state"]
        assert state == ("on" if works else "failed"), state
        assert int(h.metrics()["hearth_draft_model_loaded"]) == works
        return drafted(h)


def test_kinds_of_drafts():
    """Good, random, not finite; vocabularies with rows that pad them, and with ids that only the other has."""
    for kind, draft in every_kind(TMP).items():
        tried, right = check_answers(draft, works=kind != "nan")
        if kind == "nan":
            assert tried == 0
        elif kind == "random":
            assert tried > 0 and right < 0.2 * tried, (tried, right)
        else:
            assert right > 0.12 * tried > 0, (kind, tried, right)


def test_damaged_draft():
    """The server says so and works without it."""
    draft = variant(os.path.join(TMP, "damaged"))
    with open(os.path.join(draft, "model.safetensors"), "r+b") as f:
        f.truncate(2000)
    assert check_answers(draft, works=False) == [0, 0]


def test_refusals():
    def swap_tokens(text):
        t = json.loads(text)
        vocab = t["model"]["vocab"]
        a, b = [k for k, v in vocab.items() if v in (100, 101)]
        vocab[a], vocab[b] = vocab[b], vocab[a]
        return json.dumps(t)

    for draft, options, words in (
            (variant(os.path.join(TMP, "other"), tokenizer=swap_tokens), (), ("id 100 is a token, '", "in the other")),
            (DEMO, ("--numerics", "int4"), ("more than half", "choose a smaller one")),
            (os.path.join(TMP, "none"), (), ("draft-model", "none")),
            (DRAFT, ("--memory", "13M"), ("draft model", "MiB"))):
        for command in (("generate", "-n", "1", "--prompt", "a"), ("serve", "--check-config")):
            status, _, err = run(*command, "--draft-model", draft, *options)
            assert status != 0 and all(w in err for w in words), (command, draft, status, err)
    assert run("serve", "--check-config", "--draft-model", DRAFT)[0] == 0


def test_pair_is_shown():
    status, out, _ = run("inspect", "--json", "--draft-model", DRAFT)
    assert status == 0 and json.loads(out)["draft_model"] == {"model": DRAFT, "shared_tokens": 1024}, out
    status, out, _ = run("inspect", "--draft-model", os.path.join(TMP, "other"))
    assert status == 1 and "draft_model" not in out and "id 100 is a token" in out, out


def test_bench():
    """Two streams drafted for: the share that was right is shown, and no speed of reading weights."""
    status, out, err = run("bench", "--draft-model", DRAFT, *NUMERICS, "--json", "--prefill", "8", "--batch", "1,2",
                           "--decode", "32", "--reps", "1")
    rows = [json.loads(line) for line in out.splitlines()]
    assert status == 0 and len(rows) == 3 and all(r["tok_s"] > 0 and "weights_gb_s" not in r for r in rows), (out, err)
    assert "drafts (model): " in err and "% right" in err, err


def test_fields():
    """speculative.n_max bounds drafts, whose length changes no answer; timings count them; lookup leaves the model out."""
    body = {"prompt": "Once upon a time", "max_tokens": 60, "timings": True, "ignore_eos": True, "temperature": 0}
    with with_draft(DRAFT, "--speculate", "always") as h:
        await_draft(h)
        texts = set()
        for n_max, n_min, p_min in ((0, 0, 0.5), (1, 0, 0.9), (3, 1, 0.5), (7, 4, 0), (16, 2, 0.75)):
            fields = {"speculative.n_max": n_max, "speculative.n_min": n_min, "speculative.p_min": p_min}
            status, _, a = h.post("/v1/completions", {**body, **fields})
            assert status == 200, a
            t = a["timings"]
            texts.add(a["choices"][0]["text"])
            assert (t["draft_n"] > 0) == (n_max > 0) and t["draft_n_accepted"] <= t["draft_n"], t
        assert len(texts) == 1, texts
        status, _, a = h.post("/v1/completions", dict(body, **{"speculative.p_min": 2}))
        assert status == 400 and a["error"]["param"] == "speculative.p_min", a
        assert h.get("/props")[2]["memory"]["draft_bytes"] > 0
    with with_draft(DRAFT, "--speculate", "lookup") as h:
        assert h.get("/props")[2]["drafts"] == "lookup" and h.get("/props")[2]["memory"]["draft_bytes"] == 0


def test_several_until_their_contexts_are_full():
    requests = [("/v1/completions", {"prompt": list(range(300, 300 + n)), "max_tokens": 128 - n, "temperature": n % 2,
                                     "seed": n, "logprobs": 5, "ignore_eos": True}) for n in (5, 60, 127, 20, 110, 120, 90)]
    short = (*NUMERICS, "--ctx-size", "128")
    with with_draft(DRAFT, "--speculate", "always", *short) as h, Hearth(*PLAIN, *short) as plain, ThreadPoolExecutor(3) as pool:
        await_draft(h)
        want = [digest(plain, r) for r in requests]
        for more in ({}, {"max_tokens": 500}):  # the context ends both
            assert list(pool.map(lambda r, more=more: digest(h, (r[0], {**r[1], **more})), requests)) == want
        assert drafted(h)[0] > 0


def test_swap():
    """A swap takes a draft model, leaves it out and refuses one; requests before, during and after have the same answers."""
    requests = make_requests(random.Random(5), len(KINDS))
    want = [digest(OFF, r) for r in requests]
    with Hearth("--swap", "on", "--parallel", "3", "--threads", "2", "--speculate", "always", *NUMERICS) as h, \
            ThreadPoolExecutor(2) as pool:
        for fields, draft in (({}, None), ({"draft_model": DRAFT}, DRAFT), ({}, None)):
            under_load = pool.map(lambda r: digest(h, r), requests)
            status, _, body = h.post("/models/load", {"model": DEMO, "wait": "drained", **fields})
            assert status == 200 and body["success"] is True, body
            assert list(under_load) == want, "under load"
            shown = h.get("/props")[2]["draft_model"]
            assert (shown or {"model": None})["model"] == draft, shown
            before = drafted(h)[0]
            if draft:
                await_draft(h)
            assert [digest(h, r) for r in requests] == want
            assert (drafted(h)[0] > before) == bool(draft), (draft, before, drafted(h))
        status, _, body = h.post("/models/load", {"model": DEMO, "draft_model": os.path.join(TMP, "nowhere")})
        assert status == 404 and "draft_model" in body["error"]["message"], (status, body)
        assert [digest(h, r) for r in requests[:2]] == want[:2]


def test_cancelled_answers():
    """Streams cut in the middle leave their pages behind, half drafted: the next answers, on the same prompts, are right."""
    with with_draft(DRAFT, "--speculate", "always", *NUMERICS) as h:
        await_draft(h)
        cut = random.Random(11)
        for path, body in make_requests(random.Random(9), 2 * len(KINDS)):
            s = start_request(h, path, dict(body, stream=True, max_tokens=200))
            for _ in range(cut.randrange(1, 6)):
                s.recv(cut.randrange(1, 2000))
            leave(s, reset=True)
            assert digest(h, (path, body)) == digest(OFF, (path, body)), body
        tried, right = drafted(h)
        assert tried > right > 0 and h.slots()["running"] == 0
        assert h.metrics()["hearth_kv_pages_used"] == 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as TMP, \
            Hearth(*PLAIN, *NUMERICS) as OFF:
        run_cases(globals())
