#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A search over 200 paragraphs of these pages, and how often it finds what 40 questions ask for.

    hearth serve --model embed=demo-embed --model rerank=demo-rerank &
    docs/search/search.py http://127.0.0.1:8080 ["a question"]
"""
import collections
import json
import math
import os
import re
import sys
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
CANDIDATES = 20  # of the nearest paragraphs, which the reranker reads


def lines_of(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def embed(server, texts):
    return [d["embedding"] for d in post(server + "/v1/embeddings", {"model": "embed", "input": texts})["data"]]


def nearest(rows, row):
    """Places of the rows, nearest first. They have length 1, so the dot product is the cosine."""
    return sorted(range(len(rows)), key=lambda i: -sum(a * b for a, b in zip(rows[i], row)))


def rerank(server, question, texts, places):
    answer = post(server + "/v1/rerank", {"model": "rerank", "query": question, "documents": [texts[i] for i in places]})
    return [places[r["index"]] for r in answer["results"]]


class Bm25:
    """The usual ranking by words alone, with k1 1.2 and b 0.75."""

    def __init__(self, texts):
        self.bags = [collections.Counter(self.words(t)) for t in texts]
        self.mean = sum(b.total() for b in self.bags) / len(texts)
        counts = collections.Counter(w for b in self.bags for w in b)
        self.rarity = {w: math.log(1 + (len(texts) - n + 0.5) / (n + 0.5)) for w, n in counts.items()}

    @staticmethod
    def words(text):
        return re.findall(r"[a-z0-9]+", text.lower())

    def rank(self, question):
        def score(bag):
            length = 1.2 * (0.25 + 0.75 * bag.total() / self.mean)
            return sum(self.rarity[w] * bag[w] * 2.2 / (bag[w] + length) for w in self.words(question) if w in bag)
        return sorted(range(len(self.bags)), key=lambda i: -score(self.bags[i]))


def recalls(found, wanted):
    """Shares of the questions whose paragraph is the first, among the first 5, among the first 20."""
    return [sum(w in f[:k] for f, w in zip(found, wanted)) / len(wanted) for k in (1, 5, 20)]


def measure(server):
    """name of the ranking -> recall at 1, 5 and 20."""
    texts, questions = [p["text"] for p in lines_of("paragraphs.jsonl")], lines_of("questions.jsonl")
    wanted, asked = [q["paragraph"] for q in questions], [q["question"] for q in questions]
    rows, words = embed(server, texts), Bm25(texts)
    by_vector = [nearest(rows, row) for row in embed(server, asked)]
    by_words = [words.rank(q) for q in asked]
    again = [rerank(server, q, texts, found[:CANDIDATES]) for q, found in zip(asked, by_vector)]
    return {name: recalls(found, wanted) for name, found in (("bm25", by_words), ("vectors", by_vector), ("reranked", again))}


def main():
    server, question = sys.argv[1], sys.argv[2:]
    if not question:
        for name, shares in measure(server).items():
            print(f"{name:12} recall at 1 {shares[0]:.3f}, at 5 {shares[1]:.3f}, at 20 {shares[2]:.3f}")
        return
    texts = [p["text"] for p in lines_of("paragraphs.jsonl")]
    found = nearest(embed(server, texts), embed(server, question)[0])[:CANDIDATES]
    for i in rerank(server, question[0], texts, found)[:3]:
        print(f"- {texts[i]}")


if __name__ == "__main__":
    main()
