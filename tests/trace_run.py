#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Follows one chat request through server/, by hand: trace_run.py [ROOT] [--stops].

Builds the program of the checkout ROOT (default: this one) with a hook at the entry of each function of server/
(tests/trace/record.c) in ROOT/build-trace, serves the demo model, sends one streamed chat request with tools and a
schema after one to warm up, and prints how the second one went through the files. Functions that threads enter while
the server is idle are left out. What threads do at the same time is told one thread after the other, in the order in
which they first have to do with the request: else the moment at which one runs would count as a step of another.

  functions   different functions that it entered
  files       different files of these functions
  stops       changes from file to file, a function counted when it is entered for the first time
  returns     stops at a file that it had been in before
  upward      stops at a room of a higher level than the one before, by the levels of ARCHITECTURE.md. A file of a
              checkout without rooms in server/api counts in the room that holds its contents here: without that the
              steps between its parts would count for nothing
  calls       all entries, and changes from file to file among them: these grow with the tokens and with timing
  readings    how often each byte of the body was gone over by a JSON reader, and texts read that are not in the body

--stops prints the stops one by one, with the functions entered there.
"""
import collections
import itertools
import json
import mmap
import os
import re
import socket
import struct
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
WRAPPED = ("jr_finish", "json_loadb")
N_ENTRIES, HEAD, ADDRESS = 1 << 22, 24, (1 << 48) - 1
LEVELS = [("server/api/read", 4.4), ("server/api/run", 4.5), ("server/api/write", 4.6), ("server/api", 5), ("server/http", 4),
          ("server/models", 3.5),
          ("server/grammars", 3.2), ("server/hub", 2.5), ("server/config", 2), ("server/cli", 6), ("server/main.c", 6), ("server", 2.2)]
OLD_ROOMS = {"read": "chat_input generation_fields guide_fields json_fields json_memory messages_input prediction responses_input "
                     "tool_calls tools_fields", "run": "choice_text generation guide jobs", "write": "generation_output openai_json"}

CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
        "required": ["city"], "additionalProperties": False}
ANSWER = {"type": "object", "properties": {"title": {"type": "string", "maxLength": 12},
                                           "stars": {"type": "integer", "minimum": 1, "maximum": 5}},
          "required": ["title", "stars"], "additionalProperties": False}


def body():
    tools = [{"type": "function", "function": {"name": name, "description": f"Asks for the {name}.", "parameters": CITY}}
             for name in ("weather", "forecast")]
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    messages = [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": "Is it warm in Oslo?"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": "3 degrees"}, {"role": "user", "content": "And tomorrow?"}]
    schema = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": ANSWER}}
    return json.dumps({"model": "default", "messages": messages, "tools": tools, "tool_choice": "auto", "response_format": schema,
                       "max_tokens": 24, "seed": 1, "temperature": 0.7, "stream": True}).encode()


def build(root):
    folder = os.path.join(root, "build-trace")
    os.makedirs(folder, exist_ok=True)
    record, program = os.path.join(folder, "record.o"), os.path.join(folder, "hearth")
    subprocess.run(["gcc", "-O1", "-g0", "-I", root, "-c", os.path.join(HERE, "trace", "record.c"), "-o", record], check=True)
    if not os.path.exists(os.path.join(folder, "build.ninja")):
        link = ",".join([f"'{record}'"] + [f"'-Wl,--wrap={name}'" for name in WRAPPED])
        compile_args = "['-finstrument-functions','-finstrument-functions-exclude-file-list=base/,engine/,tokenizer/,/usr/']"
        subprocess.run(["meson", "setup", folder, root, "--buildtype=debug", "-Doptimization=0", "-Dhardening=false", "-Dtests=disabled",
                        f"-Dc_args={compile_args}", f"-Dc_link_args=[{link}]"], check=True, stdout=subprocess.DEVNULL)
    if os.path.exists(program):
        os.remove(program)  # Ninja does not know that it is linked with record.o
    # a compiler cache shared with other checkouts would give objects that name their paths
    subprocess.run(["ninja", "-C", folder, "hearth"], check=True, stdout=subprocess.DEVNULL, env=dict(os.environ, CCACHE_DISABLE="1"))
    return program


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ask(port, path, data=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def wait_ready(port, process):
    while True:
        assert process.poll() is None, "the server ended"
        try:
            return ask(port, "/health")
        except OSError:
            time.sleep(0.05)


class Record:
    def __init__(self, path):
        with open(path, "rb") as f:
            self.map = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)

    def counts(self):
        return struct.unpack("QQ", self.map[:16])

    def settled(self):
        """The counts when the end of the request is in: other threads close it after the client has the answer."""
        time.sleep(0.5)
        return self.counts()

    def anchor(self):
        return struct.unpack("Q", self.map[16:24])[0]

    def entries(self, start, end):
        return struct.unpack(f"{end - start}Q", self.map[HEAD + 8 * start:HEAD + 8 * end])

    def texts(self, start, end):
        at, base = start, HEAD + 8 * N_ENTRIES
        while at < end:
            n = struct.unpack("Q", self.map[base + at + 1:base + at + 9])[0]
            yield chr(self.map[base + at]), self.map[base + at + 9:base + at + 9 + n]
            at += 9 + n


def symbols(program, root):
    """{offset: (function, file)} of the program's functions."""
    out = subprocess.run(["nm", "-l", "--defined-only", program], capture_output=True, text=True, check=True).stdout
    found = {}
    for line in out.splitlines():
        m = re.match(r"([0-9a-f]+) [tT] (\S+)\t(.*):\d+$", line)
        if m:
            found[int(m.group(1), 16)] = (m.group(2), os.path.relpath(os.path.normpath(os.path.join(root, m.group(3))), root))
        elif " trace_anchor" in line:
            found[int(line.split()[0], 16)] = ("trace_anchor", "")
    return found


def level(path):
    """Of a file; of one of the former server/api, of the room where it went."""
    name = os.path.splitext(os.path.basename(path))[0]
    room = next((room for room, names in OLD_ROOMS.items() if name in names.split()), None)
    if room and os.path.dirname(path) == "server/api":
        path = f"server/api/{room}/{name}"
    return next(n for room, n in LEVELS if path == room or path.startswith(room + "/") or room == "server")


def stops_of(functions):
    stops = []
    for _, path in functions:
        if not stops or stops[-1] != path:
            stops.append(path)
    return stops


def report(entered, show):
    first = list(dict.fromkeys(entered))
    stops = stops_of(first)
    upward = [(a, b) for a, b in zip(stops, stops[1:]) if level(b) > level(a)]
    visits = collections.Counter(stops)
    print(f"functions {len(first)}\nfiles     {len(visits)}\nstops     {len(stops)}\nreturns   {len(stops) - len(visits)}"
          f"\nupward    {len(upward)}\ncalls     {len(entered)}, {len(stops_of(entered))} changes of file")
    print("visited most: " + ", ".join(f"{path} {n}" for path, n in visits.most_common(12)))
    if show:
        last = 0
        for path, group in itertools.groupby(first, lambda f: f[1]):
            print(f"  {'^' if level(path) > last else ' '} {path}: {' '.join(name for name, _ in group)}")
            last = level(path)


def report_readings(sent, texts):
    times, foreign = [0] * len(sent), []
    for kind, text in texts:
        at = sent.find(text) if len(text) > 1 else -1
        if at < 0:
            foreign.append((kind, len(text), text[:40]))
        for i in range(at, at + len(text) if at >= 0 else at):
            times[i] += 1
    print(f"readings  of {len(sent)} bytes: mean {sum(times) / len(sent):.2f}, most {max(times)}; "
          + ", ".join(f"{n}x {c}" for n, c in sorted(collections.Counter(times).items())))
    for kind, n, text in foreign:
        print(f"  not in the body: {kind} {n} bytes {text!r}")


def main():
    args = [a for a in sys.argv[1:] if not a.startswith("--")]
    root = os.path.abspath(args[0]) if args else os.path.dirname(HERE)
    program = build(root)
    path, port, sent = os.path.join(root, "build-trace", "trace.bin"), free_port(), body()
    server = subprocess.Popen([program, "serve", "--model", os.path.join(root, "deploy", "demo"), "--port", str(port)],
                              env=dict(os.environ, HEARTH_TRACE=path), stderr=subprocess.DEVNULL)
    try:
        wait_ready(port, server)
        ask(port, "/v1/chat/completions", sent.replace(b"tomorrow", b"tonight"))
        record = Record(path)
        idle = record.settled()
        before = record.settled()
        answer = ask(port, "/v1/chat/completions", sent)
        after = record.settled()
    finally:
        server.terminate()
        server.wait()
    assert after[0] < N_ENTRIES, "the record is full"
    names = symbols(program, root)
    base = record.anchor() - next(at for at, (name, _) in names.items() if name == "trace_anchor")
    ticks = {entry & ADDRESS for entry in record.entries(idle[0], before[0])}
    threads = collections.defaultdict(list)
    for entry in record.entries(before[0], after[0]):
        at = (entry & ADDRESS) - base
        if at in names and entry & ADDRESS not in ticks:
            threads[entry & ~ADDRESS].append(names[at])
    entered = list(itertools.chain(*threads.values()))
    print(answer.decode().splitlines()[-3][:200] if b"data:" in answer else answer[:200])
    report([f for f in entered if f[1].startswith("server/")], "--stops" in sys.argv)
    report_readings(sent, list(record.texts(before[1], after[1])))


if __name__ == "__main__":
    main()
