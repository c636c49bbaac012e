#!/bin/sh
# data.sh - `potluck show` and `potluck prepare` from the outside: exit status, one line that names the
# file, nothing half-written. POTLUCK: the program. Run from the top of the tree.
P=${POTLUCK:-build/potluck}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

check() { # what, condition...
    what=$1; shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $what"; cat "$dir/err"; fi
}

run() { # runs the program, keeps status and output
    "$P" "$@" >"$dir/out" 2>"$dir/err"
    status=$?
}

fails() { # what, pattern in the only line of complaint; after run
    check "$1: exit status $status" [ "$status" -eq 1 ]
    check "$1: one line" [ "$(wc -l <"$dir/err")" -eq 1 ]
    check "$1: says '$2'" grep -q -- "$2" "$dir/err"
}

table=test/interop/pyarrow/v2_dictionary_zstd.parquet

run show $table --rows 2
check "show a table" [ $status -eq 0 ]
check "show a table: columns" grep -q 'quarter  *FLOAT or null' "$dir/out"
check "show a table: a row" grep -q 'caption: "caption 1"' "$dir/out"
run show $table --json
check "show --json" [ "$(wc -l <"$dir/out")" -eq 200 ]
run show $table --caption 'caption 7'
check "show --caption" [ "$(grep -c '^row ' "$dir/out")" -eq 17 ]
run show data/demo/t5_2k.model --caption 'grinning face'
check "show a tokenizer" grep -q '"grinning"' "$dir/out"
run show test/golden/clip/resample.safetensors
check "show tensors" grep -q '00.bicubic  *U8 *\[9,16,3\]' "$dir/out"

run show; check "show nothing" [ $status -eq 2 ]
run show a b; check "show two" [ $status -eq 2 ]
run show --rows x $table; check "show --rows x" [ $status -eq 2 ]
run show "$dir/nothing"; fails "show what is not there" "$dir/nothing: "
run show "$dir"; fails "show a folder" "$dir: not a regular file"
: >"$dir/empty"; run show "$dir/empty"; fails "show an empty file" "$dir/empty: an empty file"
run vqgan train --nosuch; check "vqgan: a wrong flag: status $status" [ $status -eq 2 ]
check "vqgan: who complains" grep -q "^potluck vqgan: .*--nosuch" "$dir/err"
run vqgan decode --precision half; check "vqgan --precision half" [ $status -eq 2 ]
check "vqgan --precision half: one line" [ "$(wc -l <"$dir/err")" -eq 1 ]
run show Makefile; fails "show what it doesn't know" "Makefile: expected a Parquet table"
head -c 5000 $table >"$dir/cut"; run show "$dir/cut"; fails "show a cut table" "$dir/cut: .*PAR1"
{ head -c 60 $table; printf 'damage'; tail -c +67 $table; } >"$dir/damaged"
run show "$dir/damaged" --json
fails "show a damaged table" "$dir/damaged: column .*, row group 0, page at byte "

run prepare; check "prepare nothing" [ $status -eq 2 ]
for stem in ../x .x ''; do
    run prepare --data "$dir" --codec data/demo/t5_2k.model --out "$dir/o" --stem "$stem"
    check "prepare --stem '$stem'" grep -q 'stem .*: expected a file.s name without a folder' "$dir/err"
done
run prepare --data "$dir/no" --codec data/demo/t5_2k.model --out "$dir/o"; fails "prepare from nothing" "$dir/no: "
printf 'a.png caption\n' >"$dir/list"
run prepare --data "$dir/list" --codec data/demo/t5_2k.model --out "$dir/o"
fails "prepare a wrong list" "$dir/list: line 1: "
printf 'a.png\tcaption\n' >"$dir/list"
run prepare --data "$dir/list" --codec data/demo/t5_2k.model --out "$dir/o"
fails "prepare with a wrong codec" "t5_2k.model: "
check "prepare left nothing" [ ! -e "$dir/o" ]
if [ -f data/demo/codec.safetensors ]; then
    printf 'no picture' >"$dir/a.png"
    printf 'c.txt holds no picture' >"$dir/c.txt"
    cp test/golden/clip/images/rgba.png "$dir/b.png"
    printf 'a.png\tbroken\nb.png\ttransparent\n' >"$dir/list"
    run prepare --data "$dir/list" --codec data/demo/codec.safetensors --out "$dir/o" --backend ref
    check "prepare a picture" [ $status -eq 0 ]
    check "prepare: the broken one is named" grep -q "left out: $dir/a.png: neither PNG" "$dir/err"
    run show "$dir/o/shard-00000.parquet"
    check "prepare: one row" grep -q '1 rows in 1 row groups' "$dir/out"
    check "prepare: original size" grep -q 'original_width: 61' "$dir/out"
fi

echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
