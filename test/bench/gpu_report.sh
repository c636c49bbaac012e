#!/bin/sh
# gpu_report.sh [BUILD] - everything that a GPU can show, in one run of at most nine minutes: a build for its architecture,
# conformance and golden values on it, compute-sanitizer, every benchmark, one training of the demo. Leaves one folder,
# BUILD/gpu-report, with a page (README.md), the logs and the figures. In the order of worth: what no time is left for is named.
# BACKEND=cuda-on-cpu SMALL=1 goes the same way on the emulated device, for tests: its times mean nothing.
build=${1:-build}
backend=${BACKEND:-cuda}
end=$(($(date +%s) + ${LIMIT:-530}))
out=$build/gpu-report
page=$out/README.md
bad=0

left() { echo $((end - $(date +%s))); }
name=$(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null | head -n 1)
if [ "$backend" = cuda ] && [ -z "$name" ]; then
    echo "gpu-report: no NVIDIA GPU, or no driver, on this machine"
    exit 0
fi
mkdir -p "$out" || exit 1

# One part: its most seconds, its name, what of its output goes onto the page (a sed program), and the command.
part() { # seconds, name, show, command...
    most=$1 what=$2 show=$3; shift 3
    [ "$(left)" -lt "$most" ] && most=$(left)
    if [ "$most" -lt 5 ]; then
        echo "| $what | left out: no time | |" >>"$page"
        return
    fi
    begun=$(date +%s)
    echo "gpu-report: $what, $(left) s left" >&2
    timeout "$most" "$@" >"$out/$what.log" 2>&1
    status=$?
    took=$(($(date +%s) - begun))
    shown=$(sed -n "$show" "$out/$what.log" | tail -n 1)
    case $status in
    0) result=ok ;;
    124) result="stopped after $most s" bad=1 ;;
    *) result="FAILED, status $status" bad=1 ;;
    esac
    echo "| $what | $result in $took s | $shown |" >>"$page"
}

{
    echo "# A GPU's report"
    echo
    echo "${name:-emulated device}; $(date -u +%Y-%m-%d); $(git rev-parse --short=12 HEAD 2>/dev/null || echo "no git"); \`make gpu-report\`."
    echo
    echo "| part | result | last line |"
    echo "| --- | --- | --- |"
} >"$page"

if [ "$backend" = cuda ]; then
    arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
    part 240 build '$p' make -s -j"$(nproc)" BUILD="$build" CUDA_ARCH="$arch" all
fi
potluck=${POTLUCK:-$build/potluck}
last_count='/ failed/p'
if [ -n "$SMALL" ]; then
    part 100 conform "$last_count" "$potluck" conform --backend "$backend" --quick --filter axpy
    part 100 golden "$last_count" "$potluck" conform --backend "$backend" --golden test/golden/quant
else
    part 120 conform "$last_count" "$potluck" conform --backend "$backend" --report "$out/conform.html"
    part 120 golden "$last_count" "$potluck" conform --backend "$backend" --golden test/golden
    [ "$(nvidia-smi --list-gpus | wc -l)" -gt 1 ] &&
        part 60 devices '$p' "$potluck" train --config test/program/tiny.json --limit 16 --steps 2 --target-batch 2 --batch 2 --gpus 2 \
            --save-every 0 --backend "$backend" --quiet --out "$out/devices"
    if command -v compute-sanitizer >/dev/null; then
        part 60 compute-sanitizer '/ERROR SUMMARY/p' compute-sanitizer --error-exitcode 9 "$potluck" conform --backend "$backend" --quick --filter attention
    else
        echo "| compute-sanitizer | left out: not on the PATH | |" >>"$page"
    fi
fi
part 240 benchmarks '$p' env BACKEND="$backend" SMALL="$SMALL" POTLUCK="$potluck" LIMIT="${SMALL:+60}" sh test/bench/cuda.sh "$build"
if [ -n "$SMALL" ]; then
    part 60 training '$p' "$potluck" train --config test/program/tiny.json --limit 16 --steps 1 --target-batch 2 --batch 2 --save-every 0 \
        --backend "$backend" --quiet --out "$out/training"
else
    part 120 demo '/captions/p' "$potluck" demo --quick --no-dash --backend "$backend" --out "$out/demo"
fi
[ ! -e "$build/bench-cuda.md" ] || { echo; cat "$build/bench-cuda.md"; } >>"$page"
echo "gpu-report: $page"
exit $bad
