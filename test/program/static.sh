#!/bin/sh
# static.sh - the program as one file (`make static`): it needs nothing of its machine, computes as the other one does, and
# trains together with it.
. "$(dirname "$0")/lib.inc"
BUILD=${BUILD:-build}
peers=
trap 'kill -KILL $peers 2>/dev/null; wait; rm -rf "$work"' EXIT

missing=$(echo 'int main(void) { return 0; }' |
    ${CC:-cc} -static -o "$work/probe" -x c - $(env -u MAKEFLAGS make -s BUILD="$BUILD" static-libs) 2>&1 | sed -n 's/.*cannot find \(-l[^ :]*\).*/\1/p' | head -n 1)
if [ -n "$missing" ]; then
    echo "skip static program: no static $missing"
    skipped=1
    finish
    exit
fi
check "it is built" env -u MAKEFLAGS make -s BUILD="$BUILD" CC="${CC:-cc}" static
static=$PWD/$BUILD/static/potluck
case $BUILD in /*) static=$BUILD/static/potluck ;; esac
check "it needs no shared library" sh -c "! readelf -d '$static' | grep -q NEEDED && ! readelf -l '$static' | grep -q INTERP"
check "it takes less than 15 MB" test "$(wc -c <"$static")" -lt 15000000
check "its fast backend is linked in" sh -c "'$static' --version | grep -q '^backend fast'"
check "golden values, fast" "$static" conform --golden test/golden/quant --backend fast
check "golden values, a model" "$static" conform --golden test/golden/dalle --backend fast --filter axial
refuses 1 "has no PyTorch archives" "$static" show test/golden/vqgan/container_state_dict.pt

# In a root that holds nothing else
root=$work/root
mkdir -p "$root/tmp" "$root/data" && cp "$static" test/program/tiny.json "$root/" && cp -r data/demo "$root/data/"
if unshare -r chroot "$root" /potluck --version >/dev/null 2>&1; then
    check "it trains in an empty root" unshare -r chroot "$root" /potluck train --quiet --config /tiny.json --limit 32 \
        --threads 1 --steps 2 --batch 4 --out /tmp/out
else
    echo "skip static program: user namespaces are not allowed here"
    skipped=1
fi

# --- with the other one
"$static" peer --json --run r --listen /ip4/127.0.0.1/tcp/0 >"$work/entry" 2>"$work/entry.err" &
peers=$!
wait_for() {
    for _ in $(seq 1200); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
    tail -n 2 "$work/t1" "$work/t1.err" "$work/t2" "$work/t2.err"
    return 1
}
check "it is an initial peer" wait_for grep -q '"event":"listening"' "$work/entry"
entry=$(sed -n 's/.*"multiaddr":"\([^"]*\)".*/\1/p' "$work/entry")
learn() { # program, name
    "$1" train --json --quiet --run r --config test/program/tiny.json --limit 128 --seed 1 --data-seed "$2" --threads 1 --target-batch 32 \
        --batch 4 --slow 0.1 --steps 1000000 --matchmaking-time 3 --averaging-timeout 30 --allreduce-timeout 10 --save-every 0 \
        --listen /ip4/127.0.0.1/tcp/0 --join "$entry" --no-check --out "$work/o$2" >"$work/t$2" 2>"$work/t$2.err" &
    peers="$peers $!"
}
learn "$POTLUCK" 1
learn "$static" 2
check "they average" wait_for grep -q '"event":"epoch".*"round_status":0,"round_peers":2,' "$work/t2"
finish
