# gpu_memory.sh - --gpu-memory is kept, and what does not fit is named with something that does; on the
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
refuses 1 "--gpu-memory: backend fast works in the machine's memory" train --backend fast --gpu-memory 1 --out "$work/d"
refuses 2 "--gpu-memory" train --gpu-memory -1 --out "$work/e"
finish
