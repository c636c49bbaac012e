#!/bin/sh
# line_coverage.sh [PATTERN] - plays the suites whose names match PATTERN with an instrumented build and stores which part
# of ref/, data/ and net/ they ran: lines and branches by folder in paper/coverage.json, as a table in paper/results.md.
#
# Counters live in a mapped file (%c) that every process of one program shares (%m), so processes that are killed
# count, too. Generated code, headers and the backends, which are built as always, are left out.
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build/coverage} pattern=${1:-}
profiles=$PWD/$BUILD/profiles
for tool in llvm-profdata llvm-cov python3; do
    command -v $tool >/dev/null || { echo "coverage: no $tool; install with: apt-get install llvm python3"; exit 1; }
done
rm -rf "$profiles"
mkdir -p "$profiles"
BUILD=$BUILD LLVM_PROFILE_FILE=$profiles/%m%c.profraw sh test/run.sh "$pattern" >"$BUILD/suites.log" 2>&1
tail -n 1 "$BUILD/suites.log"
grep '^FAIL' "$BUILD/suites.log" # their lines count, too

# The shared library holds every function of the three folders, once: its map is enough for all programs' counters.
llvm-profdata merge -sparse -o "$BUILD/profile" "$profiles"/*.profraw || exit 1
llvm-cov export -summary-only -instr-profile "$BUILD/profile" "$BUILD/libpotluck.so" >"$BUILD/coverage.json" || exit 1
python3 test/line_coverage.py store "$BUILD/coverage.json" paper/coverage.json "${pattern:-every suite}" &&
    python3 test/line_coverage.py table paper/coverage.json paper/results.md
