# gpu_memory.sh - --gpu-memory is respected, and an error names a setting that would fit; on the
# emulated device. Run from the top of the tree.
. test/program/lib.inc

if [ ! -f "$(dirname "$POTLUCK")/libpl_cuda_on_cpu.so" ]; then
    echo "skip gpu_memory: cuda-on-cpu not built"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
train() {
    "$POTLUCK" train --config test/program/tiny.json --limit 16 --steps 1 --target-batch 4 --batch 4 --save-every 0 \
        --quiet "$@"
}
check "enough is enough" train --backend cuda-on-cpu --gpu-memory 0.02 --out "$work/a"
refuses 1 "moments of .*weight.* that --gpu-memory allows.*try --offload" train --backend cuda-on-cpu --gpu-memory 0.0012 --out "$work/b"
refuses 1 "activations of a batch.* that --gpu-memory allows.*try --batch 2" \
    train --backend cuda-on-cpu --gpu-memory 0.0016 --out "$work/c"
check "with --offload and a smaller batch it fits" \
    train --backend cuda-on-cpu --gpu-memory 0.0012 --offload --batch 1 --out "$work/f"
export CUDA_ON_CPU_PINNED=1000
refuses 1 "no memory for the master copy.*page-locked host memory requested, more than the system provides" \
    train --backend cuda-on-cpu --offload --out "$work/g"
unset CUDA_ON_CPU_PINNED
refuses 1 "--gpu-memory: backend fast works in the machine's memory" train --backend fast --gpu-memory 1 --out "$work/d"
refuses 2 "--gpu-memory" train --gpu-memory -1 --out "$work/e"

# So does every other command that computes there.
"$POTLUCK" train --config test/program/tiny.json --limit 16 --steps 1 --target-batch 4 --batch 4 --save-every 0 --quiet \
    --out "$work/m" >"$work/log" 2>&1 || fail "a model to draw with"
generate() {
    "$POTLUCK" generate --model "$work/m" --n 4 --quiet --backend cuda-on-cpu --out "$work/p" "$@" "red apple"
}
refuses 1 "codec.safetensors: .*for the model (cuda: .*that --gpu-memory allows); a smaller model" generate --gpu-memory 0.002
refuses 1 "drawing codes.*that --gpu-memory allows); try --batch 2" generate --gpu-memory 0.004
check "and draws with enough" generate --gpu-memory 0.02
printf '%s\tred apple\n' "$work"/p/0*.png >"$work/list.tsv"
refuses 1 "encoding 4 pictures.*that --gpu-memory allows); try --batch 2" "$POTLUCK" prepare --data "$work/list.tsv" \
    --codec "$DEMO/codec.safetensors" --batch 4 --out "$work/shards" --backend cuda-on-cpu --gpu-memory 0.005
vqgan() { "$POTLUCK" vqgan "$@" --data "$work/p" --backend cuda-on-cpu 2>&1 | grep ^potluck >&2; false; }
rm -f "$work/p/sheet.png"
refuses 1 "vqgan: encoding: .*that --gpu-memory allows); try a smaller --side" vqgan encode \
    --weights "$DEMO/codec.safetensors" --out "$work/codes" --gpu-memory 0.0036
refuses 1 "vqgan: demo: .*for the model (cuda: " vqgan train --steps 1 --batch 4 --out "$work/v" --gpu-memory 0.005
refuses 1 "moments of .*weight.*that --gpu-memory allows); a smaller model" vqgan train --steps 1 --batch 4 --out "$work/v" \
    --gpu-memory 0.008
refuses 1 "training: .*that --gpu-memory allows); try --batch 2" vqgan train --steps 1 --batch 4 --out "$work/v" \
    --gpu-memory 0.016
finetune() {
    "$POTLUCK" finetune --backend cuda-on-cpu --length 32 --batch 8 --steps 1 --held-out 1 --evaluate-every 0 \
        --save-every 0 --quiet --out "$work/fine" "$@"
}
refuses 1 "for the model (cuda: .*; try a smaller --size, or --share 1" finetune --gpu-memory 0.002
refuses 1 "moments of .*weight.*that --gpu-memory allows); try --optimizer adam8" finetune --gpu-memory 0.007 --optimizer adam32
refuses 1 "for the activations (cuda: .*; try --activations recomputed" finetune --gpu-memory 0.008 --activations stored
refuses 1 "for the activations (cuda: .*; try --accumulate 2" finetune --gpu-memory 0.008
refuses 1 "device's peaks: .*that --gpu-memory allows); try a smaller --values" "$POTLUCK" bench --only device \
    --values 1048576 --backend cuda-on-cpu --gpu-memory 0.002
finish
