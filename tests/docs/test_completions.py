#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The completions of deploy/completions in bash, zsh and fish: each shell parses its file, and bash and fish offer what
fits. A shell that is not installed is left out, which is said. 1 second."""
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.environ.get("HEARTH_SOURCE_ROOT") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
from hearth_server import BIN, run_cases  # noqa: E402

FOLDER = os.path.join(ROOT, "deploy", "completions")
PARSED_BY = {"hearth.bash": ["bash", "-n"], "_hearth": ["zsh", "-n"], "hearth.fish": ["fish", "--no-execute"]}
# the words that were typed -> words offered, words not offered
CASES = (
    (["hearth", "ser"], {"serve"}, {"rerank"}),
    (["hearth", "serve", "--numer"], {"--numerics"}, {"--port"}),
    (["hearth", "serve", "--numerics", "e"], {"exact"}, {"int8"}),
    (["hearth", "bench", "--pre"], {"--prefill"}, {"--prefix-cache", "--no-prefix-cache"}),
    (["hearth", "serve", "--no-pre"], {"--no-prefix-cache"}, {"--no-page"}),
    (["hearth", "--por"], {"--port"}, {"--parallel"}),
    (["hearth", "list", "--"], {"--json", "--help"}, {"--port"}),
    (["hearth", "serve", "--model", "dir"], {"directory"}, {"file.ini"}),
    (["hearth", "inspect", "dir"], {"directory"}, {"file.ini"}),
    (["hearth", "serve", "--config", "fil"], {"file.ini"}, {"directory"}),
)
BASH = """source "$1"; shift
compopt() { :; }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_hearth; printf '%s\\n' "${COMPREPLY[@]}"
"""


def has(shell):
    if shutil.which(shell):
        return True
    print(f"  (no {shell}: apt install {shell})")
    return False


def stdout_of(command, where):
    env = dict(os.environ, HOME=where, HF_HUB_CACHE=os.path.join(where, "none"),
               PATH=os.path.dirname(BIN) + os.pathsep + os.environ["PATH"])
    p = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=where, env=env)
    assert p.returncode == 0 and not p.stderr, (command, p.stderr)
    return p.stdout


def check_cases(offer):
    with tempfile.TemporaryDirectory() as where:
        os.mkdir(os.path.join(where, "directory"))
        with open(os.path.join(where, "file.ini"), "w", encoding="utf-8"):
            pass
        for words, wanted, others in CASES:
            offered = {line.split("\t")[0].rstrip("/") for line in offer(words, where).splitlines()}
            assert wanted <= offered and not others & offered, (words, offered)


def test_each_shell_parses_its_file():
    for name, command in PARSED_BY.items():
        if has(command[0]):
            subprocess.run([*command, os.path.join(FOLDER, name)], check=True, timeout=60)


def test_bash():
    check_cases(lambda words, where: stdout_of(
        ["bash", "--norc", "-c", BASH, "bash", os.path.join(FOLDER, "hearth.bash"), *words], where))
    with tempfile.TemporaryDirectory() as where:  # readline splits at "="
        words = ["hearth", "serve", "--numerics", "=", "ex"]
        assert stdout_of(["bash", "--norc", "-c", BASH, "bash", os.path.join(FOLDER, "hearth.bash"), *words], where) == "exact\n"


def test_fish():
    if has("fish"):
        check_cases(lambda words, where: stdout_of(
            ["fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", os.path.join(FOLDER, "hearth.fish"),
             " ".join(words)], where))


if __name__ == "__main__":
    run_cases(globals())
