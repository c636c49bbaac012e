#!/bin/sh
# demo.sh - the whole demo with few steps: a swarm of processes, one of which is killed, their
# common model, its figures and pictures. How well it learns is not tested.
. "$(dirname "$0")/lib.inc"
"$POTLUCK" demo --steps 32 --inner-steps 4 --no-dash --out "$work/my demo" >"$work/out" 2>"$work/err"
check "the swarm's demo ends well" test $? -eq 0
check "its last line says so" grep -q '^round 8 of 8, done  loss [0-9.]*  [0-9.]* samples/s  [0-9:a-z ]* elapsed; peers: ' "$work/err"
check "one peer was killed" grep -q '2 dead' "$work/err"
check "the others have gone on" grep -q 'peers: 1 done, 2 dead, 3 done, 4 done' "$work/err"
check "says how well it draws" grep -q '^trained captions drawn: .* of 64 nearest' "$work/out"
for f in drawn.png held-out.png loss.svg figures.json checkpoint-000032.safetensors; do
    check "leaves $f" test -s "$work/my demo/$f"
done
figure() { sed -n "s/^ \"$1\": \([0-9.e-]*\),*/\1/p" "$work/my demo/figures.json"; }
check "the figures count rounds" test "$(figure rounds)" = 8
# 8 rounds of 4 steps of 8 samples: three peers are in all of them, but for the late one's first.
check "and the samples of all peers" test "$(figure samples)" -ge $((2 * 8 * 32)) -a "$(figure samples)" -le $((4 * 8 * 32))
check "and say what averaging costs" sh -c 'grep -q "samples, [0-9]* a second; 8 rounds, averaging took [0-9]* %" "$0"' "$work/out"
check "as many samples as the peers' events say" sh -c 'awk -F "\"local_samples\":" "/\"event\":\"epoch\"/ { split(\$2, n, /[,}]/); s += n[1] } END { print s }" \
    "$0" | grep -qx "$1"' "$work/my demo/events.jsonl" "$(figure samples)"
check "its model draws" "$POTLUCK" generate --model "$work/my demo" "cat face" --top-k 16 --out "$work/g" --quiet
check "and its next line is one to copy" grep -qF "next: $POTLUCK generate --model '$work/my demo' " "$work/out"

# On a terminal the table of peers is drawn over itself; the line with the page's address stays.
# What is on the screen at the end, of a terminal that knows the sequences that the demo uses:
cat >"$work/screen.py" <<'END'
import re, sys
screen, row = {}, 0
text = sys.stdin.buffer.read().decode(errors="replace").replace("\r\n", "\n")
for up, erase, part in re.findall("\x1b\\[(?:([0-9]+)A|(J)|K|\\?7[lh])|(\n|[^\n\x1b]+)", text):
    if up: row -= int(up)
    elif erase: screen = {r: t for r, t in screen.items() if r < row}
    elif part == "\n": row += 1
    elif part: screen[row] = part
print("\n".join(screen.get(r, "") for r in range(max(screen) + 1)))
END
if command -v script >/dev/null && command -v python3 >/dev/null; then
    mkdir -p "$work/t/samples/000099" && : >"$work/t/samples/000099/sheet.png" # an earlier demo's
    script -qec "'$POTLUCK' demo --steps 6 --inner-steps 2 --out '$work/t'" /dev/null </dev/null | python3 "$work/screen.py" >"$work/screen"
    check "the page's address stays on the screen" grep -q '^its page: http://127.0.0.1:[0-9]*/$' "$work/screen"
    check "which shows samples of this demo alone" sh -c '[ -s "$0/page/samples/6.png" ] && [ ! -e "$0/page/samples/99.png" ]' "$work/t"
    check "and its last round" grep -q '"step":3,"total_steps":3' "$work/t/page/api/state.json"
    check "above one table" test "$(grep -c '^peer .*samples/s' "$work/screen")" = 1
else
    echo "skip the screen: script or python3 is not installed"; skipped=$((skipped + 1))
fi

# Nearest to its own picture: counted in a file for the page, among this many and the captions' own.
check "drawings are compared" "$POTLUCK" generate --model "$work/my demo" "cat face" "no such thing" --greedy --quiet \
    --nearest data/demo --among 8 --out "$work/n"
check "with eight and the caption's own" sh -c 'tr -d " \n" <"$0" | grep -qE "^\{\"own\":[01],\"of\":1,\"among\":9\}$"' \
    "$work/n/nearest.json"
check "the nearest is named, where the caption is known" test "$(grep -c '"nearest"' "$work/n/pictures.json")" = 1
refuses 1 "/nowhere" "$POTLUCK" generate --model "$work/my demo" "cat face" --nearest /nowhere --out "$work/n"
refuses 2 "resume is for --alone" "$POTLUCK" demo --resume
refuses 2 "potluck demo: --steps: '0' is not" "$POTLUCK" demo --steps 0
refuses 2 "potluck demo: --algorithm sparseloco: each of its peers sends" "$POTLUCK" demo --algorithm sparseloco
finish
