#!/bin/sh
# gathered.sh - every algorithm by `potluck train` over loopback: a training that is stopped goes on bit for bit. Of three
# trainers whose messages are gathered one comes late and one is killed, and those that are left are equal bit for bit.
. "$(dirname "$0")/three_trainers.inc"

# --- one peer, stopped and resumed ---
alone() { # folder, options...
    out=$1; shift
    "$POTLUCK" train ${quiet---quiet} --run alone --listen /ip4/127.0.0.1/tcp/0 --config test/program/tiny.json --limit 64 --threads 1 \
        --inner-steps 4 --target-batch 8 --batch 8 --no-check --keep 0 --lr 0.001 --out "$work/$out" "$@" >/dev/null 2>"$work/messages"
}
algorithms="sparseloco,topk=8 noloco, partial,share=0.1 delayed_nesterov,N=2 demo,topk=8 dgc,share=0.05 onebit_adam,warm_up=5
    streaming,fragments=2,tau=1 delayed, eager, delayed_gradients, gradients, powersgd, powersgd_own, local_sgd, diloco,"
for a in $algorithms; do
    name=${a%%,*} settings=${a#*,}
    check "$name trains" alone "$name" --algorithm "$name" --algorithm-settings "$settings" --steps 12 --save-every 4
    mkdir "$work/$name.two"
    # a fragment of streaming is sent one step early
    cp "$work/$name"/checkpoint-00000[45].safetensors "$work/$name/log.jsonl" "$work/$name.two"
    quiet= check "$name goes on" alone "$name.two" --algorithm "$name" --algorithm-settings "$settings" --steps 12 --save-every 4 --resume
    check "$name begins at the checkpoint" grep -q "continuing from .*checkpoint-00000[45]" "$work/messages"
    check "$name, bit for bit" cmp "$work/$name/checkpoint-000012.safetensors" "$work/$name.two/checkpoint-000012.safetensors"
    check "$name has losses" sh -c "! grep -E '\"loss\": *0[,}.]' '$work/$name/log.jsonl'"
done
"$POTLUCK" train --run r --algorithm none --out "$work/no" 2>&1 | sed 's/.*is not one of //' | tr -s ', ' '\n' | sort >"$work/known"
for a in $algorithms; do echo "${a%%,*}"; done | sort >"$work/played"
check "these are all algorithms" cmp "$work/known" "$work/played"
refuses 2 "expected a number from 1" "$POTLUCK" train --run r --algorithm sparseloco --algorithm-settings topk=0 --config test/program/tiny.json --out "$work/no"
refuses 2 "does not take --client-mode" "$POTLUCK" train --run r --algorithm demo --client-mode --join /ip4/127.0.0.1/tcp/1/p2p/12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN --config test/program/tiny.json --out "$work/no" --no-check
refuses 2 "takes no centered-clip" "$POTLUCK" train --run r --algorithm demo --robust centered-clip --config test/program/tiny.json --out "$work/no"
refuses 2 "takes neither --delay nor --robust btard" "$POTLUCK" train --run r --algorithm streaming --robust btard --config test/program/tiny.json --out "$work/no"
refuses 1 "3 fragments" "$POTLUCK" train --run r --algorithm streaming --inner-steps 4 --algorithm-settings fragments=3 \
    --config test/program/tiny.json --out "$work/no"

# --- three peers; each exchange overlaps with the next local steps ---
three_trainers --algorithm streaming --algorithm-settings fragments=2,tau=2 --robust centered-clip
kill -INT $third; wait $third
check "it has left with a checkpoint" sh -c 'ls "$1" | grep -q checkpoint' sh "$work/o3"
check "the run has the clip in its manifest" grep -q '"fragments=2,tau=2,clip=-1"' "$work/o3/options.json"
finish
