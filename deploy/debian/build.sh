#!/bin/sh
# SPDX-License-Identifier: MIT
# build.sh STAGE OUT [REVISION]: makes OUT/hearth_VERSION-REVISION_ARCHITECTURE.deb, and prints its path, of STAGE, an
# empty directory that `meson install --destdir` filled from a build with --prefix=/usr. Needs dpkg-dev and binutils.
# SOURCE_DATE_EPOCH, if set, is the time of all files; DEB_HOST_ARCH another architecture than this machine's, whose
# program STAGE then holds, and COMMIT the commit that it names.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
stage=$1 out=$(cd "$2" && pwd) revision=${3:-1}
upstream=$(sed -n "s/^  version: '\([0-9.]*\)',$/\1/p" "$here/../../meson.build")
version=$upstream-$revision
: "${SOURCE_DATE_EPOCH:=$(date +%s)}"
export SOURCE_DATE_EPOCH
here_arch=$(dpkg --print-architecture)
export DEB_HOST_ARCH="${DEB_HOST_ARCH:-$here_arch}"
tools=
[ "$DEB_HOST_ARCH" = "$here_arch" ] || tools=$(dpkg-architecture -a"$DEB_HOST_ARCH" -qDEB_HOST_GNU_TYPE)-
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
umask 022

# fill FILE: prints a template of this folder.
fill() {
    sed -e "s/@VERSION@/$version/" -e "s/@UPSTREAM@/$upstream/" -e "s/@ARCHITECTURE@/$DEB_HOST_ARCH/" \
        -e "s/@COMMIT@/$commit/" -e "s/@DATE@/$(date -u -R -d "@$SOURCE_DATE_EPOCH")/" \
        -e "s/@INSTALLED_SIZE@/${size:-}/" -e "s/@DEPENDS@/${depends:-}/" "$here/$1"
}

cp -R "$stage" "$root"
chmod -R u=rwX,go=rX "$root"
commit=${COMMIT:-$("$root/usr/bin/hearth" --version | sed -n 's/^hearth .*(commit \(.*\))$/\1/p')}
"${tools}strip" --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/bin/hearth"

doc=$root/usr/share/doc/hearth
rm -f "$doc/LICENSE" # copyright has it
cp "$here/copyright" "$doc/copyright"
# what is linked in has a licence of its own
"${tools}objdump" -p "$root/usr/bin/hearth" | grep -q "NEEDED.*libutf8proc" ||
    cp /usr/share/doc/libutf8proc-dev/copyright "$doc/copyright.utf8proc"
fill changelog.in | gzip -9n >"$doc/changelog.Debian.gz"
gzip -9n <"$here/../../CHANGELOG.md" >"$doc/changelog.gz"
gzip -9n "$root/usr/share/man/man1/hearth.1"
mkdir -p "$root/usr/share/lintian/overrides"
echo "hearth: initial-upload-closes-no-bugs" >"$root/usr/share/lintian/overrides/hearth" # it is in no archive

mkdir -p "$work/source/debian" "$root/DEBIAN"
echo "Source: hearth" >"$work/source/debian/control"
depends=$(cd "$work/source" && dpkg-shlibdeps -O "$root/usr/bin/hearth" | sed 's/^shlibs:Depends=//')
size=$(du -k -s --apparent-size "$root" | cut -f 1)
fill control.in >"$root/DEBIAN/control"
(cd "$root" && find etc -type f | sort | sed 's,^,/,') >"$root/DEBIAN/conffiles"
(cd "$root" && find usr -type f | LC_ALL=C sort | xargs md5sum) >"$root/DEBIAN/md5sums"
for script in postinst prerm postrm; do
    install -m 755 "$here/$script" "$root/DEBIAN/$script"
done

find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
deb=$out/hearth_${version}_$DEB_HOST_ARCH.deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$deb" >/dev/null
echo "$deb"
