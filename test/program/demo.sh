#!/bin/sh
# demo.sh - the demo's whole way in a few steps: a swarm of processes, one of which is killed, a model that
# they share, its figures and pictures. What it learns in so little is not looked at.
. "$(dirname "$0")/lib.inc"
"$POTLUCK" demo --steps 8 --no-dash --out "$work/d" >"$work/out" 2>"$work/err"
check "the swarm's demo ends well" test $? -eq 0
check "its last line says so" grep -q '^step 8 of 8, done  loss [0-9.]*  [0-9.]* samples/s  [0-9:a-z ]* gone; peers: ' "$work/err"
check "one peer was killed" grep -q '2 dead' "$work/err"
check "the others have gone on" grep -q 'peers: 1 done, 2 dead, 3 done, 4 done' "$work/err"
check "says how well it draws" grep -q '^trained captions drawn: .* of 64 nearest' "$work/out"
for f in drawn.png held-out.png loss.png figures.json checkpoint-000008.safetensors; do
    check "leaves $f" test -s "$work/d/$f"
done
check "its model draws" "$POTLUCK" generate --model "$work/d" "cat face" --top-k 16 --out "$work/g" --quiet
check "and its next line is one to copy" grep -qF "next: $POTLUCK generate --model $work/d " "$work/out"

# Nearest to its own picture: counted in a file for the page, among so many and the captions' own.
check "drawings are compared" "$POTLUCK" generate --model "$work/d" "cat face" "no such thing" --greedy --quiet \
    --nearest data/demo --among 8 --out "$work/n"
check "with eight and the caption's own" sh -c 'tr -d " \n" <"$0" | grep -qE "^\{\"own\":[01],\"of\":1,\"among\":9\}$"' \
    "$work/n/nearest.json"
check "the nearest is named, where the caption is known" test "$(grep -c '"nearest"' "$work/n/pictures.json")" = 1
refuses 1 "/nowhere" "$POTLUCK" generate --model "$work/d" "cat face" --nearest /nowhere --out "$work/n"
refuses 2 "resume is for --alone" "$POTLUCK" demo --resume
refuses 2 "potluck demo: --steps: '0' is not" "$POTLUCK" demo --steps 0
finish
