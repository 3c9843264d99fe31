#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""embed.py FILE NAME OUTPUT: writes a C source with the bytes of a file as the array srv_embedded_NAME of
embedded.h. An array, not an assembler's .incbin: it survives link-time optimisation and every compiler."""
import sys

BYTES_PER_LINE = 24


def main():
    path, name, output = sys.argv[1:]
    with open(path, "rb") as f:
        data = f.read()
    lines = [",".join(map(str, data[i:i + BYTES_PER_LINE])) for i in range(0, len(data), BYTES_PER_LINE)]
    with open(output, "w", encoding="ascii") as f:
        f.write(f'#include "server/embedded.h"\n\n'
                f"const unsigned char srv_embedded_{name}[] = {{\n" + ",\n".join(lines) + ",0\n};\n"
                f"const size_t srv_embedded_{name}_bytes = {len(data)};\n")


if __name__ == "__main__":
    main()
