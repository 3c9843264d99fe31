# SPDX-License-Identifier: MIT
"""Compares `hearth-filter score` with recorded answers of the reference. Standard library only.

A model's golden.json holds `cases`: ids, which rows of logits were kept, argmax_ids, prompt_logprobs,
greedy_ids and greedy_margins. Logits are raw little-endian float32.
"""
import array
import json
import math
import os
import subprocess
import sys
import tempfile

FILTER = os.path.join(os.environ.get("HEARTH_BUILD_ROOT", "build"), "tests", "hearth-filter")


def read_floats(path, skip=0, count=None):
    values = array.array("f")
    with open(path, "rb") as f:
        f.seek(4 * skip)
        values.frombytes(f.read() if count is None else f.read(4 * count))
    if sys.byteorder == "big":
        values.byteswap()
    return values


def score(directory, requests, options=()):
    """One answer for each request (a dict), by `hearth-filter score`."""
    p = subprocess.run([FILTER, "score", "--model", directory, *options], text=True,
                       input="".join(json.dumps(r) + "\n" for r in requests),
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600, check=False)
    if p.returncode != 0:
        raise AssertionError(f"hearth-filter score {directory}: status {p.returncode}: {p.stderr.strip()}")
    answers = [json.loads(line) for line in p.stdout.split("\n") if line]
    assert len(answers) == len(requests), f"{len(answers)} answers to {len(requests)} requests"
    return answers


def largest_difference(got, vocab, want, rows):
    worst = 0.0
    for i, row in enumerate(rows):
        a = got[row * vocab:(row + 1) * vocab]
        b = want[i * vocab:(i + 1) * vocab]
        worst = max(worst, max(abs(x - y) for x, y in zip(a, b)))
    return worst


def greedy_agrees(case, answer, tolerance):
    """The same tokens up to the first step whose margin the tolerance could have turned round."""
    for step, (want, margin) in enumerate(zip(case["greedy_ids"], case["greedy_margins"])):
        if margin < 2 * tolerance:
            return None
        if answer["greedy_ids"][step] != want:
            return f"greedy token {step} is {answer['greedy_ids'][step]}, should be {want}"
    return None


def clear_argmax(logits, vocab, row, tolerance):
    """Whether the best logit of a row leads by more than twice the tolerance."""
    best = sorted(logits[row * vocab:(row + 1) * vocab])[-2:]
    return best[1] - best[0] > 2 * tolerance


def check_case(case, answer, got, want, vocab, tolerance):
    """(largest difference, problems) of one case."""
    worst = largest_difference(got, vocab, want, case["logits_rows"])
    problems = []
    if not worst <= tolerance:
        problems.append(f"logits differ by {worst:.2g}")
    for row, (a, b) in enumerate(zip(answer["argmax"], case["argmax_ids"])):
        if a != b and clear_argmax(got, vocab, row, tolerance):
            problems.append(f"the best token after position {row} is {a}, should be {b}")
            break
    logprob = max((abs(a - b) for a, b in zip(answer["logprobs"], case["prompt_logprobs"])), default=0)
    if len(answer["logprobs"]) != len(case["ids"]) - 1 or not logprob <= 2 * tolerance:
        problems.append(f"log-probabilities differ by {logprob:.2g}")
    problems.append(greedy_agrees(case, answer, tolerance))
    return worst, [p for p in problems if p]


def by_context(config, cases):
    """[(options, cases)]: longrope has other angles if a longer context than the original is served."""
    if "longrope" not in json.dumps(config):
        return [([], cases)]
    original = config["original_max_position_embeddings"]
    short = [c for c in cases if len(c["ids"]) + len(c["greedy_ids"]) <= original]
    return [(["--ctx-size", str(original)], short), ([], [c for c in cases if len(c["ids"]) > original])]


def check_model(directory, golden, logits_of, tolerance_of, options=(), **more_fields):
    """Runs all cases of a model; logits_of(case) gives the recorded rows. (worst, problems)"""
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    if rounds_far(config) and "exact" not in options:
        return check_divergence(directory, config.get("text_config", config)["vocab_size"], golden, logits_of, options)
    worst, problems = 0.0, []
    for more, cases in by_context(config, golden["cases"]):
        if cases:
            off, wrong = check_cases(directory, config.get("text_config", config)["vocab_size"], cases,
                                     logits_of, tolerance_of, [*options, *more], **more_fields)
            worst, problems = max(worst, off), problems + wrong
    return worst, problems


def check_cases(directory, vocab, cases, logits_of, tolerance_of, options, **more_fields):
    worst, problems = 0.0, []
    with tempfile.TemporaryDirectory() as tmp:
        files = [os.path.join(tmp, str(i)) for i in range(len(cases))]
        answers = score(directory, [{"ids": c["ids"], "logits": f, "greedy": len(c["greedy_ids"]), **more_fields}
                                    for c, f in zip(cases, files)], options)
        for case, answer, file in zip(cases, answers, files):
            if "error" in answer:
                problems.append(f"{case['name']}: {answer['error']}")
                continue
            got = read_floats(file)
            assert len(got) == vocab * len(case["ids"]), f"{len(got)} logits"
            off, wrong = check_case(case, answer, got, logits_of(case), vocab, tolerance_of(case))
            worst = max(worst, off)
            problems += [f"{case['name']}: {w}" for w in wrong]
    return worst, problems


def rounds_far(config):
    """A rounding may choose another expert, and that moves a logit by any amount: of fewer bits than exact's
    such a model is held to the divergence of its next tokens, never row by row. So is Gemma 4, whose random
    models have logits of three times the size."""
    return any(config.get(k) for k in ("num_experts", "num_local_experts", "moe_num_experts")) or \
        config["model_type"].startswith("gemma4")


DIVERGENCES = {"bf16": 0.02, "int8": 0.1, "int4": 1.0}  # KL, the mean over rows of a random model


def divergence(got, want):
    """KL of the distribution that logits mean, from the one that others mean."""
    tops = max(want), max(got)
    sums = [math.log(sum(math.exp(x - top) for x in row)) for row, top in zip((want, got), tops)]
    logs = [(a - tops[0] - sums[0], b - tops[1] - sums[1]) for a, b in zip(want, got)]
    return sum(math.exp(p) * (p - q) for p, q in logs)


def check_divergence(directory, vocab, golden, logits_of, options):
    """(mean KL of all recorded rows, problems)"""
    all_rows, limit = [], DIVERGENCES[options[options.index("--numerics") + 1]]
    with tempfile.TemporaryDirectory() as tmp:
        files = [os.path.join(tmp, str(i)) for i in range(len(golden["cases"]))]
        score(directory, [{"ids": c["ids"], "logits": f} for c, f in zip(golden["cases"], files)], options)
        for case, file in zip(golden["cases"], files):
            got, want = read_floats(file), logits_of(case)
            all_rows += [divergence(got[row * vocab:(row + 1) * vocab], want[i * vocab:(i + 1) * vocab])
                         for i, row in enumerate(case["logits_rows"])]
    mean = sum(all_rows) / len(all_rows)
    return mean, [] if mean <= limit else [f"mean divergence {mean:.2g}, more than {limit}"]


def path_options(arguments):
    """(options for hearth-filter score, tolerance or None) from `PATH TOLERANCE OPTION ...` or `OPTION ...`."""
    if arguments and not arguments[0].startswith("-"):
        return ["--numerics", arguments[0], *arguments[2:]], float(arguments[1])
    return ["--numerics", "exact", *arguments], None


class Tally:
    """Prints a line a model and keeps the count."""

    def __init__(self):
        self.failed, self.n, self.worst = 0, 0, 0.0

    def add(self, name, worst, problems):
        self.n += 1
        self.failed += bool(problems)
        self.worst = max(self.worst, worst)
        print(f"{name}: {'FAILED' if problems else 'ok'}, largest logit difference {worst:.2g}")
        for p in problems:
            print("   ", p)

    def end(self):
        print(f"{self.n} models, {self.failed} failed, largest logit difference {self.worst:.2g}")
        return 1 if self.failed or not self.n else 0
