# models.sh - checkpoints are converted between formats, tokenizers read lines, and pictures are
# drawn from each format.
. test/program/lib.inc
vocab=test/golden/tokenizer/bpe_simple_vocab_16e6.txt.gz

check "trains" "$POTLUCK" train --config test/program/tiny.json --limit 64 --steps 1 --target-batch 16 --quiet --out "$work/m"
model=$(ls "$work"/m/checkpoint-*.safetensors)
check "to PyTorch's zip" "$POTLUCK" convert "$model" "$work/m.pt"
check "and back" "$POTLUCK" convert "$work/m.pt" "$work/back.safetensors"
"$POTLUCK" show --json "$model" >"$work/a"
"$POTLUCK" show --json "$work/back.safetensors" >"$work/b"
check "the same tensors" cmp "$work/a" "$work/b"
check "shows a PyTorch stream" "$POTLUCK" show test/golden/vqgan/container_mixed_legacy.pt
check "shows TorchScript" "$POTLUCK" show test/golden/clip/clip_container_torchscript.pt
refuses 2 "should end in" "$POTLUCK" convert "$model" "$work/m.xyz"
refuses 2 "same file" "$POTLUCK" convert "$model" "$model"
head -c 30000 "$work/m.pt" >"$work/cut.pt"
refuses 1 "cut.pt" "$POTLUCK" show "$work/cut.pt"

# The same pictures from either file.
draw() { "$POTLUCK" generate --n 3 --seed 7 --quiet "red apple" "$@"; }
check "draws" draw --model "$work/m" --out "$work/p"
check "draws from a zip" draw --model "$work/m.pt" --out "$work/q"
refuses 1 "no model there; 'potluck demo' trains one" draw --model "$work/nosuch" --out "$work/s"
check "the same pictures" cmp "$work/p/sheet.png" "$work/q/sheet.png"

# The same from the official names: every one of them (the run: 841), of training and of the
# inference branch.
if command -v python3 >/dev/null; then
    cat >"$work/shared.json" <<EOF
{ "base": "demo", "name": "shared", "dim": 32, "depth": 4, "heads": 1, "dim_head": 32,
  "attn_types": ["axial_row", "conv5", "axial_row", "conv5"], "shared_ids": ["a", "b", "a", "b"] }
EOF
    check "trains with shared layers" "$POTLUCK" train --config "$work/shared.json" --limit 64 --steps 1 \
        --target-batch 16 --quiet --out "$work/o"
    count=$(python3 test/program/official_names.py "$work"/o/checkpoint-*.safetensors "$work/training.safetensors" \
        "$work/inference.safetensors")
    check "13 names a block and 9" test "$count" -eq 61
    check "draws" draw --model "$work/o" --out "$work/o0"
    for names in training inference; do
        file=$work/$names.safetensors
        "$POTLUCK" show --json "$file" >"$work/names"
        check "shows the names of $names" test "$(grep -c net.scale "$work/names")" -eq 8
        check "converts them" "$POTLUCK" convert "$file" "$work/$names.pt"
        check "draws from them" draw --model "$file" --config "$work/shared.json" --out "$work/$names"
        check "the same pictures" cmp "$work/o0/sheet.png" "$work/$names/sheet.png"
        check "draws from the zip" draw --model "$work/$names.pt" --config "$work/shared.json" --out "$work/$names.zip"
        check "the same again" cmp "$work/o0/sheet.png" "$work/$names.zip/sheet.png"
    done
    check "the last names were inference's" grep -q '"transformer.layers.blocks.3.f.net.fn.fn.fn.fn.fn.to_qkv.weight"' \
        "$work/names"
else
    echo "skip official names: python3 is missing"
    skipped=$((skipped + 1))
fi

check "draws greedily" draw --model "$work/m" --out "$work/g" --greedy
check "of no probability the likeliest is left" draw --model "$work/m" --out "$work/p0" --top-p 0
check "which is greedy" cmp "$work/g/sheet.png" "$work/p0/sheet.png"
check "of three quarters more are" draw --model "$work/m" --out "$work/p75" --top-p 0.75
check "so another picture" sh -c "! cmp '$work/g/sheet.png' '$work/p75/sheet.png'"
check "of all, as without" draw --model "$work/m" --out "$work/p1" --top-p 1
check "the same" cmp "$work/p/sheet.png" "$work/p1/sheet.png"
refuses 2 "is not a number from 0 to 1" draw --model "$work/m" --out "$work/s" --top-p 1.5
check "says that all are kept" sh -c "'$POTLUCK' generate --model '$work/m' --out '$work/r' --n 3 --keep 1 x | grep -q 'all are kept'"
check "and keeps them" test "$(ls "$work"/r/0*.png | wc -l)" -eq 3
refuses 1 "bpe_simple_vocab" draw --model "$work/m" --out "$work/s" --clip test/golden/clip/clip_tiny.weights.safetensors
refuses 1 "600" draw --model "$work/m" --out "$work/s" --clip test/golden/clip/clip_tiny.weights.safetensors --clip-vocab $vocab

words() { echo "A photo of a CAT" | "$POTLUCK" tokenize --model "$@"; }
check "CLIP's ids" test "$(words $vocab)" = "320 1125 539 320 2368"
check "CLIP's row" test "$(words $vocab --row 8)" = "49406 320 1125 539 320 2368 49407 0"
check "and back" test "$(words $vocab | "$POTLUCK" tokenize --model $vocab --decode)" = "a photo of a cat "
check "GPT-2's ids and back" test "$(words test/golden/tokenizer/gpt2_bpe | "$POTLUCK" tokenize --model test/golden/tokenizer/gpt2_bpe --decode)" = "A photo of a CAT"
printf 'cat \377 face\n' | "$POTLUCK" tokenize --model $vocab >"$work/ids" 2>"$work/err"
check "a byte that is not UTF-8 is named" grep -q 'line 1: byte 5 is not UTF-8' "$work/err"
check "and its line goes on" test "$(wc -w <"$work/ids")" -ge 3
refuses 1 "is not below" sh -c "echo 99999999 | '$POTLUCK' tokenize --model $vocab --decode"
finish
