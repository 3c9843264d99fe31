#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""deploy/quickstart.sh in a tree whose build is done: it prints calls that work for the address it serves, notices
a port that is taken before it builds, and is quiet unless the build fails."""
import json
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import tempfile

from hearth_server import BIN, ROOT, SKIPPED, run_cases
from proxies import free_port

BUILT = "build hearth: phony\n"
BROKEN = "rule fail\n  command = echo the compiler says no; exit 1\nbuild hearth2: fail\nbuild hearth: phony hearth2\n"


class Tree:
    """A directory with deploy/ and, unless None, a build folder with these rules."""

    def __init__(self, rules):
        self.tmp = tempfile.TemporaryDirectory()
        self.dir = self.tmp.name
        os.symlink(os.path.join(ROOT, "deploy"), os.path.join(self.dir, "deploy"))
        tools = os.path.join(self.dir, "tools")
        os.mkdir(tools)
        with open(os.path.join(tools, "dpkg-query"), "w", encoding="ascii") as f:
            f.write("#!/bin/sh\nprintf installed\n")  # nothing is to be installed by a test
        os.chmod(os.path.join(tools, "dpkg-query"), 0o755)
        self.path = tools + ":" + os.environ["PATH"]
        if rules is not None:
            os.mkdir(os.path.join(self.dir, "build"))
            os.symlink(BIN, os.path.join(self.dir, "build", "hearth"))
            with open(os.path.join(self.dir, "build", "build.ninja"), "w", encoding="ascii") as f:
                f.write(rules)

    def start(self, *args, **env):
        return subprocess.Popen([os.path.join(self.dir, "deploy", "quickstart.sh"), *args], text=True,
                                env=dict(os.environ, PATH=self.path, **env), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *args):
        p = self.start(*args)
        out, err = p.communicate(timeout=60)
        return p.returncode, out, err


def check_calls(tree, *args, port=None, **env):
    """The first printed call, run by a shell as it is, gets an answer."""
    p = tree.start(*args, **env)
    try:
        text = ""
        for line in p.stderr:
            text += line
            if "ready on" in line:
                break
        calls = re.findall(r"^  (curl .*\n       .*)$", text, re.M)
        assert len(calls) == 2, text
        if port:
            assert all(f":{port}/" in c for c in calls), calls
        answer = subprocess.run(["sh", "-c", calls[0]], capture_output=True, text=True, timeout=60, check=False,
                                env=dict(os.environ, **env))
        assert "choices" in json.loads(answer.stdout), (calls[0], answer)
        streamed = subprocess.run(["sh", "-c", calls[1]], capture_output=True, text=True, timeout=60, check=False,
                                  env=dict(os.environ, **env))
        assert streamed.stdout.endswith("data: [DONE]\n\n"), (calls[1], streamed)
        assert re.search(r"talk to it (at https?://\S+/ or )?by `build/hearth chat", text), text
        if port:
            assert f"talk to it at http://127.0.0.1:{port}/ or by `build/hearth chat`,\nand for a real" in text, text
        shown = [l for l in text[:text.index("Once the server")].splitlines() if l]
        assert shown[0] == "hearth: building, about a minute the first time", shown
        assert re.fullmatch(r"hearth: ready to serve after \d+ s", shown[1]) and len(shown) == 2, shown
    finally:
        p.terminate()
        p.communicate(timeout=30)


def test_calls_are_those_of_the_address():
    tree = Tree(BUILT)
    ini = os.path.join(tree.dir, "hearth.ini")
    ports = [free_port() for _ in range(3)]
    with open(ini, "w", encoding="ascii") as f:
        f.write(f"[listen]\nport = {ports[0]}\n")
    check_calls(tree, "--port", "0")
    check_calls(tree, f"--port={ports[1]}", port=ports[1])
    check_calls(tree, port=ports[2], HEARTH_PORT=str(ports[2]))
    check_calls(tree, "--config", ini, port=ports[0])
    check_calls(tree, "--unix-socket", os.path.join(tree.dir, "sock"))
    check_calls(tree, "--port", "0", HEARTH_API_KEY="secret")


def test_a_taken_port_is_an_error_before_the_build():
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
        tree = Tree(None)
        status, _, err = tree.run("--port", str(port))
        assert status == 1 and f"port {port}" in err and len(err.splitlines()) == 1, err
        assert not os.path.exists(os.path.join(tree.dir, "build")), "it began to build"


def test_a_failing_build_shows_what_it_said():
    status, _, err = Tree(BROKEN).run("--port", "0")
    assert status == 1 and "the compiler says no" in err and "quickstart.log" in err, err


def test_a_terminal_sees_how_far_the_build_is():
    slow = "rule slow\n  command = sleep 1.5 && touch $out\nbuild hearth2: slow\nbuild hearth3: slow hearth2\n" \
           "build hearth: phony hearth3\n"
    tree = Tree(slow)
    main, side = pty.openpty()
    p = subprocess.Popen([os.path.join(tree.dir, "deploy", "quickstart.sh"), "--nonsense"], stdin=subprocess.DEVNULL,
                         env=dict(os.environ, PATH=tree.path), stdout=side, stderr=side)
    os.close(side)
    text = b""
    try:
        while block := os.read(main, 4096):
            text += block
    except OSError:
        pass  # the other side is closed
    assert p.wait(60) == 2 and re.search(rb"\rhearth: step 1 of 2, \d+ s", text), text
    assert b"\r\x1b[Khearth: ready to serve after" in text, text


def test_options_that_are_wrong_end_it():
    status, _, err = Tree(BUILT).run("--port", "0", "--nonsense")
    assert status == 2 and "nonsense" in err and "curl" not in err, err


if __name__ == "__main__":
    for program, package in (("ninja", "ninja-build"), ("curl", "curl")):
        if not shutil.which(program):
            print(f"no {program}: apt install {package}")
            sys.exit(SKIPPED)
    run_cases(globals())
