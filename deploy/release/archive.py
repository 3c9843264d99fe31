#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""archive.py DIRECTORY FILE: writes a .tar.gz that depends on names, modes and contents alone: sorted, owned by root,
all of the time SOURCE_DATE_EPOCH."""
import gzip
import os
import sys
import tarfile


def main():
    directory, out = sys.argv[1].rstrip("/"), sys.argv[2]
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])

    def plain(info):
        info.uid = info.gid = 0
        info.uname = info.gname = "root"
        info.mtime = epoch
        info.mode = 0o755 if info.mode & 0o100 else 0o644
        return info

    with open(out, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, epoch) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(directory, os.path.basename(directory), filter=plain)  # sorted since Python 3.7


if __name__ == "__main__":
    main()
