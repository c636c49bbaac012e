#!/bin/sh
# run.sh - every test, one after the other; the last line counts them all.
# Each suite prints its own lines; this script adds up their closing counts.
BUILD=${BUILD:-build}
passed=0 failed=0 skipped=0
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

count() { # passed failed skipped
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

skip() { # what, why
    echo "skip $1: $2"
    count 0 0 1
}

say() { echo; echo "== $1"; }

# A suite that ends with "N passed, N failed, N skipped". Only failures and skips are shown.
counted() { # title command...
    say "$1"; shift
    "$@" >"$log" 2>&1
    rc=$?
    grep -E '^(FAIL|skip)' "$log"
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    if [ -z "$line" ]; then
        tail -n 20 "$log"
        echo "FAIL $*: exit status $rc and no closing count"
        count 0 1 0
        return
    fi
    echo "$line"
    set -- $(echo "$line" | tr -dc '0-9 ')
    count "$1" "$2" "${3:-0}"
    [ "$rc" -ne 0 ] && [ "$2" -eq 0 ] && { tail -n 5 "$log"; echo "FAIL exit status $rc"; count 0 1 0; }
}

# One test that speaks by its exit status.
single() { # title command...
    title=$1; shift
    if "$@" >"$log" 2>&1; then
        echo "ok   $title"
        count 1 0 0
    else
        tail -n 25 "$log"
        echo "FAIL $title"
        count 0 1 0
    fi
}

# Every operation of a backend beside the reference's.
pairs() { # backend options...
    say "pairs: $1 beside ref"
    "$BUILD/potluck" conform --backend "$@" >"$log" 2>&1
    rc=$?
    good=$(grep -c '^ok' "$log") bad=$(grep -c '^FAIL' "$log")
    grep '^FAIL' "$log"
    tail -n 1 "$log"
    [ $rc -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    count "$good" "$bad" 0
}

say "layers: includes against the arrows, prefixes"
single layers sh test/layers.sh

for backend in ref fast; do
    for area in test/golden/*/; do
        counted "golden $(basename "$area") with $backend" "$BUILD/potluck" conform --golden "$area" --backend $backend
    done
    if [ $backend != ref ]; then
        pairs $backend
    fi
done

# CUDA's kernels on an emulated device: everything that they compute, at all but the large shapes.
if [ -f "$BUILD/libpl_cuda_on_cpu.so" ]; then
    counted "the emulated device: finds what it should" "$BUILD/cuda_on_cpu_check"
    for area in dalle quant optim vqgan; do
        counted "golden $area with cuda-on-cpu" "$BUILD/potluck" conform --golden "test/golden/$area" --backend cuda-on-cpu
    done
    pairs cuda-on-cpu --quick
else
    skip cuda-on-cpu "not built: no C++ compiler"
fi

# What a stranger's backend begins with.
pairs "$BUILD/skeleton_host.so" --quick
pairs "$BUILD/skeleton_device.so" --quick --filter norm
counted "golden dalle with the device skeleton" "$BUILD/potluck" conform --golden test/golden/dalle \
    --backend "$BUILD/skeleton_device.so"

say "unit tests"
for t in "$BUILD"/test/*; do
    [ -x "$t" ] || continue
    timeout -k 10 900 "$t" >"$log" 2>&1 # one that hangs is told by name
    rc=$?
    good=$(grep -c '^\[       OK' "$log") bad=$(grep -c '^\[  FAILED  \] [a-z_0-9]*$' "$log")
    none=$(grep -c '^\[  SKIPPED \]' "$log")
    [ $rc -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    [ $rc -ne 0 ] && tail -n 25 "$log"
    echo "$([ "$bad" -eq 0 ] && echo 'ok  ' || echo FAIL) $(basename "$t"): $good passed, $bad failed"
    count "$good" "$bad" "$none"
done

say "programs"
for t in test/program/*.sh; do
    [ -f "$t" ] || continue
    counted "$(basename "$t" .sh)" env POTLUCK="$BUILD/potluck" sh "$t"
done

say "swarms that come and go"
if command -v python3 >/dev/null; then
    counted "churn" env SOAK_S="${SOAK_S:-30}" SOAK_PEERS="${SOAK_PEERS:-5}" python3 test/soak/soak.py "$BUILD/potluck"
    counted "network namespaces" python3 test/soak/namespaces.py "$BUILD/potluck"
else
    skip soak "no python3 found"
fi

say "beside other people's programs"
if command -v python3 >/dev/null; then
    for t in test/interop/*.py; do
        case $t in */hivemind_*) continue ;; esac # peers, not tests
        [ -f "$t" ] || continue
        counted "$(basename "$t" .py)" python3 "$t" "$BUILD/potluck"
    done
else
    skip interop "no python3 found"
fi

counted "the Python module" sh notebooks/run.sh module
counted "notebooks" sh notebooks/run.sh

say "fuzzers, briefly"
if command -v "${CLANG:-clang}" >/dev/null; then
    if make --no-print-directory fuzz >"$log" 2>&1; then
        for t in test/fuzz/*.c; do
            n=$(basename "$t" .c)
            [ -x "$BUILD/fuzz/$n" ] || continue
            case $n in # so many inputs, not so many seconds: a fast machine tries what a slow one does
            authority | averaging | bpe | noise_payload) runs=2000 ;; # these take a millisecond or two each
            *) runs=20000 ;;
            esac
            new=$(mktemp -d)
            single "fuzz $n" "$BUILD/fuzz/$n" -seed=1 -runs=$runs -max_total_time=60 -rss_limit_mb=1024 -timeout=60 \
                "$new" "test/fuzz/corpus/$n"
            rm -rf "$new"
        done
    else
        tail -n 15 "$log"; echo "FAIL fuzzers do not build"; count 0 1 0
    fi
else
    skip fuzzers "no clang found"
fi

echo
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
