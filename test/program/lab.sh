#!/bin/sh
# lab.sh - swarms on a virtual clock from the outside: a run repeats and resumes bit for bit, a report
# needs nothing else, and wrong files are refused.
. "$(dirname "$0")/lib.inc"
tiny=$(dirname "$0")/tiny.json

run() { # name, extra keys, options...
    name=$1
    printf '%s\n' "name: $1" "model: $tiny" 'peers: 3' 'steps: 12' 'batch: 2' 'pairs: 64' 'held_out: 4' 'evaluate: 6' \
        "${links:-links: [adsl, fibre]
sample_ms: [10, 30]}" "$2" >"$work/$name.yaml"
    shift 2
    "$POTLUCK" lab run "$work/$name.yaml" --out "$work/$name" --threads 1 --quiet "$@"
}
faults='faults: { fail_share: 0.1, straggle_share: 0.2, straggle_factor: 3, leave: [{ peer: 1, at: 0.1, back: 0.5 }] }'

diloco="algorithm: diloco
outer: { H: 4, coding: uniform8 }
$faults"

check "a run of gradients" run sync "algorithm: gradients"
check "a run of DiLoCo under faults" run diloco "$diloco"
check "a complete run leaves no state" [ ! -e "$work/diloco/state.bin" ]
check "its log ends with totals" sh -c 'tail -n 1 "$0" | grep -q "\"event\":\"ended\".*\"gradients\":36"' "$work/diloco/log.jsonl"
check "a peer was away, and downloaded the state" \
    sh -c 'grep -q "\"peer\":1,\"state\":\"away\"" "$0" && grep -q "\"peer\":1,\"state\":\"downloads\"" "$0"' "$work/diloco/log.jsonl"
# The first line is the untrained model's loss, the same for all; the last must be lower.
losses() { sed -n 's/.*"evaluated".*"loss":\([0-9.]*\),.*/\1/p' "$work/$1/log.jsonl"; }
for name in sync diloco; do
    check "$name learns" sh -c '[ "$(printf "%s\n%s\n" "$0" "$1" | sort -g | head -n 1)" = "$1" ] && [ "$0" != "$1" ]' \
        "$(losses $name | head -n 1)" "$(losses $name | tail -n 1)"
done
check "both begin alike" [ "$(losses sync | head -n 1)" = "$(losses diloco | head -n 1)" ]

mkdir "$work/whole" && cp "$work/diloco/log.jsonl" "$work/whole"
check "the same file once more" run diloco "$diloco"
check "gives the same log" cmp "$work/whole/log.jsonl" "$work/diloco/log.jsonl"
check "stopped after 13 gradients" run diloco "$diloco" --stop 13
check "there is a state" [ -s "$work/diloco/state.bin" ]
refuses 1 "--resume continues from it" run diloco "$diloco"
check "stopped again" run diloco "$diloco" --resume --stop 25
check "resumed to the end" run diloco "$diloco" --resume
check "gives the same log, too" cmp "$work/whole/log.jsonl" "$work/diloco/log.jsonl"
run diloco "$diloco" --stop 13 >/dev/null 2>&1
refuses 1 "of a run that differs" run diloco "$diloco
seed: 2" --resume
head -c 3000 "$work/diloco/state.bin" >"$work/cut" && cp "$work/cut" "$work/diloco/state.bin"
refuses 1 "cut off or damaged" run diloco "$diloco" --resume
rm "$work/diloco/state.bin"

# Times and bytes without gradients are those of the run itself; and among equal peers that wait for one
# another a loss does not depend on the links.
points() { # name, keys that are removed
    grep '"evaluated"' "$work/$1/log.jsonl" | sed -E "s/,?\"($2)\":[^,}]*//g"
}
check "a run without gradients" run timing "$diloco" --timing
check "takes the same times and bytes" [ "$(points timing 'loss|train_loss')" = "$(points whole 'loss|train_loss')" ]
check "and computes no loss" sh -c 'grep -q "\"loss\":null" "$0"' "$work/timing/log.jsonl"
run timing "$diloco" --timing --stop 13 >/dev/null 2>&1
refuses 1 "computed by backend timing" run timing "$diloco" --resume
rm "$work/timing/state.bin"
for a in streaming noloco; do
    outer="algorithm: $a
outer: { H: 3, fragments: 3 }"
    links='links: mobile'; check "$a over one link" run slow "$outer"
    links='links: datacentre'; check "$a over another" run quick "$outer"
    check "has the same losses" [ "$(points slow 'time|utilization')" = "$(points quick 'time|utilization')" ]
done
links=

for a in powersgd demo dgc onebit_adam streaming delayed_nesterov sparseloco noloco partial; do
    check "a run of $a" run "$a" "algorithm: $a
outer: { H: 3, fragments: 3 }"
done

check "a run of DiLoCo with Muon inside" run muon "inner: muon
$diloco"
check "learns" sh -c '[ "$(printf "%s\n%s\n" "$0" "$1" | sort -g | head -n 1)" = "$1" ] && [ "$0" != "$1" ]' \
    "$(losses muon | head -n 1)" "$(losses muon | tail -n 1)"
refuses 1 "adamw, lamb or muon" run sgd "inner: sgd
$diloco"

# A run goes on from another's parameters: its first held-out loss is the other's last one.
check "a complete run leaves its model" [ -s "$work/sync/checkpoint-000012.safetensors" ]
check "from which another starts" run warm "algorithm: diloco
start: $work/sync/checkpoint-000012.safetensors"
check "at its loss" [ "$(losses warm | head -n 1)" = "$(losses sync | tail -n 1)" ]
check "without gradients there is no model" sh -c '! ls "$0"/checkpoint* 2>/dev/null' "$work/timing"
refuses 1 "nofile.safetensors" run wrong "algorithm: diloco
start: $work/nofile.safetensors"

check "a report" "$POTLUCK" lab compare "$work/sync" "$work/diloco" --out "$work/report.html"
check "has its figures inside" [ "$(grep -c '<svg' "$work/report.html")" -eq 7 ]
check "loads nothing" sh -c '! grep -E "(src|href)=|url\(|@import|<script" "$0"' "$work/report.html"
check "is well-formed where it draws" sh -c 'sed -n "/<svg/,/<\/svg>/p" "$0" | grep -c "nan\|inf" | grep -qx 0' "$work/report.html"
# Figures as files: SVG always, PNG where there is librsvg; a library that cannot be loaded stands for a
# missing one.
compare() { "$POTLUCK" lab compare "$work/sync" "$work/diloco" --out "$work/report.html" --figures "$work/figures"; }
mkdir "$work/nolibrary" && : >"$work/nolibrary/librsvg-2.so.2"
check "figures as files" sh -c '! LD_LIBRARY_PATH="$1" "$0" lab compare "$2" "$3" --out "$4" --figures "$5" 2>&1 | grep -v report.html |
    grep -qv "figures are written as SVG only: PNG needs librsvg 2.46 or newer"' \
    "$POTLUCK" "$work/nolibrary" "$work/sync" "$work/diloco" "$work/report.html" "$work/figures"
check "are those of the report" [ "$(cat "$work/figures"/*.svg | grep -c '<svg')" -eq 7 ]
check "without librsvg there is no PNG" [ ! -e "$work/figures/time.png" ]
if compare 2>&1 | grep -q librsvg; then echo "skip PNG: no librsvg on this machine"; skipped=$((skipped + 1))
else check "with it, each SVG has its PNG" [ "$(head -qc 4 "$work/figures"/*.png | tr -cd 'PNG' | wc -c)" -eq 21 ]; fi

printf '{"name": "<b>&", "algorithm": "x"}' >"$work/sync/run.json"
check "escapes names" sh -c '"$0" lab compare "$1" --out "$2" --quiet && ! grep -q "<b>" "$2"' "$POTLUCK" "$work/sync" "$work/report.html"
refuses 1 "nofolder/run.json" "$POTLUCK" lab compare "$work/nofolder" --out "$work/report.html"
echo 'not json' >>"$work/sync/log.jsonl"
refuses 1 "is not JSON" "$POTLUCK" lab compare "$work/sync" --out "$work/report.html"

refuses 1 "'algorithm': expected the name of one" run wrong "peers: 3"
refuses 1 "'algorithm': expected an algorithm" run wrong "algorithm: telepathy"
refuses 1 "'H': expected a number from 1" run wrong "algorithm: diloco
outer: { H: 0 }"
refuses 1 "'H': expected a whole number" run wrong "algorithm: diloco
outer: { H: 2.5 }"
refuses 1 "'h': expected no such key" run wrong "algorithm: diloco
outer: { h: 5 }"
refuses 1 "'sped': expected a key" run wrong "algorithm: diloco
sped: 1"
refuses 1 "'leave': expected a peer" run wrong "algorithm: diloco
faults: { leave: [{ peer: 1, at: 5, back: 4 }] }"
refuses 1 "groups of 4 among 3" run wrong "algorithm: noloco
outer: { group: 4 }"
refuses 1 "every peer has left" run alone "algorithm: diloco
faults: { leave: [{ peer: 0, at: 0.001 }, { peer: 1, at: 0.001 }, { peer: 2, at: 0.001 }] }"
refuses 2 "run or compare comes first" "$POTLUCK" lab
finish
