# SPDX-License-Identifier: MIT
"""Small models for tests: variations of the demo model, random weights. Standard library only."""
import contextlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEMO = os.path.join(ROOT, "deploy", "demo")
INDEX = "model.safetensors.index.json"


def write_file(path, data):
    """data: bytes, text, or an object to be written as JSON."""
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else (data if isinstance(data, str) else json.dumps(data)).encode())


# ---- safetensors ------------------------------------------------------------------------------------

def read_weights(directory=DEMO, name="model.safetensors"):
    """(header, data)"""
    with open(os.path.join(directory, name), "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        return json.loads(f.read(n)), f.read()


def pack(header, data, length=None):
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensors(header):
    return sorted((n for n in header if n != "__metadata__"), key=lambda n: header[n]["data_offsets"])


def subset(header, data, names):
    """The file that holds only these tensors."""
    out, blob = {}, b""
    for name in names:
        begin, end = header[name]["data_offsets"]
        out[name] = dict(header[name], data_offsets=[len(blob), len(blob) + end - begin])
        blob += data[begin:end]
    return pack(out, blob)


# ---- models -----------------------------------------------------------------------------------------

class DemoCopy:
    """A copy of the demo model, without some files; the test replaces others one by one."""

    def __init__(self, *without):
        self.without = without

    def __enter__(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.dir = os.path.join(self.tmp.name, "model")
        os.mkdir(self.dir)
        for name in os.listdir(DEMO):
            path = os.path.join(DEMO, name)
            if name not in self.without and os.path.isfile(path):
                os.symlink(path, self.path(name))
        return self

    def __exit__(self, *_):
        self.tmp.cleanup()

    def path(self, name):
        return os.path.join(self.dir, name)

    def remove(self, name):
        os.unlink(self.path(name))

    def put(self, name, data):
        if os.path.lexists(self.path(name)):
            self.remove(name)
        write_file(self.path(name), data)

    def config(self, **changes):
        with open(os.path.join(DEMO, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        config.update(changes)
        self.put("config.json", config)

    def tokenizer(self, change):
        """change(the file as an object) edits it"""
        with open(os.path.join(DEMO, "tokenizer.json"), encoding="utf-8") as f:
            tokenizer = json.load(f)
        change(tokenizer)
        self.put("tokenizer.json", tokenizer)

    def template(self, source):
        self.put("chat_template.jinja", source)

    def weights(self, change):
        """change(header, data) -> the bytes of the new file"""
        self.put("model.safetensors", change(*read_weights()))

    def shard(self):
        """Two shards and an index; returns (header, data, names of each shard)."""
        header, data = read_weights()
        names = tensors(header)
        parts = [names[::2], names[1::2]]
        for i, part in enumerate(parts):
            self.put(f"{i + 1}.safetensors", subset(header, data, part))
        self.put(INDEX, {"weight_map": {n: f"{i + 1}.safetensors"
                                        for i, part in enumerate(parts) for n in part}})
        self.remove("model.safetensors")
        return header, data, parts


@contextlib.contextmanager
def demo_without(*names):
    """The directory of a copy of the demo model without some of its files."""
    with DemoCopy(*names) as m:
        yield m.dir


@contextlib.contextmanager
def random_model(shape="small", given=None):
    """The directory of a model with random weights (tests/bench/make_model.py), or the given one."""
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory() as scratch:
        model = os.path.join(scratch, "model")
        maker = os.path.join(ROOT, "tests", "bench", "make_model.py")
        subprocess.run([sys.executable, maker, model, "--shape", shape], check=True)
        yield model


def hybrid_model(folder, name="lfm2-conv-bf16"):
    """A golden model with recurrent layers (tests/golden/models), with the demo's tokenizer and a longer context."""
    of = os.path.join(ROOT, "tests", "golden", "models", name)
    header, data = read_weights(of)
    with open(os.path.join(of, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    n_ids, out = 1024, b""
    for tensor in tensors(header):
        begin, end = header[tensor]["data_offsets"]
        values = data[begin:end]
        if tensor == "model.embed_tokens.weight":
            values = (values * n_ids)[:n_ids * (end - begin) // config["vocab_size"]]
            header[tensor]["shape"][0] = n_ids
        header[tensor]["data_offsets"] = [len(out), len(out) + len(values)]
        out += values
    write_file(os.path.join(folder, "model.safetensors"), pack(header, out))
    write_file(os.path.join(folder, "config.json"),
               {**config, "vocab_size": n_ids, "max_position_embeddings": 4096})
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(DEMO, file), folder)
    return folder
