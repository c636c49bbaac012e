#!/bin/sh
# peer_auxiliary.sh - an auxiliary peer, with neither data nor gradients, is the third member of two
# trainers' rounds, and the fourth member of verified rounds.
. "$(dirname "$0")/lib.inc"
peers=
trap 'kill -KILL $peers 2>/dev/null; wait; rm -rf "$work"' EXIT
tiny=test/program/tiny.json

wait_for() { # command...
    for _ in $(seq ${times:-3000}); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
    tail -n 3 "$work"/t? "$work"/h*
    return 1
}
address() { sed -n 's/.*"multiaddr":"\([^"]*\)".*/\1/p' "$1"; }
run() { # its output, command, options...
    out=$1 what=$2; shift 2
    "$POTLUCK" $what --json --run r --config $tiny --target-batch 64 --matchmaking-time 2 --listen /ip4/127.0.0.1/tcp/0 "$@" \
        >"$out" 2>"$out.err" &
    last=$!
    peers="$peers $last"
    wait_for grep -q '"event":"listening"' "$out"
}
learn() { # number, options...
    n=$1; shift
    run "$work/t$n" train --limit 128 --data-seed $n --batch 8 --slow 0.5 --steps 100000 --save-every 0 --threads 1 --quiet \
        --out "$work/out$n" "$@"
}
epochs() { grep '"event":"epoch"' "$1"; }
# Steps whose gradient is the mean of this many peers.
rounds_of() { epochs "$2" | grep -c "\"round_status\":0,\"round_peers\":$1,"; }
at_least() { [ "$($2 $3 "$4")" -ge "$1" ]; } # how many, of what

run "$work/h" peer --auxiliary --identity "$work/key"
helper=$last
entry=$(address "$work/h")
learn 1 --join "$entry"
check "somebody trains alone" wait_for grep -qE '"event":"epoch","epoch":([2-9]|[1-9][0-9]+),' "$work/t1"
check "and is not disturbed" sh -c '! grep -q helped "$0"' "$work/h"
learn 2 --join "$entry"
check "it helps two" wait_for sh -c "[ \$(grep -c '\"event\":\"helped\",\"status\":0,\"peers\":3' '$work/h') -ge 4 ]"
check "who see three in their rounds" wait_for at_least 4 rounds_of 3 "$work/t1"
check "both of them" wait_for at_least 3 rounds_of 3 "$work/t2"
check "and no round is one trainer's and the helper's" sh -c '! grep -q "helped\",\"status\":0,\"peers\":2" "$0"' "$work/h"
kill -KILL $helper
wait $helper 2>/dev/null
before=$(rounds_of 2 "$work/t1")
check "without it they go on" wait_for at_least $((before + 2)) rounds_of 2 "$work/t1"
run "$work/h2" peer --auxiliary --identity "$work/key" --join "$(address "$work/t1")" --save "$work/s" --save-every 1
check "it comes back, and keeps the state as well" wait_for sh -c "grep -q '\"event\":\"helped\",\"status\":0,\"peers\":3' '$work/h2' && grep -q '\"event\":\"checkpoint\"' '$work/h2'"
kill -TERM $last
wait $last
check "SIGTERM ends it with status 0" test $? -eq 0

kill -KILL $peers 2>/dev/null; wait; peers=

# In a run that verifies its rounds, and splits into groups: it asks for the same, and is one of
# them.
run "$work/h3" peer --auxiliary --robust btard:0.5
entry=$(address "$work/h3")
for n in 1 2 3; do learn $n --join "$entry" --robust btard:0.5 --target-batch 96; done
verified() { grep '"event":"epoch"' "$work/t$1" | grep -q '"round_status":0,"round_peers":4,"round_verified":1,'; }
for n in 1 2 3; do check "verified with the helper: peer $n" wait_for verified $n; done
check "it says so" wait_for grep -q '"event":"helped","status":0,"peers":4,"verified":1,' "$work/h3"
check "and nobody is banned" sh -c '! cat "$@" | grep -q "\"caught\":\""' sh "$work/h3" "$work/t1" "$work/t2" "$work/t3"
kill -KILL $peers 2>/dev/null; wait; peers=

# Each round draws new bits, so two who train may meet once and never again: the first round has to
# be long enough, and where it was not they begin anew.
helps_its_group() {
    kill -KILL $peers 2>/dev/null; wait; peers=
    run "$work/h4" peer --auxiliary --group-bits 1 --target-batch 256 --matchmaking-time 6
    entry=$(address "$work/h4")
    for n in 1 2; do learn $n --join "$entry" --group-bits 1 --target-batch 256 --matchmaking-time 6; done
    times=600 wait_for grep -q '"event":"helped","status":0,"peers":3' "$work/h4"
}
check "of a run in groups it helps the group whose bits it has" again helps_its_group

refuses 2 "--group-bits" "$POTLUCK" peer --run r --auxiliary --group-bits 012
refuses 2 "--auxiliary helps a run" "$POTLUCK" peer --auxiliary
refuses 2 "excludes --client-mode" "$POTLUCK" peer --run r --auxiliary --client-mode --join "$entry"
refuses 2 "btard\[:VALIDATORS\]" "$POTLUCK" peer --run r --auxiliary --robust btard:-1
refuses 2 "--compression: 'zip' is not one of run" "$POTLUCK" peer --run r --auxiliary --compression zip
refuses 2 "--target-batch" "$POTLUCK" peer --run r --auxiliary --target-batch 0
finish
