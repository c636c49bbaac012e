#!/bin/sh
# sanitize.sh PART ... - parts of the tests with an instrumented build; any report is a failure,
# also of a peer that is killed before it could exit with one: reports go into files.
#
#   units    the unit tests that have been built
#   goldens  with both backends; fast with each set of instructions, and its pairs
#   device   CUDA's kernels on the emulated device, which leaves what lies out of bounds to
#            AddressSanitizer
#   programs what a user sees: files made to hurt, data, models, training
#   swarms   peers as programs, and their coming and going
#   interop  each script of test/interop: real hivemind peers, other people's files, browsers, where
#   they are installed
BUILD=${BUILD:-build/asan}
reports=$(mktemp -d) || exit 1
trap 'rm -rf "$reports"' EXIT
# Freed memory that is kept back is no leak: the churn's limit is of a peer without that.
export ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:quarantine_size_mb=2:log_path=$reports/report" \
    UBSAN_OPTIONS="print_stacktrace=1:log_path=$reports/report" TSAN_OPTIONS="halt_on_error=0:log_path=$reports/report"
# ThreadSanitizer does not see how OpenMP's threads wait for each other. What it notes of every byte
# that was touched counts as the peer's in the churn: one that grows by 0.5 MB without it grows by
# 13 MB with it.
case $BUILD in *tsan*) export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 SOAK_GROWTH_MB="${SOAK_GROWTH_MB:-48}" ;; esac
log=$reports/log bad=0

# Seconds of a processor that what was run so far has taken; not in a shell of its own, which would
# have no children.
used() {
    times >"$reports/times"
    cpu=$(awk 'NR == 2 { split($1 "m" $2, t, "[ms]+"); print int(60 * t[1] + t[2] + 60 * t[3] + t[4]) }' "$reports/times")
}

try() { # what, command...
    what=$1 good=1; shift
    used; before=$cpu
    "$@" >"$log" 2>&1 || { grep -E 'FAIL|ERROR|runtime error' "$log" | head; tail -n 20 "$log"; echo "FAIL $what"; good=0; }
    for r in "$reports"/report*; do
        [ -s "$r" ] || continue
        head -n 40 "$r"
        echo "FAIL $what: $(grep -h SUMMARY "$reports"/report* | sort | uniq -c | head -n 3)"
        good=0
        break
    done
    used
    grep '^skip' "$log"
    grep -q '^0 passed, 0 failed' "$log" && ran=0 || ran=1
    rm -f "$reports"/*
    [ $good -eq 1 ] && [ $ran -eq 0 ] && return
    [ $good -eq 1 ] && echo "ok   $what   ($((cpu - before)) s of a processor)" || bad=1
}

for part; do
    case $part in
    units) for t in "$BUILD"/test/*; do [ -x "$t" ] && try "${t##*/}" "$t"; done ;;
    goldens)
        try "goldens ref" "$BUILD/potluck" conform --golden test/golden --backend ref
        for isa in plain avx2 avx512; do # a machine that lacks one takes the next lesser
            try "goldens fast, $isa" env PL_FAST_ISA=$isa "$BUILD/potluck" conform --golden test/golden --backend fast
            try "pairs fast, $isa" env PL_FAST_ISA=$isa "$BUILD/potluck" conform --backend fast --quick
        done ;;
    device)
        try "the emulated device: finds what it should" "$BUILD/cuda_on_cpu_check"
        for area in dalle vqgan quant optim gpt2; do
            try "golden $area on the device" env CUDA_ON_CPU_STREAMS=late "$BUILD/potluck" conform --golden test/golden/$area --backend cuda-on-cpu
        done
        try "pairs on the device" "$BUILD/potluck" conform --backend cuda-on-cpu --quick ;;
    programs)
        for t in hostile data models train finetune calc conform devices gpu_memory; do
            try "$t" env POTLUCK="$BUILD/potluck" sh test/program/$t.sh
        done ;;
    swarms)
        for t in swarm halves killed peer_save peer_auxiliary authority; do
            try "$t" env POTLUCK="$BUILD/potluck" sh test/program/$t.sh
        done
        try "churn" env SOAK_S="${SOAK_S:-30}" SOAK_PEERS="${SOAK_PEERS:-5}" python3 test/soak/soak.py "$BUILD/potluck" ;;
    interop)
        for name in $(sh test/interop/run.sh --list); do
            try "interop $name" env INTEROP_SLOW="${INTEROP_SLOW:-4}" sh test/interop/run.sh "$name"
        done ;;
    *) echo "sanitize.sh: no part '$part'"; exit 2 ;;
    esac
done
[ $bad -eq 0 ] && echo "sanitizers: clean"
exit $bad
