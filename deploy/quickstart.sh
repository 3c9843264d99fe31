#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what Hearth needs, builds it, and serves the built-in demo model on 127.0.0.1:8080.
# Arguments go to `hearth serve`: deploy/quickstart.sh --model /path/to/SmolLM2-135M-Instruct
set -eu
cd "$(dirname "$0")/.."
. deploy/packages.sh

say() {
    echo "hearth: $*" >&2
}

# argument NAME DEFAULT ARGUMENT...: the last --NAME VALUE or --NAME=VALUE, else the default.
argument() {
    name=$1 found=$2
    shift 2
    while [ $# -gt 0 ]; do
        case $1 in
        "--$name") found=${2-} ;;
        "--$name="*) found=${1#*=} ;;
        esac
        shift
    done
    echo "$found"
}

# free_port HOST PORT: prints the port, for 0 one that is free; fails when nobody could listen there.
free_port() {
    python3 - "$1" "$2" <<'PY' 2>/dev/null
import socket, sys
host, port = sys.argv[1], int(sys.argv[2])
with socket.socket(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]) as s:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((host, port))
    s.listen()
    print(s.getsockname()[1])
PY
}

began=$(date +%s)

# passed: the seconds since the start.
passed() {
    echo $(($(date +%s) - began))
}

# count: shows on a terminal how far ninja is, until it is killed or the script has ended.
count() {
    while kill -0 $$ 2>/dev/null; do
        at=$(sed -n 's/^\[\([0-9]*\)\/\([0-9]*\)\].*/step \1 of \2, /p' build/quickstart.log | tail -n 1)
        printf '\rhearth: %s%s s \033[K' "$at" "$(passed)" >&2
        sleep 1
    done
}

# quietly WHAT COMMAND...: what the command prints is shown only if it fails.
quietly() {
    say "$1"
    shift
    mkdir -p build
    : >build/quickstart.log
    counter=
    if [ -t 2 ]; then
        count &
        counter=$!
    fi
    failed=0
    "$@" >build/quickstart.log 2>&1 || failed=1
    [ -z "$counter" ] || { kill "$counter" && printf '\r\033[K' >&2; }
    [ $failed = 1 ] || return 0
    tail -n 30 build/quickstart.log >&2
    say "'$*' failed; all that it said is in build/quickstart.log"
    exit 1
}

# value NAME: an option as the server will have it, whether from a flag, the environment or a file.
value() {
    echo "$config" | sed -n "s/^$1 = *//p"
}

# where: the address for curl.
where() {
    scheme=http
    [ -z "$(value tls-cert-file)" ] || scheme="-k https"
    if [ -n "$(value unix-socket)" ]; then
        echo "--unix-socket $(value unix-socket) http://localhost"
        return
    fi
    case $(value host) in
    0.0.0.0 | ::) echo "$scheme://127.0.0.1:$(value port)" ;;
    *:*) echo "$scheme://[$(value host)]:$(value port)" ;;
    *) echo "$scheme://$(value host):$(value port)" ;;
    esac
}

# talk: the address for people.
talk() {
    address=$(where)
    case $address in
    --unix-socket*) echo "by \`build/hearth chat --url unix:$(value unix-socket)\`" ;;
    *) echo "at ${address#-k }/ or by \`build/hearth chat\`" ;;
    esac
}

show_calls() {
    key=
    # shellcheck disable=SC2016
    [ -z "${HEARTH_API_KEY:-}$(value api-key-file)" ] || key='-H "Authorization: Bearer $HEARTH_API_KEY" '
    cat >&2 <<TEXT

Once the server says "ready", try from another terminal:

  curl $(where)/v1/completions $key-H 'Content-Type: application/json' \\
       -d '{"prompt": "Once upon a time", "max_tokens": 100, "temperature": 0}'

  curl -N $(where)/v1/chat/completions $key-H 'Content-Type: application/json' \\
       -d '{"messages": [{"role": "user", "content": "What is 2+2?"}], "stream": true}'

Or talk to it $(talk),
and for a real model \`build/hearth pull HuggingFaceTB/SmolLM2-135M-Instruct\`.

TEXT
}

# shellcheck disable=SC2086
install_packages $BUILD_PACKAGES

# A port that is taken is told before the build, as far as it is known without the program.
host=$(argument host "${HEARTH_HOST:-127.0.0.1}" "$@")
port=$(argument port "${HEARTH_PORT:-8080}" "$@")
case " $* ${HEARTH_CONFIG:+--config} ${HEARTH_UNIX_SOCKET:+--uds} " in
*" --config"* | *" --unix-socket"* | *" --uds"*) port=unknown ;;
esac
case $port in
*[!0-9]*) ;; # the server judges it
*) free_port "$host" "$port" >/dev/null || {
    say "cannot listen on $host port $port: does a server run there? --port 0 takes a free one"
    exit 1
} ;;
esac

[ -f build/build.ninja ] ||
    quietly "preparing the build, some seconds" meson setup build --buildtype=release
quietly "building, about a minute the first time" ninja -C build hearth
say "ready to serve after $(passed) s"

config=$(build/hearth serve --print-config "$@")
if [ "$(value port)" = 0 ]; then
    set -- "$@" --port "$(free_port "$(value host)" 0)"
    config=$(build/hearth serve --print-config "$@")
fi
show_calls
exec build/hearth serve "$@"
