#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`hearth chat` through a pseudo-terminal: editing, Ctrl-C, hostile text, history, --url, and its use without a
terminal. chat_run.py, by hand, does the same at more length and with a slow model. Standard library only."""
import fcntl
import http.server
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import threading
import time

from hearth_server import BIN, DEMO, PATIENCE, Hearth, run, run_cases

# what we send to a terminal ourselves: paste marks, colour, cursor movement and erasing of the editor and of wrapping
OURS = re.compile(rb"\x1b\[(\?2004[hl]|36m|0?m|\d*[ABCDGHJKP]|\d*@|\?1[hl]|[ -/]*)|\x1b[=>]|[\r\n\t\b\x07]")


class Terminal:
    """`hearth chat` on a terminal of its own."""

    def __init__(self, *args, columns=100, env=None, home=None, command=(BIN, "chat")):
        self.temporary = tempfile.TemporaryDirectory()
        self.home = home or self.temporary.name
        self.master, self.slave = pty.openpty()
        self.resize(columns)
        self.settings = termios.tcgetattr(self.slave)
        environment = {**os.environ, "TERM": "xterm-256color", "XDG_STATE_HOME": self.home, "HOME": self.home, **(env or {})}
        self.process = subprocess.Popen([*command, *args], stdin=self.slave, stdout=self.slave, stderr=self.slave,
                                        env=environment, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.output = b""

    def resize(self, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def wait(self, text, seconds=PATIENCE):
        """Reads until the text comes, and returns what came before it."""
        wanted, end = text if isinstance(text, bytes) else text.encode(), time.monotonic() + seconds
        while wanted not in self.output:
            ready = select.select([self.master], [], [], max(0, end - time.monotonic()))[0]
            assert ready, f"{wanted!r} does not come, but {self.output[-300:]!r}"
            self.output += os.read(self.master, 65536)
        before, self.output = self.output.split(wanted, 1)
        return before

    def send(self, text):
        os.write(self.master, text if isinstance(text, bytes) else text.encode())

    def ask(self, text, wanted="> "):
        self.send(text + "\r")
        self.wait("\n")
        return self.wait(wanted).decode()

    def status(self, keys=b"\x04"):
        """The exit status; the terminal must be as it was."""
        self.send(keys)
        status = self.process.wait(PATIENCE)
        assert termios.tcgetattr(self.slave) == self.settings, "the terminal's settings have changed"
        os.close(self.master)
        os.close(self.slave)
        return status


class Mock:
    """A plain OpenAI server. `pieces` are streamed; "wait": until the client has left. None: what it was asked."""

    def __init__(self, pieces=None):
        mock = self
        self.pieces, self.requests, self.left = pieces, [], threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *args):
                pass

            def answer(self, kind, data):
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                self.answer("application/json", b'{"data": [{"id": "m\\u001b]0;x"}]}')

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                mock.requests.append(body)
                heard = [body["messages"][-1]["content"].replace("\n", "|")]
                self.answer("text/event-stream", b": a comment\r\n\r\n")
                for piece in heard if mock.pieces is None else mock.pieces:
                    if piece == "wait":
                        if select.select([self.connection], [], [], PATIENCE)[0]:
                            mock.left.set()
                        return
                    event = json.dumps({"choices": [{"delta": {"content": piece}}]}).encode()
                    self.wfile.write(b"data: " + event[:9])
                    self.wfile.flush()
                    self.wfile.write(event[9:] + b"\r\n\r\n")
                self.wfile.write(b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n')

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *args):
        self.server.shutdown()
        self.server.server_close()

    def heard(self, n):
        while len(self.requests) < n:
            time.sleep(0.001)
        return self.requests[n - 1]["messages"][-1]["content"]


def edits(t):
    """Waits for the first prompt. Returns false, which is said, in a build without libedit."""
    if b"2004h" in t.wait("> "):
        return True
    print("  (no libedit: the lines are plain)")
    t.status()
    return False


def test_editing():
    with Mock() as mock:
        t = Terminal("--url", mock.url)
        if not edits(t):
            return
        keys = {
            "world\x01hello \x05!": "hello world!",
            "one two\x17three": "one three",
            "abcdef\x1b[D\x1b[D\x0b": "abcd",
            "gr\u00fc\u00df\x7f\u00dfe \u732b": "gr\u00fc\u00dfe \u732b",
            "\x1b[A\x1b[A!": "abcd!",
            "\x12world\x05?": "hello world!?",
            "one\\\rtwo": "one\ntwo",
            '"""a\rb\\\r"""': "a\nb\\",
            "\x1b[200~x\rg\x1b[31mh\x07\r\x1b[201~y": "x\ng[31mh\ny",
            "//etc": "/etc",
        }
        for n, (typed, wanted) in enumerate(keys.items(), 1):
            t.send(typed + "\r")
            assert mock.heard(n) == wanted, (typed, mock.heard(n))
            t.wait("2004h> ")
        t.send("/sh\t\r")
        t.wait("model: m\\x1b]0;x")
        t.wait("> ")
        assert t.status() == 0


def test_ctrl_c():
    with Mock(["one ", "two", "wait"]) as mock:
        t = Terminal("--url", mock.url)
        t.wait("> ")
        t.send("question\r")
        t.wait("two")
        t.send(b"\x03")
        assert mock.left.wait(PATIENCE), "the connection stays open"
        t.wait("[stopped]")
        t.wait("> ")
        t.send("half a line\x03")
        t.wait("> ")
        mock.pieces = None
        assert "whole" in t.ask("whole")
        said = [(m["role"], m["content"]) for m in mock.requests[-1]["messages"]]
        assert said == [("user", "question"), ("assistant", "one two"), ("user", "whole")], said
        t.send(b"\x03")
        t.wait("(press Ctrl-C again")
        t.wait("> ")
        assert t.status(b"\x03") == 130
        for number in (signal.SIGTERM, signal.SIGHUP):
            t = Terminal("--url", mock.url)
            t.wait("> ")
            t.process.send_signal(number)
            assert t.status(b"") == 128 + number


def hostile(n):
    """Strings that would change a terminal's state, were they sent."""
    made = ["\x1b]0;title\x07", "\x1b[2J\x1b[H", "\x1b[?1049h", "\x1bc", "\x9b31m", "\x1b[6n", "\x1bP0;1|17/ab\x1b\\", "\x0e\x0f",
            "\x1b(0", "a\x08\x08b\rc", "\x1b]52;c;aGk=\x07", "\u202etxt.exe\u2066", "\x1b[?25l", "\x00\x05\x7f", "\x85\x90\x9c",
            "\x1b[200~rm\x1b[201~", "\x1b[10000D\x1b[K", "\u2028\u2029", "\x1b[1;1r", "\x1b[?2004l"]
    return [made[i % len(made)] + f"{i} \x1b" + chr(i % 160) + "\U0001f600\u0301" for i in range(n)]


def check_hostile(strings):
    """What the terminal gets holds no sequence but ours, and the text shows what the strings were."""
    with Mock([p for s in strings for p in (s[:3], s[3:])]) as mock:
        t = Terminal("--url", mock.url, columns=60)
        prompt = "\r\n\x1b[?2004h> " if b"2004h" in t.wait("> ") else "\r\n> "
        t.send("x\r")
        t.wait("x")
        shown = t.wait(prompt)
        left = OURS.sub(b"", shown).decode()
        bad = [c for c in left if ord(c) < 32 or 0x7f <= ord(c) < 0xa0 or c in "\u202e\u2066\u2028\u2029"]
        assert not bad, f"{bad[:10]} reached the terminal in {left[:300]!r}"
        for sequence in re.findall(rb"\x1b\[[^a-zA-Z]*[a-zA-Z]", shown):
            assert re.fullmatch(rb"\x1b\[(\d+D|K|36m|0m|\?2004[hl])", sequence), sequence
        assert left.count("\\x1b") >= len(strings)
        assert t.status() == 0


def test_hostile_text():
    check_hostile(hostile(60))


def test_hostile_text_of_other_commands():
    """Names, templates and answers on the terminal of every command that prints some."""
    evil = "\x1b]0;t\x07\x1b[2J\x9b31m\u202e\u2066"
    with tempfile.TemporaryDirectory() as d:
        template, commit = os.path.join(d, "x.jinja"), "a" * 40
        with open(template, "w", encoding="utf-8") as f:
            f.write("{{ raise_exception('" + evil + "\\nhearth: forged') }}")
        os.makedirs(os.path.join(d, "models--a--b", "snapshots", commit))
        os.mkdir(os.path.join(d, "models--a--b", "refs"))
        with open(os.path.join(d, "models--a--b", "refs", "v" + evil), "w", encoding="utf-8") as f:
            f.write(commit)
        for args in (["generate", "--prompt", "a", "--regex", r"a\x1b]0;t\x07\x1b\[2J\u009b31m\u202e\u2066"],
                     ["generate", "--prompt", "a", "--chat", "--chat-template-file", template],
                     ["generate", "--prompt", "a", "--json-schema", evil],
                     ["list"], ["list", "--json"], ["inspect", evil], ["inspect", DEMO, "--tool-format", evil],
                     ["healthcheck", "ftp://" + evil], ["pull", evil], ["--" + evil]):
            t = Terminal(*args, command=(BIN,), env={"HF_HUB_CACHE": d})
            t.process.wait(PATIENCE)
            shown = os.read(t.master, 65536).decode()
            bad = [c for c in shown if c not in "\r\n" and (ord(c) < 32 or 0x7f <= ord(c) < 0xa0 or c in "\u202e\u2066")]
            assert not bad, f"{args}: {bad} reached the terminal in {shown!r}"
            assert "\nhearth: forged" not in shown and re.search(r"\\(x|u00)1b", shown), (args, shown)
            os.close(t.master)
            os.close(t.slave)
        status, out, _ = run("generate", "--prompt", "a", "--regex", r"\x1b\[2J\u202e")
        assert status == 0 and out == "\x1b[2J\u202e\n", out  # a file gets the bytes


def history_of(path):
    """The entries of a history file of libedit: vis(3) with octal numbers."""
    with open(path, encoding="utf-8") as f:
        first, *lines = f.read().splitlines()
    assert first == "_HiStOrY_V2_", first
    return [re.sub(r"\\([0-7]{3}|\\)", lambda m: m[1] if m[1] == "\\" else chr(int(m[1], 8)), line) for line in lines]


def test_history_of_two_writers():
    with Mock() as mock, tempfile.TemporaryDirectory() as home:
        path = os.path.join(home, "hearth", "history")
        first, second = (Terminal("--url", mock.url, home=home) for _ in range(2))
        if not (edits(first) and edits(second)):
            return
        for i in range(30):
            first.send(f"first {i}\r")
            second.send(f"second {i}\r")
        for t in (first, second):
            for i in range(30):
                t.wait("> ")
            t.ask(" not kept")
            assert t.status() == 0
        assert os.stat(path).st_mode & 0o777 == 0o600
        lines = history_of(path)
        assert sorted(lines) == sorted(f"{who} {i}" for who in ("first", "second") for i in range(30)), lines
        with open(path, "a", encoding="utf-8") as f:
            f.writelines(f"old {i}\n" for i in range(1000))
            f.write("torn")
        t = Terminal("--url", mock.url, home=home)
        t.wait("> ")
        t.ask("two\\\rli\\n\u00e9s")
        assert t.status() == 0
        lines = history_of(path)
        assert len(lines) == 1000 and lines[-2:] == ["torn", "two\nli\\nés"], (len(lines), lines[-3:])
        t = Terminal("--url", mock.url, home=home)
        t.wait("> ")
        t.send("\x1b[A")
        t.wait("li\\n\u00e9s")
        assert t.status(b"\x15\x04") == 0


def test_commands_in_process():
    t = Terminal("--temperature", "0", "--timings")
    t.wait("> ")
    assert "The answer is 4." in t.ask("What is 2+2?")
    again = t.ask("What is 2+3?")
    assert "The answer is 5." in again, again
    assert int(re.search(r"\((\d+) cached", again).group(1)) >= 0.9 * 33, again
    path = os.path.join(t.home, "kept.json")
    t.ask(f"/save {path}")
    assert "removed: What is 2+3?" in t.ask("/undo")
    assert "The answer is 4." in t.ask("/retry")
    assert "loaded: 4 messages" in t.ask(f"/load {path}")
    assert "out of range" in t.ask("/set temperature 1000")
    assert "not a setting" in t.ask("/set port 1")
    assert "model: demo" in t.ask(f"/model {DEMO}")
    assert "deploy/none" in t.ask("/model deploy/none")
    assert "is not a command" in t.ask("/nonsense")
    t.ask("/set max_tokens 3")
    assert "[cut " in t.ask("What is 2+2?")
    t.ask("/new")
    assert "tokens: 0 of" in t.ask("/show")
    t.ask('"""', ". ")
    for _ in range(3):
        t.ask("word " * 700, ". ")
    t.send('"""\r')
    full = t.wait("/new, /undo or /clear").decode()
    assert re.search(r"the conversation has \d,\d\d\d of 2,048 tokens: $", full), full
    t.wait("> ")
    assert t.status() == 0
    with open(path, encoding="utf-8") as f:
        kept = json.load(f)
    assert kept["format"] == "hearth-conversations" and kept["conversations"][0]["title"] == "What is 2+2?"


def test_without_a_terminal():
    with Mock() as mock:
        code, out, err = run("chat", "-p", "one", "--url", mock.url, "--system", "be brief", stdin="two\n")
        assert (code, out, err) == (0, "one|two\n", ""), (code, out, err)
        assert mock.requests[0]["messages"][0] == {"role": "system", "content": "be brief"}, mock.requests
    code, out, err = run("chat", "--json", "--temperature", "0", stdin="What is 2+2?")
    answer = json.loads(out)["choices"][0]
    assert code == 0 and answer["finish_reason"] == "stop" and answer["message"]["content"].endswith("is 4.")
    code, out, err = run("chat")
    assert code == 2 and not out and "there is no message" in err, (code, err)
    code, out, err = run("chat", "--url", "ftp://x", stdin="x")
    assert code == 1 and "is not an http://" in err, (code, err)
    code, out, err = run("chat", "--url", "http://127.0.0.1:1", "--regex", "a", stdin="x")
    assert code == 2 and "cannot be used with --url" in err, (code, err)


def test_against_our_server():
    with Hearth(unix_socket=True, env={"HEARTH_API_KEY": "secret"}) as h:
        arguments = ["chat", "--url", h.url, "--temperature", "0", "--timings"]
        code, out, err = run(*arguments, stdin="What is 2+2?")
        assert code == 1 and "HEARTH_API_KEY" in err, (code, err)
        code, out, err = run(*arguments, stdin="What is 2+2?", HEARTH_API_KEY="", OPENAI_API_KEY="secret")
        assert (code, out) == (0, "2+2: 2+2=4. The answer is 4.\n"), (code, out, err)
        assert "[15 tokens read (0 cached)" in err, err
        code, out, err = run(*arguments, stdin="word " * 3000, HEARTH_API_KEY="secret")
        assert code == 1 and "2048" in err, (code, err)


if __name__ == "__main__":
    run_cases(globals())
