#!/bin/sh
# sanitize.sh - unit tests and the goldens with an instrumented build; any report is a failure.
BUILD=${BUILD:-build/asan}
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1
bad=0
for t in "$BUILD"/test/*; do
    [ -x "$t" ] || continue
    "$t" >/dev/null 2>"$BUILD/log" || { tail -n 30 "$BUILD/log"; echo "FAIL $t"; bad=1; }
done
for backend in ref fast; do
    "$BUILD/potluck" conform --golden test/golden --backend $backend >"$BUILD/log" 2>&1 ||
        { grep -E 'FAIL|ERROR|runtime' "$BUILD/log" | head; tail -n 20 "$BUILD/log"; echo "FAIL goldens $backend"; bad=1; }
done
[ $bad -eq 0 ] && echo "sanitizers: clean"
exit $bad
