#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds the kernels and their check static for AArch64 and runs the check under qemu-user.
# neon.sh SOURCE_ROOT WORK_DIR; exit 77 (skipped) without the cross compiler or the emulator.
set -eu
root=$1 work=$2
cc=${AARCH64_CC:-aarch64-linux-gnu-gcc}
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64 || true)
command -v "$cc" >/dev/null && [ -n "$qemu" ] || {
    echo "no $cc or no qemu-aarch64: apt install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static"
    exit 77
}

mkdir -p "$work"
rm -f "$work"/*.o
flags="-std=gnu11 -D_GNU_SOURCE -ffp-contract=off -fno-math-errno -Wall -Wextra -I$root"
# kernel FILE FLAG ...: compiles one file.
kernel()
{
    f=$1
    shift
    "$cc" $flags -O3 "$@" -c "$root/engine/kernels/$f.c" -o "$work/$f.o"
}
for f in ref select cpu layout blocks neon; do
    kernel $f
done
kernel neondot -march=armv8.2-a+dotprod
kernel neonbf16 -march=armv8.2-a+dotprod+bf16
# -O2: gcc 12 fails in its vectoriser on the check at -O3
for f in check_kernels check_bench; do
    "$cc" $flags -O2 -c "$root/tests/check/$f.c" -o "$work/$f.o"
done
"$cc" -static "$work"/*.o -o "$work/check_kernels" -lm

# check CPU LEVEL ...: the level is the best one of a CPU that has what it needs and no more.
check()
{
    cpu=$1 best=$2
    shift 2
    "$qemu" -cpu "$cpu" "$work/check_kernels" --rounds 1 --best "$best" "$@" || {
        echo "CPU $cpu, level $best: exit status $?" >&2
        exit 1
    }
}
check cortex-a57 neon
check cortex-a76 neondot --level neondot
check max neonbf16 --level neonbf16 # QEMU has BF16 since 6.1
