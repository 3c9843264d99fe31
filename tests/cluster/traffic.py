# SPDX-License-Identifier: MIT
"""Clients of a Hearth service: single requests, a load that counts what is lost, conversations."""
import http.client
import json
import random
import threading

KEY = "trial-key"
WORDS = ("a little house stands by the river and the old dog sleeps under the big tree while the children play "
         "with a red ball and the sun is warm").split()


class Lost(Exception):
    """A request without a complete answer; the text says how it ended."""


def complete(address, body, timeout=120):
    """POSTs a chat completion to (host, port). Returns its usage; raises Lost."""
    connection = http.client.HTTPConnection(*address, timeout=timeout)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"Content-Type": "application/json", "Authorization": "Bearer " + KEY})
        answer = connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise Lost(f"status {answer.status}: {data[:200]!r}")
        if not body.get("stream"):
            answer = json.loads(data)
            return answer["usage"], answer["choices"][0]["message"]["content"]
        if not data.endswith(b"data: [DONE]\n\n"):
            raise Lost(f"the stream ends with {data[-80:]!r}")
        return None, None
    except (OSError, http.client.HTTPException, ValueError) as e:
        raise Lost(f"{type(e).__name__}: {e}") from e
    finally:
        connection.close()


def sentence(rng, n_words=24):
    return " ".join(rng.choice(WORDS) for _ in range(n_words))


class Load:
    """Clients that ask one request after the other, every second one streamed, until the block ends.

        with Load((host, port), n_clients=6) as load: ...
        load.n_answered, load.lost
    """

    def __init__(self, address, n_clients=6, max_tokens=48):
        self.address, self.max_tokens = address, max_tokens
        self.n_answered, self.lost = 0, []
        self.lock, self.stopping = threading.Lock(), threading.Event()
        self.threads = [threading.Thread(target=self._client, args=(i,)) for i in range(n_clients)]

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *exception):
        self.stopping.set()
        for t in self.threads:
            t.join()

    def _client(self, number):
        rng = random.Random(number)
        n = 0
        while not self.stopping.is_set():
            n += 1
            try:
                complete(self.address, {"messages": [{"role": "user", "content": sentence(rng)}], "stream": n % 2 == 0,
                                        "max_tokens": self.max_tokens, "ignore_eos": True})
                with self.lock:
                    self.n_answered += 1
            except Lost as e:
                with self.lock:
                    self.lost.append(str(e))


class Stream(threading.Thread):
    """One long streamed answer. begun is set with its first event; complete says how it ended."""

    def __init__(self, address, max_tokens):
        super().__init__()
        self.address, self.max_tokens = address, max_tokens
        self.begun, self.complete, self.error = threading.Event(), False, None
        self.start()

    def run(self):
        try:
            self._read()
        except (OSError, http.client.HTTPException) as e:
            self.error = f"{type(e).__name__}: {e}"
        finally:
            self.begun.set()

    def _read(self):
        connection = http.client.HTTPConnection(*self.address, timeout=120)
        connection.request("POST", "/v1/chat/completions", json.dumps(
            {"messages": [{"role": "user", "content": "Tell me a story."}], "stream": True,
             "max_tokens": self.max_tokens, "ignore_eos": True}),
            {"Content-Type": "application/json", "Authorization": "Bearer " + KEY})
        answer = connection.getresponse()
        if answer.status != 200:
            self.error = f"status {answer.status}: {answer.read()[:200]!r}"
            return
        for line in answer:
            self.begun.set()
            self.complete = self.complete or line == b"data: [DONE]\n"


class Conversations:
    """Conversations side by side, each turn with all turns before it; two of them share no prefix.

    number: makes the texts of this set differ from those of another one, by digits alone. Each digit is one token, so
    sets are of one length.
    """

    def __init__(self, address, number, n_conversations=20, n_turns=5, n_clients=4):
        self.address, self.number, self.n_turns = address, number, n_turns
        self.prompt_tokens = self.cached_tokens = self.n_answered = 0
        self.lost, self.lock = [], threading.Lock()
        self.waiting = list(range(n_conversations))
        self.threads = [threading.Thread(target=self._client) for _ in range(n_clients)]

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *exception):
        for t in self.threads:
            t.join()

    @property
    def share(self):
        """Prompt tokens that the prefix cache had, of all prompt tokens."""
        return self.cached_tokens / max(1, self.prompt_tokens)

    def _client(self):
        while True:
            with self.lock:
                if not self.waiting:
                    return
                number = self.waiting.pop()
            try:
                self._converse(number)
            except Lost as e:
                with self.lock:
                    self.lost.append(str(e))

    def _converse(self, number):
        rng = random.Random(number)
        messages = [{"role": "system", "content": f"{self.number:04} {number:04} {sentence(rng)}"}]
        for _ in range(self.n_turns):
            messages.append({"role": "user", "content": sentence(rng)})
            # The picker requires a model, and its own copy of the body is all it sees.
            usage, text = complete(self.address, {"model": "model", "messages": messages, "temperature": 0,
                                                  "max_tokens": 24})
            messages.append({"role": "assistant", "content": text})
            with self.lock:
                self.n_answered += 1
                self.prompt_tokens += usage["prompt_tokens"]
                self.cached_tokens += usage["prompt_tokens_details"]["cached_tokens"]
