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
# Demo's sizes give 0.55 GF by the formula; what the backend was asked for is counted apart from it.
cat >"$work/count.py" <<'EOF'
import json, sys
row = json.load(open(sys.argv[1]))["rows"][0]
least, most = map(float, sys.argv[2:])
assert row["flops_asked"] == 551634432, row["flops_asked"]
assert least < row["flops"] / row["flops_asked"] < most, row["flops"]
EOF
check "a stored step computes only the scores twice" python3 "$work/count.py" "$work/json" 1.001 1.01
check "a reversible step computes its blocks twice forward" sh -c "'$POTLUCK' bench --backend fast --threads 1 --steps 2 --size demo \
    --only steps --activations reversible --json '$work/json' >/dev/null && python3 '$work/count.py' '$work/json' 1.3 1.34"
check "drawing has a bound" bench fast broken drawing
check "its row" grep -q '"bound_s"' "$work/json"
check "attention with a broken peer" bench fast broken attention
check "which is reported" grep -q 'Python packages not timed: .*ended with an error' "$work/out"
check "both ways are timed" grep -Eq '^demo +both ways .*GF/s' "$work/out"
refuses 2 "not one of parts" "$POTLUCK" bench --only everything
refuses 2 "not one of demo" "$POTLUCK" bench --size huge
check "an unwritable --json fails" sh -c "! '$POTLUCK' bench --only attention --size demo --json '$work/no/where'"
finish
