#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Structured output next to llguidance and xgrammar: the same real schemas and texts, one after the other in one run.

    compare_grammar.py --model DIR [--every 16] [--peers llguidance,xgrammar]

Schemas and texts are those of $HEARTH_REFERENCE/goldens/schema/maskbench.jsonl.xz. DIR holds tokenizer.json. Needs
llguidance, xgrammar, torch, transformers and numpy (PyPI) for the peers named. Prints, per program: times of masks,
of taking a token and of compiling in thread CPU time, and the schemas whose texts all got the right verdict.
A schema that is refused counts as not right; times are of the schemas that each program compiled.
"""
import argparse
import json
import lzma
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "e2e"))
from accept_filter import Accept  # noqa: E402
from hearth_server import reference  # noqa: E402



def cpu():
    return time.thread_time_ns() / 1e3


class Result:
    """What a program did with all schemas; times in microseconds."""

    def __init__(self, name):
        self.name = name
        self.masks, self.takes, self.compiles, self.bytes = [], [], [], []
        self.right = self.refused = self.total = self.valid_refused = self.invalid_accepted = 0

    def verdicts(self, tests, accepted, relaxed=False):
        good = True
        for test, verdict in zip(tests, accepted):
            if verdict == test["valid"] or test.get("order") == "unsure":
                continue
            good = False
            self.valid_refused += test["valid"]
            self.invalid_accepted += not test["valid"] and not relaxed
        self.right += good

    def report(self):
        print(f"\n{self.name}: {self.total} schemas, {self.right} with every text right "
              f"({100 * self.right / self.total:.1f} %), {self.refused} refused, {self.valid_refused} valid texts refused, "
              f"{self.invalid_accepted} invalid ones accepted where nothing is named as relaxed")
        for label, values, unit in (("mask us", self.masks, 1), ("take us", self.takes, 1),
                                    ("compile ms", self.compiles, 1e3), ("grammar KiB", self.bytes, 1024)):
            if values:
                v = sorted(x / unit for x in values)
                print(f"  {label:12} n {len(v):8} avg {sum(v) / len(v):9.2f} p50 {v[len(v) // 2]:9.2f} "
                      f"p99 {v[len(v) * 99 // 100]:9.2f} max {v[-1]:9.2f}")


class Hearth:
    name = "hearth"

    def __init__(self, model):
        self.accept = Accept(model)

    def run(self, schema, tests, result):
        answer = self.accept.ask(schema=schema, texts=[t["text"] for t in tests], mask_ns=True)
        if "error" in answer:
            result.refused += 1
            return
        result.compiles.append(answer["compile_ms"] * 1e3)
        result.bytes.append(answer["bytes"])
        result.masks += [ns / 1e3 for ns in answer["mask_ns"]]
        result.verdicts(tests, answer["accepted"], bool(answer["relaxed"]))


class Peer:
    """A library: open(schema) compiles, and mask and take go on with it."""

    def __init__(self, model):
        from transformers import AutoTokenizer
        self.tokenizer = AutoTokenizer.from_pretrained(model)
        self.end = self.tokenizer.eos_token_id
        self.setup()

    def run(self, schema, tests, result):
        begin = cpu()
        matcher = self.open(schema)
        result.compiles.append(cpu() - begin)
        if matcher is None:
            result.refused += 1
            return
        accepted = []
        for test in tests:
            self.begin(matcher)
            ids = self.tokenizer.encode(test["text"], add_special_tokens=False)
            accepted.append(all(self.step(matcher, i, result) for i in ids + [self.end]))
        result.verdicts(tests, accepted)

    def step(self, matcher, token, result):
        begin = cpu()
        self.mask(matcher)
        masked = cpu()
        result.masks.append(masked - begin)
        if not self.words()[token // 32] >> (token % 32) & 1:
            return False
        begin = cpu()
        self.take(matcher, token)
        result.takes.append(cpu() - begin)
        return True


class Llguidance(Peer):
    name = "llguidance"

    def setup(self):
        import llguidance
        import llguidance.hf
        import llguidance.numpy
        self.lib = llguidance
        self.fill = llguidance.numpy.fill_next_token_bitmask
        self.trie = llguidance.hf.from_tokenizer(self.tokenizer)
        self.bits = llguidance.numpy.allocate_token_bitmask(1, self.trie.vocab_size)

    def open(self, schema):
        try:
            grammar = self.lib.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides={"lenient": False})
            matcher = self.lib.LLMatcher(self.trie, grammar)
        except ValueError:
            return None
        return None if matcher.is_error() else matcher

    def begin(self, matcher):
        matcher.reset()

    def mask(self, matcher):
        self.fill(matcher, self.bits)

    def words(self):
        return self.bits[0]

    def take(self, matcher, token):
        matcher.consume_token(token)


class Xgrammar(Peer):
    name = "xgrammar"

    def setup(self):
        import xgrammar
        self.lib = xgrammar
        info = xgrammar.TokenizerInfo.from_huggingface(self.tokenizer)
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.bits = xgrammar.allocate_token_bitmask(1, info.vocab_size)
        self.array = self.bits.numpy()[0]

    def open(self, schema):
        try:
            return self.lib.GrammarMatcher(self.compiler.compile_json_schema(json.dumps(schema), strict_mode=False))
        except Exception:  # of several kinds, none of them documented
            return None

    def begin(self, matcher):
        matcher.reset()

    def mask(self, matcher):
        matcher.fill_next_token_bitmask(self.bits)

    def words(self):
        return self.array

    def take(self, matcher, token):
        matcher.accept_token(token)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--every", type=int, default=16, help="every n-th schema")
    parser.add_argument("--peers", default="llguidance,xgrammar")
    args = parser.parse_args()
    with lzma.open(reference("goldens", "schema", "maskbench.jsonl.xz"), "rt", encoding="utf-8") as f:
        rows = [json.loads(line) for line in f][::args.every]
    peers = {"llguidance": Llguidance, "xgrammar": Xgrammar}
    programs = [Hearth(args.model)] + [peers[name](args.model) for name in args.peers.split(",") if name]
    results = [Result(program.name) for program in programs]
    for n, row in enumerate(rows):
        for program, result in zip(programs, results):
            result.total += 1
            program.run(row["schema"], row["tests"], result)
        if sys.stderr.isatty():
            print(f"\r{n + 1}/{len(rows)}", end="", file=sys.stderr)
    for result in results:
        result.report()


if __name__ == "__main__":
    main()
