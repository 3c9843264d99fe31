#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what Hearth needs, builds it, and serves the built-in demo model on 127.0.0.1:8080.
# Arguments go to `hearth serve`: deploy/quickstart.sh --model /path/to/SmolLM2-135M-Instruct
set -eu
cd "$(dirname "$0")/.."
. deploy/packages.sh

# shellcheck disable=SC2086
install_packages $BUILD_PACKAGES

[ -f build/build.ninja ] || meson setup build --buildtype=release
ninja -C build hearth

cat <<'TEXT'

Hearth is built. Once it says "ready", try from another terminal:

  curl http://127.0.0.1:8080/v1/completions -H 'Content-Type: application/json' \
       -d '{"prompt": "Once upon a time", "max_tokens": 100, "temperature": 0}'

  curl -N http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \
       -d '{"messages": [{"role": "user", "content": "What is 2+2?"}], "stream": true}'

TEXT
exec build/hearth serve "$@"
