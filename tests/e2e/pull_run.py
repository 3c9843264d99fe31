#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`hearth pull` at length, by hand: kill -9 at 40 byte positions and resume; speed and memory beside `curl` and, if
HEARTH_VENV has it, huggingface_hub, on loopback.

    pull_run.py [--mb 400] [--pace MIB_PER_S]

Exit status 1 if more than 256 KiB come twice after a kill, the memory is above 24 MiB, or the speed below half of
curl's (0.9 of it with --pace 110).
"""
import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time

import test_pull
from fake_hub import FakeHub, changed, stall

SLACK, SEED = 256 << 10, 7


def kill_and_resume(hub, rounds):
    worst = 0
    size = len(test_pull.WEIGHTS)
    rng = random.Random(SEED)
    for at in [1, size - 1] + [rng.randrange(1, size) for _ in range(rounds - 2)]:
        with test_pull.home() as h:
            hub.on("/", stall(at), server="store")
            p = h.start("pull", "acme/tiny", HF_HUB_DOWNLOAD_TIMEOUT="30")
            h.wait_for_part(at)
            p.kill()
            p.communicate()
            hub.forget()
            path = test_pull.must(h.pull(), 0).out.strip()
            assert test_pull.snapshot_of(path) == test_pull.WANTED
            worst = max(worst, hub.sent["store"] - (size - at))
    print(f"{rounds} kills: at most {worst} bytes came twice")
    return worst


def timed(command, env):
    """(seconds, peak RSS in MiB) of a command that must succeed."""
    start = time.monotonic()
    p = subprocess.run(["/usr/bin/time", "-f", "RSS %M", *command], env=env, capture_output=True, text=True, check=False,
                       timeout=600)
    seconds = time.monotonic() - start
    assert p.returncode == 0, p.stderr[-500:]
    return seconds, int(re.search(r"RSS (\d+)", p.stderr).group(1)) / 1024


def compare(hub, directory, mb, pace):
    weights = os.path.join(directory, "model.safetensors")
    with open(weights, "wb") as f:
        for _ in range(mb):
            f.write(os.urandom(1 << 20))
    repo = hub.add("acme/big", dict(test_pull.FILES, **{"model.safetensors": weights}))
    if pace:
        hub.on("/", changed(pace=pace << 20), times=None, server="store")
    url = f"{hub.url}/acme/big/resolve/{repo.refs['main']}/model.safetensors"
    rows = {}
    with tempfile.TemporaryDirectory(dir=directory) as d:
        rows["curl"] = timed(["curl", "-sSL", "-o", os.path.join(d, "x"), url], dict(os.environ))
    with tempfile.TemporaryDirectory(dir=directory) as d:
        h = test_pull.Home(d)
        rows["hearth"] = timed([test_pull.BIN, "pull", "acme/big"], h.env())
        rows["hearth, nothing to do"] = timed([test_pull.BIN, "pull", "acme/big"], h.env())
    client = os.path.join(os.environ.get("HEARTH_VENV", ""), "bin", "hf")
    if os.path.exists(client):
        with tempfile.TemporaryDirectory(dir=directory) as d:
            env = test_pull.Home(d).env(HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_PROGRESS_BARS="1")
            rows["huggingface_hub"] = timed([client, "download", "acme/big"], env)
    for name, (seconds, rss) in rows.items():
        print(f"{name:24} {seconds:7.2f} s  {mb / seconds:8.1f} MiB/s  RSS {rss:6.1f} MiB")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=400, help="size of the weights in MiB")
    parser.add_argument("--pace", type=int, default=0, help="MiB/s that the store sends; 0: unlimited")
    parser.add_argument("--kills", type=int, default=40)
    a = parser.parse_args()
    with FakeHub() as hub, tempfile.TemporaryDirectory() as directory:
        test_pull.HUB = hub
        test_pull.add()
        worst = kill_and_resume(hub, a.kills) if a.kills else 0
        hub.forget()
        rows = compare(hub, directory, a.mb, a.pace)
    share = rows["curl"][0] / rows["hearth"][0]
    good = worst <= SLACK and rows["hearth"][1] <= 24 and share >= (0.9 if a.pace else 0.5)
    print(f"speed: {share:.2f} of curl's")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
