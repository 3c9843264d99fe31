#!/bin/sh
# SPDX-License-Identifier: MIT
# install_config.sh FILE PATH: installs a configuration file below DESTDIR, unless there is one.
set -eu
target="${DESTDIR:-}$2"
[ -e "$target" ] || install -D -m 644 "$1" "$target"
