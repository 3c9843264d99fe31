#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""docs/search as the page says, on the models that come with the program: recall, and the page's calls."""
import os
import re
import subprocess
import sys

from hearth_server import ROOT, Hearth, run_cases

SCRIPT = os.path.join(ROOT, "docs", "search", "search.py")
LEAST = {"bm25": 0.875, "vectors": 0.8, "reranked": 0.825}  # recall at 5
CARRIED = ("demo-embed", "demo-rerank")
MOST_BYTES = 3_000_000  # of both models together


def run(*args):
    return subprocess.run([sys.executable, SCRIPT, *args], capture_output=True, text=True, check=True, timeout=120).stdout


def test_recall():
    with Hearth("--model", "embed=demo-embed", "--model", "rerank=demo-rerank") as h:
        url = f"http://127.0.0.1:{h.port}"
        printed = run(url)
        print(printed)
        at_5 = {name: float(share) for name, share in re.findall(r"(\S+) .*at 5 ([\d.]+)", printed)}
        for name, least in LEAST.items():
            assert at_5[name] >= least, (name, at_5)
        found = run(url, "Which cached page is evicted first?")
        assert found.count("- A node holds one reference") == 1 and len(found.splitlines()) == 3, found


def test_neighbours():
    texts = ["Paris is the capital of France.", "A cow eats grass.", "The server refuses requests if its queue is full."]
    asked = ["Which city is the capital of France?", "What do cows eat?", "When is a request refused?"]
    with Hearth("--model", CARRIED[0]) as h:
        assert h.get("/v1/models")[2]["data"][0]["id"] == CARRIED[0]
        _, _, answer = h.post("/v1/embeddings", {"input": texts + asked})
        rows = [d["embedding"] for d in answer["data"]]
        for i in range(3):
            near = [sum(a * b for a, b in zip(rows[3 + i], row)) for row in rows[:3]]
            assert near.index(max(near)) == i, (asked[i], near)
        status, _, answer = h.post("/v1/completions", {"prompt": "a"})
        assert status == 400 and answer["error"]["code"] == "unsupported_model_task", answer
    with Hearth("--model", CARRIED[1]) as h:
        for i, query in enumerate(asked):
            _, _, answer = h.post("/v1/rerank", {"query": query, "documents": texts})
            assert answer["results"][0]["index"] == i, (query, answer)


def test_size():
    total = 0
    for name in CARRIED:
        for where, _, files in os.walk(os.path.join(ROOT, "deploy", name)):
            total += sum(os.path.getsize(os.path.join(where, f)) for f in files if not f.endswith((".py", ".md", ".pyc")))
    assert total <= MOST_BYTES, total


if __name__ == "__main__":
    run_cases(globals())
