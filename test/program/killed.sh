#!/bin/sh
# killed.sh - a peer that is killed, or that freezes, costs the others one or two matchmaking times,
# once, although its last report stays in the DHT for a minute. The frozen peer takes part again
# when it wakes up.
. "$(dirname "$0")/lib.inc"
peers=
trap 'kill -KILL $peers 2>/dev/null; wait; rm -rf "$work"' EXIT
patience=12 # s of matchmaking: far more than a busy machine takes from a peer now and then

wait_for() { # command...
    for _ in $(seq 1800); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
    for n in 1 2 3 4; do echo "peer $n:"; tail -n 2 "$work/t$n" "$work/t$n.err"; done
    return 1
}
"$POTLUCK" peer --json --run r --listen /ip4/127.0.0.1/tcp/0 >"$work/entry" 2>"$work/entry.err" &
peers=$!
wait_for grep -q '"event":"listening"' "$work/entry"
entry=$(sed -n 's/.*"multiaddr":"\([^"]*\)".*/\1/p' "$work/entry")
learn() { # name, options...
    name=$1; shift
    "$POTLUCK" train --json --quiet --run r --config test/program/tiny.json --limit 128 --seed 1 --data-seed "$name" --threads 1 \
        --target-batch 48 --batch 8 --slow 0.2 --steps 1000000 --matchmaking-time $patience --averaging-timeout 60 --allreduce-timeout 20 \
        --save-every 0 --join "$entry" --out "$work/o$name" "$@" >"$work/t$name" 2>"$work/t$name.err" &
    pid=$!
    peers="$peers $pid"
}
learn 1 --listen /ip4/127.0.0.1/tcp/0
learn 2 --listen /ip4/127.0.0.1/tcp/0; killed=$pid
learn 3 --listen /ip4/127.0.0.1/tcp/0; frozen=$pid
learn 4 --client-mode

steps() { grep -c '"event":"epoch"' "$work/t$1" 2>/dev/null; }
with() { # peers, this many rounds of theirs since their steps were counted, names...
    size=$1 least=$2; shift 2
    for n; do
        eval "from=\$from$n"
        [ "$(grep '"event":"epoch"' "$work/t$n" | tail -n +$((from + 1)) | grep -c "\"round_status\":0,\"round_peers\":$size,")" -ge "$least" ] || return 1
    done
}
from_now() { for n in 1 2 3 4; do eval "from$n=$(steps $n)"; done; }
# Steps of one since they were counted whose update took most of a matchmaking time.
slow() {
    eval "from=\$from$1"
    grep '"event":"epoch"' "$work/t$1" | tail -n +$((from + 1)) | head -n 12 | sed 's/.*"seconds":\([0-9.e-]*\).*/\1/' |
        awk -v long=$patience '$1 > 0.75 * long { n++ } END { print n + 0 }'
}
# Most rounds of each are complete: a loss costs a round or two, not every other one.
mostly_complete() { # peers, names...
    size=$1; shift
    for n; do
        eval "from=\$from$n"
        grep '"event":"epoch"' "$work/t$n" | tail -n +$((from + 1)) >"$work/since"
        complete=$(grep -c "\"round_status\":0,\"round_peers\":$size," "$work/since")
        echo "     peer $n: $complete of $(wc -l <"$work/since") rounds are complete" >>"$work/rounds"
        [ $((2 * complete)) -ge "$(wc -l <"$work/since")" ] || return 1
    done
}
say_slow() { echo "     after that, updates of 12 that took longer than 0.75 of $patience s: $(for n; do slow $n; done | tr '\n' ' ')"; }

from_now
check "four average" wait_for with 4 3 1 2 3 4
from_now
kill -KILL $killed; wait $killed 2>/dev/null
check "three go on" wait_for with 3 10 1 3 4
check "most of their rounds are complete" mostly_complete 3 1 3 4
for n in 1 3 4; do check "peer $n waits for the dead twice at most" test "$(slow $n)" -le 2; done
say_slow 1 3 4
from_now
kill -STOP $frozen
check "two go on while one is frozen" wait_for with 2 10 1 4
check "most of their rounds, too" mostly_complete 2 1 4
for n in 1 4; do check "peer $n waits for it twice at most" test "$(slow $n)" -le 2; done
say_slow 1 4
from_now
kill -CONT $frozen
check "it wakes up, and all three average" wait_for with 3 5 1 3 4
check "nobody thinks that it is worse than that" sh -c '! grep -l trouble "$@"' sh "$work/t1" "$work/t3" "$work/t4"
cat "$work/rounds"
finish
