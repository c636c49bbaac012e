#!/bin/sh
# demo.sh - the demo's whole way in a few steps: a swarm of processes, one of which is killed, a model that
# they share, its figures and pictures. What it learns in so little is not looked at.
. "$(dirname "$0")/lib.inc"
"$POTLUCK" demo --steps 8 --no-dash --out "$work/d" >"$work/out" 2>"$work/err"
check "the swarm's demo ends well" test $? -eq 0
check "one peer was killed" grep -q '2 dead' "$work/err"
check "the others have gone on" grep -q 'peers: 1 done, 2 dead, 3 done, 4 done' "$work/err"
check "says how well it draws" grep -q '^trained captions drawn: .* of 64 nearest' "$work/out"
for f in drawn.png held-out.png loss.png figures.json checkpoint-000008.safetensors; do
    check "leaves $f" test -s "$work/d/$f"
done
check "its model draws" "$POTLUCK" generate --model "$work/d" "cat face" --top-k 16 --out "$work/g" --quiet
refuses 2 "resume is for --alone" "$POTLUCK" demo --resume
refuses 2 "usage: potluck demo" "$POTLUCK" demo --steps 0
finish
