#!/bin/sh
# options.sh - the parser of command lines, from outside: every kind of option, its limits, the
# sentence after each mistake, and what --help and --list say.
. "$(dirname "$0")/lib.inc"
end=
table=data/demo/emoji-00000.parquet

misused() { # sentence, words...
    sentence="potluck $2: $1"
    [ "$1" = "$end" ] && sentence="$sentence ('potluck $2 --help' lists them)"
    shift
    "$POTLUCK" "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    printf '%s\n' "$sentence" >"$work/want"
    check "$sentence" sh -c '[ "$1" -eq 2 ] && [ ! -s "$2/out" ] && cmp "$2/want" "$2/err" || { cat "$2/err"; false; }' x $status "$work"
}
rows() { "$POTLUCK" show "$table" "$@" 2>&1 | grep -c '^row '; }

# --- each kind of value, at its limits
misused "--steps: '0' is not a whole number from 1 to 1000000000" train --steps 0
misused "--steps: '1000000001' is not a whole number from 1 to 1000000000" train --steps 1000000001
misused "--steps: '-1' is not a whole number from 1 to 1000000000" train --steps -1
misused "--steps: '' is not a whole number from 1 to 1000000000" train --steps=
misused "--steps: '1x' is not a whole number from 1 to 1000000000" train --steps 1x
misused "--seed: '9223372036854775808' is not a whole number from 0 to 9223372036854775807" train --seed 9223372036854775808
misused "--warmup: '1.5' is not a number from 0 to 1" train --warmup 1.5
misused "--lr: 'nan' is not a number from 0 to 1000" train --lr nan
misused "--timeout: '0' is not a number of seconds from 0.1 to 86400" average --timeout 0
misused "--precision: 'c' is neither float32 nor bf16" train --precision c
misused "--activations: 'hi' is not one of reversible, recomputed, stored" train --activations hi
misused "--cache: the name is empty" train --cache=
misused "--quiet: it takes no value, and '1' was given" train --quiet=1
misused "--steps: its value is missing; expected --steps N" train --steps
misused "--group-bits: '2' is not up to 64 zeros and ones" average --group-bits=2
# The limits themselves are taken: what is complained of comes later.
end="unrecognized option '--no-such-option-'"
misused "$end" train --steps 1 --steps=1000000000 --seed 9223372036854775807 --seed 0 --warmup 0 --warmup=1 \
    --precision bf16 --activations stored --quiet --no-such-option-
misused "$end" average --timeout 0.1 --timeout=86400 --group-bits 01 --no-such-option-

# --- values reach their fields
check "a default is the row's" [ "$(rows)" -eq 5 ]
check "a value is taken" [ "$(rows --rows 7)" -eq 7 ]
check "of two the last one counts" [ "$(rows --rows 2 --rows=9)" -eq 9 ]
refuses 1 "^potluck generate: --greedy: " "$POTLUCK" generate --out "$work/g" --captions --greedy
refuses 1 "^potluck generate: a=b: " "$POTLUCK" generate --out "$work/g" --captions=a=b

# --- names
misused "--warmup: '2' is not a number from 0 to 1" train --warm 2                 # as much as is only one's
misused "--cache: the name is empty" train --cache ""                              # whole, though --cache-mb begins so
misused "--cache-mb: '0' is not a whole number from 1 to 1073741824" train --cache_mb 0
misused "option '--top' is ambiguous: --top-k, --top-p" generate --top 3
misused "unrecognized option '--stesp=3'; did you mean --steps?" train --stesp=3
misused "unrecognized option '--hlep'; did you mean --help?" train --hlep
misused "unrecognized option '--lisen'; did you mean --listen?" train --lisen x    # of a table inside of the table
misused "unrecognized option '--zzzzzzzzzzzz' ('potluck train --help' lists them)" train --zzzzzzzzzzzz
misused "unrecognized option '-x' (see 'potluck train --help')" train -x
"$POTLUCK" train "--$(printf 'x%.0s' $(seq 200))" 2>"$work/err"
check "a long name is cut in the answer" sh -c '[ "$0" -eq 2 ] && [ "$(wc -c <"$1")" -lt 200 ]' $? "$work/err"

# --- an option that may be repeated
many=$(printf -- '--join /ip4/127.0.0.1/tcp/1 %.0s' $(seq 64))
# shellcheck disable=SC2086
misused "--join: '/ip6/::1/tcp/1' is one too many: at most 64 of them" train $many --join=/ip6/::1/tcp/1
# shellcheck disable=SC2086
misused "$end" train $many --no-such-option-

# --- other words
misused "unexpected argument 'one' (see 'potluck train --help')" train --quiet one
refuses 1 "^potluck show: -3: " "$POTLUCK" show -3 --rows 1
refuses 1 "^potluck show: --rows: " "$POTLUCK" show -- --rows
# A value that an option's function cannot read is a failure and no misuse.
refuses 1 "/nowhere" "$POTLUCK" train --exclude /nowhere --steps 1 --out "$work/t"

# --- a former name is taken in full, but not abbreviated, suggested or listed
refuses 1 "/nowhere" "$POTLUCK" train --without /nowhere --steps 1 --out "$work/t"
misused "unrecognized option '--withou' ('potluck train --help' lists them)" train --withou /nowhere
"$POTLUCK" train --help >"$work/help"
"$POTLUCK" --help >"$work/commands"
check "so does help help" sh -c '"$0" help help | cmp - "$1"' "$POTLUCK" "$work/commands"
check "help --help lists the commands" sh -c '"$0" help --help | cmp - "$1"' "$POTLUCK" "$work/commands"
check "help does not list --without" sh -c '! grep -q -e --without "$0"' "$work/help"

# --- help
"$POTLUCK" demo --quick --help --wrong >"$work/help" 2>"$work/err"
check "--help ends the line, whatever follows" sh -c '[ "$0" -eq 0 ] && [ ! -s "$1" ]' $? "$work/err"
says() { check "help says: $2" grep -qxF -- "$2" "$1"; }
says "$work/help" 'usage: potluck demo [--alone] [--quick] [--out DIR] [OPTION ...]'
says "$work/help" '  --seed N               seed of initial values and data order (default: 1)'
says "$work/help" 'Backend and devices:'
check "a heading has an empty line above" sh -c 'grep -B 1 "^Backend and devices:" "$0" | head -n 1 | grep -qx ""' "$work/help"
says "$work/help" '  --precision P          operands of matrix products (float32 or bf16; default: float32)'
"$POTLUCK" train --help >"$work/help"
check "choices are named, with the default" sh -c 'tr -s " \n" " " <"$0" | grep -qF "(lamb8, lamb8_clamp30, lamb32, adamw8, adamw32 or muon; default: lamb8)"' "$work/help"
says "$work/help" '                         - stored: all (fastest)'
finish
