#!/bin/sh
# outputs.sh - where results cannot be written, a command says so before its work and leaves nothing
# half-written: a folder that nobody may write to, a full disk, a folder in which another command
# writes. What the folder is like is tried before the files to read, so that most of these need not
# exist.
. "$(dirname "$0")/lib.inc"
tiny=test/program/tiny.json
peer=/ip4/127.0.0.1/tcp/1/p2p/12D3KooWSkvkGQpYmokxqw6g5oz8UUNRDjUwW24iXeXc6gQ5rJ7a
echo '{}' >"$work/text"
mkdir "$work/empty"
peers=
trap 'kill $peers 2>/dev/null; wait; rm -rf "$work"' EXIT

# The command is refused in one line that names what the user named, besides one about its backend.
tries() { # words of the sentence, command...
    named=$1; shift
    (ulimit -f $blocks; exec timeout 20 "$@" >"$work/out" 2>"$work/err" </dev/null)
    got=$?
    if [ "$got" -eq 1 ] && grep -q -- "^potluck .*$named" "$work/err" && ! grep -q '\.part' "$work/err" &&
        [ "$(cat "$work/err" "$work/out" | grep -vc '^backend ')" -eq 1 ]; then
        ok "before the work: $what: $*"
    else
        fail "before the work: $what: $*: status $got, expected '$named'"
        head -n 3 "$work/err" "$work/out"
    fi
}
# Each command that writes, to a folder $1, or to a file in it.
all() {
    tries "$1" "$POTLUCK" train --config run --out "$1"
    tries "$1" "$POTLUCK" demo --quick --no-dash --out "$1"
    tries "$1" "$POTLUCK" demo --no-dash --out "$1"
    tries "$1" "$POTLUCK" finetune --data "$work/text" --out "$1"
    tries "$1" "$POTLUCK" generate --model "$work/text" --out "$1" "a cat"
    tries "$1" "$POTLUCK" prepare --data "$work/text" --codec data/demo/codec.safetensors --out "$1"
    tries "$1" "$POTLUCK" lab run "$work/lab.yaml" --out "$1"
    tries "$1" "$POTLUCK" dash --folder "$work" --port 0 --export "$1"
    tries "$1" "$POTLUCK" peer --save "$1" --run r --config $tiny
    tries "$1" "$POTLUCK" vqgan decode --weights "$work/text" --codes "$work/text" --out "$1"
    for verb in encode train; do tries "$1/x" "$POTLUCK" vqgan $verb --weights "$work/text" --data "$work/text" --out "$1/x"; done
    tries "$1/x" "$POTLUCK" vqgan measure --weights "$work/text" --data "$work/text" --sheet "$1/x"
    tries "$1/x" "$POTLUCK" new-run --run r --out "$1/x"
    tries "$1/x" "$POTLUCK" bench --quick --json "$1/x"
    tries "$1/x" "$POTLUCK" conform --report "$1/x.html"
    tries "$1/x" "$POTLUCK" conform --peer $peer --report "$1/x.json"
    tries "$1/x" "$POTLUCK" average --prefix p --tensors data/demo/codec.safetensors --out "$1/x"
    tries "$1/x" "$POTLUCK" convert data/demo/codec.safetensors "$1/x.safetensors"
    tries "$1/x" "$POTLUCK" lab compare "$work/run" --out "$1/x"
    tries "$1/x" "$POTLUCK" authority --key "$1/x" --allow "$work/list"
}
printf '%s\n' 'name: lab' "model: $tiny" 'peers: 2' 'steps: 1' 'batch: 2' 'pairs: 8' 'held_out: 2' 'evaluate: 1' \
    'links: [adsl]' 'sample_ms: [10]' 'algorithm: gradients' >"$work/lab.yaml"
check "a run of the laboratory" "$POTLUCK" lab run "$work/lab.yaml" --out "$work/run" --quiet
"$POTLUCK" authority --invite me --allow "$work/list" >/dev/null

what="nobody may write there" blocks=unlimited
all /proc/nosuch
tries /proc/nosuch/x "$POTLUCK" authority --invite me --allow /proc/nosuch/x
tries /proc/nosuch "$POTLUCK" lab compare "$work/run" --out "$work/report.html" --figures /proc/nosuch
check "and no report is written" [ ! -e "$work/report.html" ]
tries /proc/nosuch/x "$POTLUCK" peer --identity /proc/nosuch/x
what="the disk is full" blocks=1
mkdir "$work/full"
all "$work/full"
check "and nothing is left" [ -z "$(ls -A "$work/full")" ]

# --- two at once

two() { # what, file that shows that the first one writes, options of both...
    what=$1 there=$2; shift 2
    "$POTLUCK" "$@" >"$work/first" 2>&1 &
    first=$!
    peers="$peers $first"
    for _ in $(seq 600); do [ -e "$there" ] && break; sleep 0.1; done
    refuses 1 'another potluck is writing there: give another --out' timeout 20 "$POTLUCK" "$@"
    kill -KILL $first
    wait $first 2>/dev/null
    check "$what: killed, it holds nothing" sh -c 'timeout -s INT 3 "$@" >"$0" 2>&1; ! grep -q "another potluck" "$0"' "$work/log2" "$POTLUCK" "$@"
}
two training "$work/t/log.jsonl" train --config $tiny --limit 16 --batch 4 --target-batch 4 --steps 1000000 --quiet --out "$work/t"
two "a demo" "$work/d/log.jsonl" demo --quick --no-dash --out "$work/d"
two "a demo's swarm" "$work/s/bootstrap.txt" demo --no-dash --out "$work/s"
finish
