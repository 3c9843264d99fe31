#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""wheel.py TREE OUT: packs what portable.py made as a wheel for pip, and prints its path. The package has the program,
its libraries and the demo model, and one entry point, `hearth`, that becomes the program. All files have the time
SOURCE_DATE_EPOCH."""
import base64
import hashlib
import os
import re
import sys
import time
import zipfile

# what the program and its libraries ask of the system: see glibc_wanted of portable.py
TAG = "py3-none-manylinux_2_36_x86_64"

MAIN = '''"""Hearth, a server for Llama-family language models on plain CPUs: `hearth serve`, or `python -m hearth serve`."""
import os
import sys

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "hearth")


def main():
    """Becomes the program, with the arguments of this process."""
    os.execv(PROGRAM, ["hearth", *sys.argv[1:]])
'''
METADATA = """Metadata-Version: 2.1
Name: hearth
Version: {version}
Summary: Server for Llama-family language models on plain CPUs, through the HTTP APIs of OpenAI and Anthropic
License: MIT
Classifier: License :: OSI Approved :: MIT License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Requires-Python: >=3.7
Description-Content-Type: text/plain

hearth serve [MODEL], the demo model without one, on 127.0.0.1:8080; hearth --help says the rest.
The package carries the program with its libraries: no compiler, no GPU, no further packages.
`hearth pull` needs the system's libcurl (libcurl3-gnutls or libcurl4).
"""


def contents(tree, version):
    """(name, bytes, executable) of all files but RECORD."""
    info = f"hearth-{version}.dist-info"
    yield "hearth/__init__.py", MAIN.encode(), False
    yield "hearth/__main__.py", b"from hearth import main\n\nmain()\n", False
    for folder in ("bin", "lib", "share/hearth/demo", "share/hearth/demo-embed", "share/hearth/demo-rerank"):
        for where, names, files in os.walk(os.path.join(tree, folder)):
            names.sort()
            for name in sorted(files):
                path = os.path.join(where, name)
                if name != "hearth-older":
                    with open(path, "rb") as f:
                        yield "hearth/" + os.path.relpath(path, tree), f.read(), os.access(path, os.X_OK)
    yield f"{info}/METADATA", METADATA.format(version=version).encode(), False
    yield f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: hearth\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode(), False
    yield f"{info}/entry_points.txt", b"[console_scripts]\nhearth = hearth:main\n", False
    for path in ["LICENSE"] + sorted(f"licenses/{n}" for n in os.listdir(os.path.join(tree, "licenses"))):
        with open(os.path.join(tree, path), "rb") as f:
            yield f"{info}/{path}", f.read(), False


def main():
    tree, out = sys.argv[1].rstrip("/"), sys.argv[2]
    version = re.match(r"hearth-([0-9.]+)-", os.path.basename(tree)).group(1)
    # zip knows no time before 1980, and no odd second
    date = max(time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6], (1980, 1, 1, 0, 0, 0))
    path = os.path.join(out, f"hearth-{version}-{TAG}.whl")
    record = ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        def add(name, data, executable):
            entry = zipfile.ZipInfo(name, date)
            entry.create_system = 3
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(entry, data, compresslevel=9)

        for name, data, executable in contents(tree, version):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(data)}\n"
            add(name, data, executable)
        name = f"hearth-{version}.dist-info/RECORD"
        add(name, f"{record}{name},,\n".encode(), False)
    print(path)


if __name__ == "__main__":
    main()
