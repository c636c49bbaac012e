#!/bin/sh
# cuda.sh - the CUDA backend on the device at hand: the device's own peaks, what moves memory,
# training steps at the run's size, sampling on it and on the CPU, each kernel, and DALLE-pytorch
# where $PYTHON has it with a torch for the device. Leaves bench-cuda/*.json and bench-cuda.md in
# the folder given. ONLY="device steps draw parts" says which of these, where a machine is lent for
# minutes: what was measured before stays in the table. What fails, or takes longer than LIMIT
# seconds, is left out with a line, and the rest goes on. The checks that a GPU computes right are
# `potluck conform --backend cuda`. BACKEND=cuda-on-cpu SMALL=1 goes the same way on the emulated
# device, for tests: its times mean nothing.
build=${1:-build}
backend=${BACKEND:-cuda}
python=${PYTHON:-python3}
program=${POTLUCK:-$build/potluck}
only=${ONLY:-device steps draw parts}
limit=${LIMIT:-600}
out=$build/bench-cuda
bad=0
mkdir -p "$out" || exit 1

wanted() { case " $only " in *" $1 "*) return 0 ;; *) return 1 ;; esac }

bench() { # name options...
    name=$1
    shift
    rm -f "$out/$name.json"
    timeout "$limit" "$program" bench --json "$out/$name.json" "$@" 2>"$out/$name.log"
    rc=$?
    cat "$out/$name.log" >&2
    [ $rc = 0 ] && return 0
    rm -f "$out/$name.json"
    grep -q "out of memory" "$out/$name.log" && return 2
    echo "bench-cuda: $name left out: $([ $rc = 124 ] && echo "more than $limit s" || tail -n 1 "$out/$name.log")"
    bad=1
    return 1
}

if ! why=$("$program" bench --backend "$backend" --only device --values 65536 2>&1); then
    echo "bench-cuda: nothing to measure: $(echo "$why" | tail -n 1)"
    exit 0
fi

if [ -n "$SMALL" ]; then
    values=65536 size=demo first=1 drawn="" parts="--filter axpy" peer=""
else
    values=134217728 size=run first=64 drawn="--size small --size middle" parts=""
    peer="--peer test/bench/peer.py --python $python"
    PEER_DEVICE=cuda export PEER_DEVICE
fi
for precision in bf16 float32; do
    how="--backend $backend --precision $precision"
    if wanted device; then bench "device-$precision" $how --only device --values $values; fi
    if wanted steps; then
        batch=$first
        while [ $batch -ge 1 ]; do # as many samples at a time as fit
            bench "steps-$precision" $how --only steps --size $size --batch $batch --values $values \
                --steps "${SMALL:-3}" $peer
            [ $? = 2 ] || break
            batch=$((batch / 2))
        done
    fi
done
if wanted draw && [ -n "$drawn" ]; then # demo's takes the emulation half a minute: by hand
    bench draw-device --backend "$backend" --only drawing $drawn --values $values &&
        bench draw-host --backend fast --only drawing $drawn
fi
if wanted parts; then
    for precision in bf16 float32; do
        bench "parts-$precision" --backend "$backend" --precision $precision --only parts $parts --values $values
    done
fi
"$python" test/bench/cuda_table.py "$out" > "$build/bench-cuda.md" || exit 1
echo "bench-cuda: $build/bench-cuda.md, ready for paper/; figures in $out"
exit $bad
