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

# What bfloat16 keeps packed is counted: the peak of a training is within a tenth of the sum, and is not without that term.
cat >"$work/wide.json" <<'EOF'
{ "base": "demo", "name": "wide", "dim": 512, "depth": 6, "heads": 8 }
EOF
cat >"$work/peak.py" <<'EOF'
import json, resource, subprocess, sys
potluck, folder = sys.argv[1:]
model = folder + "/wide.json"
subprocess.run([potluck, "train", "--backend", "fast", "--config", model, "--steps", "2", "--target-batch", "2", "--limit", "256",
                "--activations", "reversible", "--threads", "1", "--precision", "bf16", "--out", folder + "/trained", "--quiet"], check=True)
peak = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
def total(*more):
    use = json.loads(subprocess.check_output([potluck, "calc", model, "--bsz", "2", "--json", *more]))
    return use["gpu_total"] + use["ram_total"]
print("measured %d, with packed weights %d, without %d" % (peak, total("--packed"), total()))
sys.exit(not (abs(peak / total("--packed") - 1) < 0.1 < peak / total() - 1))
EOF
if "$POTLUCK" --version | grep -q 'bf16 by'; then
    check "a training in bfloat16 takes what is calculated" python3 "$work/peak.py" "$POTLUCK" "$work"
else echo "skip a training in bfloat16: no instructions for it"; skipped=$((skipped + 1)); fi
refuses 2 "no model is called 'gpt5'" "$POTLUCK" calc gpt5
refuses 2 "bsz is 0" "$POTLUCK" calc --bsz 0
refuses 2 "'9-bit' is not one of 32-bit" "$POTLUCK" calc --optimizer 9-bit
refuses 2 "compression-bits is 4" "$POTLUCK" calc --compression-bits 4
refuses 2 "compression-bits is 4" "$POTLUCK" calc --exchange 4 # the former name
finish
