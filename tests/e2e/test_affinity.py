#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""nginx and HAProxy with the affinity files of deploy/, in front of two replicas: the turns of a conversation meet one
replica and its prefix cache, requests without a conversation are spread, and nobody loses a request when a replica
drains. The argument names the proxy; skipped where it is not installed."""
import os
import signal
import sys
import tempfile
import threading

from hearth_server import PATIENCE, ROOT, SKIPPED, Hearth
from proxies import Through, free_port, running
from test_proxy_files import NGINX_MAIN, program

N_CONVERSATIONS, N_TURNS = 24, 5
# proxy -> (file, what is replaced in it, command)
PROXIES = {
    "nginx": ("nginx/affinity.conf",
              {"listen 80;": "listen 127.0.0.1:{port};",
               "server hearth:8080 max_fails=1 fail_timeout=5s;":
                   "server 127.0.0.1:{0} max_fails=1 fail_timeout=5s; server 127.0.0.1:{1} max_fails=1 fail_timeout=5s;"},
              ["-c", "{main}", "-p", "{dir}"]),
    "haproxy": ("haproxy/affinity.cfg",
                {"bind :80": "bind 127.0.0.1:{port}",
                 "server-template hearth 8 hearth:8080 check inter 1s fall 1 rise 2 resolvers dns init-addr libc,none":
                     "server a 127.0.0.1:{0} check inter 1s fall 1 rise 2\n    server b 127.0.0.1:{1} check inter 1s fall 1 rise 2"},
                ["-db", "-f", "{file}"]),
}
# HAProxy sees by its checks that a replica drains; nginx by a refused connection
DRAIN_DELAY_MS = {"nginx": "300", "haproxy": "2500"}


def command(proxy, directory, port, backends):
    """Writes the shipped file for these ports; returns what runs it."""
    path, replaced, args = PROXIES[proxy]
    with open(os.path.join(ROOT, "deploy", path), encoding="utf-8") as f:
        text = f.read()
    for old, new in replaced.items():
        assert text.count(old) == 1, f"{path}: {old!r} is there {text.count(old)} times"
        for name, value in (("port", port), ("0", backends[0]), ("1", backends[1])):
            new = new.replace("{" + name + "}", str(value))
        text = text.replace(old, new)
    names = {"file": os.path.join(directory, "shipped"), "main": os.path.join(directory, "main"), "dir": directory}
    for name, what in (("file", text), ("main", NGINX_MAIN.format(dir=directory, file=names["file"]))):
        with open(names[name], "w", encoding="utf-8") as f:
            f.write(what)
    return [program(proxy)] + [a.format(**names) for a in args]


def turn(through, number, n_turns, named=True):
    """One turn of a conversation, all its earlier ones before it. The answer."""
    talk = [f"Conversation {number}. "] + [f"This is sentence {i} of a story about Tom and his dog number {number}. " * 3
                                           for i in range(n_turns)]
    body = {"prompt": "".join(talk), "max_tokens": 1, "temperature": 0}
    status, _, answer = through.post("/v1/completions", body, {"X-Session-ID": f"talk-{number}"} if named else None)
    assert status == 200, answer
    return answer


def cached_share(through, named=True):
    """New conversations, turn by turn: (share of prompt tokens that were cached, {conversation: replicas})."""
    prompt = cached = 0
    first = 0 if named else N_CONVERSATIONS
    seen = {i: set() for i in range(first, first + N_CONVERSATIONS)}
    for n in range(1, N_TURNS + 1):
        for i in seen:
            answer = turn(through, i, n, named)
            seen[i].add(answer["model"])
            prompt += answer["usage"]["prompt_tokens"]
            cached += answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return cached / prompt, seen


def replica(name, delay_ms="0"):
    # the number of cached tokens does not depend on the machine, but on room in the cache
    return Hearth("--alias", name, "--parallel", "8", "--drain-delay-ms", delay_ms, "--allowed-hosts", "*")


def check_affinity(proxy, through):
    with replica("single") as single:
        alone, _ = cached_share(single)
    together, seen = cached_share(through)
    assert all(len(replicas) == 1 for replicas in seen.values()), seen
    assert len(set.union(*seen.values())) == 2, f"all conversations on one replica: {seen}"
    unnamed, spread = cached_share(through, named=False)
    assert len(set.union(*spread.values())) == 2, f"requests without a conversation all go to one replica: {spread}"
    print(f"    {proxy}: {N_CONVERSATIONS} conversations of {N_TURNS} turns: {together:.3f} of the prompt tokens cached over two "
          f"replicas, {alone:.3f} on a single one; {unnamed:.3f} over two without X-Session-ID")
    assert alone > 0.5 and together >= 0.9 * alone, (alone, together)
    return {i: replicas.pop() for i, replicas in seen.items()}


def check_drain(proxy, through, homes, replicas):
    """One replica is stopped under load: no request fails, and only its conversations move."""
    failed, n, ended = [], [0], threading.Event()

    def client(i):
        while not ended.is_set():
            try:
                turn(through, i, N_TURNS)
                n[0] += 1
            except (AssertionError, OSError) as e:
                failed.append(repr(e))
                return
    clients = [threading.Thread(target=client, args=(i,)) for i in homes]
    for t in clients:
        t.start()
    leaving = replicas["a"].process
    through.wait_until(lambda: n[0] > 100, 30, "there is load")
    leaving.send_signal(signal.SIGTERM)
    status = leaving.wait(PATIENCE)
    then = n[0]
    through.wait_until(lambda: n[0] > then + 100 or failed, 30, "the other replica answers")
    ended.set()
    for t in clients:
        t.join()
    print(f"    {proxy}: {n[0]} requests while a replica drained, {len(failed)} failed")
    assert status == 0 and not failed, (status, failed[:3])
    for i, home in homes.items():
        now = turn(through, i, N_TURNS)["model"]
        assert now == "b", f"conversation {i}: from {home} to {now}"


def main():
    proxy = sys.argv[1]
    if not program(proxy):
        print(f"no {proxy}: apt install {'nginx-light' if proxy == 'nginx' else proxy}")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as d, replica("a", DRAIN_DELAY_MS[proxy]) as a, replica("b") as b:
        port = free_port()
        run = command(proxy, d, port, [a.port, b.port])
        with running(run, port, dict(os.environ, HOME=d)):
            through = Through(port)
            through.wait_until(lambda: through.get("/readyz")[0] == 200, 20, "ready through the proxy")
            homes = check_affinity(proxy, through)
            check_drain(proxy, through, homes, {"a": a, "b": b})
    print(f"{proxy}: ok")


if __name__ == "__main__":
    main()
