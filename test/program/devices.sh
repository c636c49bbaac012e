# devices.sh - several devices, the optimizer in host memory, and make bench-cuda, on emulated
# devices. Run from the top of the tree.
. test/program/lib.inc

if [ ! -f "$(dirname "$POTLUCK")/libpl_cuda_on_cpu.so" ]; then
    echo "skip devices: cuda-on-cpu not built"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
export CUDA_ON_CPU_DEVICES=2 POTLUCK
train() {
    "$POTLUCK" train --config test/program/tiny.json --limit 16 --steps 2 --target-batch 2 --batch 2 --save-every 0 \
        --evaluate-every 0 --backend cuda-on-cpu --quiet "$@"
}
loss() { # of the last step, to four digits: devices sum in another order
    sed -n 's/.*"loss": *\([0-9.]*\).*/\1/p' "$work/$1/log.jsonl" | tail -n 1 | cut -c 1-6
}

check "one device" train --out "$work/one"
check "two devices" train --gpus 2 --out "$work/two"
check "learn the same" test "$(loss one)" = "$(loss two)" -a -n "$(loss one)"
check "a list of devices" train --gpus 1,0 --steps 1 --out "$work/list"
check "all of them" train --gpus all --steps 1 --out "$work/all"
refuses 1 "no device 2: this machine has 2" train --gpus 3 --out "$work/x"
refuses 1 "device 1 twice" train --gpus 1,1 --out "$work/x"
refuses 1 "backend fast: has no devices" train --gpus 2 --backend fast --out "$work/x"

# A library whose code is for other devices is left for the next backend, with the reason.
mkdir "$work/other" && ln -s "$(realpath "$(dirname "$POTLUCK")")/libpl_cuda_on_cpu.so" "$work/other/libpl_cuda.so"
refuses 1 "no kernel image is available.*make cuda CUDA_ARCH=80" env CUDA_ON_CPU_NO_CODE=1 "$POTLUCK" conform \
    --backend cuda-on-cpu --filter axpy --quick
check "auto goes on without it" sh -c "CUDA_ON_CPU_NO_CODE=1 PL_BACKEND_DIR='$work/other' '$POTLUCK' conform --backend auto \
    --filter axpy --quick | grep -q 'backend ref: .*no cuda (.*no kernel image'"

# Whatever the order in which copies and operations come, the same bits.
check "offloaded, as early as possible" env CUDA_ON_CPU_STREAMS=early "$POTLUCK" train \
    --config test/program/tiny.json --limit 16 --steps 2 --target-batch 2 --save-every 0 --evaluate-every 0 \
    --backend cuda-on-cpu --quiet --offload --out "$work/early"
check "offloaded, as late as waited for" env CUDA_ON_CPU_STREAMS=late "$POTLUCK" train \
    --config test/program/tiny.json --limit 16 --steps 2 --target-batch 2 --save-every 0 --evaluate-every 0 \
    --backend cuda-on-cpu --quiet --offload --out "$work/late"
check "to the same checkpoint" cmp "$work/early/checkpoint-000002.safetensors" \
    "$work/late/checkpoint-000002.safetensors"
check "which learnt as on the device" test "$(loss early)" = "$(loss one)"
check "in bfloat16" train --precision bf16 --out "$work/bf16"
refuses 1 "offers no bf16" env CUDA_ON_CPU_OLD=1 "$POTLUCK" train --config test/program/tiny.json --limit 16 \
    --backend cuda-on-cpu --precision bf16 --gpus 2 --out "$work/x"
check "in bfloat16 although another device has none" env CUDA_ON_CPU_DEVICES=3 CUDA_ON_CPU_OLD=0 "$POTLUCK" train \
    --config test/program/tiny.json --limit 16 --steps 1 --target-batch 2 --batch 2 --save-every 0 --evaluate-every 0 \
    --backend cuda-on-cpu --quiet --precision bf16 --gpus 1,2 --out "$work/x"
check "attention in bfloat16 by code without tensor cores" env CUDA_ON_CPU_PTX=75 "$POTLUCK" conform \
    --backend cuda-on-cpu --quick --filter "d64 P50 F0 k0,0 bf16"

if command -v python3 >/dev/null; then
    check "gpu-report goes through the emulation" env BACKEND=cuda-on-cpu SMALL=1 sh test/bench/gpu_report.sh "$work/bench"
    page=$work/bench/gpu-report/README.md
    check "its page has every part" sh -c "[ \$(grep -c '^| [a-z]* | ok in' '$page') -eq 4 ] && grep -q '| golden | .* 0 failed' '$page'"
    check "and the figures" grep -q '^| LAMB, offloaded, 65536 values' "$page"
    check "a part that fails is named" sh -c "! POTLUCK=false BACKEND=cuda-on-cpu SMALL=1 sh test/bench/gpu_report.sh '$work/fails' &&
        grep -q '^| golden | FAILED, status 1' '$work/fails/gpu-report/README.md'"
    check "no time is left" sh -c "LIMIT=0 BACKEND=cuda-on-cpu SMALL=1 sh test/bench/gpu_report.sh '$work/late-report' &&
        grep -q '^| training | left out: no time' '$work/late-report/gpu-report/README.md'"
    check "its table" grep -q '^| LAMB, offloaded, 65536 values' "$work/bench/bench-cuda.md"
    check "a kernel of each operation that is asked for" grep -q '^| axpy n4194304 |' "$work/bench/bench-cuda.md"
    check "with a step and its memory" grep -Eq '^\| step, demo, 1 samples, .* GiB .* samples/s' "$work/bench/bench-cuda.md"
    check "measured again in part, the rest stays" sh -c "ONLY=device BACKEND=cuda-on-cpu SMALL=1 sh test/bench/cuda.sh \
        '$work/bench' && grep -q '^| axpy n4194304 |' '$work/bench/bench-cuda.md'"
    check "what takes too long is left out" sh -c "LIMIT=0.01 ONLY=steps BACKEND=cuda-on-cpu SMALL=1 sh test/bench/cuda.sh \
        '$work/bench' | grep -q 'steps-bf16 left out: more than 0.01 s' && grep -q 'LAMB, offloaded' '$work/bench/bench-cuda.md'"
    check "without a device it says so" sh -c \
        "CUDA_ON_CPU_DEVICES=0 BACKEND=cuda-on-cpu sh test/bench/cuda.sh '$work/none' | grep -q 'no CUDA device here'"
fi
finish
