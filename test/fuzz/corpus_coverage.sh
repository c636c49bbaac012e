#!/bin/sh
# corpus_coverage.sh - a table: the lines and branches that each fuzzer's corpus runs, of the files of data/, net/ and ref/ in
# which it runs anything.
BUILD=${BUILD:-build/coverage}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
echo "| fuzzer | inputs | files | lines % | branches % |"
echo "| --- | --- | --- | --- | --- |"
for program in "$BUILD"/corpus/*; do
    name=$(basename "$program")
    rm -f "$work"/*
    LLVM_PROFILE_FILE=$work/raw%p "$program" -runs=0 "test/fuzz/corpus/$name" >"$work/log" 2>&1 || { tail -n 5 "$work/log"; exit 1; }
    llvm-profdata merge -sparse -o "$work/profile" "$work"/raw* || exit 1
    llvm-cov export -summary-only -instr-profile "$work/profile" "$program" >"$work/export" 2>/dev/null || exit 1
    echo "| $name | $(ls "test/fuzz/corpus/$name" | wc -l) $(python3 test/line_coverage.py reached "$work/export")"
done
