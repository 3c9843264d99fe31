#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""embed.py FILE NAME OUTPUT: writes a C source with the bytes of a file as the array srv_embedded_NAME of
embedded.h. An array, not an assembler's .incbin: it survives link-time optimisation and every compiler.

An HTML page comes with a gzip copy, an entity tag of each, and the hashes by which a content security
policy allows its one <style> and its one <script>; a page that such a policy would break fails the build."""
import base64
import gzip
import hashlib
import re
import sys

BYTES_PER_LINE = 24
MAX_PAGE_BYTES = 64 << 10


def array(name, data):
    lines = [",".join(map(str, data[i:i + BYTES_PER_LINE])) for i in range(0, len(data), BYTES_PER_LINE)]
    return (f"const unsigned char srv_embedded_{name}[] = {{\n" + ",\n".join(lines) + ",0\n};\n"
            f"const size_t srv_embedded_{name}_bytes = {len(data)};\n")


def string(name, text):
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'const char srv_embedded_{name}[] = "{quoted}";\n'


def entity_tag(data):
    return '"' + hashlib.sha256(data).hexdigest()[:32] + '"'


def policy_hash(page, tag):
    """The source expression for the text between <tag> and </tag>, of which there must be one."""
    texts = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
    if len(texts) != 1 or len(re.findall(rf"<{tag}\b", page)) != 1:
        sys.exit(f"embed.py: the page must have exactly one <{tag}>, without attributes")
    return "'sha256-" + base64.b64encode(hashlib.sha256(texts[0].encode()).digest()).decode() + "'"


def check_page(data):
    if len(data) > MAX_PAGE_BYTES:
        sys.exit(f"embed.py: the page has {len(data)} bytes; at most {MAX_PAGE_BYTES} are allowed")
    if b"\r" in data:
        sys.exit("embed.py: the page has carriage returns; a browser would hash another text")
    markup = re.sub(r"<(script|style)>.*?</\1>", "", data.decode(), flags=re.S)
    refused = re.search(r"\s(style|on\w+|src)\s*=", markup)
    if refused:
        sys.exit(f"embed.py: the page has the attribute {refused.group(1)}, which its policy forbids")


def page_facts(name, data):
    check_page(data)
    zipped = gzip.compress(data, 9, mtime=0)
    return "".join([
        array(f"{name}_gzip", zipped),
        string(f"{name}_etag", entity_tag(data)),
        string(f"{name}_gzip_etag", entity_tag(zipped)),
        string(f"{name}_script_hash", policy_hash(data.decode(), "script")),
        string(f"{name}_style_hash", policy_hash(data.decode(), "style")),
    ])


def main():
    path, name, output = sys.argv[1:]
    with open(path, "rb") as f:
        data = f.read()
    source = '#include "server/embedded.h"\n\n' + array(name, data)
    if path.endswith(".html"):
        source += page_facts(name, data)
    with open(output, "w", encoding="ascii") as f:
        f.write(source)


if __name__ == "__main__":
    main()
