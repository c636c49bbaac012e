#!/bin/sh
# sysroot.sh - ARCH=arm64|riscv64|s390x: fetches that processor's libraries from Debian into a folder
# and prints its name. Nothing is installed: apt has an empty list of packages of its own here, and
# packages are only unpacked, so no root is needed and no other architecture gets into dpkg.
set -e
cd "$(dirname "$0")/../.."
. test/cross/arch.inc
wanted=$(echo "$packages libstdc++" | cksum)
[ "$(cat "$root/unpacked" 2>/dev/null)" = "$wanted" ] && { echo "$root"; exit; }
command -v apt-get >/dev/null || { echo "libraries for $ARCH come from Debian, by apt-get" >&2; exit 1; }
root=$(mkdir -p "$root" && cd "$root" && pwd)
state=$root.apt
trap 'rm -rf "$state"' EXIT

# apt with a state of its own
prepare_apt() { # suite
    rm -rf "$state"
    mkdir -p "$state/lists/partial" "$state/archives/partial" "$state/etc/parts"
    : >"$state/status"
    # A mirror's copy may be past its date: signatures are still checked.
    echo "deb [arch=$ARCH check-valid-until=no signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
http://deb.debian.org/debian $1 main" >"$state/etc/sources.list"
    cat >"$state/apt.conf" <<CONF
APT { Architecture "$ARCH"; Architectures { "$ARCH"; }; Install-Recommends "false"; Sandbox::User ""; };
Dir { State "$state"; State::status "$state/status"; State::lists "$state/lists"; Cache "$state"; Cache::archives "$state/archives";
      Etc "$state/etc"; Etc::sourcelist "$state/etc/sources.list"; Etc::sourceparts "-"; Etc::parts "$state/etc/parts"; };
Debug::NoLocking "true"; Acquire::Languages "none";
CONF
    export APT_CONFIG="$state/apt.conf"
}

fetch() {
    for suite in $suites; do
        prepare_apt "$suite"
        apt-get -qq update >"$state/log" 2>&1 || continue
        # shellcheck disable=SC2086
        apt-get -qq install -y --download-only $packages $(compiler_library) >>"$state/log" 2>&1 && return
    done
    tail -n 3 "$state/log" >&2
    return 1
}
# libgcc's start files and archive and C++'s static library, whichever version the release has
compiler_library() {
    apt-cache pkgnames libgcc- | grep -E '^libgcc-[0-9]+-dev$' | sort -V | tail -n 1 | sed 'p;s/libgcc/libstdc++/'
}

echo "fetching libraries for $ARCH into $root" >&2
fetch || { echo "libraries for $ARCH could not be fetched" >&2; exit 1; }
for deb in "$state"/archives/*.deb; do dpkg-deb -x "$deb" "$root"; done

# Later releases leave /lib to a package that is not needed otherwise; links start at the folder, not
# at this machine's root; what update-alternatives would have linked is linked.
for lib in lib lib64; do [ ! -e "$root/usr/$lib" ] || [ -e "$root/$lib" ] || ln -s usr/$lib "$root/$lib"; done
find "$root" -type l -lname '/*' | while read -r link; do ln -sf "$root$(readlink "$link")" "$link"; done
for file in libopenblas.so libopenblas.so.0 libblas.so.3 liblapack.so.3; do ln -sf "openblas-pthread/$file" "$root/usr/lib/$triple/$file"; done
cp "$root/usr/include/$triple"/openblas-pthread/*.h "$root/usr/include/$triple/"
for file in "$root"/usr/lib/llvm-*/lib/clang/*/include/omp.h; do [ ! -e "$file" ] || ln -sf "$file" "$root/usr/include/"; done
echo "$wanted" >"$root/unpacked"
echo "$root"
