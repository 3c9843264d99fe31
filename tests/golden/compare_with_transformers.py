#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Does Hearth say of a model directory what transformers says? Logits, tokens and prompts of both, and a verdict.

    compare_with_transformers.py DIR [--hearth build/hearth] [--numerics exact] [--tolerance 2e-3]
                                 [--tokens 200] [--greedy 32] [--text FILE] [--skip logits,tokens,prompts]

Needs `pip install transformers torch jinja2` (transformers 4.57 or newer). The reference loads the
same directory in float32 with its plain attention, so it takes 4 bytes a parameter of memory.

Exit status: 0 the same, 1 different, 2 the comparison could not be made.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

TEXTS = [
    "", " ", "Hello", "Hello, world!", "The quick brown fox jumps over the lazy dog.",
    "  two spaces, a\ttab\nand\r\nnew lines\n\n\n", "It's we'll I'D they'Ve",
    "1 12 123 1234 3.14 1,000,000 2024-02-29", "naïve café ﬁancée Å Å ½ ² Ⅷ ٣",
    "Größe straße ΑΒΓ абв גדה", "日本語のテキスト、中文文本。한국어 텍스트",
    "🙂👍🏽👩‍👩‍👧🇩🇪 e\u0301 \u200d\u00ad\ufeff", "def f(x):\n    return x**2  # comment\n",
    "<s></s><unk><|endoftext|><|im_start|>user\nhi<|im_end|>", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "https://example.org/path?q=1&r=%20#frag", "\u0000\u0001\x7f", "\u2028\u2029\u0085",
]

USER = {"role": "user", "content": "What is 2+2?"}
CHATS = [
    [USER],
    [{"role": "system", "content": "Be brief."}, USER],
    [USER, {"role": "assistant", "content": "4"}, {"role": "user", "content": "And 3+3?"}],
    [{"role": "user", "content": "  spaces \n and <|im_end|> marks \n"}],
]
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The weather of a place",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}},
                   "required": ["place"]}}}]


class Cannot(Exception):
    """The comparison could not be made."""


def hearth(args, command, requests, options=()):
    """One answer for each request, by a filter of the hearth binary."""
    p = subprocess.run([args.filter, command, "--model", args.dir, *options], text=True,
                       input="".join(json.dumps(r) + "\n" for r in requests),
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if p.returncode != 0:
        raise Cannot(f"hearth {command}: {p.stderr.strip()}")
    answers = [json.loads(line) for line in p.stdout.split("\n") if line]
    if len(answers) != len(requests):
        raise Cannot(f"hearth {command} gave {len(answers)} answers to {len(requests)} requests")
    return answers


# ---- logits -------------------------------------------------------------------------------------------

def load_reference(args):
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_grad_enabled(False)
    model = AutoModelForCausalLM.from_pretrained(args.dir, dtype=torch.float32,
                                                 attn_implementation="eager")
    return model.eval()


def make_prompts(args, vocab):
    """Random ids of several lengths from a fixed seed, and the text that was given."""
    import random
    rng = random.Random(20)
    lengths = sorted({1, 2, 33, min(64, args.tokens), args.tokens})
    prompts = [[rng.randrange(vocab) for _ in range(n)] for n in lengths]
    if args.text:
        with open(args.text, encoding="utf-8") as f:
            ids = hearth(args, "tokenize", [{"text": f.read(), "add_special": True}])[0]["ids"]
        prompts.append(ids[:args.tokens])
    return prompts


def reference_greedy(model, ids, n):
    """n greedy tokens, past any end of sequence, and the margin of each."""
    import torch
    out, margins, past = list(ids), [], None
    step = torch.tensor([ids])
    for _ in range(n):
        answer = model(step, past_key_values=past, use_cache=True)
        past, row = answer.past_key_values, answer.logits[0, -1].float()
        best = row.topk(2)
        margins.append(float(best.values[0] - best.values[1]))
        out.append(int(row.argmax()))
        step = torch.tensor([out[-1:]])
    return out[len(ids):], margins


def compare_greedy(args, model, ids, answer):
    want, margins = reference_greedy(model, ids, args.greedy)
    for step, (token, margin) in enumerate(zip(want, margins)):
        if margin < 2 * args.tolerance:
            return f"the same {step} tokens, then a tie within the tolerance", True
        if step >= len(answer["greedy_ids"]) or answer["greedy_ids"][step] != token:
            return f"differs at token {step}", False
    return f"the same {len(want)} tokens", True


def compare_logits(args):
    import numpy as np
    import torch
    model = load_reference(args)
    vocab, same, worst = model.config.vocab_size, True, 0.0
    prompts = make_prompts(args, vocab)
    with tempfile.TemporaryDirectory() as tmp:
        files = [os.path.join(tmp, str(i)) for i in range(len(prompts))]
        answers = hearth(args, "score", [{"ids": ids, "logits": f, "greedy": args.greedy}
                                         for ids, f in zip(prompts, files)],
                         ["--numerics", args.numerics])
        for ids, file, answer in zip(prompts, files, answers):
            if "error" in answer:
                raise Cannot(f"hearth-filter score: {answer['error']}")
            got = np.fromfile(file, "<f4").reshape(len(ids), vocab)
            want = model(torch.tensor([ids])).logits[0].float().numpy()
            off = float(np.abs(got - want).max())
            agree = float((got.argmax(1) == want.argmax(1)).mean())
            greedy, ok = compare_greedy(args, model, ids, answer)
            print(f"  {len(ids):6} tokens: largest difference {off:.2g} of logits up to "
                  f"{float(np.abs(want).max()):.3g}, best token the same at {agree:.1%}; greedy: {greedy}")
            worst, same = max(worst, off), same and ok and off <= args.tolerance
    print(f"  largest difference {worst:.2g}, allowed {args.tolerance:.2g}")
    return same


# ---- tokens and prompts -------------------------------------------------------------------------------

def load_tokenizer(args):
    from transformers import AutoTokenizer
    return AutoTokenizer.from_pretrained(args.dir)


def compare_tokens(args):
    tokenizer = load_tokenizer(args)
    texts, differ = list(TEXTS), 0
    if args.text:
        with open(args.text, encoding="utf-8") as f:
            texts.append(f.read())
    answers = hearth(args, "tokenize", [{"text": t, "add_special": a} for t in texts
                                        for a in (False, True)])
    want = [tokenizer.encode(t, add_special_tokens=a) for t in texts for a in (False, True)]
    decoded = hearth(args, "tokenize", [{"ids": ids, "skip_special": False} for ids in want])
    for i, (ids, answer, back) in enumerate(zip(want, answers, decoded)):
        text = texts[i // 2]
        if answer.get("ids") != ids:
            differ += 1
            print(f"  {text[:40]!r}: {str(answer)[:120]}, the reference has {str(ids)[:80]}")
        plain = tokenizer.backend_tokenizer.decode(ids, skip_special_tokens=False)
        if back.get("text") != plain:
            differ += 1
            print(f"  decoded: {str(back)[:120]}, the reference has {plain[:80]!r}")
    print(f"  {len(want)} texts, {differ} differences")
    return differ == 0


def render_reference(tokenizer, request):
    try:
        return tokenizer.apply_chat_template(
            request["messages"], tools=request.get("tools"), tokenize=False,
            add_generation_prompt=request["add_generation_prompt"])
    except Exception as e:  # the template's own refusals come as many types
        return e


def compare_prompts(args):
    tokenizer = load_tokenizer(args)
    if not tokenizer.chat_template:
        print("  no chat template")
        return True
    requests = [{"messages": m, "add_generation_prompt": g, **tools}
                for m in CHATS for g in (False, True) for tools in ({}, {"tools": TOOLS})]
    differ = 0
    for request, answer in zip(requests, hearth(args, "render", requests)):
        want = render_reference(tokenizer, request)
        same = "error" in answer if isinstance(want, Exception) else answer.get("text") == want
        if not same:
            differ += 1
            print(f"  {json.dumps(request)[:100]}\n    hearth:    {str(answer)[:200]}\n"
                  f"    reference: {want!r:.200}")
    print(f"  {len(requests)} chats, {differ} differences")
    return differ == 0


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("dir")
    p.add_argument("--filter", default=os.path.join(os.environ.get("HEARTH_BUILD_ROOT", "build"), "tests", "hearth-filter"))
    p.add_argument("--numerics", default="exact")
    p.add_argument("--tolerance", type=float, default=2e-3)
    p.add_argument("--tokens", type=int, default=200)
    p.add_argument("--greedy", type=int, default=32)
    p.add_argument("--text", help="a file to score and to tokenise as well")
    p.add_argument("--skip", default="", help="comma-separated: logits, tokens, prompts")
    args = p.parse_args()
    verdicts = {}
    for name, compare in (("logits", compare_logits), ("tokens", compare_tokens),
                          ("prompts", compare_prompts)):
        if name in args.skip.split(","):
            continue
        print(f"{name}:")
        try:
            verdicts[name] = "the same" if compare(args) else "DIFFERENT"
        except (Cannot, ImportError, OSError, ValueError) as e:
            print(f"  {type(e).__name__}: {e}")
            verdicts[name] = "NOT COMPARED"
    print("verdict:", ", ".join(f"{k} {v}" for k, v in verdicts.items()))
    if "NOT COMPARED" in verdicts.values():
        return 2
    return 1 if "DIFFERENT" in verdicts.values() else 0


if __name__ == "__main__":
    sys.exit(main())
