#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Makes a release of the commit that is checked out:
#
#   deploy/release.sh [--images] OUT
#   deploy/release.sh --arm64 OUT
#
# The first writes into the new folder OUT the source tarball, the .deb, the tarball with its libraries, the wheel, the
# bill of materials, and SHA256SUMS; with --images (docker or buildah) also both images, as archives. The second adds the
# .deb for arm64 to OUT, by a cross compiler; it needs `dpkg --add-architecture arm64 && apt-get update` before. The version is that of
# meson.build, the time of everything the commit's: the same commit on the same system gives the same bytes. Run it on
# Debian 12, whose C library is the oldest that the result then needs.
set -eu
cd "$(dirname "$0")/.."
. deploy/packages.sh

images=no arm64=no
[ "${1:-}" != --images ] || {
    images=yes
    shift
}
[ "${1:-}" != --arm64 ] || {
    arm64=yes
    shift
}
[ $# -eq 1 ] || {
    echo "usage: deploy/release.sh [--images | --arm64] OUT" >&2
    exit 2
}
[ -z "$(git status --porcelain)" ] || {
    echo "hearth: there are changes that no commit has: git status" >&2
    exit 1
}
[ "$arm64" = yes ] || mkdir "$1"
out=$(cd "$1" && pwd)
version=$(sed -n "s/^  version: '\([0-9.]*\)',$/\1/p" meson.build)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC

build=build-release

# stage NAME MESON-ARGUMENT...: builds and installs into build-release/NAME/stage.
stage() {
    tree=$build/$1
    shift
    rm -rf "$tree"
    meson setup "$tree/build" --prefix=/usr --sysconfdir=/etc --libdir=lib --buildtype=release -Dtests=disabled \
        -Dblas=enabled -Dhub=enabled -Dchat=enabled -Dstatic_utf8proc=true "$@" >/dev/null
    ninja -C "$tree/build" --quiet
    meson install -C "$tree/build" --no-rebuild --quiet --destdir "$PWD/$tree/stage"
}

sums() {
    (cd "$out" && rm -f SHA256SUMS && sha256sum -- * >.sums && mv .sums SHA256SUMS && cat SHA256SUMS)
}

# shellcheck disable=SC2086
if [ "$arm64" = yes ]; then
    install_packages gcc libc6-dev meson ninja-build pkg-config gcc-aarch64-linux-gnu $RELEASE_PACKAGES
    install_packages $(printf '%s:arm64 ' $LIBRARY_PACKAGES)
    stage arm64 --cross-file deploy/release/arm64.ini
    COMMIT=$(server/commit.py . "") DEB_HOST_ARCH=arm64 deploy/debian/build.sh "$build/arm64/stage" "$out"
    sums
    exit
fi

# shellcheck disable=SC2086
install_packages $BUILD_PACKAGES $RELEASE_PACKAGES
stage native
mkdir "$build/native/tree"

git archive --format=tar --prefix="hearth-$version/" HEAD | gzip -9n >"$out/hearth-$version.tar.gz"
deploy/debian/build.sh "$build/native/stage" "$out"
tree=$(deploy/release/portable.py "$build/native/stage" "$build/native/tree")
deploy/release/archive.py "$tree" "$out/$(basename "$tree").tar.gz"
deploy/release/wheel.py "$tree" "$out"

[ -x "$build/venv/bin/python" ] || python3 -m venv "$build/venv"
"$build/venv/bin/pip" install --quiet --disable-pip-version-check -r deploy/release/requirements.txt
"$build/venv/bin/python" deploy/release/sbom.py "$tree" "$out"

# image VARIANT: builds it and writes it as an archive that `docker load` reads.
image() {
    name=hearth:$version$1
    set -- --build-arg "VARIANT=${1#-}" --build-arg "COMMIT=$(git rev-parse --short=12 HEAD)" -t "$name" .
    if command -v buildah >/dev/null; then
        buildah build --format docker --timestamp "$SOURCE_DATE_EPOCH" "$@"
        buildah push "$name" "docker-archive:$out/$(echo "$name" | tr : -)-image.tar:$name"
    else
        docker build "$@"
        docker save -o "$out/$(echo "$name" | tr : -)-image.tar" "$name"
    fi
}
if [ "$images" = yes ]; then
    image -full
    image -small
fi

sums
