#!/bin/sh
# conform_peer.sh - `conform --peer` against an initial peer, an averager, and servers that are not
# peers.
. "$(dirname "$0")/lib.inc"
peers=
trap 'kill $peers 2>/dev/null; wait; rm -rf "$work"' EXIT

start() { # its output, its first event, command...
    out=$1 event=$2; shift 2
    "$@" >"$out" 2>"$out.err" &
    last=$!
    peers="$peers $last"
    for _ in $(seq 1200); do
        grep -q "\"event\":\"$event\"" "$out" && return
        sleep 0.1
    done
}
address() { sed -n 's/.*"multiaddr":"\([^"]*\)".*/\1/p' "$1"; }
walked() { # how many clauses at least, options...
    least=$1; shift
    "$POTLUCK" conform --peer "$@" >"$work/log" 2>&1
    status=$?
    good=$(grep -c '^ok' "$work/log")
    [ $status -eq 0 ] && [ "$good" -ge "$least" ] && tail -n 1 "$work/log" | grep -q "^$good passed, 0 failed"
}
walk() { # what, a walk...
    what=$1; shift
    if again "$@"; then ok "$what: $(tail -n 1 "$work/log")"; return; fi
    fail "$what: status $status, $good passed, expected $least"
    grep -v '^ok' "$work/log" | head -n 5
}

start "$work/a" joined "$POTLUCK" peer --json --listen /ip4/127.0.0.1/tcp/0
walk "an initial peer; averagers that are not there are skipped" walked 50 "$(address "$work/a")" --run nobody --report "$work/peer.json"
cp "$work/log" "$work/walked"
check "the report has each clause of it, with its result" python3 - "$work/peer.json" "$work/walked" <<'END'
import json, sys
report, lines = json.load(open(sys.argv[1])), open(sys.argv[2]).read().splitlines()
word = {"passed": "ok", "failed": "FAIL", "skipped": "skip"}
printed = ["%-4s %-13s %s%s" % (word[c["result"]], c["section"], c["clause"], ": " + c["why"] if c["why"] else "") for c in report["clauses"]]
assert report["peer"]["run"] == "nobody" and report["peer"]["address"].startswith("/ip4/127.0.0.1/tcp/")
assert len(printed) > 50 and printed == [l for l in lines if l.split(" ")[0] in word.values()], (printed, lines)
END
walk "the same for a page" walked 50 "$(address "$work/a")" --run '<i>nobody' --report "$work/peer.html"
cp "$work/log" "$work/walked"
check "with a row for each clause, and text as text" sh -c \
    'grep -q "&lt;i&gt;nobody" "$0" && ! grep -q "<i>" "$0" && [ "$(grep -c "^<tr><td" "$0")" -eq "$(grep -cE "^(ok|FAIL|skip) " "$1")" ]' \
    "$work/peer.html" "$work/walked"
refuses 2 "ends neither in .json nor in .html" "$POTLUCK" conform --peer "$(address "$work/a")" --report "$work/peer.txt"
averager() { # a new one for each walk: it averages once
    start "$work/b" ready "$POTLUCK" average --json --prefix walk --tensors data/demo/codec.safetensors \
        --listen /ip4/127.0.0.1/tcp/0 --matchmaking-time 8 --timeout 300 --share-seconds 60
    walked 65 "$(address "$work/b")" --prefix walk && return
    kill $last
    wait $last
    return 1
}
walk "an averager, from its state to its mean" averager
if grep -q '^ok   hivemind 5.4  whose mean is what it handed on' "$work/log"; then ok "its mean was seen"; else fail "its mean was not seen"; fi
# One whose searches are too short for a round with it: whether it searches for a group just then is
# its own affair.
start "$work/c" ready "$POTLUCK" average --json --prefix walk --tensors data/demo/codec.safetensors \
    --listen /ip4/127.0.0.1/tcp/0 --matchmaking-time 1 --timeout 300
walk "an averager that leaves no time for a round" walked 50 "$(address "$work/c")" --prefix walk --wait 3
trainer() { # alone in its run: it averages because we report ourselves
    start "$work/d" batch "$POTLUCK" train --json --quiet --run walk --config test/program/tiny.json --limit 128 --threads 1 --target-batch 64 \
        --batch 8 --slow 0.2 --steps 100000 --matchmaking-time 5 --save-every 0 --listen /ip4/127.0.0.1/tcp/0 --no-check --out "$work/o"
    walked 70 "$(address "$work/d")" --run walk && ! grep 'a round with it' "$work/log"
    status=$?
    kill $last
    wait $last
    return $status
}
walk "a trainer without other peers, to the means of its gradients and parameters" trainer
cp "$work/log" "$work/walked"
check "both means were taken" sh -c '[ "$(grep -c "^ok   hivemind 5.4  each part is answered" "$0")" -eq 2 ]' "$work/walked"
refuses 2 "'best' is not one of run" "$POTLUCK" conform --peer /ip4/127.0.0.1/tcp/1 --compression best

# Nobody at all.
"$POTLUCK" conform --peer /ip4/127.0.0.1/tcp/1/p2p/12D3KooWSkvkGQpYmokxqw6g5oz8UUNRDjUwW24iXeXc6gQ5rJ7a >"$work/log" 2>&1
status=$?
if [ $status -eq 1 ] && grep -q '^FAIL hivemind 1.6 .*connection refused' "$work/log" && tail -n 1 "$work/log" | grep -q '^0 passed, 1 failed'; then
    ok "nobody there: one clause fails, and says why"
else fail "nobody there: status $status"; head -n 3 "$work/log"; fi
finish
