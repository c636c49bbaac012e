#!/bin/sh
# calc.sh - the memory calculator from the outside.
. "$(dirname "$0")/lib.inc"

same() { # what, wanted line, command...
    what=$1 want=$2; shift 2
    if "$@" 2>&1 | grep -qF -- "$want"; then ok "$what"; else fail "$what: no line '$want'"; fi
}

same "the run's own model" '"parameters": 125894244' "$POTLUCK" calc --json
same "the same without sharing" '"parameters": 1116354148' "$POTLUCK" calc run --json --shared-groups 64
same "the original's example" '"gpu_total": 8029740032' "$POTLUCK" calc gpt2-l --original --json --optimizer 8-bit
same "its spelling, on its own words" '"gpu_total": 8029740032' \
    "$POTLUCK" calc --original --json --model gpt2-l --optimizer 8-bit-adam --fp16-level O1 --checkpoint
same "what its page showed" 'GPU total             7.48' "$POTLUCK" calc --original --optimizer 8-bit
same "explicit sizes win" '"parameters": 35259904' \
    "$POTLUCK" calc gpt2-s --original --json --nlayers 2 --dmodel 512 --dhid 8192 --vocab-size 32000
same "a file's model" '"without_sharing"' "$POTLUCK" calc "$(dirname "$0")/tiny.json" --json
same "models" 'gpt3-xl          2048     2048' "$POTLUCK" calc --models
same "each term explained" 'the current layer: activations that are recomputed' "$POTLUCK" calc
refuses 2 "no model is called 'gpt5'" "$POTLUCK" calc gpt5
refuses 2 "bsz is 0" "$POTLUCK" calc --bsz 0
refuses 2 "'9-bit' is not one of 32-bit" "$POTLUCK" calc --optimizer 9-bit
refuses 2 "compression-bits is 4" "$POTLUCK" calc --compression-bits 4
refuses 2 "compression-bits is 4" "$POTLUCK" calc --exchange 4 # the former name
finish
