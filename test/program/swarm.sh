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
prints() { # what, pattern, command...
    what=$1 want=$2; shift 2
    "$@" >"$work/log" 2>&1
    if grep -qE -- "$want" "$work/log"; then ok "$what"; else fail "$what: no '$want'"; head -n 3 "$work/log"; fi
}

peer "$work/a" --listen /ip4/127.0.0.1/tcp/0 --identity "$work/key" --relay
entry=$(address "$work/a")
check "the first line says how to join" sh -c "head -n 1 '$work/a' | grep -q '\"event\":\"listening\".*/p2p/'"
peer "$work/b" --listen /ip4/127.0.0.1/tcp/0 --join "$entry" --run r
peer "$work/c" --client-mode --join "$entry"
peer "$work/d" --listen /ip4/127.0.0.1/tcp/0 --join "$entry" --run r --dash
for _ in $(seq 1200); do grep -q 'the page: http' "$work/d.err" && break; sleep 0.1; done
check "a peer serves its run's page" grep -q 'the page: http://127.0.0.1:[0-9]' "$work/d.err"
refuses 2 "shows a run" "$POTLUCK" peer --dash
check "a second peer joins" grep -q '"event":"joined","nodes":1' "$work/b"
check "a client joins" grep -q '"event":"joined"' "$work/c"
prints "ping" '"event":"pong".*"available"' "$POTLUCK" dht ping --join "$entry" --json
prints "put" '"event":"stored"' "$POTLUCK" dht put k '{"n": [1, 2.5, null]}' --join "$entry" --json
prints "get" '"value":\{"n":\[1,2.5,null\]\}' "$POTLUCK" dht get k --join "$(address "$work/b")" --json
prints "a negative number is a value" '^-5$' sh -c "'$POTLUCK' dht put five -5 --join '$entry' && '$POTLUCK' dht get --join '$entry' five"
prints "subkeys" '"subkey":"s".*"value":3' sh -c "'$POTLUCK' dht put d 3 --subkey s --join '$entry' && '$POTLUCK' dht get d --join '$entry' --json"
prints "the benchmark" 'get, 32 at once +[0-9]+ /s' "$POTLUCK" dht bench --count 20 --join "$entry"
refuses 1 "nobody has 'absent'" "$POTLUCK" dht get absent --join "$entry"
refuses 1 "connection refused" "$POTLUCK" dht get k --join "$nobody"
refuses 2 "--join is missing" "$POTLUCK" dht get k
refuses 1 "is not /ip4 or /ip6" "$POTLUCK" peer --listen /dns4/localhost/tcp/0
refuses 2 "needs --join" "$POTLUCK" peer --client-mode

check "the doctor finds nothing bad" "$POTLUCK" doctor --join "$entry" --listen /ip4/127.0.0.1/tcp/0 --model demo
prints "it is reached" '^ok +reach .* has reached us at' "$POTLUCK" doctor --join "$entry" --listen /ip4/127.0.0.1/tcp/0 --quick
prints "or not" '^BAD +reach .*others cannot call us' "$POTLUCK" doctor --join "$entry" --announce /ip4/127.0.0.1/tcp/9 --quick
prints "it sees the relay" '^ok +relay' "$POTLUCK" doctor --join "$entry" --client-mode --quick
prints "nobody there: their side" 'their side: nobody listens' "$POTLUCK" doctor --join "$nobody" --quick
prints "somebody else there" 'another peer lives there now' "$POTLUCK" doctor --join "${entry%/p2p*}${nobody#*/tcp/1}" --quick
prints "an address that is none" 'your side: an address reads' "$POTLUCK" doctor --join nonsense --quick
if "$POTLUCK" doctor --join "$nobody" --quick >/dev/null; then fail "exit status of a failed join"; else ok "exit status of a failed join"; fi
prints "findings as JSON" '"what":"entry","level":"ok"' "$POTLUCK" doctor --join "$entry" --quick --json --client-mode
finish
