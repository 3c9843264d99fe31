#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""portable.py STAGE OUT: makes OUT/hearth-VERSION-linux-ARCHITECTURE, a directory that runs where it is put, of STAGE,
which `meson install --destdir` filled from a build with --prefix=/usr.

The program's libraries are copied beside it and found by $ORIGIN; libraries that it opens at run time are the
system's, but for libedit. glibc/ has the C library and its loader for systems whose own is older. Prints the
directory. Needs ldd and patchelf; a library that is not in the table below is an error, so that nothing is shipped
unseen. licenses/ has what each library's Debian package says, libraries.json where it comes from.
"""
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

GLIBC = {"ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1",
         "libresolv.so.2", "libnss_dns.so.2", "libnss_files.so.2"}
# opened at run time, and small enough to be carried
OPENED = ("libedit.so.2",)
# file -> licence under which it is carried, as an SPDX expression
LICENSES = {
    "libbsd.so.0": "BSD-3-Clause",
    "libedit.so.2": "BSD-3-Clause",
    "libffi.so.8": "MIT",
    "libgmp.so.10": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libgnutls.so.30": "LGPL-2.1-or-later",
    "libhogweed.so.6": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libidn2.so.0": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libjansson.so.4": "MIT",
    "libmd.so.0": "BSD-3-Clause",
    "libmicrohttpd.so.12": "LGPL-2.1-or-later",
    "libnettle.so.8": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libp11-kit.so.0": "BSD-3-Clause",
    "libpcre2-8.so.0": "BSD-3-Clause",
    "libtasn1.so.6": "LGPL-2.1-or-later",
    "libtinfo.so.6": "X11-distribute-modifications-variant",
    "libunistring.so.2": "LGPL-3.0-or-later OR GPL-2.0-or-later",
    "libutf8proc.a": "MIT",
    "libutf8proc.so.2": "MIT",
}
GLIBC_LICENSE = "LGPL-2.1-or-later"

LAUNCHER = """#!/bin/sh
# Runs bin/hearth with the C library of glibc/, for systems whose own is older than {glibc}.
here=$(dirname "$(readlink -f "$0")")/..
exec "$here/glibc/ld-linux-x86-64.so.2" --library-path "$here/glibc:$here/lib" "$here/bin/hearth" "$@"
"""
README = """Hearth {version} for Linux on {machine}, with its libraries

    bin/hearth serve                     the demo model on 127.0.0.1:8080
    bin/hearth serve --model DIRECTORY   a model in Hugging Face's format

Nothing has to be installed: bin/hearth needs glibc {glibc} or newer; `ldd --version` says which is there.
On older systems bin/hearth-older takes its place; it brings its own.

`hearth pull` needs the system's libcurl (libcurl3-gnutls or libcurl4), `--gemm blas` its OpenBLAS.
share/ has completions, the man page, an example of the configuration and a systemd unit.
licenses/ has the licences of the libraries in lib/ and glibc/, and libraries.json their versions: they are unchanged
files of Debian packages, whose sources Debian publishes, and may be replaced by others of the same interface.
"""


def version():
    with open(os.path.join(ROOT, "meson.build"), encoding="utf-8") as f:
        return re.search(r"^  version: '([0-9.]+)',$", f.read(), re.M).group(1)


def needed(path):
    """{name: path} of all libraries that a program or library needs, itself excluded."""
    said = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"^\t(\S+) => (/\S+)", said, re.M))
    loader = re.search(r"^\t(/\S+)/(\S+) \(", said, re.M)
    if loader:
        found[loader.group(2)] = "/".join(loader.groups())
    missing = re.findall(r"^\t(\S+) => not found", said, re.M)
    if missing:
        sys.exit(f"{path}: not found: {', '.join(missing)}")
    return found


def opened(name):
    """The path of a library that the program opens at run time."""
    said = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True,
                          env=dict(os.environ, PATH=os.environ["PATH"] + ":/sbin:/usr/sbin")).stdout
    found = re.search(rf"^\t{re.escape(name)} \(libc6,x86-64\) => (\S+)$", said, re.M)
    if not found:
        sys.exit(f"{name} is not installed")
    return found.group(1)


def package_of(path):
    """(package, version, source package) of Debian that has the file."""
    for name in (os.path.realpath(path), path, os.path.realpath(path).replace("/usr/lib/", "/lib/", 1)):
        said = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True, check=False)
        if said.returncode == 0:
            package = said.stdout.split(": ")[0].split(",")[0]
            break
    else:
        sys.exit(f"{path}: no package has it")
    shown = subprocess.run(["dpkg-query", "-W", "-f", "${Package}\t${Version}\t${source:Package}", package],
                           capture_output=True, text=True, check=True).stdout
    return shown.split("\t")


def glibc_wanted(path):
    """The newest version of glibc of which the file uses a symbol, as a tuple."""
    said = subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True).stdout
    found = [tuple(map(int, v.split("."))) for v in re.findall(r"\bGLIBC_(\d+\.\d+(?:\.\d+)?)\)?\s", said)]
    return max(found, default=(2, 0))


def carry(tree, libraries, linked):
    """Copies libraries into lib/ and glibc/, and what is known of each, and of those linked in, into libraries.json."""
    os.makedirs(os.path.join(tree, "lib"))
    os.makedirs(os.path.join(tree, "glibc"))
    os.makedirs(os.path.join(tree, "licenses"))
    rows = []
    for name, path in sorted({**libraries, **linked}.items()):
        folder = "glibc" if name in GLIBC else "lib"
        if folder == "lib" and name not in LICENSES:
            sys.exit(f"{name}: its licence is not in the table of {os.path.basename(__file__)}")
        target = path if name in linked else os.path.join(tree, folder, name)
        if name in libraries:
            shutil.copyfile(os.path.realpath(path), target)
            os.chmod(target, 0o755 if name.startswith("ld-linux") else 0o644)
        package, package_version, source = package_of(path)
        shutil.copyfile(f"/usr/share/doc/{package}/copyright", os.path.join(tree, "licenses", package))
        with open(target, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()
        rows.append({"file": f"{'linked-in' if name in linked else folder}/{name}", "package": package, "version": package_version, "source": source,
                     "license": LICENSES.get(name, GLIBC_LICENSE), "sha256": digest})
    with open(os.path.join(tree, "libraries.json"), "w", encoding="utf-8") as f:
        json.dump(rows, f, indent=1)
        f.write("\n")


def main():
    stage, out = sys.argv[1:]
    usr, machine = os.path.join(stage, "usr"), platform.machine()
    if machine != "x86_64":
        sys.exit(f"{machine}: only x86_64 has been tried")
    tree = os.path.join(out, f"hearth-{version()}-linux-{machine}")
    program = os.path.join(tree, "bin", "hearth")
    shutil.rmtree(tree, ignore_errors=True)
    os.makedirs(os.path.dirname(program))
    shutil.copy(os.path.join(usr, "bin", "hearth"), program)
    subprocess.run(["strip", "--strip-unneeded", program], check=True)

    libraries = needed(program)
    for name in OPENED:
        path = opened(name)
        libraries.update({name: path}, **needed(path))
    # what the C library's name service opens by itself
    folder = os.path.dirname(libraries["libc.so.6"])
    libraries.update({name: os.path.join(folder, name) for name in GLIBC if os.path.exists(os.path.join(folder, name))})
    archive = os.path.join(os.path.dirname(libraries["libjansson.so.4"]), "libutf8proc.a")
    archive = archive.replace("/lib/", "/usr/lib/", 1) if archive.startswith("/lib/") else archive
    carry(tree, libraries, {} if "libutf8proc.so.2" in libraries else {"libutf8proc.a": archive})
    # RPATH, not RUNPATH: it holds for what the libraries need in turn
    subprocess.run(["patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/../lib", program], check=True)

    newest = max(glibc_wanted(p) for p in [program] + [os.path.join(tree, "lib", n) for n in os.listdir(os.path.join(tree, "lib"))])
    glibc = ".".join(map(str, newest))
    values = {"version": version(), "machine": machine, "glibc": glibc}
    launcher = os.path.join(tree, "bin", "hearth-older")
    for path, text in ((launcher, LAUNCHER), (os.path.join(tree, "README"), README)):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.format(**values))
    os.chmod(launcher, 0o755)
    for name in ("hearth", "man", "bash-completion", "zsh", "fish"):
        shutil.copytree(os.path.join(usr, "share", name), os.path.join(tree, "share", name))
    shutil.copytree(os.path.join(usr, "lib", "systemd", "system"), os.path.join(tree, "share", "hearth", "systemd"))
    shutil.copyfile(os.path.join(ROOT, "LICENSE"), os.path.join(tree, "LICENSE"))
    print(tree)


if __name__ == "__main__":
    main()
