#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What tools cost over HTTP, by hand; wall-clock figures need a machine with nothing else to do.

    tools.py [--model DIR] [--clients 1,4,16] [--rounds 5] [--gen 128] [--tools 32] [-- OPTIONS OF hearth serve]

Tokens per second, and CPU time of the server per token, of the same prompt four ways in alternating rounds: as a text
without tools, with tool_choice "auto", with "required", and with that but no drafts. Every answer has --gen tokens. Then
CPU time to compile the calls of 32 and 128 tools of 2 KB, by `hearth-filter parse`. DIR: as structured.py. The default computes a prompt of about 6,000
tokens first and takes minutes on a small machine; `--model deploy/demo --parts speed --tools 3` takes seconds, and more
tools do not fit that model's context. Standard library only.
"""
import argparse
import concurrent.futures
import json
import resource
import statistics
import subprocess
import sys
import time

import structured
from compare_llama import listed
from hearth_server import FILTER, Hearth, reference

ENDLESS = {"type": "object", "properties": {"items": structured.SHORT}, "required": ["items"]}


def sized_tools(n, size, seed):
    """n tools whose schemas have about so many bytes."""
    r, tools = structured.random.Random(seed), []
    for i in range(n):
        own = {}
        while len(json.dumps(own)) < size:
            own[f"parameter_{len(own)}"] = structured.parameter(r)
        schema = {"type": "object", "properties": own, "required": list(own)[:2], "additionalProperties": False}
        tools.append({"type": "function", "function": {"name": f"tool_{seed}_{i}", "parameters": schema}})
    return tools


# ---- tokens per second ---------------------------------------------------------------------------

def bodies(h, a):
    """(path, body) of each way; the prompts have the same tokens."""
    tools = sized_tools(a.tools - 1, 300, 1) + [{"type": "function", "function": {"name": "endless", "parameters": ENDLESS}}]
    chat = {"messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    prompt = h.post("/apply-template", chat)[2]["prompt"]
    same = {"max_tokens": a.gen, "temperature": 1, "ignore_eos": True}
    required = {**chat, **same, "tool_choice": {"type": "function", "function": {"name": "endless"}}}
    return {"none": ("/v1/completions", {"prompt": prompt, "add_special": False, **same}),
            "auto": ("/v1/chat/completions", {**chat, **same}),
            "required": ("/v1/chat/completions", required),
            "no drafts": ("/v1/chat/completions", {**required, "speculate": False})}


def ask(h, path, body):
    status, _, answer = h.post(path, body, timeout=600)
    if status != 200:
        sys.exit(f"{path}: {status}: {answer}")
    return answer


def measure(h, path, body, clients):
    """(tokens per second, CPU ms of the server per token, prompt tokens)"""
    cpu, start = structured.cpu_seconds(h), time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda seed: ask(h, path, {**body, "seed": seed}), range(clients)))
    seconds, cpu = time.perf_counter() - start, structured.cpu_seconds(h) - cpu
    tokens = sum(a["usage"]["completion_tokens"] for a in answers)
    return tokens / seconds, 1e3 * cpu / tokens, answers[0]["usage"]["prompt_tokens"]


def speed(h, a):
    ways = bodies(h, a)
    for path, body in ways.values():  # the prompt is cached and the calls are compiled
        measure(h, path, {**body, "max_tokens": 1}, 1)
    for clients in a.clients:
        rows = [{way: measure(h, *ways[way], clients) for way in ways} for _ in range(a.rounds)]
        for way, other in (("auto", "none"), ("required", "none"), ("required", "no drafts")):
            wall = [row[way][0] / row[other][0] for row in rows]
            cpu = [row[other][1] / row[way][1] for row in rows]
            print(f"clients {clients}, {way} / {other}: tokens/s {statistics.median(wall):.3f} ({min(wall):.3f} to {max(wall):.3f}), "
                  f"by CPU time {statistics.median(cpu):.3f} ({min(cpu):.3f} to {max(cpu):.3f}); "
                  f"prompts of {rows[0][way][2]} and {rows[0][other][2]} tokens", flush=True)


# ---- compiling -----------------------------------------------------------------------------------

def parse_seconds(lines):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([FILTER, "parse"], input="\n".join(map(json.dumps, lines)) + "\n", text=True, check=True,
                   stdout=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def compiling(a):
    for name in ("hermes", "qwen-xml", "llama3", "mistral"):
        for n in (32, 128):
            lines = [{"text": "a", "format": name, "tools": sized_tools(n, 2000, seed)} for seed in range(a.rounds * 4)]
            plain = parse_seconds(lines)
            guided = parse_seconds([dict(line, guided=True) for line in lines])
            print(f"compile {name}, {n} tools of 2 KB: {1e3 * (guided - plain) / len(lines):.1f} ms", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model")
    p.add_argument("--parts", default="compile,speed")
    p.add_argument("--clients", type=listed(int), default=[1, 4, 16])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--gen", type=int, default=128)
    p.add_argument("--tools", type=int, default=32)
    p.add_argument("options", nargs="*", help="options of hearth serve")
    a = p.parse_args()
    if "compile" in a.parts:
        compiling(a)
    template = reference("goldens", "tools", "templates", "qwen2.5.jinja")
    if "speed" in a.parts:
        with Hearth("--model", structured.model_of(a), "--parallel", "16", "--chat-template-file", template, *a.options) as h:
            speed(h, a)


if __name__ == "__main__":
    main()
