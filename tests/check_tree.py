#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""House rules a compiler does not check: the rooms of the code base, who may include whom, and how many lines each may
have; calls that are banned, lines too long.

    check_tree.py              prints every breach and exits 1 if there is one
    check_tree.py --budgets    prints BUDGETS as the tree would have it now

HEARTH_REFERENCE names a directory with ceiling.json: the most lines of the product, and bytes of the chat page. Standard
library only.
"""
import json
import os
import re
import sys

ROOT = os.environ.get("HEARTH_SOURCE_ROOT") or os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOP = ("base", "engine", "tokenizer", "server", "tests")
FILTERS = "tests/filters"  # programs of the tests that are built like subcommands; the other tests may include anything
MAX_COLUMNS = 100
MAX_FILES = 32  # .c files per folder
MAX_FILES_OF = {"server/api/read": 16, "server/api/run": 14, "server/api/write": 14}

BASE = r"base/\w+\.h"
CORE = r"server/\w+\.h"
CONFIG = r"server/config/\w+\.h"
HTTP = r"server/http/\w+\.h"
BATCH = r"server/batch/\w+\.h"
HUB = r"server/hub/\w+\.h"
GRAMMARS = r"server/grammars/\w+\.h"
MODELS = r"server/models/\w+\.h"
POOLED = r"server/api/pooled/\w+\.h"
KV = r"engine/kv/\w+\.h"
READ, RUN, WRITE = (rf"server/api/{room}/\w+\.h" for room in ("read", "run", "write"))
ENGINE = r"engine/engine\.h"
TYPES = r"tokenizer/tok_types\.h"
CHAT = r"tokenizer/chat/chat\.h"
DOORS = [ENGINE, r"tokenizer/tokenizer\.h", CHAT, TYPES, r"tokenizer/grammar/grammar\.h", r"tokenizer/tools/tools\.h"]

# folder -> patterns of the project's headers that its files may include, besides their own folder's
MAY_INCLUDE = {
    "base": [],
    "engine/kernels": [],
    "engine/model": [BASE, r"engine/kernels/\w+\.h", r"engine/(eng_error|pool)\.h"],
    "engine/kv": [BASE, r"engine/kernels/\w+\.h", r"engine/model/\w+\.h", r"engine/(eng_error|job_types|params)\.h"],
    "engine": [BASE, r"engine/kernels/\w+\.h", r"engine/model/\w+\.h", KV],
    "tokenizer": [BASE],
    "tokenizer/template": [BASE],
    "tokenizer/chat": [BASE, r"tokenizer/template/\w+\.h", r"tokenizer/gguf\.h", TYPES],
    "tokenizer/grammar": [BASE, r"tokenizer/grammar/front/ecma_regex\.h"],
    "tokenizer/grammar/front": [BASE, r"tokenizer/grammar/\w+\.h"],
    "tokenizer/grammar/schema": [BASE, r"tokenizer/grammar/(front/ecma_regex|\w+)\.h"],
    "tokenizer/tools": [BASE, CHAT, r"tokenizer/grammar/grammar\.h", TYPES],
    "server": [BASE, CONFIG, ENGINE],
    "server/hub": [BASE, CONFIG, ENGINE],
    "server/grammars": [BASE, CONFIG, CORE, *DOORS],
    "server/models": [BASE, CONFIG, CORE, HUB, GRAMMARS, *DOORS],
    "server/batch": [BASE, CONFIG, CORE, MODELS, HTTP],
    "server/config": [BASE, r"engine/sampling_params\.h"],
    "server/http": [BASE, CONFIG, CORE],
    "server/api/read": [BASE, CONFIG, CORE, MODELS, HTTP, *DOORS],
    "server/api/run": [BASE, CONFIG, CORE, GRAMMARS, MODELS, HTTP, READ, *DOORS],
    "server/api/write": [BASE, CONFIG, CORE, MODELS, HTTP, READ, RUN, *DOORS],
    "server/api/pooled": [BASE, CONFIG, CORE, MODELS, HTTP, READ, RUN, WRITE, r"server/api/routes\.h", *DOORS],
    "server/api": [BASE, CONFIG, CORE, GRAMMARS, MODELS, HTTP, BATCH, READ, RUN, WRITE, POOLED, *DOORS],
    "server/cli": [BASE, CONFIG, CORE, HUB, GRAMMARS, MODELS, HTTP, BATCH, r"server/api/(read/)?\w+\.h", *DOORS],
}
MAY_INCLUDE[FILTERS] = MAY_INCLUDE["server/cli"] + [r"server/cli/\w+\.h"]
# folder -> the most lines of its .c and .h files. A change that needs more takes them from another room, or from what the
# ceiling leaves free.
BUDGETS = {
    "base": 3383,
    "engine/kernels": 6669,
    "engine/model": 7598,
    "engine/kv": 2483,
    "engine": 13510,
    "tokenizer": 8156,
    "tokenizer/template": 7038,
    "tokenizer/chat": 1892,
    "tokenizer/grammar": 10833,
    "tokenizer/grammar/front": 1034,
    "tokenizer/grammar/schema": 4304,
    "tokenizer/tools": 5359,
    "server": 1967,
    "server/hub": 4343,
    "server/grammars": 1084,
    "server/models": 6182,
    "server/batch": 2182,
    "server/config": 1923,
    "server/http": 5226,
    "server/api/read": 4702,
    "server/api/run": 2159,
    "server/api/write": 2481,
    "server/api/pooled": 1945,
    "server/api": 4640,
    "server/cli": 5907,
}
PAGE = "server/api/page.html"
# The template room in layers, lowest first: a file includes headers of its own layer and of lower ones.
TEMPLATE = "tokenizer/template"
TEMPLATE_LAYERS = [names.split() for names in (
    "run",
    "str value undefined number dict iterate order",
    "print json text_ops",
    "library attributes operators format methods filters filters_text is_tests globals",
    "lexer ast parse_expr parser scope",
    "eval exec",
    "template",
)]
# files with a row of their own
MAY_INCLUDE_FILE = {"server/main.c": MAY_INCLUDE[FILTERS]}
# system header -> the only files that may include it
ONLY = {
    "microhttpd.h": r"server/http/daemon\.c",
    "cblas.h": r"engine/gemm_blas\.c",
    "pcre2.h": r"tokenizer/(bounded_regex|grammar/charset)\.c",
    "utf8proc.h": r"tokenizer/((template|grammar|grammar/front)/)?\w+\.[ch]",
    "curl/curl.h": r"server/hub/transfer\.c",
    "ucontext.h": r"base/fiber\.c",
    "histedit.h": r"server/cli/line_edit\.c",
    "immintrin.h": r"engine/(kernels/\w+|pool)\.[ch]",
    "nettle/nettle-meta.h": r"base/sha256\.c",
    "nettle/base64.h": r"(tokenizer/charsmap|server/api/pooled/embeddings)\.c",
    "malloc.h": r"base/heap\.h",
    "jansson.h": r"(base/json_tree|server/(?!api/(run|write)/)([a-z]+/)*\w+|tests/filters/\w+|engine/model/\w+|tokenizer/(chat/)?\w+)\.[ch]",
}
# names of headers of C, POSIX and glibc that one of ours must not have
SYSTEM_NAMES = set(
    "aio assert complex cpio crypt ctype dirent dlfcn elf endian errno error execinfo fcntl features fenv float"
    " fmtmsg fnmatch ftw getopt glob grp iconv ifaddrs inttypes langinfo libgen limits link locale malloc math"
    " memory monetary mqueue netdb paths poll printf pthread pty pwd queue regex resolv sched search semaphore"
    " setjmp shadow signal spawn stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib string strings"
    " stropts syslog tar termio termios tgmath threads time timer trace uchar ucontext unistd utime utmp values"
    " wait wchar wctype wordexp".split())
BANNED = re.compile(r"\b(strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|atof|gets|alloca|system)\s*\(")
COMMENT = re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.S)
TABLE_TEXT = re.compile(r'\s*"[^"]*",?')  # a line of a generated table
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


def sources():
    for top in TOP[:-1] + (FILTERS,):
        for path, _, names in os.walk(os.path.join(ROOT, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(path, name), ROOT)


def check_include(rel, header, breaches):
    room = os.path.dirname(rel)
    if header in ONLY and not re.fullmatch(ONLY[header], rel):
        breaches.append(f"{rel}: may not include <{header}>")
    if header.split("/")[0] not in TOP or os.path.dirname(header) == room:
        return
    allowed = MAY_INCLUDE_FILE.get(rel) or MAY_INCLUDE.get(room, [])
    if not any(re.fullmatch(pattern, header) for pattern in allowed):
        breaches.append(f"{rel}: {room} may not include {header}")


def template_layer(path):
    name = os.path.splitext(os.path.basename(path))[0]
    return next((i for i, names in enumerate(TEMPLATE_LAYERS) if name in names), None)


def check_layer(rel, header, breaches):
    """The layers of the template room."""
    if os.path.dirname(rel) != TEMPLATE or os.path.dirname(header) != TEMPLATE:
        return
    own, other = template_layer(rel), template_layer(header)
    if own is None or other is None:
        breaches.append(f"{rel}: it or {header} is in no layer of {TEMPLATE}")
    elif other > own:
        breaches.append(f"{rel}: {header} is in a higher layer")


def check_file(rel, text, breaches):
    if not text.startswith("/* SPDX-License-Identifier: MIT */"):
        breaches.append(f"{rel}: the first line is not the SPDX line")
    for header in INCLUDE.findall(text):
        check_include(rel, header, breaches)
        check_layer(rel, header, breaches)
    code = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    for n, line in enumerate(code.split("\n"), 1):
        for call in BANNED.findall(line):
            breaches.append(f"{rel}:{n}: {call} is banned")
    for n, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_COLUMNS and not TABLE_TEXT.fullmatch(line):
            breaches.append(f"{rel}:{n}: {len(line)} columns")


def check_names(files, breaches):
    """Known rooms, not too many files in one, no header called like a system's."""
    rooms = {}
    for rel in files:
        room, name = os.path.split(rel)
        rooms.setdefault(room, []).append(name)
        if name.endswith(".h") and name[:-2] in SYSTEM_NAMES:
            breaches.append(f"{rel}: <{name}> is a system header")
    for room, names in sorted(rooms.items()):
        n = sum(name.endswith(".c") for name in names)
        if room not in MAY_INCLUDE:
            breaches.append(f"{room}: an unknown folder")
        most = MAX_FILES_OF.get(room, MAX_FILES)
        if n > most:
            breaches.append(f"{room}: {n} .c files, more than {most}")


def check_cycles(texts, breaches):
    """Headers that include each other, whatever the rooms."""
    graph = {rel: [h for h in INCLUDE.findall(text) if h in texts] for rel, text in texts.items()}
    state = {}

    def visit(rel, path):
        state[rel] = "open"
        for header in graph[rel]:
            if state.get(header) == "open":
                breaches.append("include cycle: " + " -> ".join(path[path.index(header):] + [header]))
            elif header not in state:
                visit(header, path + [header])
        state[rel] = "done"

    for rel in sorted(graph):
        if rel not in state:
            visit(rel, [rel])


def room_lines(texts):
    """{folder: lines} of the product."""
    lines = {}
    for rel, text in texts.items():
        room = os.path.dirname(rel)
        if room != FILTERS:
            lines[room] = lines.get(room, 0) + text.count("\n")
    return lines


def check_budgets(lines, breaches):
    for room in sorted(set(BUDGETS) ^ (set(MAY_INCLUDE) - {FILTERS})):
        breaches.append(f"{room}: a room and a budget of lines come together")
    for room, n in sorted(lines.items()):
        if n > BUDGETS.get(room, n):
            breaches.append(f"{room}: {n} lines, its budget is {BUDGETS[room]}; take lines out of it, or give it the"
                            " budget of another room")


def check_ceiling(lines, breaches):
    base = os.environ.get("HEARTH_REFERENCE")
    if not base:
        print("HEARTH_REFERENCE is not set: lines and page are not compared with ceiling.json")
        return
    with open(os.path.join(base, "ceiling.json"), encoding="utf-8") as f:
        ceiling = json.load(f)
    page = os.path.join(ROOT, PAGE)
    for what, n, most in (
            ("the product", sum(lines.values()), ceiling["product_lines"]),
            ("the sum of all budgets", sum(BUDGETS.values()), ceiling["product_lines"]),
            (PAGE, os.path.getsize(page) if os.path.exists(page) else 0, ceiling["chat_page_bytes"])):
        if n > most:
            breaches.append(f"{what}: {n} {'bytes' if what == PAGE else 'lines'}, the ceiling is {most}")


def print_budgets(lines):
    """Each room's lines, up to the next hundred."""
    print("BUDGETS = {")
    for room in MAY_INCLUDE:
        if room != FILTERS:
            print(f'    "{room}": {-(-lines.get(room, 0) // 100) * 100},')
    print("}")


def main():
    breaches, texts = [], {}
    for rel in sources():
        with open(os.path.join(ROOT, rel), encoding="utf-8") as f:
            texts[rel] = f.read()
        check_file(rel, texts[rel], breaches)
    lines = room_lines(texts)
    if sys.argv[1:] == ["--budgets"]:
        print_budgets(lines)
        return 0
    check_names(texts, breaches)
    check_cycles(texts, breaches)
    check_budgets(lines, breaches)
    check_ceiling(lines, breaches)
    for breach in breaches:
        print(breach)
    print(f"{len(texts)} files, {len(breaches)} breaches")
    return 1 if breaches or not texts else 0


if __name__ == "__main__":
    sys.exit(main())
