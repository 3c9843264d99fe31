#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A newcomer's path in a fresh Debian 12, by hand: quickstart, its calls, the page, pull, list, serve, chat.

    newcomer_run.py --model DIR [--root ROOT] [--mirror URL]

Makes a bare root by debootstrap (or takes ROOT, which should be fresh), clones this repository's last commit into it,
and types what README says on a terminal, with the time of each step. The hub is fake_hub.py, which serves DIR as
HuggingFaceTB/SmolLM2-135M-Instruct. Needs root, debootstrap, git and port 8080; the page is also driven by keyboard
where chromium, node and the modules of tests/run.sh are there.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
import urllib.request

from debian_root import Clock, make_root, use_network
from fake_hub import FakeHub, files_of
from hearth_server import ROOT
from page_run import run_in_browser
from test_chat import Terminal

NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
PULL = f"build/hearth pull {NAME}"
SERVE = f"build/hearth serve --model {NAME}"
DEMO_URL = "http://127.0.0.1:8080/"
IN_THE_ROOT = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" sh -c "$1"'


def type_in(root, command, **env):
    """A terminal in the root on which this command was typed, in the clone."""
    words = " ".join(f"{k}={v}" for k, v in env.items())
    line = f"cd /root/hearth && exec env -i HOME=/root TERM=xterm-256color PATH=$PATH {words} {command}"
    return Terminal(command=("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", IN_THE_ROOT, root, line))


def ended(terminal, keys=b""):
    assert terminal.status(keys) == 0, terminal.output[-2000:]


def typed(root, command, **env):
    """What a command prints, until it ends well."""
    p = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", IN_THE_ROOT, root,
                        f"cd /root/hearth && {' '.join(f'{k}={v}' for k, v in env.items())} {command}"],
                       capture_output=True, text=True, timeout=600, check=False)
    assert p.returncode == 0, (command, p.stdout, p.stderr)
    return p.stdout


def same_words(said):
    """README, the guide and the quickstart name the same commands and the same address."""
    pages = {name: open(os.path.join(ROOT, name), encoding="utf-8").read()
             for name in ("README.md", "docs/getting-started.md")}
    for name, text in {**pages, "quickstart": said}.items():
        assert PULL in text and "build/hearth chat" in text and DEMO_URL in text, name
    assert all(SERVE in text and "deploy/quickstart.sh" in text for text in pages.values())


def quickstart(root, clock):
    server = type_in(root, "deploy/quickstart.sh")
    server.wait("hearth: preparing", 900)
    clock.step("deploy/quickstart.sh: packages installed")
    said = server.wait("ready on", 900).decode().replace("\r", "")
    clock.step("built, ready")
    same_words(said)
    calls = re.findall(r"^  (curl .*\n       .*)$", said, re.M)
    assert len(calls) == 2, said
    assert '"choices"' in typed(root, calls[0]) and typed(root, calls[1]).endswith("data: [DONE]\n\n")
    clock.step("both calls it prints")
    with urllib.request.urlopen(DEMO_URL, timeout=10) as page:
        assert page.headers["Content-Type"].startswith("text/html") and b"<title>" in page.read()
    clock.step("the page is sent")
    if shutil.which("chromium") and os.environ.get("HEARTH_NODE_MODULES"):
        assert run_in_browser(types.SimpleNamespace(url=DEMO_URL.rstrip("/")), ["keyboardOnly"]) == 0
        clock.step("the page in Chromium: two answers by keyboard alone")
    else:
        print("           (no browser: the page was not driven)")
    ended(server, b"\x03")
    clock.step("Ctrl-C ends it")
    chat = type_in(root, "build/hearth chat")
    chat.wait("> ")
    assert "2+2=4" in chat.ask("What is 2+2?")
    ended(chat, b"\x04")
    clock.step("build/hearth chat: start, an answer, Ctrl-D")


def real_model(root, hub, clock):
    pull = type_in(root, PULL, HF_ENDPOINT=hub.url)
    ended(pull)
    clock.step(PULL)
    assert NAME in typed(root, "build/hearth list")
    server = type_in(root, SERVE)
    server.wait("ready on", 60)
    clock.step(SERVE + ": ready")
    answer = typed(root, f"curl -s {DEMO_URL}v1/completions -H 'Content-Type: application/json' -d " +
                   '\'{"prompt": "Once upon a time", "max_tokens": 8}\'')
    assert f'"model":"{NAME}"' in answer, answer
    with urllib.request.urlopen(DEMO_URL, timeout=10) as page:
        assert b"<title>" in page.read()
    clock.step("an answer by curl, and the page")
    chat = type_in(root, f"build/hearth chat --url {DEMO_URL.rstrip('/')}")
    chat.wait("> ")
    chat.send("Hello\r")
    chat.wait("\x1b[36m")
    chat.send(b"\x03")
    chat.wait("> ")
    ended(chat, b"\x04")
    clock.step("build/hearth chat --url: start, an answer begun and stopped, Ctrl-D")
    ended(server, b"\x03")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="directory that the hub serves")
    parser.add_argument("--root", help="a root that is there already")
    parser.add_argument("--mirror", help="of Debian, for debootstrap")
    a = parser.parse_args()
    clock = Clock()
    with tempfile.TemporaryDirectory() as directory, FakeHub() as hub:
        root = a.root or os.path.join(directory, "root")
        if not a.root:
            make_root(root, "bookworm", "ca-certificates,curl,git", a.mirror)
            clock.step("debootstrap")
        subprocess.run(["git", "clone", "-q", ROOT, os.path.join(root, "root", "hearth")], check=True)
        use_network(root)
        hub.add(NAME, files_of(a.model))
        quickstart(root, clock)
        real_model(root, hub, clock)
    print("passed")


if __name__ == "__main__":
    sys.exit(main())
