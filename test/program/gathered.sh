#!/bin/sh
# gathered.sh - algorithms whose messages each peer takes as they are, by `potluck train` over loopback: a training that
# is stopped goes on bit for bit; of three trainers one comes late and one is killed, and those that are left are equal
# bit for bit.
. "$(dirname "$0")/lib.inc"
peers=
trap 'kill -KILL $peers 2>/dev/null; wait; rm -rf "$work"' EXIT

wait_for() { # command...
    for _ in $(seq 1200); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
    for n in 1 2 3; do echo "peer $n:"; tail -n 2 "$work/t$n" "$work/t$n.err"; done
    return 1
}

# --- one peer, stopped and resumed ---
alone() { # folder, options...
    out=$1; shift
    "$POTLUCK" train --quiet --run alone --listen /ip4/127.0.0.1/tcp/0 --config test/program/tiny.json --limit 64 --threads 1 \
        --inner-steps 4 --target-batch 8 --batch 8 --no-check --keep 0 --lr 0.001 --out "$work/$out" "$@" >/dev/null 2>>"$work/log"
}
for a in sparseloco,topk=8 noloco, partial,share=0.1 delayed_nesterov,N=2 demo,topk=8 dgc,share=0.05 onebit_adam,warm_up=5; do
    name=${a%%,*} settings=${a#*,}
    check "$name trains" alone "$name" --algorithm "$name" --algorithm-settings "$settings" --steps 12 --save-every 4
    mkdir "$work/$name.two"
    cp "$work/$name/checkpoint-000004.safetensors" "$work/$name/log.jsonl" "$work/$name.two"
    check "$name goes on" alone "$name.two" --algorithm "$name" --algorithm-settings "$settings" --steps 12 --save-every 4 --resume
    check "$name, bit for bit" cmp "$work/$name/checkpoint-000012.safetensors" "$work/$name.two/checkpoint-000012.safetensors"
    check "$name has losses" sh -c "! grep -E '\"loss\": *0[,}.]' '$work/$name/log.jsonl'"
done
refuses 2 "expected a number from 1" "$POTLUCK" train --run r --algorithm sparseloco --algorithm-settings topk=0 --config test/program/tiny.json --out "$work/no"
refuses 2 "without --robust and --client-mode" "$POTLUCK" train --run r --algorithm demo --client-mode --join /ip4/127.0.0.1/tcp/1/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN --config test/program/tiny.json --out "$work/no" --no-check
refuses 2 "streaming" "$POTLUCK" train --run r --algorithm streaming

# --- three peers ---
"$POTLUCK" peer --json --run r --listen /ip4/127.0.0.1/tcp/0 >"$work/entry" 2>"$work/entry.err" &
peers=$!
wait_for grep -q '"event":"listening"' "$work/entry"
entry=$(sed -n 's/.*"multiaddr":"\([^"]*\)".*/\1/p' "$work/entry")
learn() { # name, options...
    name=$1; shift
    "$POTLUCK" train --json --quiet --run r --config test/program/tiny.json --limit 128 --seed 1 --data-seed "$name" --threads 1 \
        --algorithm sparseloco --algorithm-settings topk=8 --inner-steps 10 --target-batch 8 --batch 8 --slow 0.1 --steps 1000000 \
        --matchmaking-time 3 --averaging-timeout 30 --allreduce-timeout 10 --save-every 0 --listen /ip4/127.0.0.1/tcp/0 \
        --join "$entry" --no-check --out "$work/o$name" "$@" >"$work/t$name" 2>"$work/t$name.err" &
    pid=$!
    peers="$peers $pid"
}
outer() { # peers of the round, least outer steps, trainer
    [ "$(tail -n +$((from + 1)) "$work/t$3" | grep '"event":"epoch"' | grep -c "\"round_status\":0,\"round_peers\":$1,")" -ge "$2" ]
}
count() { from=$(wc -l <"$work/t1"); }
from=0
learn 1
learn 2; killed=$pid
check "two agree" wait_for outer 2 2 1
learn 3; third=$pid
check "a late one takes their state over" wait_for grep -q '"event":"loaded","epoch":[1-9]' "$work/t3"
count
check "three agree" wait_for outer 3 2 1
kill -KILL $killed; wait $killed 2>/dev/null
count
check "two go on" wait_for outer 2 2 1
check "nobody had bad numbers" sh -c '! grep -l finite "$@"' sh "$work/t1.err" "$work/t3.err"
kill -INT $third; wait $third
check "it has left with a checkpoint" sh -c 'ls "$1" | grep -q checkpoint' sh "$work/o3"
finish
