#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds with coverage, runs the tests (all but suite `slow`), and prints the covered lines of engine,
# tokenizer and server; fails below the project's goals.
#
#   tests/coverage.sh [BUILD-FOLDER]        build-coverage by default
#
# Needs gcovr; where it is missing, it is installed into the build folder from PyPI. Tests that need
# HEARTH_REFERENCE or HEARTH_VENV are skipped without them, which costs a few percent. Kernels of
# levels that this processor does not have are left out.
set -u
cd "$(dirname "$0")/.." || exit 1
dir=${1:-build-coverage}

if [ ! -f "$dir/build.ninja" ]; then
    meson setup "$dir" --native-file tests/presets/coverage.ini || exit 1
fi
ninja -C "$dir" || exit 1
dir=$(cd "$dir" && pwd)
gcovr=$(command -v gcovr) || gcovr=$dir/venv/bin/gcovr
if [ ! -x "$gcovr" ]; then
    python3 -m venv "$dir/venv" && "$dir/venv/bin/pip" install --quiet gcovr || exit 1
fi

# Counts of earlier runs, and notes of objects that the build no longer has.
find "$dir" -name '*.gcda' -delete
ninja -C "$dir" -t cleandead >/dev/null
find "$dir" -name '*.gcno' | while read -r note; do [ -f "${note%.gcno}.o" ] || rm -f "$note"; done
meson test -C "$dir" --no-rebuild --no-suite slow || echo "some tests failed: their lines may be missing"

# gate FOLDER GOAL EXTRA...: one line of result.
failed=0
gate() {
    local folder=$1 goal=$2 percent
    shift 2
    "$gcovr" --root . --object-directory "$dir" --filter "$folder/" "$@" \
        --gcov-ignore-parse-errors=all --merge-mode-functions=separate \
        --json-summary "$dir/coverage-$folder.json" --txt "$dir/coverage-$folder.txt" \
        >"$dir/coverage-$folder.log" 2>&1 "$dir" || { cat "$dir/coverage-$folder.log"; failed=1; return; }
    percent=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["line_percent"])' \
        "$dir/coverage-$folder.json")
    echo "$folder: $percent % of lines, goal $goal % (details: $dir/coverage-$folder.txt)"
    python3 -c 'import sys; sys.exit(float(sys.argv[1]) < float(sys.argv[2]))' "$percent" "$goal" || failed=1
}

absent=(--exclude 'engine/kernels/.*neon.*')
grep -q avx512_bf16 /proc/cpuinfo || absent+=(--exclude 'engine/kernels/avx512bf16')
grep -q avx512f /proc/cpuinfo || absent+=(--exclude 'engine/kernels/.*avx512.*')
grep -q avx2 /proc/cpuinfo || absent+=(--exclude 'engine/kernels/.*avx2.*')
gate engine 90 "${absent[@]}"
gate tokenizer 90
gate server 85
exit $failed
