#!/bin/sh
# sanitize.sh PART ... - parts of the tests with an instrumented build; any report is a failure, also of a peer that
# is killed before it could exit with one: reports go into files.
#
#   units    the unit tests that have been built
#   goldens  with both backends
#   swarms   peers as programs, and their coming and going
#   interop  beside real hivemind peers, where they are installed
BUILD=${BUILD:-build/asan}
reports=$(mktemp -d) || exit 1
trap 'rm -rf "$reports"' EXIT
# Freed memory that is kept back is no leak: the churn's limit is of a peer without that.
export ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:quarantine_size_mb=2:log_path=$reports/report" \
    UBSAN_OPTIONS="print_stacktrace=1:log_path=$reports/report" TSAN_OPTIONS="halt_on_error=0:log_path=$reports/report"
# ThreadSanitizer does not see how OpenMP's threads wait for each other.
case $BUILD in *tsan*) export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 ;; esac
bad=0

try() { # what, command...
    what=$1; shift
    "$@" >"$BUILD/log" 2>&1 || { grep -E 'FAIL|ERROR|runtime error' "$BUILD/log" | head; tail -n 20 "$BUILD/log"; echo "FAIL $what"; bad=1; }
    for r in "$reports"/report*; do
        [ -s "$r" ] || continue
        head -n 40 "$r"
        echo "FAIL $what: $(grep -h SUMMARY "$reports"/report* | sort | uniq -c | head -n 3)"
        bad=1
        break
    done
    rm -f "$reports"/*
}

for part; do
    case $part in
    units) for t in "$BUILD"/test/*; do [ -x "$t" ] && try "$t" "$t"; done ;;
    goldens)
        for backend in ref fast; do
            try "goldens $backend" "$BUILD/potluck" conform --golden test/golden --backend $backend
        done ;;
    swarms)
        try "peers" env POTLUCK="$BUILD/potluck" sh test/program/swarm.sh
        try "churn" env SOAK_S="${SOAK_S:-30}" SOAK_PEERS="${SOAK_PEERS:-5}" python3 test/soak/soak.py "$BUILD/potluck" ;;
    interop) try "interop" sh test/interop/run.sh averager trainer ;;
    *) echo "sanitize.sh: no part '$part'"; exit 2 ;;
    esac
done
[ $bad -eq 0 ] && echo "sanitizers: clean"
exit $bad
