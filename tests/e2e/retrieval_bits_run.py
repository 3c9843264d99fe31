#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run by hand: the numbers of a text or a choice do not depend on the requests around it.

    tests/e2e/retrieval_bits_run.py [--model DIR] [CASE...]      # default: the demo model

A thousand random lists of choices against scoring by echo, and 2,048 texts alone, in batches, in any order, from the cache
and beside chats. Numbers have nine digits, which tell any two float32 apart; sums are compared in these digits.
"""
import concurrent.futures
import random
import struct
import sys
import threading

from hearth_server import Hearth, run_cases

SERVER = None
N_CASES, N_TEXTS = 1000, 2048
WORDS = ["cat", "moon", "Über", "sat", "😀", "1871", "a", "of the", "\n", "x" * 9]


def texts(draw):
    return [" ".join(draw.choice(WORDS) for _ in range(draw.choice((1, 3, 9, 40, 120)))) + str(i) for i in range(N_TEXTS)]


def embed(some):
    status, _, body = SERVER.post("/v1/embeddings", {"input": some})
    assert status == 200, body
    return [struct.pack(f"<{len(d['embedding'])}f", *d["embedding"]) for d in body["data"]]


def echo(ids):
    status, _, body = SERVER.post("/v1/completions", {"prompt": ids, "echo": True, "max_tokens": 0, "logprobs": 0})
    assert status == 200, body
    return body["choices"][0]["logprobs"]["token_logprobs"]


def test_choices_equal_scoring_by_echo():
    draw = random.Random(11)
    n_choices = worst = 0
    for case in range(N_CASES):
        prompt = [draw.randrange(20, 1000) for _ in range(draw.randrange(1, 120))]
        lists = [[draw.randrange(20, 1000) for _ in range(draw.choice((1, 1, 2, 3, 9)))] for _ in range(draw.randrange(2, 7))]
        lists = [list(c) for c in dict.fromkeys(map(tuple, lists))]
        if len(lists) < 2:
            continue
        status, _, body = SERVER.post("/v1/choose", {"prompt": prompt, "choices": lists})
        assert status == 200, body
        assert abs(sum(c["probability"] for c in body["choices"]) - 1) < 1e-6
        for choice, got in zip(lists, body["choices"]):
            want = 0.0
            for x in echo(prompt + choice)[len(prompt):]:
                want += struct.unpack("<f", struct.pack("<f", x))[0]
            worst = max(worst, abs(got["logprob"] - want))
            assert f"{want:.9g}" == f"{got['logprob']:.9g}", (case, choice, want, got)
            n_choices += 1
    print(f"  {n_choices} choices of {N_CASES} lists, difference in nine digits: 0 (of the printed sums at most {worst:.1e})")


def test_texts_alone_and_together():
    draw = random.Random(12)
    all_texts = texts(draw)
    alone = [embed([t])[0] for t in all_texts]
    for size in (7, 256, 2048):
        together = [v for i in range(0, N_TEXTS, size) for v in embed(all_texts[i:i + size])]
        assert together == alone, size
    order = list(range(N_TEXTS))
    draw.shuffle(order)
    shuffled = embed([all_texts[i] for i in order])
    assert [shuffled[order.index(i)] for i in range(0, N_TEXTS, 31)] == alone[::31]
    assert embed(all_texts) == alone, "again"
    stop = threading.Event()

    def chat(seed):
        n = 0
        while not stop.is_set():
            body = {"messages": [{"role": "user", "content": f"Tell me {seed} {n}"}], "max_tokens": 40, "seed": seed}
            assert SERVER.post("/v1/chat/completions", body)[0] == 200
            n += 1
        return n

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        chats = [pool.submit(chat, i) for i in range(4)]
        parts = [pool.submit(embed, all_texts[i:i + 256]) for i in range(0, N_TEXTS, 256)]
        under_load = [v for p in parts for v in p.result()]
        stop.set()
        n = sum(c.result() for c in chats)
    assert under_load == alone, "beside chats"
    print(f"  {N_TEXTS} texts: the same bits alone, by 7, 256 and 2,048, shuffled, again, and beside {n} chats")


def main():
    global SERVER
    options = []
    if "--model" in sys.argv:
        at = sys.argv.index("--model")
        options = sys.argv[at:at + 2]
        del sys.argv[at:at + 2]
    with Hearth("--parallel", "8", "--max-queue", "64", *options) as SERVER:
        run_cases(globals())


if __name__ == "__main__":
    main()
