# opencl.sh - the OpenCL backend: golden values, pair tests of what these leave out, and the demo's
# model trained with it and with fast. Skipped where it was not built or where no device is.
. test/program/lib.inc

library=$(dirname "$POTLUCK")/libpl_opencl.so
case $library in /*) ;; *) library=./$library ;; esac
# PoCL, if that is the device: in the caller's thread, and what it compiles stays with us.
export POCL_DEVICES="${POCL_DEVICES:-basic}" POCL_CACHE_DIR="$work/pocl"
mkdir "$work/pocl"
if [ ! -f "$library" ]; then
    echo "skip opencl: not built, no OpenCL headers"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
if ! "$POTLUCK" conform --backend "$library" --quick --filter "fill n1" >"$work/out" 2>&1 &&
    grep -q "no OpenCL device" "$work/out"; then
    echo "skip opencl: $(head -n 1 "$work/out")"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi

for area in dalle quant optim; do
    check "golden $area" "$POTLUCK" conform --golden "test/golden/$area" --backend "$library"
done
# products and attention are the goldens'; these no golden of the three reaches, or not at odd sizes
for op in sumsq transpose embed shift rotary conv_dx upsample group_norm code kl_uniform pixel_loss lamb adam; do
    check "pairs: $op" "$POTLUCK" conform --backend "$library" --quick --filter "$op"
done

# The demo's own model, three steps: the losses of fast, to float32's rounding.
train() {
    "$POTLUCK" train --config demo --limit 64 --steps 3 --target-batch 4 --batch 2 --optimizer lamb8 --save-every 0 \
        --quiet "$@"
}
check "trains the demo's model" train --backend "$library" --out "$work/a"
check "fast trains it too" train --backend fast --out "$work/b"
losses() { sed -n 's/.*"loss_image": *\([0-9.]*\).*/\1/p' "$1/log.jsonl"; }
losses "$work/a" >"$work/mine"
losses "$work/b" >"$work/theirs"
check "with the same losses" awk 'NR == FNR { want[NR] = $1; n = NR; next }
    { d = $1 - want[FNR]; if (d > 1e-4 * want[FNR] || -d > 1e-4 * want[FNR]) bad = 1; seen++ }
    END { exit bad || n != 3 || seen != 3 }' "$work/theirs" "$work/mine"
finish
