#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""soname.py COMPILER... NAME: prints the name under which programs that are linked with -lNAME find it at run time."""
import os
import subprocess
import sys
import tempfile

*compiler, name = sys.argv[1:]
with tempfile.TemporaryDirectory() as d:
    out = os.path.join(d, "out.so")
    subprocess.run([*compiler, "-shared", "-x", "c", os.devnull, "-o", out, "-Wl,--no-as-needed", f"-l{name}"], check=True)
    with open(out, "rb") as f:
        data = f.read()
# the only text of the string table that begins as the library's name does
begin = data.index(b"lib" + name.encode() + b".")
print(data[begin:data.index(b"\0", begin)].decode())
