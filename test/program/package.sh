#!/bin/sh
# package.sh - an installation runs from any prefix; `make dist` gives the same bytes from a clone
# and from its own unpacked file. DEB_TEST=1 also builds the Debian package, which takes minutes.
. "$(dirname "$0")/lib.inc"
BUILD=${BUILD:-build}
skipped=0
root=$work/root
example=$PWD/test/example/classifier.c
POTLUCK=$root/usr/bin/potluck

check "make install" make -s install BUILD="$BUILD" DESTDIR="$root" PREFIX=/usr
cd "$work" || exit 1 # nothing of the source tree is near
cat >"$work/mine.c" <<'END'
#include <data/files/safetensors.h>
#include <ref/mask.h>
#include <ref/rotary.h>
#include <stdio.h>
int main(void)
{
    struct st_file *f;
    struct pl_err err;
    float x[2] = { 1, 0 }, c = 0, s = 1;
    if (ref_rotary(x, &c, &s, 1, 1, 1, 2, 2, 0) || pl_safetensors_open(&f, "nowhere", &err) == PL_OK) return 1;
    printf("%g %g %s\n", x[0], x[1], err.text);
    return 0;
}
END
linked() {
    cc -std=c11 -Wall -Wextra -Wpedantic -Werror -o "$work/mine" "$work/mine.c" \
        $(PKG_CONFIG_PATH="$root/usr/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root" pkg-config --cflags --libs potluck) &&
        LD_LIBRARY_PATH="$root/usr/lib" "$work/mine" | grep -q '^0 1 nowhere: '
}
check "a program of somebody else's is built with the library" linked

# test/example/classifier.c by the installed library alone: two processes train one model.
example_linked() {
    cc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror -O2 -o "$work/classifier" "$example" \
        $(PKG_CONFIG_PATH="$root/usr/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root" pkg-config --cflags --libs potluck) -lm
}
example_trains() {
    LD_LIBRARY_PATH="$root/usr/lib" timeout 200 "$work/classifier" >"$work/first" &
    first=$!
    for _ in $(seq 100); do grep -q '^listening on ' "$work/first" && break; sleep 0.1; done
    LD_LIBRARY_PATH="$root/usr/lib" timeout 200 "$work/classifier" "$(sed -n 's/^listening on //p' "$work/first")" >"$work/second"
    second=$?
    wait $first && [ $second -eq 0 ] || { cat "$work/first" "$work/second"; return 1; }
    # many steps were common, and the model has learnt: guessing has a loss of ln 3
    for log in "$work/first" "$work/second"; do
        awk '/ averaged by 2 peers$/ { together++; sum += $4 } END { exit !(together >= 20 && sum / together < 0.8) }' "$log" ||
            { cat "$log"; return 1; }
    done
}
check "the example is built with the installed library" example_linked
check "two processes of it train one model" example_trains
check "the installed program finds its backend" sh -c '"$0" --version | grep -q "^backend fast"' "$POTLUCK"
check "and its demo's data" "$POTLUCK" train --steps 1 --target-batch 2 --quiet --out "$work/train"
check "and draws with them" "$POTLUCK" generate --model "$work/train" --quiet --greedy --out "$work/drawn" "red apple"
check "a picture is there" [ -s "$work/drawn/sheet.png" ]
check "manual, completion, headers are there" sh -c 'cd "$0" && ls share/man/man1/potluck.1 share/man/man1/potluck-train.1 \
    share/bash-completion/completions/potluck share/zsh/vendor-completions/_potluck include/potluck/ref/rotary.h' "$root/usr"
# Every header that is installed compiles by itself, and names none that is not.
includable() {
    bad=0
    for h in $(cd "$root/usr/include/potluck" && find . -name '*.h'); do
        echo "#include <${h#./}>" | cc -std=c11 -D_GNU_SOURCE -I"$root/usr/include/potluck" -fsyntax-only -x c - || bad=1
        for named in $(sed 's,\.\./,,g' "$root/usr/include/potluck/$h" | grep -oE '[a-z_0-9/]+\.h\b' | grep / | sort -u); do
            [ -e "$root/usr/include/potluck/$named" ] || [ -e "/usr/include/$named" ] || find "$root/usr/include/potluck" -path "*/$named" | grep -q . ||
                { echo "$h names $named"; bad=1; }
        done
    done
    return $bad
}
check "every installed header is whole" includable
# 1,100 words are five minutes of reading; options and events have headers of their own.
check "the optimizer's header reads in five minutes" sh -c '[ "$(wc -w <"$0")" -le 1100 ]' "$root/usr/include/potluck/net/hivemind/optimizer.h"
check "no inner header is installed" sh -c '! find "$0" -name "*_internal.h" | grep .' "$root/usr/include/potluck"
check "the library has its number and its short name" sh -c 'test -L "$0/libpotluck.so" -a -f "$0/libpotluck.so.0"' "$root/usr/lib"
cd - >/dev/null || exit 1
check "make uninstall" make -s uninstall BUILD="$BUILD" DESTDIR="$root" PREFIX=/usr
check "leaves no file behind" sh -c '[ -z "$(find "$0" ! -type d)" ]' "$root"

if command -v git >/dev/null && [ -e .git ] && git diff --quiet 2>/dev/null; then
    check "make dist" make -s dist BUILD="$work/one"
    mkdir "$work/unpacked"
    tar -xzf "$work"/one/potluck-*.tar.gz -C "$work/unpacked"
    check "make dist from its own file" make -s -C "$work"/unpacked/potluck-* dist BUILD="$work/two"
    check "the same bytes" cmp "$work"/one/potluck-*.tar.gz "$work"/two/potluck-*.tar.gz
else
    echo "skip dist: not a clone without changes"; skipped=$((skipped + 1))
fi

if [ -z "${DEB_TEST:-}" ]; then
    echo "skip deb: takes minutes; DEB_TEST=1 builds the package and asks lintian"; skipped=$((skipped + 1))
elif ! command -v lintian >/dev/null || ! command -v dh >/dev/null; then
    echo "skip deb: debhelper or lintian is not installed"; skipped=$((skipped + 1))
else
    check "make deb, and lintian finds no fault" make -s deb
    mkdir "$work/deb"
    for f in build/deb/potluck_*.deb; do dpkg-deb -x "$f" "$work/deb"; done
    check "the packaged program runs" "$work/deb/usr/bin/potluck" train --steps 1 --target-batch 2 --quiet --out "$work/packaged"
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
