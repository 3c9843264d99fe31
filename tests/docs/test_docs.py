#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the pages say is true: generated pages and tables equal the program's; flags, metrics and error codes are all
described; commands are accepted; files and links exist. Standard library only."""
import filecmp
import glob
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = os.environ.get("HEARTH_SOURCE_ROOT") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
from hearth_server import BIN, Hearth, run_cases  # noqa: E402

PRINT_DOCS = os.environ.get("HEARTH_PRINT_DOCS") or os.path.join(os.path.dirname(BIN), "tests", "docs", "print_docs")
GENERATED = ("options.md", "hearth.1", "errors.md", "metrics.md")
FIELD_PAGES = ("api.md", "api-routes.md", "infill.md", "ollama.md", "retrieval.md", "swap.md", "adapters.md", "files-and-batches.md")  # by hand, but for their tables
COMPLETIONS = ("hearth.bash", "_hearth", "hearth.fish")
MAX_LINES = {"README.md": 140}
MAX_PAGE_LINES = 320
README_COLUMNS = 100
# texts of other programs and of the C library
ELSEWHERE = ("use of closed network connection", "Address already in use")
TREE_PATH = re.compile(r"`((?:base|engine|tokenizer|server|deploy|docs|tests|third_party)/[^`\s]*)`")


def text_of(*parts):
    with open(os.path.join(ROOT, *parts), encoding="utf-8") as f:
        return f.read()


def pages():
    """Every Markdown page for readers, as paths below the root."""
    found = glob.glob(os.path.join(ROOT, "*.md")) + glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)
    return sorted(os.path.relpath(path, ROOT) for path in found)


def fenced_lines(text):
    """The lines inside fences, with continued lines joined."""
    for block in re.findall(r"^```.*?\n(.*?)^```", text, re.M | re.S):
        yield from block.replace("\\\n", " ").splitlines()


def test_generated_pages_are_current():
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([PRINT_DOCS, ROOT, out, out, out], check=True, timeout=60)
        subprocess.run([sys.executable, os.path.join(ROOT, "tests", "docs", "dashboard.py"),
                        os.path.join(out, "metrics.md"), os.path.join(out, "hearth.json")], check=True, timeout=60)
        subprocess.run([sys.executable, os.path.join(ROOT, "docs", "search", "paragraphs.py"),
                        os.path.join(out, "paragraphs.jsonl")], check=True, timeout=60)
        for path in ["docs/search/paragraphs.jsonl"] + [f"docs/{name}" for name in GENERATED + FIELD_PAGES] + [
                f"deploy/completions/{name}" for name in COMPLETIONS] + ["deploy/grafana/hearth.json", "server/api/openapi.json"]:
            same = filecmp.cmp(os.path.join(out, os.path.basename(path)), os.path.join(ROOT, path), shallow=False)
            assert same, f"{path} is not current: run ninja docs"


def help_of(*command):
    return subprocess.run([BIN, *command, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout


def subcommands():
    listed = re.search(r"^subcommands.*:\n((?:  \w+ .*\n)+)", help_of(), re.M)
    return re.findall(r"^  (\w+)", listed.group(1), re.M)


def test_every_flag_of_every_help_is_described():
    options, man = text_of("docs", "options.md"), text_of("docs", "hearth.1")
    assert len(subcommands()) >= 8
    for command in subcommands():
        assert re.search(rf"^\.It Cm {command}$", man, re.M), f"hearth.1: the subcommand {command}"
        shown = help_of(command)
        lines = re.findall(r"^  (--.*?)(?:  |$)", shown, re.M)
        flags = [word for line in lines for word in re.findall(r"(?:^|, )(--?[\w-]+)", line)]
        assert len(flags) > 5, (command, shown)
        for flag in flags:
            assert f"`{flag}`" in options, f"options.md: {flag} of {command}"
            assert re.search(rf"\bFl {re.escape(flag[1:])}(?=[ \n])", man), f"hearth.1: {flag} of {command}"


def test_every_metric_is_described():
    described = text_of("docs", "metrics.md")
    with Hearth() as h:
        status, _, served = h.get("/metrics")
    served = served if isinstance(served, str) else served.decode()
    families = re.findall(r"^# TYPE (\S+) (\S+)$", served, re.M)
    assert status == 200 and len(families) > 40, (status, len(families))
    for name, kind in families:
        assert re.search(rf"`{name}`.*", described), f"metrics.md: {name}"
        if not name.startswith("vllm:"):
            assert re.search(rf"^\| `{name}` \| {kind} \|", described, re.M), f"metrics.md: {name} is a {kind}"


def test_every_error_code_is_described():
    rows = re.findall(r"ROW\(\w+, (\d+), [^,]+, \"(\w+)\"", text_of("server", "http", "api_error.c"))
    assert len(rows) > 20, rows
    for status, code in rows:
        assert f"| {status} | `{code}` |" in text_of("docs", "errors.md"), f"errors.md: {status} {code}"


def check_command(line, page):
    words = shlex.split(re.sub(r"[|<>&].*", "", line), comments=True)
    p = subprocess.run([BIN, *words[1:], "--help"], capture_output=True, text=True, check=False, timeout=60)
    assert p.returncode == 0, f"{page}: {line.strip()}: {p.stderr}"


def test_commands_are_accepted():
    n = 0
    for page in pages():
        for line in fenced_lines(text_of(page)):
            if line.startswith("build/hearth"):
                check_command(line, page)
                n += 1
    assert n >= 5, n


def slug(heading):
    words = re.sub(r"[^\w\- ]", "", heading.lower().replace("`", ""))
    return words.replace(" ", "-")


def check_link(page, target):
    path, _, anchor = target.partition("#")
    full = os.path.normpath(os.path.join(ROOT, os.path.dirname(page), path)) if path else os.path.join(ROOT, page)
    assert os.path.exists(full), f"{page}: {target} does not exist"
    if anchor and full.endswith(".md"):
        with open(full, encoding="utf-8") as f:
            headings = re.findall(r"^#+ (.*)$", f.read(), re.M)
        assert anchor in [slug(h) for h in headings], f"{page}: {target}: no such heading"


def test_links_and_files_exist():
    n = 0
    for page in pages():
        text = text_of(page)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if not re.match(r"[a-z]+:", target):
                check_link(page, target)
                n += 1
        if page == "CHANGELOG.md":
            continue  # it speaks of the past
        for path in TREE_PATH.findall(text):
            path = re.sub(r"<\w+>", "*", path.split(":")[0]).rstrip("/")
            assert glob.glob(os.path.join(ROOT, path)), f"{page}: {path} does not exist"
    assert n > 20, n


def test_quoted_messages_are_the_programs():
    """troubleshooting.md quotes messages, with ... for their variable parts; each fixed part is in the sources."""
    sources = []
    for top in ("base", "engine", "tokenizer", "server"):
        for path in glob.glob(os.path.join(ROOT, top, "**", "*.[ch]"), recursive=True):
            with open(path, encoding="utf-8") as f:
                sources.append(re.sub(r'"\s*\n\s*"', "", f.read()).replace("'\\''", "'"))
    sources, n = "\n".join(sources), 0
    cells = re.findall(r"^\| (.*?) \|", text_of("docs", "troubleshooting.md"), re.M)
    for quoted in (text for cell in cells for text in re.findall(r"`(.*?)`", cell)):
        for part in re.split(r"\.\.\.|'", quoted):
            part = part.strip(";: ")
            if len(part) < 12 or part in ELSEWHERE:
                continue
            assert part in sources, f"troubleshooting.md: no message has '{part}'"
            n += 1
    assert n >= 15, n


def test_shown_answers_are_given():
    """A chat by curl with structured output, and the content that the page shows behind it in a fence or in ``."""
    n = 0
    with Hearth() as h:
        for page in ("README.md", os.path.join("docs", "structured-output.md")):
            shown = r"^curl \S*(/v1/chat/completions) .*?-d '(\{.*?\})'\n```\n(?:.*?)(?:```\n(.*?)\n```|`(\{.*?)`)"
            for path, body, fenced, inline in re.findall(shown, text_of(page), re.M | re.S):
                status, _, answer = h.post(path, body)
                assert status == 200, f"{page}: {answer}"
                content = answer["choices"][0]["message"]["content"]
                assert content == (fenced or inline), f"{page}: {content!r}, shown is {fenced or inline!r}"
                n += 1
    assert n >= 2, n


def test_pages_are_short():
    for page in pages():
        lines = text_of(page).splitlines()
        if os.path.basename(page) in GENERATED or page == "CHANGELOG.md":
            continue
        limit = MAX_LINES.get(page, MAX_PAGE_LINES)
        assert len(lines) <= limit, f"{page}: {len(lines)} lines, at most {limit}"
    for n, line in enumerate(text_of("README.md").splitlines(), 1):
        assert len(line) <= README_COLUMNS, f"README.md:{n}: {len(line)} columns"


def test_every_request_has_its_table():
    """The tables themselves are printed: test_generated_pages_are_current."""
    schemas = json.loads(text_of("server", "api", "openapi.json"))["components"]["schemas"]
    marks = "".join(text_of("docs", page) for page in FIELD_PAGES)
    shown = {name for names in re.findall(r"^<!-- fields: (.*?) -->\n\n\|", marks, re.M) for name in names.split()}
    assert shown == {name for name in schemas if name.endswith("Request")} | {"stream_options"}, shown


if __name__ == "__main__":
    run_cases(globals())
