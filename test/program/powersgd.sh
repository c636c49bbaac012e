#!/bin/sh
# powersgd.sh - two trainers of `potluck train --algorithm powersgd` over loopback: their checkpoints hold the error and
# the factors, at the rank of which a stopped pair goes on; a damaged one is refused.
. "$(dirname "$0")/lib.inc"
peers=
trap 'kill -KILL $peers 2>/dev/null; wait; rm -rf "$work"' EXIT
options="--quiet --run r --config test/program/tiny.json --limit 128 --seed 1 --threads 1 --algorithm powersgd --batch 8 --target-batch 16
    --steps 1000000 --matchmaking-time 3 --averaging-timeout 30 --allreduce-timeout 10 --keep 1 --slow 0.1 --no-check --listen /ip4/127.0.0.1/tcp/0"

wait_for() { # command...
    for _ in $(seq 600); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
    tail -n 3 "$work"/t?.err
    return 1
}
learn() { # name, options...
    name=$1; shift
    "$POTLUCK" train --json $options --data-seed "$name" --out "$work/o$name" "$@" >"$work/t$name" 2>"$work/t$name.err" &
    peers="$peers $!"
}
pair() { # options...
    peers=
    rm -f "$work"/t?
    learn 1 "$@"
    wait_for grep -q '"event":"listening"' "$work/t1"
    learn 2 --join "$(sed -n 's/.*"multiaddr":"\([^"]*\)".*/\1/p' "$work/t1")" "$@"
    check "two agree" wait_for agreed
    kill -INT $peers; wait $peers
}
agreed() { [ "$(grep '"event":"epoch"' "$work/t1" | grep -c '"round_status":0,"round_peers":2,')" -ge 3 ]; }
saved() { for n in 1 2; do grep -aq '"rounds.state"' "$work/o$n"/checkpoint-*.safetensors || return 1; done; }

pair --powersgd-rank 2
check "checkpoints hold the error and the factors" saved
pair --resume
check "the resumed pair has the rank of its checkpoints" sh -c '! grep -l "of rank" "$@"' sh "$work/t1.err" "$work/t2.err"
check "and saves again" saved
without_address() { # command...: what it prints but for its own address
    "$@" 2>"$work/output"
    got=$?
    grep -v -e "others join" -e --join "$work/output" >&2
    return $got
}
LC_ALL=C sed -i 's/PSG1/PSG9/' "$work/o1"/checkpoint-*.safetensors
refuses 1 "PowerSGD: .* bytes of rank 0, expected" without_address "$POTLUCK" train $options --powersgd-rank 2 --resume --out "$work/o1"
finish
