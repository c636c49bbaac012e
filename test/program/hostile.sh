#!/bin/sh
# hostile.sh - malicious files: each is refused in one line with status 1, does not get the memory
# that it claims, and leaves no partial output. Unit tests and fuzzers try more kinds of damage;
# this is what the user sees.
. test/program/lib.inc

top=$PWD
case $POTLUCK in /*) ;; *) POTLUCK=$top/$POTLUCK ;; esac
# 4 GB of addresses, threads' stacks and libraries among them; a sanitizer's shadow needs more,
# and says so: not where sanitize.sh looks for reports
(ulimit -v 4000000; ASAN_OPTIONS='' "$POTLUCK" --version >"$work/log" 2>&1) && ulimit -v 4000000
codec=$top/$DEMO/codec.safetensors
show() { refuses 1 "$1: .*$2" "$POTLUCK" show "$1"; }
many() { head -c "$1" /dev/zero | tr '\0' "$2"; } # bytes, which
cd "$work" || exit 1

# Pickles: PyTorch's older stream up to the object itself (its number, protocol 1001, an empty
# dict).
stream='\200\002\212\012\154\374\234\106\371\040\152\250\120\031.\200\002M\351\003.\200\002}q\000.\200\002'
printf "$stream"'cos\nsystem\nX\004\000\000\000true\205R.' >global.pt
printf "$stream"'(i__builtin__\neval\n.' >opcode.pt
printf "$stream"']r\377\377\377\177.' >memo.pt
printf "$stream"'X\377\377\377\177abc.' >text.pt
printf "$stream"'\213\377\377\377\177abc.' >number.pt
{ printf "$stream"')'; many 300000 '\205'; printf .; } >nested.pt
{ printf "$stream"; many 1000000 '('; } >marks.pt
printf "$stream" >cut.pt
show global.pt 'os.system, which no checkpoint needs'
show opcode.pt 'opcode INST'
show memo.pt 'memo 2147483647, at most'
show text.pt '2147483647 bytes expected'
show number.pt 'a number of 2147483647 bytes'
show nested.pt 'byte [0-9]*: .*'
show marks.pt 'without a STOP'
show cut.pt 'without a STOP'

# Archives that grow, and archives that end too soon.
head -c 100000000 /dev/zero | gzip -1 >bomb.txt.gz
refuses 1 'bomb.txt.gz: more than 67108864 bytes' "$POTLUCK" tokenize --model bomb.txt.gz </dev/null
if command -v python3 >/dev/null; then
    python3 -c 'import zipfile
with zipfile.ZipFile("bomb.pt", "w", zipfile.ZIP_DEFLATED) as z: z.writestr("a/data.pkl", bytes(100 << 20))'
    show bomb.pt 'data.pkl: 104857600 bytes, at most 67108864'
fi
for file in test/golden/clip/clip_tiny.weights.safetensors test/golden/clip/clip_container_state_dict.pt \
            test/golden/clip/clip_container_torchscript.pt test/golden/vqgan/container_state_dict_legacy.pt \
            $DEMO/emoji-00000.parquet $DEMO/t5_2k.model; do
    cut=cut-${file##*/}
    head -c $(($(wc -c <"$top/$file") / 2)) "$top/$file" >"$cut"
    show "$cut" ..
    refuses 1 "$cut: " "$POTLUCK" convert "$cut" made.safetensors
done
check "nothing was converted" [ ! -e made.safetensors ]

# Lengths that no file has.
printf '\377\377\377\377\377\377\377\177{}' >header.safetensors
header='{"a":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,8]}}'
{ printf '\112\000\000\000\000\000\000\000%s' "$header"; many 8 x; } >shape.safetensors
{ printf PAR1; many 64 '\377'; printf '\100\000\000\000PAR1'; } >footer.parquet
{ printf PAR1; many 64 '\377'; printf '\377\377\377\177PAR1'; } >length.parquet
show header.safetensors 'it states a header of 9223372036854775807 bytes'
show shape.safetensors .
show footer.parquet .
show length.parquet .

# Names that would steer the terminal, or break the line.
header='{"\u001b[2Ja":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
{ printf '\077\000\000\000\000\000\000\000%s' "$header"; many 4 x; } >escape.safetensors
{ printf '\077\000\000\000\000\000\000\000%s' "$header"; many 3 x; } >escape-cut.safetensors
shows() { "$POTLUCK" show escape.safetensors >output && grep -qF '\x1b[2Ja' output; }
check "escapes are shown, not obeyed" shows
show escape-cut.safetensors .

# Pictures of 100,000 x 100,000 (65,535 in a JPEG) in a few bytes, and an honest one.
printf '\211PNG\015\012\032\012\000\000\000\015IHDR\000\001\206\240\000\001\206\240\010\002\000\000\000\047\060\234\237' >vast.png
printf '\377\330\377\340\000\020JFIF\000\001\001\000\000\001\000\001\000\000\377\300\000\021\010\377\377\377\377\003\001\021\000\002\021\000\003\021\000\377\331' >vast.jpg
printf 'RIFF\050\000\000\000WEBPVP8X\012\000\000\000\000\000\000\000\237\206\001\237\206\001VP8L\012\000\000\000\057\000\000\000\000\000\000\000\000\000' >vast.webp
cp "$top/test/golden/clip/images/rgba.png" honest.png
head -c 300 honest.png >cut.png
prepare() { "$POTLUCK" prepare --codec "$codec" --backend ref --side 64 "$@"; }
made() { "$POTLUCK" show "$1/shard-00000.parquet" | grep -q "$2 rows* in 1 row group,"; }
printf 'vast.png\ta\nvast.jpg\tb\nvast.webp\tc\ncut.png\td\nhonest.png\te\n' >list.tsv
check "the honest picture is prepared" prepare --data list.tsv --out shards
mv log output
for name in vast.png vast.jpg vast.webp cut.png; do
    check "$name is left out, in a line" [ "$(grep -c "left out: $name: " output)" -eq 1 ]
done
check "and gives the only row" made shards 1

# Where no picture at all can be read the list is at fault, not a picture: no shard stands for it.
printf 'vast.png\ta\nnowhere.png\tb\n' >gone.tsv
prepare --data gone.tsv --out gone >output 2>&1
status=$?
check "nothing to prepare" [ "$status" -eq 1 ]
check "is reported" grep -q '^potluck prepare: gone.tsv: cannot read any of the first 2 pictures$' output
check "and no shard is written" [ -z "$(ls gone)" ]

# Captions: a megabyte, which is only long, and invalid UTF-8.
{ printf 'honest.png\t'; many 1000000 a; printf '\nhonest.png\tok\n'; } >long.tsv
check "a caption of a megabyte is prepared" prepare --data long.tsv --out long
check "and so is the next" made long 2
printf 'honest.png\tab\377\376\300\n' >bytes.tsv
mkdir table
cp honest.png table
printf '{"file_name": "honest.png", "text": "ab\377\376"}\n' >table/metadata.jsonl
tar cf whole.tar honest.png
head -c 700 whole.tar >cut.tar
refuses 1 'bytes.tsv: line 1: .* in UTF-8' prepare --data bytes.tsv --out none
refuses 1 'table/metadata.jsonl: line 1: ' prepare --data table --out none
refuses 1 'cut.tar: byte 0: a file of ' prepare --data cut.tar --out none
check "nothing half-written" [ ! -e none ]

# Of a picture's codes all are looked at before the first picture is drawn: here the last one is no
# code.
header='{"codes":{"dtype":"I32","shape":[2,1,2],"data_offsets":[0,16]}}'
{ printf '\077\000\000\000\000\000\000\000%s' "$header"; head -c 12 /dev/zero; many 4 '\177'; } >codes.safetensors
"$POTLUCK" vqgan decode --weights "$codec" --codes codes.safetensors --out none >output 2>&1
status=$?
check "a code that there is not" [ "$status" -eq 1 ]
check "is named with its picture" grep -q 'codes.safetensors: picture 1 holds a code outside 0..255$' output
check "and no picture is drawn" [ ! -e none ]

# Calls that make no sense: what is wrong in one line, and nothing is begun.
for command in $("$POTLUCK" --help | sed -n 's/^  \([a-z-]*\)  *.*/\1/p'); do
    verb=
    case $command in dht) verb=ping ;; vqgan) verb=train ;; esac
    refuses 2 "potluck $command: unrecognized option '--no-such-flag'" "$POTLUCK" $command $verb --no-such-flag
    case $command in
        generate) refuses 2 "potluck generate: no caption was given" "$POTLUCK" generate ;;
        calc) refuses 2 "potluck calc: one model at a time, not 'b' too" "$POTLUCK" calc gpt2-l b ;;
        show) refuses 2 "potluck show: one file is needed" "$POTLUCK" show a b ;;
        join) refuses 2 "potluck join: give one MULTIADDR" "$POTLUCK" join stray ;;
        lab) refuses 2 "potluck lab: 'stray': run or compare comes first" "$POTLUCK" lab stray ;;
        convert) refuses 2 "potluck convert: two files are needed" "$POTLUCK" convert a ;;
        upload) refuses 2 "potluck upload: --to or --hub is needed" "$POTLUCK" upload a ;;
        *) refuses 2 "potluck $command: unexpected argument 'stray'" "$POTLUCK" $command $verb stray ;;
    esac
done
refuses 2 'potluck prepare: --data, --codec and --out are needed' "$POTLUCK" prepare --out none
refuses 2 'potluck vqgan: decode: --weights, --codes and --out are needed' "$POTLUCK" vqgan decode
refuses 2 'potluck vqgan: train, measure, encode or decode comes first' "$POTLUCK" vqgan
refuses 2 "potluck vqgan: 'draw': train, measure, encode or decode comes first" "$POTLUCK" vqgan draw
refuses 2 'potluck dht: put: a key and a value are needed' "$POTLUCK" dht put key
refuses 2 'potluck average: --prefix and --tensors are needed' "$POTLUCK" average
refuses 2 'potluck authority: --allow and --key (or --invite) are needed' "$POTLUCK" authority
refuses 2 'potluck tokenize: --model is needed' "$POTLUCK" tokenize
refuses 2 'potluck conform: --run and --prefix go with --peer' "$POTLUCK" conform --run a
check "nothing is begun" [ ! -d out ]
finish
