#!/bin/sh
# cuda.sh - the CUDA backend on the device at hand: the device's own peaks, what moves memory, each kernel,
# training steps at the run's size, drawing beside the processors', and DALLE-pytorch where $PYTHON has
# it with a torch for the device. Leaves bench-cuda/*.json and bench-cuda.md in the folder given.
# BACKEND=cuda-on-cpu SMALL=1 goes the same way on the emulated device, for tests: its times mean nothing.
build=${1:-build}
backend=${BACKEND:-cuda}
python=${PYTHON:-python3}
program=${POTLUCK:-$build/potluck}
out=$build/bench-cuda
mkdir -p "$out" || exit 1
rm -f "$out"/*.json

bench() { # name options...
    name=$1
    shift
    "$program" bench --json "$out/$name.json" "$@"
}

if ! why=$("$program" bench --backend "$backend" --only device --values 65536 2>&1); then
    echo "bench-cuda: nothing to measure: $(echo "$why" | tail -n 1)"
    exit 0
fi

if [ -n "$SMALL" ]; then
    values=65536 size=demo batch=1 drawn="" parts="--filter axpy" peer=""
else
    values=134217728 size=run batch=64 drawn="--size small --size middle" parts=""
    peer="--peer test/bench/peer.py --python $python"
    PEER_DEVICE=cuda export PEER_DEVICE
fi
for precision in float32 bf16; do
    how="--backend $backend --precision $precision"
    bench "device-$precision" $how --only device --values $values || exit 1
    # as many samples at a time as fit
    while ! bench "steps-$precision" $how --only steps --size $size --batch $batch --values $values --steps "${SMALL:-3}" $peer; do
        batch=$((batch / 2))
        [ $batch -ge 1 ] || exit 1
    done
    bench "parts-$precision" $how --only parts $parts --values $values || exit 1
done
if [ -n "$drawn" ]; then # demo's takes the emulation half a minute: by hand
    bench draw-device --backend "$backend" --only drawing $drawn --values $values || exit 1
    bench draw-host --backend fast --only drawing $drawn || exit 1
fi
"$python" test/bench/cuda_table.py "$out" > "$build/bench-cuda.md" || exit 1
echo "bench-cuda: $build/bench-cuda.md, ready for paper/; figures in $out"
