#!/bin/sh
# bench.sh - `potluck bench` from the outside: what it prints and saves, with a Python peer
# that works, crashes, or prints nonsense. No time is judged. Run from the top of the tree.
. test/program/lib.inc

cat >"$work/peer.sh" <<'EOF'
echo '{"what": "step demo", "seconds": 1000, "by": "somebody"}'
echo '{"missing": "nobody else"}'
echo 'no JSON at all'
EOF
echo 'exit 3' >"$work/broken.sh"

bench() { "$POTLUCK" bench --backend "$1" --threads 1 --steps 1 --size demo --json "$work/json" --python sh \
    --peer "$work/$2.sh" --only "$3" >"$work/out" 2>&1; }

check "steps with a peer" bench fast peer steps
check "its row: sizes, roof, reference, peer" grep -Eq '^demo +32 stored .*%.*x .*1000000\.0.*x' "$work/out"
check "what the peer misses is reported" grep -q 'peer not found: nobody else' "$work/out"
check "the kernels are named" grep -q '^backend .*fast: .* kernels' "$work/out"
check "the JSON has the peer's time" grep -q '"peer_s": 1000' "$work/json"
check "attention with a broken peer" bench fast broken attention
check "which is reported" grep -q 'Python packages not timed: .*ended with an error' "$work/out"
check "both ways are timed" grep -Eq '^demo +both ways .*GF/s' "$work/out"
refuses 2 "not one of parts" "$POTLUCK" bench --only everything
refuses 2 "not one of demo" "$POTLUCK" bench --size huge
check "an unwritable --json fails" sh -c "! '$POTLUCK' bench --only attention --size demo --json '$work/no/where'"
finish
