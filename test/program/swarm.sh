#!/bin/sh
# swarm.sh - peers, records and the doctor from the outside, over loopback.
. "$(dirname "$0")/lib.inc"
nobody=/ip4/127.0.0.1/tcp/1/p2p/12D3KooWSkvkGQpYmokxqw6g5oz8UUNRDjUwW24iXeXc6gQ5rJ7a
peers=
trap 'kill $peers 2>/dev/null; wait; rm -rf "$work"' EXIT

peer() { # its output, options...
    out=$1; shift
    "$POTLUCK" peer --json "$@" >"$out" 2>"$out.err" &
    peers="$peers $!"
    for _ in $(seq 1200); do
        grep -qE '"event":"(joined|alone)"' "$out" && return
        sleep 0.1
    done
}
address() { sed -n 's/.*"multiaddr":"\([^"]*\)".*/\1/p' "$1"; }
printed() { # pattern, command...
    want=$1; shift
    "$@" >"$work/log" 2>&1
    grep -qE -- "$want" "$work/log"
}
prints() { # what, pattern, command...
    what=$1; shift
    if again printed "$@"; then ok "$what"; else fail "$what: no '$want'"; head -n 5 "$work/log"; fi
}

peer "$work/a" --listen /ip4/127.0.0.1/tcp/0 --identity "$work/key" --relay
entry=$(address "$work/a")
check "the first line says how to join" sh -c "head -n 1 '$work/a' | grep -q '\"event\":\"listening\".*/p2p/'"
# "others join with" is read on other machines, where 127.0.0.1 is of no use.
first_line() { # pattern, options of a peer that is stopped once it has printed it: the first such line
    want=$1; shift
    "$POTLUCK" peer "$@" </dev/null >"$work/output" 2>/dev/null &
    last=$!
    for _ in $(seq 1200); do grep -q -- "$want" "$work/output" && break; sleep 0.1; done
    kill $last; wait $last 2>/dev/null
    grep -m 1 -- "$want" "$work/output"
}
joins_by() { first_line '^  --join ' --listen "$1" | sed 's/^  --join //'; } # address to listen on
if [ -n "$(hostname -I 2>/dev/null | tr ' ' '\n' | grep '^[0-9.]*$')" ]; then
    here=$(joins_by /ip4/0.0.0.0/tcp/0)
    case $here in
    /ip4/127.*|"") fail "the address for others is not this machine's own: $here" ;;
    *) ok "the address for others is not this machine's own" ;;
    esac
    here=$(first_line '"event":"listening"' --json --listen /ip4/0.0.0.0/tcp/0)
    case $here in
    *'"listening"'*/ip4/127.*|"") fail "nor is it for scripts: $here" ;;
    *) ok "nor is it for scripts" ;;
    esac
fi
case $(joins_by /ip4/127.0.0.1/tcp/0) in
/ip4/127.0.0.1/tcp/[0-9]*/p2p/*\#*) fail "one address needs no comment" ;;
/ip4/127.0.0.1/tcp/[0-9]*/p2p/*) ok "one address needs no comment" ;;
*) fail "the address of this machine alone" ;;
esac
outside=/ip4/203.0.113.7/tcp/4001
printed=$(timeout -s INT 120 "$POTLUCK" train --run r --announce $outside --config test/program/tiny.json --steps 1 \
    --target-batch 4 --limit 8 --out "$work/trained" --quiet --json 2>/dev/null | head -n 1)
check "behind a router, a trainer announces the outside address" sh -c "echo '$printed' | grep -q '\"multiaddr\":\"$outside/p2p/'"
peer "$work/b" --listen /ip4/127.0.0.1/tcp/0 --join "$entry" --run r
peer "$work/c" --client-mode --join "$entry"
peer "$work/d" --listen /ip4/127.0.0.1/tcp/0 --join "$entry" --run r --dash
for _ in $(seq 300); do grep -q '"event":"serving"' "$work/d" && break; sleep 0.1; done
check "a peer serves its run's page" grep -q '"event":"serving","url":"http://127.0.0.1:[0-9]' "$work/d"
refuses 2 "shows a run" "$POTLUCK" peer --dash
check "a second peer joins" grep -q '"event":"joined","nodes":1' "$work/b"
check "a client joins" grep -q '"event":"joined"' "$work/c"
prints "ping" '"event":"pong".*"available"' "$POTLUCK" dht ping --join "$entry" --json
prints "put" '"event":"stored"' "$POTLUCK" dht put k '{"n": [1, 2.5, null]}' --join "$entry" --json
prints "get" '"value":\{"n":\[1,2.5,null\]\}' "$POTLUCK" dht get k --join "$(address "$work/b")" --json
prints "a negative number is a value" '^-5$' sh -c "'$POTLUCK' dht put five -5 --join '$entry' && '$POTLUCK' dht get --join '$entry' five"
prints "subkeys" '"subkey":"s".*"value":3' sh -c "'$POTLUCK' dht put d 3 --subkey s --join '$entry' && '$POTLUCK' dht get d --join '$entry' --json"
prints "the benchmark" 'get, 32 at once +[0-9]+ /s' "$POTLUCK" dht bench --count 20 --join "$entry"
refuses_again 1 "no peer has a record 'absent'" "$POTLUCK" dht get absent --join "$entry"
prints "nobody there, asked for a record" 'dht: the bootstrap peer does not accept us: their side: no program listens' "$POTLUCK" dht get k --join "$nobody"
refuses 2 "--join is missing" "$POTLUCK" dht get k
refuses 1 "is not /ip4 or /ip6" "$POTLUCK" peer --listen /dns4/localhost/tcp/0
refuses 2 "needs --join" "$POTLUCK" peer --client-mode
refuses 2 "accepts no connections: --join" "$POTLUCK" train --run r --client-mode
refuses 2 "accepts no connections: --join" "$POTLUCK" average --prefix p --tensors t --client-mode

check "the doctor finds nothing bad" again "$POTLUCK" doctor --join "$entry" --listen /ip4/127.0.0.1/tcp/0 --model demo
prints "it is reached" '^ok +reachability .* connected to us at' "$POTLUCK" doctor --join "$entry" --listen /ip4/127.0.0.1/tcp/0 --quick
prints "or not" '^BAD +reachability .*not publicly reachable' "$POTLUCK" doctor --join "$entry" --announce /ip4/127.0.0.1/tcp/9 --quick
prints "it sees the relay" '^ok +relay' "$POTLUCK" doctor --join "$entry" --client-mode --quick
prints "nobody there: their side" 'their side: no program listens' "$POTLUCK" doctor --join "$nobody" --quick
prints "somebody else there" 'their side: another peer, or the same peer with a new key' "$POTLUCK" doctor --join "${entry%/p2p*}${nobody#*/tcp/1}" --quick
if "$POTLUCK" doctor --join "$nobody" --quick >/dev/null; then fail "exit status of a failed join"; else ok "exit status of a failed join"; fi
prints "findings as JSON" '"what":"bootstrap","level":"ok"' "$POTLUCK" doctor --join "$entry" --quick --json --client-mode
prints "nobody trains the run" '^WARN run .*no peer trains "r" yet' "$POTLUCK" doctor --join "$entry" --quick --run r

# paper/swarm.md quotes messages to the letter.
cat $(find cmd net data -name "*.c") | tr '\n' ' ' | sed 's/" *"//g; s/\\"/"/g' >"$work/words"
sed -n '/^## Joining fails/,/^## Missing/s/^| \(`[^|]*`\) |.*/\1/p' paper/swarm.md | grep -o '`[^`]*`' | tr -d '`' >"$work/quoted"
check "the table of sentences is there" test "$(wc -l <"$work/quoted")" -gt 30
while read -r sentence; do
    grep -qF -- "$sentence" "$work/words" || fail "nothing says '$sentence'"
done <"$work/quoted"

# The check before joining: a line if all is well, otherwise an advice a line; a failed join ends in
# the side that has to do something.
printed_before() { # pattern, options of a peer that is stopped once it has printed it
    want=$1; shift
    "$POTLUCK" peer --listen /ip4/127.0.0.1/tcp/0 "$@" >"$work/output" 2>&1 &
    last=$!
    for _ in $(seq 600); do grep -qE 'joined a swarm|trying again|"(joined|alone)"' "$work/output" && break; sleep 0.1; done
    for _ in $(seq 100); do grep -qE -- "$want" "$work/output" && break; sleep 0.1; done
    kill $last; wait $last 2>/dev/null
    grep -qE -- "$want" "$work/output"
}
before() { # what, pattern, options
    what=$1; shift
    if again printed_before "$@"; then ok "$what"; else fail "$what: no '$want'"; head -n 5 "$work/output"; fi
}
tiny="--config test/program/tiny.json --limit 64 --batch 8 --target-batch 8 --save-every 0 --threads 1 --matchmaking-time 1 --run r
      --listen /ip4/127.0.0.1/tcp/0"
learn() { # options; a training that ends by itself
    rm -rf "$work/learnt"
    # shellcheck disable=SC2086
    timeout 120 "$POTLUCK" train $tiny --steps 1 --out "$work/learnt" "$@"
}
ended() { # pattern of the last line, options of a training that cannot join
    want=$1; shift
    ! learn --quiet "$@" >"$work/output" 2>&1 && tail -n 1 "$work/output" | grep -qE -- "$want"
}
ends() { # what, pattern, options
    what=$1; shift
    if again ended "$@"; then ok "$what"; else fail "$what: it has joined, or no '$want'"; tail -n 5 "$work/output"; fi
}
well='check: all good \([0-9.]* s\): 1 of 1 bootstrap peers \([0-9.]* ms\), clock 0.[0-9]* s off, publicly reachable, no NAT, (a|no) relay, [0-9.]* MB/s$'
before "all well is one line" "$well" --join "$entry"
check "and no other" sh -c '[ "$(grep -c check: "$0")" -eq 1 ]' "$work/output"
before "the check can be left out" 'joined a swarm' --join "$entry" --no-check
check "it is" sh -c '! grep -q check: "$0"' "$work/output"
before "a peer that is not publicly reachable gets a warning" 'check: reachability: not publicly reachable' --join "$entry" --announce /ip4/127.0.0.1/tcp/9
check "and what to do" grep -q '^    -> your side: allow TCP' "$work/output"
before "with --json it is an event" '^{"event":"check","level":"ok","seconds":[0-9.]*,"findings":\[.*"what":"bandwidth"' --join "$entry" --json
check "the first line is the address" sh -c 'head -n 1 "$0" | grep -q "\"event\":\"listening\""' "$work/output"
before "a peer says which peer it waits for, and goes on" 'potluck peer: the bootstrap peer does not accept us: their side: no program listens.*trying again' --join "$nobody"
before "one of two initial peers is enough" 'check: bootstrap: .*connection refused' --join "$nobody" --join "$entry"
check "and it joins" grep -q 'joined a swarm' "$work/output"
ends "nobody listens" 'the bootstrap peer does not accept us: their side: no program listens on that port' --join "$nobody"
ends "so it ends without the check" 'the bootstrap peer does not accept us: their side: no program listens on that port' --join "$nobody" --no-check
ends "somebody else listens" 'their side: another peer, or the same peer with a new key' --join "${entry%/p2p*}${nobody#*/tcp/1}"
ends "an unknown name" 'your side: the name cannot be resolved' --join "/dns4/nosuch.invalid/tcp/1${nobody#*/tcp/1}"
ends "a port that is taken" 'address already in use; your side: --listen takes' --join "$entry" \
    --listen "/ip4/127.0.0.1/tcp/$(echo "$entry" | sed 's,.*/tcp/\([0-9]*\)/.*,\1,')"
ends "a peer that is not a relay" 'their side: the first peer of that address is not a relay' \
    --join "$(address "$work/b")/p2p-circuit${nobody#*/tcp/1}"
ends "a peer that is not behind its relay" 'their side: the peer behind the relay has left' --join "$entry/p2p-circuit${nobody#*/tcp/1}"
if unshare -n true 2>/dev/null && command -v ip >/dev/null; then
    prints "no IPv6 here" 'your side, if others can join: this machine has no route to IPv6' \
        unshare -n "$POTLUCK" doctor --quick --client-mode --join "/ip6/2001:db8::1/tcp/1${nobody#*/tcp/1}"
    prints "no network here" 'your side: this machine has no route to it' \
        unshare -n "$POTLUCK" doctor --quick --client-mode --join "/ip4/192.0.2.9/tcp/1${nobody#*/tcp/1}"
    # shellcheck disable=SC2016
    prints "a machine that is off" 'their side, if others cannot join either: that machine is off' unshare -n sh -c '
        ip link add v0 type veth peer name v1; ip addr add 192.0.2.1/24 dev v0; ip link set v0 up; ip link set v1 up
        "$0" doctor --quick --client-mode --join "$1"' "$POTLUCK" "/ip4/192.0.2.9/tcp/1${nobody#*/tcp/1}"
fi
ends "two that fail in their ways" 'none of the 2 bootstrap peers accepts us, for different reasons' --join "$nobody" --join "${entry%/p2p*}${nobody#*/tcp/1}"
learns() { # pattern, options
    want=$1; shift
    learn "$@" >"$work/output" 2>&1
    grep -q -- "$want" "$work/output" || { tail -n 5 "$work/output"; return 1; }
}
check "a name of a run that nobody trains" again learns 'check: run: no peer trains "r" yet' --join "$entry"
check "and whose side that is" grep -q 'your side, if others should: use their spelling of --run' "$work/output"
check "it trains none the less" test -f "$work/learnt/checkpoint-000001.safetensors"
n=0
next_run() { n=$((n + 1)) run=r$n; } # what an earlier try has left is none of the next one's
takes_back() {
    next_run
    learn --run $run --join "$entry" || return 1
    "$POTLUCK" dht get ${run}_progress --json --join "$entry" >"$work/report" 2>&1
    grep -qE "\"value\":null|no peer has a record '${run}_progress'" "$work/report" && ! grep -q samples_accumulated "$work/report" ||
        { cat "$work/report"; return 1; }
}
check "and takes its report back when it leaves" again takes_back
fills() {
    next_run
    learn --run $run --json --quiet --join "$entry" | tee "$work/output" | grep -B 1 '"event":"epoch"' |
        grep '"event":"batch","epoch":0,.*"local_samples":8,"due":true' || { cat "$work/output"; return 1; }
}
check "the peer that fills the batch says so before the step" again fills

# Another model than the others', or other tensors.
one_tensor() { # file, values
    header='{"t":{"dtype":"F32","shape":['$2'],"data_offsets":[0,'$((4 * $2))']}}'
    { printf "\\$(printf %03o ${#header})\\0\\0\\0\\0\\0\\0\\0"; printf %s "$header"; head -c $((4 * $2)) /dev/zero; } >"$1"
}
alone() { # tensors, options
    "$POTLUCK" average --prefix p --no-check --matchmaking-time 1 --timeout 8 --listen /ip4/127.0.0.1/tcp/0 --tensors "$@"
}
one_tensor "$work/one" 1
one_tensor "$work/two" 2
other_tensors() { # seconds in which they have to meet
    alone "$work/one" --timeout "$1" --join "$entry" >"$work/first" 2>&1 &
    last=$!
    refused 1 "the peers found average other tensors; your side, if they agree" alone "$work/two" --timeout "$1" --join "$entry"
    set -- $?
    wait $last
    return "$1"
}
if other_tensors 8 || other_tensors 20 || other_tensors 60; then ok "refuses: $words"; else not_refused; fi
refuses 1 "found no group for q.0b in time: no other peer was looking for a group" alone "$work/two" --join "$entry" --prefix q --timeout 2

# Another compression only differs; parts of another length, by either option, name both and the
# option.
two() { # seconds at most, tensors, options of the first, options of the second
    limit=$1; shift
    "$POTLUCK" average --prefix two --no-check --matchmaking-time 1 --timeout "$limit" --listen /ip4/127.0.0.1/tcp/0 --join "$entry" --tensors "$1" $2 \
        >"$work/first" 2>&1 &
    last=$!
    alone "$1" --prefix two --timeout "$limit" --join "$entry" $3 >"$work/output" 2>&1
    wait $last
}
one_tensor "$work/thousands" 9000
two 60 "$work/one" "--compression float16" "--compression uniform8"
check "another compression is reported" \
    grep -qE 'sends (FLOAT16|UNIFORM_8BIT) where we send (FLOAT16|UNIFORM_8BIT); both are understood' "$work/first" "$work/output"
for side in first output; do
    check "and harms nobody ($side)" grep -q 'averaged with 1 peer ' "$work/$side"
done
named() { # pattern, files: in each
    want=$1; shift
    for output; do grep -qE -- "$want" "$output" || { echo "$output:"; tail -n 5 "$output"; return 1; }; done
}
other_parts() { # seconds in which they have to meet
    two "$1" "$work/thousands" "--part-bytes 1000 --compression float16" "--part-bytes 1000 --compression uniform8"
    named 'round 0: .*(sends parts of (500|1000) values \((FLOAT16|UNIFORM_8BIT)\), we send parts of [0-9]* .*: --compression differs; .*its side$|refuses our further parts)' \
        "$work/first" "$work/output" && grep -q ': --compression differs; .*otherwise its side$' "$work/first" "$work/output"
}
longer() { "$1" 10 || "$1" 30 || "$1" 60; } # both end when their time is over
check "where it cuts other parts both are named, the option by one of them at least" longer other_parts
other_sizes() {
    two "$1" "$work/thousands" "--part-bytes 1000 --compression none" "--part-bytes 4000 --compression none"
    cat "$work/first" "$work/output" >"$work/both"
    named 'sends a part of (250|1000) values \((1000|4000) bytes\) where ours has [0-9]+ .*: our --part-bytes (1000|4000) differs from its own; .*otherwise its side$' "$work/both"
}
check "so are parts of other sizes" longer other_sizes

# Two peers behind NAT, and no relay: they follow the one that is reachable, round after round. Not
# from the first round on: a peer that gets no processor time for seconds misses one.
three_peers=
three='"group":\["[^"]*","[^"]*","[^"]*"\]'
averages() { # output, options
    out=$1; shift
    "$POTLUCK" average --json --prefix h --no-check --rounds 1000 --expect 3 --matchmaking-time 30 --timeout 120 \
        --listen /ip4/127.0.0.1/tcp/0 --tensors "$work/one" "$@" >"$out" 2>"$out.err" &
    three_peers="$three_peers $!"
    peers="$peers $!"
}
in_a_row() { # output: the longest row of rounds with all three
    grep '"event":"round"' "$1" 2>/dev/null | awk "/$three/"' { n++; if (n > most) most = n; next } { n = 0 } END { print most + 0 }'
}
averages "$work/open"
for _ in $(seq 600); do grep -q '"event":"listening"' "$work/open" && break; sleep 0.1; done
for n in 1 2; do averages "$work/hidden$n" --join "$(address "$work/open")" --announce /ip4/127.0.0.1/tcp/9; done
for _ in $(seq 600); do
    all=1
    for n in open hidden1 hidden2; do [ "$(in_a_row "$work/$n")" -ge 3 ] || all=0; done
    [ $all -eq 1 ] && break
    sleep 0.2
done
for n in open hidden1 hidden2; do
    check "without a relay, $n is in three rounds of three" test "$(in_a_row "$work/$n")" -ge 3
    [ "$(in_a_row "$work/$n")" -ge 3 ] || { grep '"event":"round"' "$work/$n"; cat "$work/$n.err"; } | tail -n 5
done
# shellcheck disable=SC2086
kill $three_peers

# shellcheck disable=SC2086
"$POTLUCK" train $tiny --steps 100000 --slow 0.3 --json --out "$work/trains.d" >"$work/trains" 2>&1 &
peers="$peers $!"
for _ in $(seq 1200); do grep -q '"event":"epoch"' "$work/trains" && break; sleep 0.1; done
prints "at how many samples they step" '1 peer trains "r", at step [0-9]*, of 8 samples each' "$POTLUCK" doctor --quick --client-mode --run r \
    --join "$(address "$work/trains")"
prints "and that ours is another number" '1 of the peers of "r" reports a target batch of 8 samples, ours is 16' "$POTLUCK" doctor --quick --client-mode --run r \
    --target-batch 16 --join "$(address "$work/trains")"
prints "with the side" '-> your side, if they are right: --target-batch 8' "$POTLUCK" doctor --quick --client-mode --run r \
    --target-batch 16 --join "$(address "$work/trains")"
check "a training checks it, too" again learns 'check: target: 1 of the peers of "r" reports a target batch of 8 samples, ours is 16' \
    --join "$(address "$work/trains")" --target-batch 16 --optimizer adamw8
ends "another optimizer" 'another way: optimizer: adamw8 here, lamb8 in the run' --join "$(address "$work/trains")" --optimizer adamw8
peer "$work/trains_not" --join "$(address "$work/trains")" --listen /ip4/127.0.0.1/tcp/0
ends "another optimizer, found out by the peers" 'the other peers use another model or optimizer: .*; your side, if they agree' \
    --join "$(address "$work/trains_not")" --optimizer adamw8

# Something else answers, or nothing does.
if command -v python3 >/dev/null; then
    : >"$work/ports"
    python3 -c '
import socket, sys, threading, time
def serve(say):
    s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); print(s.getsockname()[1], flush=True)
    def run():
        kept = []
        while True:
            c = s.accept()[0]; kept.append(c)
            if say: c.sendall(say)
            if say == b"": c.close()
    threading.Thread(target=run, daemon=True).start()
serve(b"HTTP/1.0 400 Bad Request\r\n\r\n"); serve(None); serve(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"); serve(b""); time.sleep(600)' >>"$work/ports" &
    peers="$peers $!"
    for _ in $(seq 600); do [ "$(wc -l <"$work/ports")" -eq 4 ] && break; sleep 0.1; done
    port() { echo "/ip4/127.0.0.1/tcp/$(sed -n "$1p" "$work/ports")"; }
    ends "something else than a peer" 'your side: another program than a libp2p peer answers there' --join "$(port 1)"
    check "and what it says" grep -q 'it says "HTTP/1.0 400 Bad Request", not multistream' "$work/output"
    ends "an ssh server, which waits for our line" 'your side: another program than a libp2p peer answers there' --join "$(port 3)"
    check "is recognized by its greeting" grep -q 'it says "SSH-2.0-OpenSSH_9.2p1 Debian-2", not multistream' "$work/output"
    ends "somebody who hangs up" 'their side: it closed the connection' --join "$(port 4)"
    ends "something that says nothing" 'their side: a program accepts connections there and sends nothing' --join "$(port 2)"
    check "is waited for with a word" grep -q 'no bootstrap peer has answered within 2 s; waiting 10 s at most' "$work/output"
fi

# A clock that is wrong, as the program sees it.
if [ "${POTLUCK#*san/}" = "$POTLUCK" ] && cc -x c -shared -fPIC -o "$work/clock.so" - 2>/dev/null <<'END'
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *t)
{
    int rc = (int)syscall(SYS_clock_gettime, id, t);
    if (id == CLOCK_REALTIME) t->tv_sec += 3600;
    return rc;
}
END
then
    # As far off as an hour and half the time that the answer takes.
    LD_PRELOAD="$work/clock.so" before "a clock that is wrong" 'check: clock: (359[5-9]|360[0-5])\.[0-9] s ahead of the other peers' --join "$entry"
    check "has its advice, too" grep -q '^    -> your side, if they agree: set the clock' "$work/output"
fi
finish
