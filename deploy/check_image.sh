#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# check_image.sh [--base DIR] [full | small]: builds the Dockerfile with buildah (chroot isolation, no daemon), says
# how much the image adds to its base (small: at most 12 MB), runs it as its non-root user on a read-only root, and
# streams from it through nginx. Needs root, buildah, nginx, curl, and a local image named
# docker.io/library/debian:bookworm-slim; --base makes that from a debootstrap root.
set -eu
cd "$(dirname "$0")/.."
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
port=18480
proxy_port=18481

if [ "${1:-}" = --base ]; then
    container=$(buildah from scratch)
    buildah add -q "$container" "$2" / >/dev/null
    buildah run "$container" sh -c 'apt-get clean; rm -rf /var/lib/apt/lists/*' # as the published one
    buildah commit -q "$container" docker.io/library/debian:bookworm-slim >/dev/null
    buildah rm "$container" >/dev/null
    shift 2
fi
variant=${1:-full}

buildah build --format docker --pull-never --build-arg "VARIANT=$variant" \
    --build-arg "COMMIT=$(git rev-parse --short=12 HEAD 2>/dev/null || true)" -t hearth-check . >build-image.log 2>&1 || {
    tail -20 build-image.log
    exit 1
}
rm -f build-image.log
container=$(buildah from --pull-never hearth-check)
root=$(buildah mount "$container")
scratch=$(mktemp -d)
server=
proxy=
hub=
finish() {
    [ -z "$proxy" ] || kill "$proxy" 2>/dev/null || true
    [ -z "$hub" ] || kill "$hub" 2>/dev/null || true
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    wait 2>/dev/null || true
    umount "$scratch/root/models" "$scratch/root" 2>/dev/null || true
    buildah umount "$container" >/dev/null
    buildah rm "$container" >/dev/null
    rm -rf "$scratch"
}
trap finish EXIT

# size DIR: what its files hold, in units of 100 kB
size() {
    echo $(($(du -s -b "$1" | cut -f1) / 100000))
}

base=$(buildah from --pull-never docker.io/library/debian:bookworm-slim)
above=$(($(size "$root") - $(size "$(buildah mount "$base")")))
buildah umount "$base" >/dev/null
buildah rm "$base" >/dev/null
echo "image root: $(($(size "$root") / 10)) MB, $((above / 10)).$((above % 10)) MB above its base, user $(buildah inspect --format '{{.OCIv1.Config.User}}' "$container")"
[ "$variant" != small ] || [ "$above" -le 120 ] || {
    echo "the small image may add 12 MB" >&2
    exit 1
}
mkdir "$scratch/root"
mount --bind "$root" "$scratch/root"
mount -o remount,bind,ro "$scratch/root"
HEARTH_HOST=127.0.0.1 HEARTH_PORT=$port OPENBLAS_NUM_THREADS=1 MALLOC_ARENA_MAX=2 \
    chroot --userspec=10001:10001 "$scratch/root" /usr/bin/hearth serve 2>"$scratch/log" &
server=$!
for _ in $(seq 100); do
    chroot --userspec=10001:10001 "$scratch/root" /usr/bin/hearth healthcheck "http://127.0.0.1:$port/readyz" \
        >/dev/null 2>&1 && break
    sleep 0.1
done
chroot --userspec=10001:10001 "$scratch/root" /usr/bin/hearth healthcheck "http://127.0.0.1:$port/healthz"
echo "health check by the binary itself: ok, uid $(stat -c %u /proc/$server)"

cat >"$scratch/nginx.conf" <<CONF
daemon off; master_process off; pid $scratch/nginx.pid; error_log $scratch/error.log;
events { worker_connections 64; }
http {
  access_log off; client_body_temp_path $scratch/b; proxy_temp_path $scratch/p; fastcgi_temp_path $scratch/f;
  uwsgi_temp_path $scratch/u; scgi_temp_path $scratch/s;
  server { listen 127.0.0.1:$proxy_port; location / { proxy_pass http://127.0.0.1:$port; } }
}
CONF
nginx -c "$scratch/nginx.conf" -p "$scratch" 2>/dev/null &
proxy=$!
for _ in $(seq 50); do
    curl -s -o /dev/null "http://127.0.0.1:$proxy_port/readyz" && break
    sleep 0.1
done
curl -sN "http://127.0.0.1:$proxy_port/v1/chat/completions" -H 'Content-Type: application/json' -H 'Host: localhost' \
    -d '{"messages": [{"role": "user", "content": "What is 2+2?"}], "temperature": 0, "stream": true}' |
    tee "$scratch/stream" | tail -3
grep -q '^data: \[DONE\]' "$scratch/stream"
kill -TERM "$server"
wait "$server" && echo "ended by SIGTERM with status 0"
server=

[ "$variant" = full ] || exit 0
# the volume, as Docker makes a new one: with the owner and mode that the image has there
mount -t tmpfs -o "uid=$(stat -c %u "$root/models"),gid=$(stat -c %g "$root/models"),mode=755" tmpfs "$scratch/root/models"
PYTHONPATH=tests/e2e python3 -c '
from fake_hub import FakeHub, files_of
import time
with FakeHub() as hub:
    hub.add("acme/tiny", files_of("deploy/demo"))
    print(hub.url, flush=True)
    time.sleep(600)' >"$scratch/hub" &
hub=$!
until [ -s "$scratch/hub" ]; do sleep 0.1; done
env -i PATH="$PATH" HF_HUB_CACHE="$(buildah inspect --format '{{.OCIv1.Config.Env}}' "$container" | sed 's/.*HF_HUB_CACHE=\([^] ]*\).*/\1/')" \
    HF_ENDPOINT="$(cat "$scratch/hub")" HEARTH_HOST=127.0.0.1 HEARTH_PORT=$port \
    chroot --userspec=10001:10001 "$scratch/root" /usr/bin/hearth -hf acme/tiny 2>"$scratch/log" &
server=$!
for _ in $(seq 100); do
    curl -s "http://127.0.0.1:$port/v1/models" | grep -q '"id":"acme/tiny"' && break
    sleep 0.1
done
curl -s "http://127.0.0.1:$port/v1/models" | grep -q '"id":"acme/tiny"' || {
    cat "$scratch/log"
    exit 1
}
echo "fetched into $(ls -d "$scratch/root/models/"*) and served by name, uid $(stat -c %u /proc/$server), read-only root"
