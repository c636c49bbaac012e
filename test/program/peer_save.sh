#!/bin/sh
# peer_save.sh - a peer without data saves a run's checkpoints. They equal those of the trainers
# that they come from, bit for bit, and can be used like them.
. "$(dirname "$0")/lib.inc"
peers=
trap 'kill -KILL $peers 2>/dev/null; wait; rm -rf "$work"' EXIT
tiny=test/program/tiny.json

wait_for() { # command...
    for _ in $(seq 3000); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
    tail -n 2 "$work"/*.err "$work"/*.out "$out" # the last one that was begun
    return 1
}
address() { sed -n 's/.*"multiaddr":"\([^"]*\)".*/\1/p' "$1"; }
newest() { ls "$1" | grep '^checkpoint-[0-9]*.safetensors$' | tail -n 1; }
count() { ls "$1" | grep -c '^checkpoint-[0-9]*.safetensors$'; }
saved() { [ "$(grep -c '"event":"checkpoint"' "$1")" -ge "$2" ]; } # its output, how many
keep() { # its output, options...
    out=$1; shift
    OMP_NUM_THREADS=1 "$POTLUCK" peer --json --run r --listen /ip4/127.0.0.1/tcp/0 --config $tiny "$@" >"$out" 2>"$out.err" &
    last=$!
    peers="$peers $last"
    wait_for grep -q '"event":"listening"' "$out"
}
learn() { # number, options...
    n=$1; shift
    "$POTLUCK" train --config $tiny --limit 128 --data-seed $n --run r --target-batch 32 --batch 8 --slow 0.3 --steps 100000 \
        --matchmaking-time 1 --save-every 1 --keep 0 --threads 1 --quiet --json --listen /ip4/127.0.0.1/tcp/0 --out "$work/t$n" "$@" \
        >"$work/t$n.out" 2>"$work/t$n.err" &
    peers="$peers $!"
    wait_for grep -q '"event":"listening"' "$work/t$n.out"
}

# What is in a file: tensors as they are listed, and their bytes.
listed() { "$POTLUCK" show "$1" | sed '1s/^[^:]*: //' | grep -v '(training:'; }
bytes() { tail -c +$((9 + $(od -An -tu8 -N8 "$1"))) "$1"; }
same() { # two files
    listed "$1" >"$work/one" && listed "$2" >"$work/two" && cmp "$work/one" "$work/two" || return 1
    bytes "$1" >"$work/one" && bytes "$2" >"$work/two" && [ -s "$work/one" ] && cmp "$work/one" "$work/two"
}
# Compares each checkpoint of the peer with the checkpoint of the trainer that it was taken from.
all_same() { # its output
    seen=0
    sed -n 's/.*"event":"checkpoint".*"path":"\([^"]*\)".*"donor":"\([^"]*\)".*/\1 \2/p' "$1" >"$work/list"
    while read -r path donor; do
        [ -f "$path" ] || { echo "no $path"; return 1; }
        for n in 1 2; do
            case $(address "$work/t$n.out") in
            */p2p/"$donor")
                theirs=$work/t$n/$(basename "$path")
                [ -f "$theirs" ] || continue # it had just taken this one over from the other
                same "$path" "$theirs" || return 1
                seen=$((seen + 1)) ;;
            esac
        done
    done <"$work/list"
    [ $seen -ge 2 ] || { echo "$seen were compared"; cat "$work/list"; return 1; }
}

# The saving peer is also the bootstrap peer and starts first: it waits until a trainer has stepped.
keep "$work/k" --save "$work/s" --save-every 1 --keep 0 --identity "$work/key"
saver=$last
entry=$(address "$work/k")
learn 1 --join "$entry"
learn 2 --join "$entry"
check "checkpoints are taken from the swarm" wait_for saved "$work/k" 3
check "its event says epoch, bytes, donor" grep -qE '"event":"checkpoint","epoch":[0-9]+,"path":"[^"]*","bytes":[1-9][0-9]*,"donor":"12D3[^"]*"' "$work/k"

# One line each without --json, and no more of them than asked for.
OMP_NUM_THREADS=1 "$POTLUCK" peer --run r --client-mode --join "$entry" --config $tiny --save "$work/p" --save-every 1 --keep 2 >"$work/p.out" 2>&1 &
peers="$peers $!"
check "a client keeps some, too" wait_for sh -c "[ \$(grep -c '^step [0-9]*: .*p/checkpoint-[0-9]*.safetensors, [0-9]* bytes, from 12D3' '$work/p.out') -ge 3 ]"
stay() { [ "$(count "$work/p")" -le 2 ]; } # the oldest goes when the newest is there
check "of which as many stay as asked for" wait_for stay

# A model that is not the run's, or moments of another kind: a line that names peer and tensor, and
# no file.
keep "$work/w" --join "$entry" --save "$work/ws" --save-every 1 --optimizer lamb32
check "other moments are refused" wait_for grep -qE '"event":"not_saved","donor":"12D3.*state1.*--optimizer lamb32' "$work/w"
keep "$work/v" --join "$entry" --config demo --save "$work/vs" --save-every 1
check "another model is refused" wait_for grep -qE '"event":"not_saved","donor":"12D3.*ours.*--config demo' "$work/v"
check "and nothing is written" test -z "$(ls "$work/ws" "$work/vs" | grep -v :)"

# Killed at any moment, it leaves whole files.
for delay in 1 1.3 1.6; do
    keep "$work/x$delay" --join "$entry" --save "$work/xs" --save-every 1 --keep 0
    killed=$last
    wait_for saved "$work/x$delay" 1
    sleep $delay
    kill -KILL $killed
    wait $killed 2>/dev/null
done
check "killed, it leaves whole files" sh -c 'n=0; for f in "$1"/checkpoint-*.safetensors; do "$0" show "$f" || exit 1; n=$((n + 1)); done; [ $n -ge 3 ]' "$POTLUCK" "$work/xs"
sed -n 's/.*"event":"checkpoint","epoch":\([0-9]*\),.*/\1/p' "$work"/x1* | sort -n >"$work/taken"
check "and never takes the same twice" sh -c '[ "$(wc -l <"$0")" -ge 3 ] && [ -z "$(uniq -d "$0")" ]' "$work/taken"

kill -TERM $saver
wait $saver
check "SIGTERM ends it with status 0" test $? -eq 0
check "tensors are the donor's of that step, bit for bit" all_same "$work/k"
kill -KILL $peers 2>/dev/null
wait

# What a checkpoint is good for.
f=$work/s/$(newest "$work/s")
step=$(basename "$f" .safetensors | sed 's/checkpoint-0*//')
check "show" sh -c "'$POTLUCK' show '$f' | grep -q '\"step\":$step,\"optimizer_steps\":'"
check "generate" "$POTLUCK" generate --model "$work/s" "red apple" --greedy --quiet --out "$work/drawn"
check "train --resume continues from it" "$POTLUCK" train --config $tiny --limit 128 --target-batch 32 --batch 8 --steps $((step + 2)) \
    --quiet --out "$work/s" --resume
check "two steps further" test -f "$work/s/$(printf 'checkpoint-%06d.safetensors' $((step + 2)))"

# A folder that is ahead of the swarm belongs to another run: the trainer is slow, so the saving
# peer looks first.
keep "$work/y" --save "$work/s" --save-every 1
learn 3 --slow 1.5 --join "$(address "$work/y")"
check "a folder of another run is reported" wait_for grep -q '"event":"not_saved".*holds a checkpoint of step' "$work/y"
check "and left alone" test "$(newest "$work/s")" = "$(printf 'checkpoint-%06d.safetensors' $((step + 2)))"

refuses 2 "--save saves a run's state" "$POTLUCK" peer --save "$work/n"
refuses 2 "not one of lamb8, lamb8_clamp30, lamb32" "$POTLUCK" peer --run r --save "$work/n" --optimizer sgd
refuses 2 "--save-every" "$POTLUCK" peer --run r --save "$work/n" --save-every 0
refuses 2 "--keep" "$POTLUCK" peer --run r --save "$work/n" --keep -1
refuses 1 "nowhere.json" "$POTLUCK" peer --run r --save "$work/n" --config nowhere.json
refuses 1 "tiny.json" "$POTLUCK" peer --run r --save $tiny/n --config $tiny
finish
