#!/bin/sh
# data.sh - `potluck show` and `potluck prepare` from the outside: exit status, one line that names
# the file, nothing half-written. Run from the top of the tree.
. test/program/lib.inc

run() { # runs the program, keeps status and output
    "$POTLUCK" "$@" >"$work/out" 2>"$work/err"
    status=$?
}

table=test/interop/pyarrow/v2_dictionary_zstd.parquet

run show $table --rows 2
check "show a table" [ $status -eq 0 ]
check "show a table: columns" grep -q 'quarter  *FLOAT or null' "$work/out"
check "show a table: a row" grep -q 'caption: "caption 1"' "$work/out"
run show $table --json
check "show --json" [ "$(wc -l <"$work/out")" -eq 200 ]
run show $table --caption 'caption 7'
check "show --caption" [ "$(grep -c '^row ' "$work/out")" -eq 17 ]
run show data/demo/t5_2k.model --caption 'grinning face'
check "show a tokenizer" grep -q '"grinning"' "$work/out"
run show test/golden/clip/resample.safetensors
check "show tensors" grep -q '00.bicubic  *U8 *\[9,16,3\]' "$work/out"

run show; check "show nothing" [ $status -eq 2 ]
run show a b; check "show two" [ $status -eq 2 ]
run show --rows x $table; check "show --rows x" [ $status -eq 2 ]
refuses 1 "$work/nothing: " "$POTLUCK" show "$work/nothing"
refuses 1 "$work: not a regular file" "$POTLUCK" show "$work"
: >"$work/empty"
refuses 1 "$work/empty: an empty file" "$POTLUCK" show "$work/empty"
run vqgan train --nosuch; check "vqgan: a wrong flag: status $status" [ $status -eq 2 ]
check "vqgan: who complains" grep -q "^potluck vqgan: .*--nosuch" "$work/err"
run vqgan decode --precision half; check "vqgan --precision half" [ $status -eq 2 ]
check "vqgan --precision half: one line" [ "$(wc -l <"$work/err")" -eq 1 ]
refuses 1 "Makefile: expected a Parquet table" "$POTLUCK" show Makefile

# A loss curve in the terminal: a loss that halves 35 times is a straight line on its scale, from corner to corner.
curve() { awk 'BEGIN { for (i = 0; i <= 35; i++) printf "{\"step\": %d, \"loss_image\": %.9g, \"loss_text\": 1}\n", i, 2 ^ (5 - i) }'; }
curve >"$work/log.jsonl"
LC_ALL=C "$POTLUCK" show "$work/log.jsonl" >"$work/plot"
check "a log is drawn: title, twelve rows, steps" sh -c '[ "$(wc -l <"$0")" -eq 14 ] && tail -n 1 "$0" | grep -qE "^ +0 +35$"' "$work/plot"
check "from the upper left to the lower right" awk '
    NR > 1 && NR < 14 { at = index(substr($0, 10), "*") - 1; want = (NR - 2) / 11 * 69; if (at < want - 8 || at > want + 3) exit bad = 1 }
    END { exit bad }' "$work/plot"
check "in Braille where the locale has it" sh -c 'LC_ALL=C.UTF-8 "$0" show "$1" | LC_ALL=C grep -q "$(printf "\342[\240-\243]")"' "$POTLUCK" "$work/log.jsonl"
check "as JSON: its points" sh -c '"$0" show "$1" --json | grep -c "\"loss_image\": " | grep -qx 36' "$POTLUCK" "$work/log.jsonl"
echo '{"step": 1, "event": "x"}' >"$work/none.jsonl"
refuses 1 "none.jsonl: expected the log of a training, and no line has a loss" "$POTLUCK" show "$work/none.jsonl"
head -c 5000 $table >"$work/cut"
refuses 1 "$work/cut: .*PAR1" "$POTLUCK" show "$work/cut"
{ head -c 60 $table; printf 'damage'; tail -c +67 $table; } >"$work/damaged"
refuses 1 "$work/damaged: column .*, row group 0, page at byte " \
    "$POTLUCK" show "$work/damaged" --json

run prepare; check "prepare nothing" [ $status -eq 2 ]
for stem in ../x .x ''; do
    run prepare --data "$work" --codec data/demo/t5_2k.model --out "$work/o" --stem "$stem"
    check "prepare --stem '$stem'" \
        grep -q -e '--stem: .* is not a file name without a folder' "$work/err"
done
wrong() { "$POTLUCK" prepare --codec data/demo/t5_2k.model --out "$work/o" --data "$@"; }
refuses 1 "$work/no: " wrong "$work/no"
printf 'a.png caption\n' >"$work/list"
refuses 1 "$work/list: line 1: " wrong "$work/list"
printf 'a.png\tcaption\n' >"$work/list"
refuses 1 "t5_2k.model: " wrong "$work/list"
check "prepare left nothing" [ ! -e "$work/o" ]
if [ -f data/demo/codec.safetensors ]; then
    printf 'no picture' >"$work/a.png"
    printf 'c.txt holds no picture' >"$work/c.txt"
    cp test/golden/clip/images/rgba.png "$work/b.png"
    printf 'a.png\tbroken\nb.png\ttransparent\n' >"$work/list"
    run prepare --data "$work/list" --codec data/demo/codec.safetensors --out "$work/o" \
        --backend ref
    check "prepare a picture" [ $status -eq 0 ]
    check "prepare: the broken one is named" \
        grep -q "left out: $work/a.png: neither PNG" "$work/err"
    run show "$work/o/shard-00000.parquet"
    check "prepare: one row" grep -q '1 row in 1 row group,' "$work/out"
    check "prepare: original size" grep -q 'original_width: 61' "$work/out"
    # The guide's way: pictures with their captions next to them, as many image tokens as the model has.
    mkdir "$work/images"
    for n in palette gray; do
        cp test/golden/clip/images/$n.png "$work/images/" && echo "a picture, $n" >"$work/images/$n.txt"
    done
    run prepare --data "$work/images" --codec data/demo/codec.safetensors --side 128 --out "$work/shards"
    train() { run train --data "$work/shards" --config $1 --steps 1 --batch 2 --target-batch 2 --out "$work/$1"; }
    train small; check "prepare --side 128: --config small trains" [ $status -eq 0 -a -e "$work/small/checkpoint-000001.safetensors" ]
    train demo; check "other models say what to change" grep -q '64 codes of 2 bytes were expected.*prepare --side' "$work/err"
fi

finish
