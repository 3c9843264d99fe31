#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Hearth on a whole Kubernetes of one node: boots it, applies deploy/kubernetes, and shows what a cluster must do.

    tests/cluster/cluster_run.py --programs FOLDER --definitions FOLDER

By hand, as root, on Linux; two CPUs and 3 GB are enough. Everything runs in namespaces of its own (sandbox.py) and
ends with them. docs/kubernetes.md lists the programs and the definitions of custom resources, with their publishers.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time

from checks import CHECKS, Failed, Trial
from cluster import Cluster
from image import add_libraries, add_program, dockerfile_config, loaded_library, write_image
from sandbox import most_memory, prepare, run_inside

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
DOCUMENTED = "registry.example/hearth:0.1.0"  # the name in docs/kubernetes.md
LIBCURL = "libcurl-gnutls.so.4"  # hearth pull opens it
PICKER = "registry.k8s.io/gateway-api-inference-extension/epp:v1.0.0"


def import_images(cluster, build):
    """Hearth's as the Dockerfile makes it, the picker's, and one that does nothing, for the pods' own containers."""
    tree = cluster.path("trees", "hearth")
    subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", tree], check=True)
    program = next(os.path.join(folder, "hearth") for folder, _, files in os.walk(tree)
                   if folder.endswith("/bin") and "hearth" in files)
    config = dockerfile_config(os.path.join(ROOT, "Dockerfile"))
    config["Entrypoint"] = [program.removeprefix(tree)]
    add_libraries(tree, program)
    add_program(tree, loaded_library(LIBCURL), loaded_library(LIBCURL))
    images = [("docker.io/library/hearth:trial", tree, config), (DOCUMENTED, tree, config)]
    for name, program, config in (
            ("docker.io/library/pause:trial", "sleep", {"Entrypoint": ["/program", "infinity"]}),
            (PICKER, "epp", {"Entrypoint": ["/program"], "User": "65532:65532"})):
        tree = cluster.path("trees", program)
        add_program(tree, cluster.program(program), "/program")
        images.append((name, tree, config))
    for name, tree, config in images:
        path = cluster.path("image.tar")
        write_image(path, name, tree, config)
        cluster.import_image(path)
        os.remove(path)


def trial(a):
    """Inside: boots, runs the checks, prints a line for each. Returns the exit status."""
    begin = time.monotonic()
    prepare(a.work)
    shutil.copytree(os.path.join(ROOT, "deploy", "demo"), "/run/model")
    results = []
    try:
        with Cluster(a.programs, a.work) as cluster:
            print(f"{time.monotonic() - begin:6.1f} s  the cluster has booted", flush=True)
            import_images(cluster, a.build)
            print(f"{time.monotonic() - begin:6.1f} s  the images are imported", flush=True)
            t = Trial(cluster, os.path.join(ROOT, "deploy", "kubernetes"), HERE, a.definitions)
            try:
                for check in CHECKS:
                    if not a.only or check.__name__ in a.only:
                        results.append(check(t))
                        print(f"{time.monotonic() - begin:6.1f} s  {check.__name__}: {results[-1]}", flush=True)
            except Failed:
                print(t.state())
                raise
    except Failed as e:
        print(f"{time.monotonic() - begin:6.1f} s  FAILED: {e}")
        return 1
    finally:
        if a.keep_logs:
            shutil.copytree(os.path.join(a.work, "logs"), a.keep_logs, dirs_exist_ok=True)
    memory = most_memory()
    print(f"{len(results)} checks hold after {time.monotonic() - begin:.0f} s" +
          (f"; at most {memory / 2**30:.2f} GiB of memory, files in memory included" if memory else ""))
    return 0


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    p.add_argument("--programs", required=True, type=os.path.abspath)
    p.add_argument("--definitions", required=True, type=os.path.abspath)
    p.add_argument("--build", default=os.path.join(ROOT, "build"), type=os.path.abspath)
    p.add_argument("--only", nargs="*", default=[], help="names of checks; pods_become_ready is needed by most")
    p.add_argument("--keep-logs", type=os.path.abspath)
    p.add_argument("--work", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.work:
        sys.exit(trial(a))
    if os.geteuid() != 0:
        sys.exit("namespaces and mounts need root")
    with tempfile.TemporaryDirectory(prefix="hearth-cluster-") as work:
        sys.exit(run_inside([sys.executable, *sys.argv, "--work", work]))


if __name__ == "__main__":
    main()
