#!/bin/sh
# averaging_time.sh - two trainers measure how much of their time averaging takes, and say what to change where it
# is more than computing.
. "$(dirname "$0")/lib.inc"
peers=
trap 'kill -KILL $peers 2>/dev/null; wait; rm -rf "$work"' EXIT

wait_for() { # command...
    for _ in $(seq 1200); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
    return 1
}
"$POTLUCK" peer --json --run r --listen /ip4/127.0.0.1/tcp/0 >"$work/entry" 2>"$work/entry.err" &
peers=$!
wait_for grep -q '"event":"listening"' "$work/entry"
entry=$(sed -n 's/.*"multiaddr":"\([^"]*\)".*/\1/p' "$work/entry")
start() { # run, name, options; its process is $pid
    run=$1; name=$2; shift 2
    "$POTLUCK" train --run "$run" --join "$entry" --listen /ip4/127.0.0.1/tcp/0 --config test/program/tiny.json --limit 64 --threads 1 \
        --seed 1 --data-seed "$name" --batch 4 --matchmaking-time 4 --averaging-timeout 30 --allreduce-timeout 10 --save-every 0 --no-check \
        --out "$work/$run$name" "$@" >"$work/$run$name.out" 2>"$work/$run$name.err" &
    pid=$!
    peers="$peers $pid"
}
field() { sed -n "s/.*\"event\":\"time\".*\"$2\":\([0-9.e+-]*\).*/\1/p" "$work/$1" | tail -n 1; } # file, name
# Sums of wall-clock times, and the advice's formula: k = 9 s / (1 - s) makes the share s a tenth.
agrees() { # file, what the advice multiplies by k
    awk -v c="$(field "$1" computing)" -v a="$(field "$1" averaging)" -v s="$(field "$1" share)" -v unit="$3" \
        -v got="$(sed -n "s/.*\"event\":\"time\".*$2 \([0-9]*\).*/\1/p" "$work/$1" | tail -n 1)" 'BEGIN {
            k = 9 * s / (1 - s); k = k > 1000 ? 1000 : k
            if (c == "" || (a / (a + c) - s) ^ 2 > 1e-12) exit 1
            exit !(s <= 0.5 ? got == "" : got >= unit * (k - 1e-6) && got <= unit * (k + 1)) }'
}

# The fast one computes 1 s and waits 1.6 s for the slow one, in each of four rounds.
start outer 1 --steps 80 --target-batch 4 --slow 0.05 --algorithm local_sgd --inner-steps 20; first=$pid
start outer 2 --steps 80 --target-batch 4 --slow 0.05 --algorithm local_sgd --inner-steps 20 --json --quiet; second=$pid
start outer 3 --steps 80 --target-batch 4 --slow 0.13 --algorithm local_sgd --inner-steps 20 --json --quiet
wait $first $second $pid
check "waiting takes more than computing, and the trainer says what to change" \
    grep -qE 'averaging took ([5-9][0-9]|100) % of the time: --inner-steps [0-9]* at all peers' "$work/outer1.err"
check "the numbers follow from the measured share" agrees outer2.out '"advice":"--inner-steps' 20
check "they do at the slow one" agrees outer3.out '"advice":"--inner-steps' 20
check "computing includes what --slow adds" awk -v c="$(field outer2.out computing)" 'BEGIN { exit !(c >= 80 * 0.05) }'
start grad 1 --steps 20 --target-batch 8 --slow 0.1; first=$pid
start grad 2 --steps 20 --target-batch 8 --slow 0.1 --json --quiet
wait $first $pid
# Peers share a step, each with a part of its samples: that is what makes two faster than one.
check "two peers average their gradients" test "$(grep -c '"event":"epoch".*"round_status":0,"round_peers":2' "$work/grad2.out")" -ge 5
check "with one gradient a step, too" agrees grad2.out '"advice":"--target-batch' 8
check "the share is reported at the end" grep -qE 'averaging took [0-9]+ % of the time' "$work/grad1.err"
start alone 1 --steps 3 --target-batch 8
wait $pid
check "a peer that is alone says nothing of it" sh -c '! grep -q "averaging took" "$0"' "$work/alone1.err"
finish
