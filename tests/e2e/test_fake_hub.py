#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""fake_hub.py is what huggingface_hub takes for the hub: snapshots, pages, branches, commits, every class of error,
and a body that ends early. The client runs against it unchanged; what it does not accept is a defect of the fake."""
import os
import tempfile

from fake_hub import FakeHub, changed, cut, no_answer, status
from hearth_server import enter_clients_venv, run_cases

enter_clients_venv()

HUB = FakeHub().__enter__()
os.environ.update({"HF_ENDPOINT": HUB.url, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1",
                   "HF_HUB_ETAG_TIMEOUT": "30", "HF_HUB_DOWNLOAD_TIMEOUT": "30", "HF_HUB_DISABLE_TELEMETRY": "1",
                   "HF_HOME": tempfile.mkdtemp(prefix="hearth-hf-"), "NO_PROXY": "*"})
for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
    os.environ.pop(name, None)

# pylint: disable=wrong-import-position
import huggingface_hub as hf  # noqa: E402
from huggingface_hub import errors  # noqa: E402

FILES = {"config.json": b'{"a": 1}', "tokenizer.json": b'{"b": "\xc3\xa9"}' * 500, "empty.txt": b"",
         "model.safetensors": bytes(range(256)) * 1200, "sub/folder/notes.md": b"# notes\n"}


def snapshot(repo, directory, **kwargs):
    return hf.snapshot_download(repo, cache_dir=directory, **kwargs)


def must_raise(kind, call):
    try:
        call()
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


def check_files(path, wanted):
    found = {}
    for folder, _, names in os.walk(path):
        for file in names:
            full = os.path.join(folder, file)
            with open(full, "rb") as f:
                found[os.path.relpath(full, path)] = f.read()
    assert found == wanted, (sorted(found), sorted(wanted))


def test_a_whole_snapshot():
    repo = HUB.add("acme/whole", FILES)
    with tempfile.TemporaryDirectory() as d:
        path = snapshot("acme/whole", d)
        assert os.path.basename(path) == repo.refs["main"]
        check_files(path, FILES)
        tree = hf.get_cached_repo_tree("acme/whole", cache_dir=d)
        assert {f.path: (f.size, f.blob_id) for f in tree} == {
            e.path: (e.size, e.oid) for e in repo.commits[repo.refs["main"]].values()}
        HUB.forget()
        assert snapshot("acme/whole", d) == path and HUB.paths() == ["/api/models/acme/whole/revision/main"]


def test_a_name_without_an_organisation():
    HUB.add("gpt", FILES)
    with tempfile.TemporaryDirectory() as d:
        check_files(snapshot("gpt", d), FILES)


def test_pages():
    HUB.add("acme/pages", {f"f{i:03}": b"%d" % i for i in range(47)})
    HUB.page_entries = 10
    try:
        names = [f.path for f in hf.HfApi().list_repo_tree("acme/pages", recursive=True)]
    finally:
        HUB.page_entries = 1000
    assert names == [f"f{i:03}" for i in range(47)], names


def test_branches_tags_and_commits():
    repo = HUB.add("acme/revisions", FILES)
    first = repo.refs["main"]
    second = repo.commit(dict(FILES, **{"config.json": b'{"a": 2}'}), "refs/pr/1")
    with tempfile.TemporaryDirectory() as d:
        assert snapshot("acme/revisions", d).endswith(first)
        assert snapshot("acme/revisions", d, revision="refs/pr/1").endswith(second)
        assert snapshot("acme/revisions", d, revision=second).endswith(second)
        with open(os.path.join(d, "models--acme--revisions", "refs", "refs", "pr", "1"), encoding="ascii") as f:
            assert f.read() == second


def test_a_renamed_repository():
    repo = HUB.add("acme/new", FILES)
    HUB.add("acme/old", {}, moved_to="acme/new")
    with tempfile.TemporaryDirectory() as d:
        path = snapshot("acme/old", d)
        assert "models--acme--old" in path and path.endswith(repo.refs["main"])


def test_not_found():
    repo = HUB.add("acme/there", FILES)
    HUB.add("acme/hidden", FILES, private=True)
    with tempfile.TemporaryDirectory() as d:
        must_raise(errors.RepositoryNotFoundError, lambda: snapshot("acme/nothing", d))
        must_raise(errors.RepositoryNotFoundError, lambda: snapshot("acme/nothing", d, token="hf_good"))
        must_raise(errors.RepositoryNotFoundError, lambda: snapshot("acme/hidden", d))
        check_files(snapshot("acme/hidden", d, token="hf_good"), FILES)
        must_raise(errors.RevisionNotFoundError, lambda: snapshot("acme/there", d, revision="v9"))
        e = must_raise(errors.RemoteEntryNotFoundError, lambda: hf.hf_hub_download("acme/there", "x", cache_dir=d))
        assert e.response.headers["X-Repo-Commit"] == repo.refs["main"]


def test_gated_and_bad_tokens():
    HUB.add("acme/gated", FILES, gated=True)
    with tempfile.TemporaryDirectory() as d:
        must_raise(errors.GatedRepoError, lambda: snapshot("acme/gated", d))
        must_raise(errors.GatedRepoError, lambda: snapshot("acme/gated", d, token="hf_noaccess"))
        e = must_raise(errors.HfHubHTTPError, lambda: hf.model_info("acme/gated", token="hf_wrong"))
        assert e.response.status_code == 401 and not isinstance(e, errors.RepositoryNotFoundError), e
        check_files(snapshot("acme/gated", d, token="hf_good"), FILES)


def test_a_body_that_ends_early_is_resumed():
    """The client keeps whole pieces of 10 MiB."""
    files = {"model.safetensors": bytes(11 << 20)}
    HUB.add("acme/cut", files)
    HUB.forget()
    HUB.on("/", cut((10 << 20) + 1), server="store")
    with tempfile.TemporaryDirectory() as d:
        check_files(snapshot("acme/cut", d), files)
    ranges = [r.headers.get("Range") for r in HUB.requests if r.server == "store" and r.method == "GET"]
    assert ranges == [None, f"bytes={10 << 20}-"], ranges


def test_errors_of_a_busy_hub():
    HUB.add("acme/busy", FILES)
    HUB.on("/api/models/acme/busy/tree", status(503))
    HUB.on("/api/models/acme/busy/tree", status(429, {"Retry-After": "0"}))
    with tempfile.TemporaryDirectory() as d:
        check_files(snapshot("acme/busy", d), FILES)
    HUB.on("/api/models/acme/busy", status(500))
    e = must_raise(errors.HfHubHTTPError, lambda: hf.model_info("acme/busy"))
    assert e.response.status_code == 500, e
    HUB.on("/api/models/acme/busy", no_answer)
    must_raise(Exception, lambda: hf.model_info("acme/busy", timeout=0.2))
    HUB.forget()


def test_links_are_signed_and_want_no_token():
    HUB.add("acme/links", FILES)
    with tempfile.TemporaryDirectory() as d:
        HUB.forget()
        snapshot("acme/links", d, token="hf_good")
        assert all("authorization" not in (k.lower() for k in r.headers) for r in HUB.requests if r.server == "store")
        HUB.links_last = False  # they are over before they are followed
        e = must_raise(errors.HfHubHTTPError, lambda: snapshot("acme/links", d, force_download=True))
        HUB.links_last = True
        assert e.response.status_code == 403, e
        HUB.forget()


def test_wrong_content_is_not_taken():
    HUB.add("acme/short", FILES)
    HUB.on("/", changed(body=b"x", length=1), times=None, server="store")
    with tempfile.TemporaryDirectory() as d:
        must_raise(OSError, lambda: snapshot("acme/short", d))
    HUB.forget()


if __name__ == "__main__":
    run_cases(globals())
