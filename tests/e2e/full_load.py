# SPDX-License-Identifier: MIT
"""Load that takes all the memory a server plans: every budget is filled, and all are held at the same time."""
import select

from hearth_server import leave, start_request


def planned_bytes(h):
    """The sum of the plan."""
    memory = h.get("/props")[2]["memory"]
    return sum(v for k, v in memory.items() if k != "limit_bytes")


class FullLoad:
    """Used as a context: afterwards everything is let go of."""

    def __init__(self, h):
        self.h, self.held = h, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for s in self.held:
            leave(s, reset=True)

    def run(self):
        self.fill_grammars()
        self.fill_kv()
        self.fill_answers()
        self.fill_bodies()
        self.fill_connections()
        self.one_long_piece()

    def fill_grammars(self):
        """Until compiling another one drops an old one."""
        held = -1
        for i in range(1000):
            choices = ["%d %d %s" % (i, k, "word " * 8) for k in range(1000)]
            status, _, answer = self.h.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "guided_choice": choices})
            assert status == 200, answer
            now = self.h.get("/props")[2]["structured_output"]["cached_bytes"]
            if now <= held:
                return
            held = now
        raise AssertionError("the cache of grammars does not fill")

    def fill_kv(self):
        props = self.h.get("/props")[2]
        ctx, slots = props["n_ctx"], props["total_slots"]
        prompts = [[5 + i] * (ctx - 300) for i in range(slots)]
        body = {"prompt": prompts, "max_tokens": 299, "ignore_eos": True}
        assert self.h.post("/v1/completions", body)[0] == 200

    def fill_answers(self):
        """Whole answers with log-probabilities, which nobody reads."""
        choices, log = 16, 20
        body = {"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "logprobs": log}
        while choices:
            s = start_request(self.h, "/v1/completions", dict(body, n=choices), receive_buffer=2048)
            s.settimeout(0.3)
            try:
                refused = s.recv(12) not in (b"", b"HTTP/1.1 200")
            except TimeoutError:
                refused = False
            if refused:
                s.close()
                choices -= 1
                continue
            self.held.append(s)
            self.h.wait_until(lambda: self.h.slots()["running"] == 0, 120, "the answer")

    def max_body(self):
        answer = self.h.raw(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n")
        assert b" 413 " in answer, answer
        return int(answer.split(b"at most ")[1].split()[0])

    def fill_bodies(self):
        self.body_bytes = self.max_body()
        for _ in range(14):  # of 16, as the requests above hold theirs too
            s = self.h.open_socket(60)
            s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                      b"Content-Length: %d\r\n\r\n" % self.body_bytes)
            s.sendall(b" " * (self.body_bytes - 1))
            self.held.append(s)

    def fill_connections(self):
        """Connections that have been used, until the first of them is closed to make room."""
        idle = []
        while not idle or not select.select(idle[:1], [], [], 0)[0]:
            idle.append(self.h.open_socket(20))
            idle[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            idle[-1].recv(4096)
        self.held += idle

    def one_long_piece(self):
        """The text that costs the most per byte: no place to split it, and an answer of many pieces."""
        text = "x " * ((self.body_bytes - 100) // 2)
        for body in ({"content": text.replace(" ", "x")}, {"content": text, "with_pieces": True}):
            status = self.h.post("/tokenize", body)[0]
            assert status in (200, 503), status
