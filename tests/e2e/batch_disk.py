# SPDX-License-Identifier: MIT
"""A batch directory on a disk that stops its server, fails, or loses power (tests/fault/disk.c), and the proof that a batch
survived it: each custom_id once, the bytes of a run that nothing disturbed, and all that an answer had announced."""
import contextlib
import hashlib
import http.client
import json
import os
import shutil

from hearth_server import BIN, Hearth
from test_batches import ONE, content, create, rows, upload, wait

LIBRARY = os.path.join(os.environ.get("HEARTH_BUILD_ROOT") or os.path.dirname(BIN), "tests", "fault", "libdisk.so")


def disk(directory, **settings):
    """Environment of a server for which the files below a directory are on such a disk."""
    options = filter(None, (os.environ.get("ASAN_OPTIONS"), "verify_asan_link_order=0"))  # the library comes before the sanitizer's
    return {"LD_PRELOAD": LIBRARY, "DISK_DIR": directory, "ASAN_OPTIONS": ":".join(options), **{k: str(v) for k, v in settings.items()}}


def until_killed(h, client):
    """Starts the server and runs a client. True: the server lived to the client's end, and is killed then."""
    try:
        h.start()
        client()
        return h.process.poll() is None
    except (OSError, http.client.HTTPException, AssertionError):
        if h.process.wait(10) != -9:
            raise
        return False
    finally:
        h.process.kill()
        h.process.wait()


# ---- what a batch must be -----------------------------------------------------------------------------

OTHER = b"another file\n"  # which is deleted


def plain(data, batch):
    """An output without the one thing that is the batch's own."""
    return data.replace(b'"created":%d' % batch["created_at"], b'"created":0')


@contextlib.contextmanager
def paused(h):
    """The engine rests meanwhile."""
    h.pause_engine()
    try:
        yield
    finally:
        h.resume_engine()


def run_one(h, text, note=lambda kind, item: None, cancels=False):
    """A batch from its upload to its end; note is told of each answer. Returns the output; cancels: None, and the server needs
    --debug-hooks on."""
    other = upload(h, OTHER)
    note("file", other)
    note("to be deleted", other)
    assert h.request("DELETE", f"/v1/files/{other['id']}")[0] == 200
    note("deleted", other)
    file = upload(h, text)
    note("file", file)
    with paused(h) if cancels else contextlib.nullcontext():  # so that few lines have ended
        batch = create(h, file["id"])
        note("batch", batch)
        if cancels:
            wait(h, batch["id"], "in_progress")
            status, _, answer = h.post(f"/v1/batches/{batch['id']}/cancel", {})
            assert status == 200, answer
            note("batch", answer)
    batch = wait(h, batch["id"], "cancelled" if cancels else "completed")
    note("batch", batch)
    return None if cancels else plain(content(h, batch["output_file_id"]), batch)


def check_batch(h, batch, wanted, cancels):
    """Each line once, in one of the files; the good ones have the bytes that they always have."""
    names = [r["custom_id"] for r in rows(wanted)]
    good, bad = [plain(content(h, batch[f]), batch) if batch[f] else b"" for f in ("output_file_id", "error_file_id")]
    assert batch["request_counts"] == {"total": len(names), "completed": good.count(b"\n"), "failed": bad.count(b"\n")}, batch
    if not cancels:
        assert good == wanted and batch["error_file_id"] is None, (batch, good[:1000])
    left = iter(wanted.splitlines())
    assert all(line in left for line in good.splitlines()), good[:1000]
    assert sorted(r["custom_id"] for r in rows(good + bad)) == sorted(names), batch


def check_survived(directory, text, announced, wanted, cancels=False):
    """Starts a server on what is left: announced says what clients have been told, as [(kind, item)]."""
    with Hearth(*ONE, "--batch-dir", directory) as h:
        seen = {kind: {item["id"]: item for item in h.get(path)[2]["data"]} for kind, path in (("file", "/v1/files"), ("batch", "/v1/batches"))}
        asked, deleted = [[item["id"] for kind, item in announced if kind == what] for what in ("to be deleted", "deleted")]
        for kind, item in announced:
            assert item["id"] in asked or item["id"] in seen[kind], (kind, item, seen)
            if kind == "batch" and item["status"] in ("completed", "cancelled"):
                assert seen[kind][item["id"]] == item, (item, seen)
        for file in seen["file"].values():
            data = content(h, file["id"])
            assert file["id"] not in deleted and len(data) == file["bytes"] and (file["purpose"] != "batch" or data in (text, OTHER)), file
        ids = list(seen["batch"])
        assert len(ids) <= 1, ids
        if not ids:
            inputs = [f for f, item in seen["file"].items() if item["bytes"] == len(text)]
            ids = [create(h, inputs[0] if inputs else upload(h, text)["id"])["id"]]
        batch = wait(h, ids[0], "completed", "cancelled")
        stopped = any(kind == "batch" and item["status"] == "cancelling" for kind, item in announced)
        assert batch["status"] == "completed" and not stopped or batch["status"] == "cancelled" and cancels, (batch, announced)
        check_batch(h, batch, wanted, batch["status"] == "cancelled")
        left = [name for folder in ("files", "batches") for name in os.listdir(os.path.join(directory, folder))]
        assert not [name for name in left if name.endswith((".tmp", ".new", ".results"))], left


# ---- a disk that was written down ----------------------------------------------------------------------

class Node:
    """A file or directory: as programs see it, and as it would be after a power loss."""

    def __init__(self, live):
        self.live, self.kept, self.syncs = live, type(live)(), 0

    def sync(self):
        self.kept, self.syncs = type(self.live)(self.live), self.syncs + 1


class Disk:
    """The calls that the library wrote down, played back one by one."""

    def __init__(self, top, log):
        self.top, self.nodes = Node({}), {}
        self.nodes[os.stat(top).st_ino] = self.top
        self.data, self.at = log, 0

    def step(self):
        """Plays the next call; False: there is none."""
        if self.at == len(self.data):
            return False
        end = self.data.index(b"\n", self.at)
        what, *args = self.data[self.at:end].decode().split(" ")
        self.at = end + 1
        getattr(self, "do_" + what)(*args)
        return True

    def make(self, folder, name, number, live):
        self.nodes[int(number)] = self.nodes[int(folder)].live[name] = Node(live)

    def do_none(self):
        pass

    def do_mkdir(self, folder, name, number):
        self.make(folder, name, number, {})

    def do_open(self, folder, name, number, made):
        if made == "2":
            self.make(folder, name, number, bytearray())
        elif made == "1":
            self.nodes[int(number)].live.clear()

    def do_write(self, number, at, n):
        at, n = int(at), int(n)
        live = self.nodes[int(number)].live
        live.extend(bytes(max(0, at - len(live))))
        live[at:at + n] = self.data[self.at:self.at + n]
        self.at += n

    def do_cut(self, number, n):
        del self.nodes[int(number)].live[int(n):]

    def do_sync(self, number):
        self.nodes[int(number)].sync()

    def do_rename(self, folder, name, to_folder, to):
        self.nodes[int(to_folder)].live[to] = self.nodes[int(folder)].live.pop(name)

    def do_unlink(self, folder, name):
        del self.nodes[int(folder)].live[name]

    def nameless(self):
        """Answers of lines that were synced, in a file whose name was not."""
        return [name for node in self.nodes.values() if isinstance(node.live, dict) for name, child in node.live.items()
                if name.endswith(".results") and child.kept and name not in node.kept]

    def image(self, kind, node=None):
        """What is left, as {path: bytes, or None for a directory}. killed: all; undone: only what was synced, names by
        their directory; emptied: all names, but of the bytes only those that were synced; zeroed: the others are zeros."""
        found = {}
        for name, child in (node or self.top).__dict__["kept" if kind == "undone" else "live"].items():
            if isinstance(child.live, dict):
                found[name] = None
                found |= {f"{name}/{path}": data for path, data in self.image(kind, child).items()}
            else:
                data = bytes(child.live if kind == "killed" else child.kept)
                found[name] = data.ljust(len(child.live), b"\0") if kind == "zeroed" else data
        return found


def write_image(image, to):
    shutil.rmtree(to, ignore_errors=True)
    os.mkdir(to)
    for path, data in image.items():
        path = os.path.join(to, path)
        if data is None:
            os.mkdir(path, 0o700)
        else:
            with open(path, "wb") as f:
                f.write(data)


def digest_of(image):
    return hashlib.sha256(repr(sorted(image.items())).encode()).digest()


class Record:
    """A directory whose server writes its calls down. told: what clients knew, and how long the log was then."""

    def __init__(self, top):
        self.top, self.log, self.told = os.path.join(top, "recorded"), os.path.join(top, "log"), []
        os.makedirs(self.top)
        self.directory = os.path.join(self.top, "b")

    def server(self):
        return Hearth(*ONE, "--debug-hooks", "on", "--batch-dir", self.directory, env=disk(self.top, DISK_LOG=self.log))

    def note(self, kind, item):
        self.told.append((os.path.getsize(self.log), kind, item))

    def images(self, kind):
        """Each image that differs from the one before it: (number of the call, image, what had been announced)."""
        with open(self.log, "rb") as f:
            d = Disk(self.top, f.read())
        last, number, more = None, 0, True
        while more:
            assert not d.nameless(), (number, d.nameless())
            image = d.image(kind)
            told = [(what, item) for at, what, item in self.told if at <= d.at]
            if last and digest_of(image) != digest_of(last[1]):
                yield last
            last = number, image, told
            more, number = d.step(), number + 1
        yield last


def check_power_loss(record, kind, text, wanted, top, only=lambda number: True, cancels=False):
    """Returns (images, of those that were tried)."""
    n, tried = 0, 0
    for number, image, told in record.images(kind):
        n += 1
        if not only(number):
            continue
        tried += 1
        to = os.path.join(top, "image")
        write_image(image, to)
        try:
            check_survived(os.path.join(to, "b"), text, told, wanted, cancels)
        except AssertionError as e:
            raise AssertionError(f"{kind} after call {number}: {e}\n{json.dumps({p: len(d or b'') for p, d in image.items()}, indent=1)}") from e
    return n, tried
