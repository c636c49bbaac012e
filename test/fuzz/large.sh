#!/bin/sh
# large.sh NAME - a fuzzer with inputs of 4 MiB, the longest message that a stranger can send at once: its corpus's longest and
# shortest inputs again and again, zeros, and ones. Each has a time limit
# of a minute: with sanitizers and two million messages of two bytes a linear parser needs some seconds, any other one hours.
cd "$(dirname "$0")/../.." || exit 1
name=$1 fuzzer=${BUILD:-build}/fuzz/$1
MIB4=4194304
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

again() { # input to: the input repeated to 4 MiB
    cp "$1" "$work/twice"
    while [ "$(wc -c <"$work/twice")" -lt $MIB4 ]; do cat "$work/twice" "$work/twice" >"$work/more" && mv "$work/more" "$work/twice"; done
    head -c $MIB4 "$work/twice" >"$2" && rm "$work/twice"
}
set -- "$(find "test/fuzz/corpus/$name" -type f -size +0 -printf '%s %p\n' | sort -n | sed -n '1s/^[0-9]* //p')" \
    "$(find "test/fuzz/corpus/$name" -type f -size +0 -printf '%s %p\n' | sort -n | sed -n '$s/^[0-9]* //p')"
again "$1" "$work/shortest"
again "$2" "$work/longest"
head -c $MIB4 /dev/zero >"$work/zeros"
head -c $MIB4 /dev/zero | tr '\0' '\377' >"$work/ones"
"$fuzzer" -timeout=60 -rss_limit_mb=2048 "$work/shortest" "$work/longest" "$work/zeros" "$work/ones"
