#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`hearth pull` beside huggingface_hub (PyPI) on fake_hub.py: the trees are byte-identical, each reads the other's
cache offline, and each continues what the other left half done."""
import os
import stat
import tempfile

from hearth_server import enter_clients_venv, run_cases

enter_clients_venv()

# pylint: disable=wrong-import-position
import test_pull  # noqa: E402
from fake_hub import FakeHub, cut, status  # noqa: E402

test_pull.need_libcurl()
HUB = test_pull.HUB = FakeHub().__enter__()
os.environ.update({"HF_ENDPOINT": HUB.url, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1",
                   "HF_HUB_ETAG_TIMEOUT": "30", "HF_HUB_DOWNLOAD_TIMEOUT": "30", "HF_HUB_DISABLE_TELEMETRY": "1",
                   "HF_HOME": tempfile.mkdtemp(prefix="hearth-hf-"), "NO_PROXY": "*"})
for variable in test_pull.VARIABLES:
    if variable not in ("HF_ENDPOINT", "HF_HOME"):
        os.environ.pop(variable, None)
os.umask(0o022)
import huggingface_hub as hf  # noqa: E402

PATTERNS = [*test_pull.WANTED]


def snapshot(directory, **kw):
    return hf.snapshot_download("acme/tiny", cache_dir=directory, allow_patterns=PATTERNS, **kw)


def tree_of(root):
    """path -> (kind, mode, content) of everything but locks; the client's listings are 0600 by accident."""
    found = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [n for n in folders if n != ".locks"]
        for name in [*folders, *names]:
            full = os.path.join(folder, name)
            st = os.lstat(full)
            mode = 0 if "/trees/" in full else stat.S_IMODE(st.st_mode)
            if stat.S_ISLNK(st.st_mode):
                what = os.readlink(full)
            elif stat.S_ISREG(st.st_mode):
                with open(full, "rb") as f:
                    what = f.read()
            else:
                what = None
            found[os.path.relpath(full, root)] = (stat.S_IFMT(st.st_mode), mode, what)
    return found


def test_trees_are_identical():
    test_pull.add()
    with test_pull.home() as ours, tempfile.TemporaryDirectory() as theirs:
        test_pull.must(ours.pull(), 0)
        snapshot(theirs)
        a, b = tree_of(ours.cache), tree_of(theirs)
        assert sorted(a) == sorted(b), sorted(set(a) ^ set(b))
        for path, entry in a.items():
            assert entry == b[path], (path, str(entry)[:200], str(b[path])[:200])


def test_the_client_reads_our_tree_offline():
    test_pull.add()
    with test_pull.home() as h:
        path = test_pull.must(h.pull(), 0).out.strip()
        HUB.forget()
        for name in test_pull.WANTED:
            found = hf.hf_hub_download("acme/tiny", name, cache_dir=h.cache, local_files_only=True)
            assert os.path.samefile(found, os.path.join(path, name))
        assert snapshot(h.cache, local_files_only=True) == path
        report = hf.scan_cache_dir(h.cache)
        assert not report.warnings and [r.repo_id for r in report.repos] == ["acme/tiny"]
        assert HUB.paths() == []


def test_we_read_the_clients_tree_offline():
    test_pull.add()
    with test_pull.home() as h:
        path = snapshot(h.cache)
        HUB.forget()
        assert test_pull.must(h.pull(HF_HUB_OFFLINE="1"), 0).out.strip() == path and HUB.paths() == []
        test_pull.must(h.pull(), 0)
        assert HUB.paths() == ["/api/models/acme/tiny/revision/main"]
        assert "complete" in h.run("list").out


def test_each_goes_on_from_the_others_half():
    test_pull.add()
    with test_pull.home() as h:
        HUB.on("/", cut(1000000), server="store")
        HUB.on("/", status(404), times=None, server="store")
        assert h.pull().code != 0 and len(h.parts()) == 1
        HUB.forget()
        assert test_pull.snapshot_of(snapshot(h.cache)) == test_pull.WANTED
    with test_pull.home() as h:
        HUB.on("/", cut(1000000), times=None, server="store")
        try:
            snapshot(h.cache)
        except Exception:  # pylint: disable=broad-except
            pass
        HUB.forget()
        path = test_pull.must(h.pull(), 0).out.strip()
        assert test_pull.snapshot_of(path) == test_pull.WANTED and h.parts() == []


if __name__ == "__main__":
    run_cases(globals())
