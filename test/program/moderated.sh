#!/bin/sh
# moderated.sh - a moderated run by the public API: a Python peer trains with `potluck train`, and
# one without the right secret gets the reason in one line.
. "$(dirname "$0")/lib.inc"
peer=$PWD/test/program/moderated_peer.py config=$PWD/test/program/tiny.json
case $POTLUCK in /*) ;; *) POTLUCK=$PWD/$POTLUCK ;; esac
POTLUCK_LIBRARY=${POTLUCK_LIBRARY:-$PWD/${BUILD:-build}/libpotluck.so}
OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=1
export POTLUCK_LIBRARY OMP_WAIT_POLICY PYTHONDONTWRITEBYTECODE
for python in python3 /usr/bin/python3 none; do "$python" -c 'import numpy' 2>/dev/null && break; done
if [ $python = none ] || ! [ -f "$POTLUCK_LIBRARY" ]; then
    echo "skip: no Python with numpy, or no library"; skipped=1
    finish; exit
fi
processes=
trap 'kill $processes 2>/dev/null; wait; rm -rf "$work"' EXIT

start() { # output, pattern that says it is there, command...
    out=$work/$1 ready=$2; shift 2
    "$@" >"$out" 2>"$out.err" &
    processes="$processes $!"
    for _ in $(seq 1200); do
        grep -qE "$ready" "$out" && return
        sleep 0.1
    done
}

"$POTLUCK" authority --invite ann --allow "$work/list" >"$work/ann"
"$POTLUCK" authority --invite bob --allow "$work/list" >"$work/bob"
head -c 64 /dev/zero | tr '\0' a >"$work/wrong"
start served '"event":"listening"' "$POTLUCK" authority --key "$work/key" --allow "$work/list" --port 0 --json
url=https://localhost:$(sed -n 's/.*"port":\([0-9]*\).*/\1/p' "$work/served")
start train '"event":"ready"' "$POTLUCK" train --run moderated --config "$config" --steps 1000000 --target-batch 32 --batch 4 --save-every 0 \
    --matchmaking-time 2 --slow 0.2 --out "$work/out" --listen /ip4/127.0.0.1/tcp/0 --no-check --json \
    --authority "$url" --authority-ca "$work/key.crt" --token-file "$work/ann"
entry=$(sed -n 's/.*"event":"listening","multiaddr":"\([^"]*\)".*/\1/p' "$work/train")

joins() { # steps, options...
    steps=$1; shift
    timeout 200 "$python" "$peer" "$config" "$entry" "$steps" "$@" >"$work/log" 2>&1
}
trains() { joins 3 authority="$url" authority_ca="$work/key.crt" token_file="$work/bob"; }
takes_no() { # words, options...
    words=$1; shift
    joins 1 "$@"
    grep -q "^refused: .*$words" "$work/log" && [ "$(wc -l <"$work/log")" -eq 1 ]
}
check "a member by the public API trains with the program" again trains
cp "$work/log" "$work/member"
check "it has taken over the run's state" grep -q '^loaded' "$work/member"
shared() { grep '"event":"epoch"' "$work/train" | grep -q '"round_status":0,"round_peers":2'; }
check "the program has taken the same steps" shared
check "a wrong secret is refused in one line" again takes_no "the secret of $work/wrong is not on its list; your side: " \
    authority="$url" authority_ca="$work/key.crt" token_file="$work/wrong"
check "so is a missing file" takes_no "$work/nosuch: No such file" authority="$url" token_file="$work/nosuch"
check "so is a secret without an authority" takes_no "none is given; your side: add --authority" token_file="$work/bob"
check "and a peer without a token" again takes_no "access token" compression=run
finish
