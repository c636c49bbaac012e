#!/bin/sh
# make.sh TARGET ... - make for ARCH=arm64|riscv64|s390x, into build/cross/ARCH: gcc's cross compiler,
# the libraries of sysroot.sh; for riscv64's vectors clang, where there is one of version 18 or later.
cd "$(dirname "$0")/../.." || exit 1
. test/cross/arch.inc
root=$(ARCH=$ARCH sh test/cross/sysroot.sh) || exit 1
cc="$triple-gcc --sysroot=$root -B$root/usr/lib/$triple"
fast_cc=$cc
if [ "$ARCH" = riscv64 ]; then
    openmp=$(find "$root"/usr/lib/llvm-* -name libomp.so | head -n 1)
    for version in 22 21 20 19 18; do
        # GNU ld 2.40 crashes on clang's objects
        command -v clang-$version >/dev/null && command -v ld.lld-$version >/dev/null || continue
        fast_cc="clang-$version --target=$triple --sysroot=$root -L$root/usr/lib/$triple -L${openmp%/*} -fuse-ld=lld -Wno-unused-command-line-argument -Wno-pass-failed"
        break
    done
fi
command -v ccache >/dev/null && cc="ccache $cc" fast_cc="ccache $fast_cc"
export PKG_CONFIG_LIBDIR="$root/usr/lib/$triple/pkgconfig:$root/usr/share/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root"
# A wheel is named after that processor, and holds the libraries from there.
export WHEEL_PLATFORM="linux-${triple%%-*}" WHEEL_LIBRARIES="$root/usr/lib/$triple:$root/lib/$triple"
stdcxx=$(find "$root/usr/lib/gcc/$triple" -name libstdc++.a | head -n 1)
exec make STATIC_LDFLAGS="-L$(dirname "$stdcxx")" BUILD="${BUILD:-build}/cross/$ARCH" NVCC= CC="$cc" FAST_CC="$fast_cc" AR=$triple-ar LD=$triple-ld OBJCOPY=$triple-objcopy STRIP=$triple-strip "$@"
