#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The .deb, the tarball with its libraries and the wheel, made of an installation of this build: fields, files, modes,
the same bytes twice, and that the program starts. Where commits come from. What happens to the packages on other
systems is shown by packages_run.py. Cases whose tools are missing are left out, which is said. 15 seconds."""
import base64
import functools
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile

from hearth_server import ROOT, Hearth, run_cases

BUILD = os.environ.get("HEARTH_BUILD_ROOT") or os.path.dirname(os.environ["HEARTH_BIN"])
WORK = tempfile.TemporaryDirectory()
STAGE = os.path.join(WORK.name, "stage")
COMMIT_PY = os.path.join(ROOT, "server", "commit.py")
EPOCH = "1795000001"


def text_of(*parts):
    with open(os.path.join(ROOT, *parts), encoding="utf-8") as f:
        return f.read()


VERSION = re.search(r"^  version: '(.*)',$", text_of("meson.build"), re.M).group(1)


def run(*command, **env):
    p = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120,
                       env=dict(os.environ, SOURCE_DATE_EPOCH=EPOCH, **env))
    assert p.returncode == 0, (command, p.stdout, p.stderr)
    return p.stdout


def has(*programs):
    missing = [name for name in programs if not shutil.which(name)]
    if missing:
        print(f"  (left out: no {', '.join(missing)})")
    return not missing


def stage():
    """This build as if it had been configured with --prefix=/usr."""
    if os.path.exists(STAGE):
        return
    shown = json.loads(run("meson", "introspect", BUILD, "--buildoptions"))
    prefix = next(o["value"] for o in shown if o["name"] == "prefix")
    whole = os.path.join(WORK.name, "whole")
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", whole)
    os.makedirs(STAGE)
    os.rename(whole + prefix, os.path.join(STAGE, "usr"))
    for etc in (os.path.join(STAGE, "usr", "etc"), os.path.join(whole, "etc")):
        if os.path.exists(etc):
            os.rename(etc, os.path.join(STAGE, "etc"))
    for path in ("usr/lib/systemd/system/hearth.service", "usr/share/hearth/api-keys.conf", "etc/hearth/hearth.ini"):
        with open(os.path.join(STAGE, path), "r+", encoding="utf-8") as f:
            text = f.read().replace(f"{prefix}/etc/", "/etc/").replace(f"{prefix}/", "/usr/")
            f.seek(0)
            f.truncate()
            f.write(text)


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def made_twice(make):
    """What make(folder) made, which is the same bytes both times."""
    stage()
    paths = []
    for _ in range(2):
        paths.append(make(tempfile.mkdtemp(dir=WORK.name)))
    assert digest(paths[0]) == digest(paths[1]), "two builds of one tree differ"
    return paths[0]


def test_where_the_commit_comes_from():
    with tempfile.TemporaryDirectory() as d:
        shown = lambda *given: run(sys.executable, COMMIT_PY, d, *given).strip()  # noqa: E731
        assert shown() == "unknown" and shown("") == "unknown" and shown("abc-1") == "abc-1"
        archival = os.path.join(d, ".git_archival.txt")
        shutil.copy(os.path.join(ROOT, ".git_archival.txt"), archival)  # as a checkout has it
        assert shown() == "unknown"
        with open(archival, "w", encoding="utf-8") as f:
            f.write("node: " + "0123456789" * 4 + "\n")
        assert shown() == "012345678901"
        git = lambda *args: run("git", "-C", d, "-c", "user.name=a", "-c", "user.email=a@b.c", *args).strip()  # noqa: E731
        git("init", "-q")
        git("add", ".")
        git("commit", "-qm", "one")
        git("tag", "v1")
        assert shown() == git("rev-parse", "--short=12", "HEAD")
        with open(archival, "a", encoding="utf-8") as f:
            f.write("changed\n")
        assert shown() == git("rev-parse", "--short=12", "HEAD") + "-dirty"
        p = subprocess.run([sys.executable, COMMIT_PY, d, 'a"b'], capture_output=True, text=True, check=False, timeout=60)
        assert p.returncode == 1 and 'commit \'a"b\'' in p.stderr, p.stderr


def test_an_archive_of_the_repository_names_its_commit():
    if not os.path.exists(os.path.join(ROOT, ".git")):
        print("  (not a checkout)")
        return
    path = os.path.join(WORK.name, "archive.tar")
    run("git", "-C", ROOT, "archive", "-o", path, "HEAD", ".git_archival.txt")
    with tarfile.open(path) as tar:
        text = tar.extractfile(".git_archival.txt").read().decode()
    assert re.fullmatch(r"node: [0-9a-f]{40}\n", text), text


def fields_of(deb):
    shown = run("dpkg-deb", "--field", deb)
    return dict(re.findall(r"^([A-Z][\w-]*): (.*(?:\n .*)*)", shown, re.M))


def test_deb():
    if not has("dpkg-deb", "dpkg-shlibdeps", "strip"):
        return
    deb = made_twice(lambda out: run(os.path.join(ROOT, "deploy", "debian", "build.sh"), STAGE, out).strip())
    fields = fields_of(deb)
    assert os.path.basename(deb) == f"hearth_{VERSION}-1_{fields['Architecture']}.deb"
    assert fields["Package"] == "hearth" and fields["Version"] == f"{VERSION}-1"
    for library in ("libc6", "libmicrohttpd", "libjansson", "libpcre2-8-0"):
        assert re.search(rf"\b{library}\w* \(>= ", fields["Depends"]), fields["Depends"]
    for opened in ("openblas", "curl", "libedit"):
        assert opened not in fields["Depends"] and opened in fields["Recommends"], fields
    root = os.path.join(WORK.name, "root")
    run("dpkg-deb", "--raw-extract", deb, root)
    linked_in = os.path.exists(os.path.join(root, "usr/share/doc/hearth/copyright.utf8proc"))
    assert linked_in == ("libutf8proc" not in fields["Depends"]), fields["Depends"]
    listed = run("dpkg-deb", "--contents", deb)
    assert not re.search(r"^\S+ (?!root/root)", listed, re.M) and not re.search(r"^.{8}w", listed, re.M), listed
    for path in ("etc/hearth/hearth.ini", "usr/bin/hearth", "usr/lib/systemd/system/hearth.service",
                 "usr/lib/systemd/system/hearth.socket", "usr/lib/sysusers.d/hearth.conf",
                 "usr/share/bash-completion/completions/hearth", "usr/share/zsh/vendor-completions/_hearth",
                 "usr/share/fish/vendor_completions.d/hearth.fish", "usr/share/man/man1/hearth.1.gz",
                 "usr/share/doc/hearth/changelog.gz", "usr/share/doc/hearth/changelog.Debian.gz",
                 "usr/share/doc/hearth/copyright", "usr/share/hearth/demo/model.safetensors",
                 "usr/share/hearth/demo-embed/model.safetensors", "usr/share/hearth/demo-rerank/model.safetensors"):
        assert os.path.isfile(os.path.join(root, path)), path
    with open(os.path.join(root, "DEBIAN", "conffiles"), encoding="utf-8") as f:
        assert f.read() == "/etc/hearth/hearth.ini\n"
    words = lambda text: re.sub(r"^ \.?", "", text, flags=re.M).split()  # noqa: E731
    with open(os.path.join(root, "usr/share/doc/hearth/copyright"), encoding="utf-8") as f:
        assert words(f.read().split("License: MIT\n")[1]) == text_of("LICENSE").split("authors\n", 1)[1].split()
    for script in ("postinst", "prerm", "postrm"):
        path = os.path.join(root, "DEBIAN", script)
        assert os.stat(path).st_mode & 0o777 == 0o755
        run("sh", "-n", path)
    assert run(os.path.join(root, "usr/bin/hearth"), "--version").startswith(f"hearth {VERSION} (commit ")


def script(name, *args):
    return run(sys.executable, os.path.join(ROOT, "deploy", "release", name), *args).strip()


@functools.lru_cache
def portable():
    stage()
    tree = script("portable.py", STAGE, tempfile.mkdtemp(dir=WORK.name))
    assert os.path.basename(tree) == f"hearth-{VERSION}-linux-x86_64"
    return tree


def has_portable_tools():
    with open("/etc/os-release", encoding="utf-8") as f:
        is_base = 'VERSION_ID="12"' in f.read() and os.uname().machine == "x86_64"
    if not is_base:
        print("  (left out: releases are made on Debian 12, x86-64, whose libraries portable.py knows)")
        return False
    return has("dpkg-query", "ldd", "objdump", "patchelf", "strip")


def test_tarball_with_libraries():
    if not has_portable_tools():
        return
    archive = made_twice(lambda out: script("archive.py", portable(), f"{out}/a.tar.gz") + f"{out}/a.tar.gz")
    with tarfile.open(archive) as tar:
        assert all(m.uid == m.gid == 0 and m.mtime == int(EPOCH) for m in tar), "owners and times"
    unpacked = tempfile.mkdtemp(dir=WORK.name)
    run("tar", "-xzf", archive, "-C", unpacked)
    tree = os.path.join(unpacked, f"hearth-{VERSION}-linux-x86_64")
    program = os.path.join(tree, "bin", "hearth")
    found = dict(re.findall(r"^\t(\S+) => (\S+)", run("ldd", program), re.M))
    outside = {n for n, path in found.items() if not path.startswith(tree)}
    assert outside <= {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2"}, outside
    with open(os.path.join(tree, "libraries.json"), encoding="utf-8") as f:
        rows = json.load(f)
    carried = sorted(f"{folder}/{n}" for folder in ("glibc", "lib") for n in os.listdir(os.path.join(tree, folder)))
    assert carried == sorted(row["file"] for row in rows if not row["file"].startswith("linked-in/"))
    for row in rows:
        linked_in = row["file"].startswith("linked-in/")
        assert row["license"] and (linked_in or digest(os.path.join(tree, row["file"])) == row["sha256"]), row
        assert os.path.getsize(os.path.join(tree, "licenses", row["package"])) > 0
    assert not any("openblas" in path or "curl" in path for path in carried)
    for name in ("hearth", "hearth-older"):
        with Hearth(command=[os.path.join(tree, "bin", name), "serve", "--port", "0"]) as h:
            assert h.get("/v1/models")[2]["data"][0]["id"] == "hearth-demo"


def test_wheel():
    if not has_portable_tools():
        return
    wheel = made_twice(lambda out: script("wheel.py", portable(), out))
    assert os.path.basename(wheel) == f"hearth-{VERSION}-py3-none-manylinux_2_36_x86_64.whl"
    info = f"hearth-{VERSION}.dist-info"
    with zipfile.ZipFile(wheel) as z:
        record = dict(line.split(",", 1) for line in z.read(f"{info}/RECORD").decode().splitlines())
        assert set(record) == set(z.namelist())
        for name in z.namelist():
            sha = base64.urlsafe_b64encode(hashlib.sha256(z.read(name)).digest()).rstrip(b"=").decode()
            assert record[name] == f"sha256={sha},{z.getinfo(name).file_size}" or name == f"{info}/RECORD", name
        assert stat.S_IMODE(z.getinfo("hearth/bin/hearth").external_attr >> 16) == 0o755
        assert f"\nVersion: {VERSION}\n" in z.read(f"{info}/METADATA").decode()
        assert "hearth = hearth:main" in z.read(f"{info}/entry_points.txt").decode()
        assert not any(n.startswith("hearth/glibc") or "older" in n for n in z.namelist())


if __name__ == "__main__":
    run_cases(globals())
