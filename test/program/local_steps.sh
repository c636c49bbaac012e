#!/bin/sh
# local_steps.sh - `potluck train --algorithm diloco` over loopback: a training that is stopped between two outer steps
# goes on bit for bit; two trainers agree, a late one takes their state over, one is killed and the others go on.
. "$(dirname "$0")/three_trainers.inc"

# --- one peer, stopped and resumed ---
alone() { # folder, options...
    out=$1; shift
    "$POTLUCK" train --quiet --run alone --listen /ip4/127.0.0.1/tcp/0 --config test/program/tiny.json --limit 64 --threads 1 \
        --algorithm diloco --inner-steps 8 --target-batch 8 --batch 4 --steps 23 --save-every 8 --keep 0 --slow 0.05 \
        --no-check --out "$work/$out" "$@" >/dev/null 2>>"$work/log"
}
alone whole &
whole=$!
alone halves &
pid=$!
peers="$whole $pid"
wait_for test -e "$work/halves/checkpoint-000008.safetensors"
sleep 0.3
stopped=$(pgrep -P $pid 2>/dev/null || echo $pid)
kill -INT $stopped 2>/dev/null
wait $pid
between=$(ls "$work/halves" | grep -c 'checkpoint-0000\(09\|1[0-5]\)')
check "stopped between two outer steps" test "$between" -eq 1
check "it goes on" alone halves --resume
wait $whole
check "--steps is rounded up to whole outer steps" test -e "$work/whole/checkpoint-000024.safetensors"
check "bit for bit" cmp "$work/whole/checkpoint-000024.safetensors" "$work/halves/checkpoint-000024.safetensors"
check "the log counts inner steps" sh -c "grep -c '\"loss\"' '$work/whole/log.jsonl' | grep -qx 3"
cp -r "$work/whole" "$work/other"
unwarned() { # command...: what it says but for its warning of options that differ
    "$@" 2>"$work/unwarned"
    got=$?
    grep -v ': warning: ' "$work/unwarned" >&2
    return $got
}
refuses 1 "of another algorithm than local_sgd" unwarned "$POTLUCK" train --quiet --run alone --listen /ip4/127.0.0.1/tcp/0 --threads 1 \
    --config test/program/tiny.json --limit 64 --algorithm local_sgd --resume --target-batch 8 --batch 4 --steps 100 --out "$work/other" --no-check
refuses 2 "is for a swarm" "$POTLUCK" train --algorithm diloco
refuses 2 "takes neither --delay nor" "$POTLUCK" train --algorithm local_sgd --run r --delay round

# --- three peers ---
three_trainers --algorithm diloco
finish
