# SPDX-License-Identifier: MIT
# Sourced by quickstart.sh, release.sh and tests/run.sh: installs Debian packages that are not there yet.
#
#   install_packages PACKAGE...      as root, or by sudo; says what it does; fails with a clear line

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        echo "hearth: '$*' needs root, and sudo is not installed" >&2
        return 1
    fi
}

missing_packages() {
    for package in "$@"; do
        status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$status" = installed ] || printf '%s ' "$package"
    done
}

install_packages() {
    missing=$(missing_packages "$@")
    [ -n "$missing" ] || return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "hearth: please install the equivalents of: $missing" >&2
        return 1
    fi
    echo "hearth: installing $missing"
    as_root apt-get update -qq
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        $missing >/dev/null
}

LIBRARY_PACKAGES="libmicrohttpd-dev libjansson-dev libopenblas-pthread-dev libpcre2-dev libutf8proc-dev nettle-dev
    libcurl4-gnutls-dev libedit-dev"
BUILD_PACKAGES="gcc libc6-dev meson ninja-build pkg-config $LIBRARY_PACKAGES"
RELEASE_PACKAGES="binutils dpkg-dev git gzip patchelf python3 python3-venv"
