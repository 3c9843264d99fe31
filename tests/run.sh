#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs what the tests need, builds, runs them, and ends with "N passed, N failed, N skipped".
#
#   tests/run.sh          everything: release build, official clients, LTO, clang, sanitizer builds, fuzz replay
#   tests/run.sh quick    the release build and its tests, without clients and sanitizers
#
# HEARTH_REFERENCE names a directory of reference data; tests that need it are skipped without it.
# HEARTH_OFFLINE=1 installs nothing; tests whose tools are missing are skipped.
set -u
cd "$(dirname "$0")/.." || exit 1
mode=${1:-all}
. deploy/packages.sh

TEST_PACKAGES="libcmocka-dev python3 python3-venv python3-pip python3-numpy"
PROXY_PACKAGES="nginx-light haproxy caddy"
NEON_PACKAGES="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static"
COMPILER_PACKAGES="clang"
FORMAT_PACKAGES="clang-format-14"
MANUAL_PACKAGES="mandoc"
SHELL_PACKAGES="zsh fish"
logs=()

# A table of result counts from the logs Meson leaves: one JSON object a line.
summarise() {
    python3 - "$@" <<'PY'
import json, sys
good, bad, skipped = 0, [], 0
for path in sys.argv[1:]:
    try:
        lines = open(path, encoding="utf-8").read().splitlines()
    except OSError as e:
        bad.append((f"{path}: {e.strerror}", []))
        continue
    for line in lines:
        row = json.loads(line)
        result = row["result"]
        if result in ("OK", "EXPECTEDFAIL"):
            good += 1
        elif result == "SKIP":
            skipped += 1
            said = row.get("stdout", "").strip().splitlines()
            print(f"SKIPPED {path.split('/')[0]}: {row['name']}: {said[-1] if said else 'no reason given'}")
        else:
            said = [row.get(stream, "").strip().splitlines()[-12:] for stream in ("stdout", "stderr")]
            bad.append((f"{path.split('/')[0]}: {row['name']}: {result}", sum(said, [])))
for name, said in bad:
    print("FAILED", name)
    for line in said:
        print("   ", line[:300])
print(f"{good} passed, {len(bad)} failed, {skipped} skipped")
sys.exit(1 if bad or good == 0 else 0)
PY
}

# build DIR SETUP-ARGS...: configures once, then builds.
build() {
    local dir=$1
    shift
    if [ ! -f "$dir/build.ninja" ]; then
        meson setup "$dir" "$@" || return 1
    fi
    ninja -C "$dir"
}

# run_tests DIR MESON-ARGS...: the exit status is judged from the log at the end. One test more than there are cores,
# because some wait.
run_tests() {
    local dir=$1
    shift
    rm -f "$dir/meson-logs/testlog.json"
    meson test -C "$dir" --no-rebuild --print-errorlogs --num-processes $(($(nproc) + 1)) "$@" || true
    cp "$dir/meson-logs/testlog.json" "$dir/testlog-${#logs[@]}.json" 2>/dev/null
    logs+=("$dir/testlog-${#logs[@]}.json")
}

# link_check NAME DIR SETUP-ARGS...: another way to build the program alone; the demo model's tests
# run on what came out. Counts as one test. Link-time optimisation is how distributions build.
link_check() {
    local name=$1 dir=$2 result=FAIL
    shift 2
    if [ "${CC:-gcc}" = clang ] && ! command -v clang >/dev/null; then
        result=SKIP
    elif build "$dir" --buildtype=release --werror -Dtests=disabled "$@" &&
        HEARTH_BIN="$PWD/$dir/hearth" python3 tests/e2e/test_demo.py; then
        result=OK
    fi
    mkdir -p "$dir"
    echo "{\"name\": \"$name\", \"result\": \"$result\", \"stdout\": \"no clang: apt install clang\"}" \
        >"$dir/testlog.json"
    logs+=("$dir/testlog.json")
}

# promtool comes out of Debian's package prometheus, which is not installed: its service would start.
fetch_promtool() {
    [ -x build/tools/promtool ] && return 0
    mkdir -p build/tools
    (cd build/tools || exit 1
        get() { apt-get download -qq -o APT::Sandbox::User=root prometheus; }
        { get || { as_root apt-get update -qq && get; }; } &&
        dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x --strip-components=3 ./usr/bin/promtool &&
        rm -f prometheus_*.deb)
}

# The official clients live in a virtual environment and a node_modules of the build folder.
install_clients() {
    if [ ! -x build/venv/bin/python ]; then
        python3 -m venv --system-site-packages build/venv || return 0
    fi
    build/venv/bin/python -m pip install --quiet --disable-pip-version-check \
        -r tests/e2e/requirements.txt || echo "hearth: the Python clients could not be installed"
    if [ ! -d build/venv/openai-older ]; then
        build/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
            --target build/venv/openai-older -r tests/e2e/requirements_older.txt ||
            echo "hearth: the older openai-python could not be installed"
    fi
    mkdir -p build/node
    cp tests/e2e/package.json build/node/
    (cd build/node && npm install --silent --no-audit --no-fund --omit=dev) ||
        echo "hearth: the Node clients could not be installed"
}

if [ "${HEARTH_OFFLINE:-0}" != 1 ]; then
    # shellcheck disable=SC2086
    install_packages $BUILD_PACKAGES $TEST_PACKAGES || exit 1
    # shellcheck disable=SC2086
    install_packages $FORMAT_PACKAGES || echo "hearth: the format of the C files will not be checked"
    # shellcheck disable=SC2086
    install_packages $MANUAL_PACKAGES || echo "hearth: the man page will not be checked"
    if [ "$mode" = all ]; then
        # shellcheck disable=SC2086
        install_packages $PROXY_PACKAGES || echo "hearth: tests behind missing proxies will be skipped"
        command -v npm >/dev/null || install_packages nodejs npm ||
            echo "hearth: tests with the Node clients will be skipped"
        command -v chromium >/dev/null || install_packages chromium ||
            echo "hearth: the chat page will not be tested in a browser"
        # shellcheck disable=SC2086
        install_packages $NEON_PACKAGES || echo "hearth: the NEON kernels will not be checked"
        # shellcheck disable=SC2086
        install_packages $RELEASE_PACKAGES || echo "hearth: tests of the packages will be left out"
        # shellcheck disable=SC2086
        install_packages $SHELL_PACKAGES || echo "hearth: the completions will be tested in bash alone"
        # shellcheck disable=SC2086
        install_packages $COMPILER_PACKAGES || echo "hearth: the build by clang will be skipped"
        command -v promtool >/dev/null || fetch_promtool ||
            echo "hearth: the checks by promtool will be skipped"
    fi
fi

# A build folder made before cmocka was there has to look again.
if [ -f build/build.ninja ] && [ ! -f build/tests/unit/server_api_read_json_fields ]; then
    meson setup --reconfigure build -Dtests=enabled || exit 1
fi
build build --buildtype=release --werror || { echo "0 passed, 1 failed"; exit 1; }
export HEARTH_NODE_MODULES="$PWD/build/node/node_modules"
export HEARTH_VENV="$PWD/build/venv"
export PATH="$PATH:$PWD/build/tools"

if [ "$mode" = quick ]; then
    run_tests build --no-suite clients --no-suite slow
else
    [ "${HEARTH_OFFLINE:-0}" = 1 ] || install_clients
    run_tests build
    link_check "the program linked with LTO" build-lto -Db_lto=true
    CC=clang link_check "the program by clang" build-clang
    build build-asan --native-file tests/presets/asan.ini || { echo "0 passed, 1 failed"; exit 1; }
    run_tests build-asan --no-suite clients --no-suite slow --no-suite source
    build build-tsan --native-file tests/presets/tsan.ini || { echo "0 passed, 1 failed"; exit 1; }
    run_tests build-tsan --no-suite clients --no-suite slow --no-suite source --no-suite one-thread \
        --no-suite golden --no-suite check --no-suite fuzz-corpus
fi
summarise "${logs[@]}"
