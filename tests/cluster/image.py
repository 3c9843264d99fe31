# SPDX-License-Identifier: MIT
"""Container images without a builder: a program and its libraries, copied from this machine into an OCI archive.

    write_image(path, "hearth:trial", tree, {"User": "10001:10001", "Entrypoint": ["/usr/bin/hearth"]})
"""
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile


def libraries(program):
    """Paths of the shared libraries and the loader that a program needs; none if it is static."""
    shown = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return re.findall(r"(?:=> )?(/\S+) \(0x", shown)


def loaded_library(name):
    """The path of a library that programs load by its name when they need it."""
    shown = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    return re.search(rf"^\s*{re.escape(name)} .*=> (\S+)$", shown, re.M).group(1)


def copy(source, tree, path):
    to = os.path.join(tree, path.lstrip("/"))
    os.makedirs(os.path.dirname(to), exist_ok=True)
    shutil.copy2(source, to)


def add_libraries(tree, program):
    """Copies the libraries of a program into a tree, to where they are on this machine."""
    for path in libraries(program):
        copy(path, tree, path)


def add_program(tree, program, path):
    """Copies a program with its libraries into a tree; path: its own there."""
    copy(program, tree, path)
    add_libraries(tree, program)


def add_file(archive, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def as_root(info):
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def write_image(path, name, tree, config):
    """Writes an OCI archive with one layer, which holds the tree. config: User, Env, Entrypoint, Cmd."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as t:
        t.add(tree, arcname=".", filter=as_root)
    layer = layer.getvalue()
    blobs = {}

    def put(data, media_type):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": media_type, "digest": "sha256:" + digest, "size": len(data)}

    layer_entry = put(layer, "application/vnd.oci.image.layer.v1.tar")
    config_entry = put(json.dumps({
        "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64", "os": "linux", "config": config,
        "rootfs": {"type": "layers", "diff_ids": [layer_entry["digest"]]}}).encode(),
        "application/vnd.oci.image.config.v1+json")
    manifest = put(json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config_entry,
        "layers": [layer_entry]}).encode(), "application/vnd.oci.image.manifest.v1+json")
    manifest["annotations"] = {"io.containerd.image.name": name}
    with tarfile.open(path, "w") as t:
        add_file(t, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        add_file(t, "index.json", json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode())
        for digest, data in blobs.items():
            add_file(t, "blobs/sha256/" + digest, data)


def dockerfile_config(path):
    """User, variables, entry point and command of a Dockerfile's last stage."""
    with open(path, encoding="utf-8") as f:
        stage = re.split(r"^FROM ", f.read().replace("\\\n", " "), flags=re.M)[-1]

    def value(word):
        return re.search(rf"^{word} +(.*)$", stage, re.M).group(1).strip()

    return {"User": value("USER"), "Env": ["PATH=/usr/bin:/bin", *value("ENV").split()],
            "Entrypoint": json.loads(value("ENTRYPOINT")), "Cmd": json.loads(value("CMD"))}
