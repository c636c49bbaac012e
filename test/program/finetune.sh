# finetune.sh - GPT-2 on streamed text: it learns, resumes with the same bits, and refuses wrong
# options in one line.
. test/program/lib.inc
tune() { "$POTLUCK" finetune --backend fast --threads 1 --quiet "$@"; }
quick="--length 32 --batch 4 --held-out 4 --data $work/text.jsonl.gz --evaluate-every 0"

# A hundred documents of a language with few words.
awk 'BEGIN { srand(3); split("red green blue apple pear cat dog sees likes and", w, " ")
    for (i = 0; i < 100; i++) { t = ""; for (k = 0; k < 20; k++) t = t w[1 + int(rand() * 10)] " ";
        printf "{\"text\": \"%s.\", \"url\": \"\"}\n", t } }' | gzip >"$work/text.jsonl.gz"

check "learns" tune $quick --steps 60 --out "$work/a"
before=$(sed -n 's/held-out perplexity \([0-9]*\).*/\1/p' "$work/log") after=$(sed -n 's/.*-> \([0-9]*\).*/\1/p' "$work/log")
check "perplexity falls from $before to $after a byte" test "$before" -gt 200 -a "$after" -lt 12
check "shows the checkpoint" "$POTLUCK" show "$work/a/model.safetensors"
check "in the peer's words" grep -q '"architectures"' "$work/a/config.json"
refuses 1 "a/checkpoint-.* exists: --resume continues from it" tune $quick --steps 70 --out "$work/a"

# Stopped after 6 of 12 steps and gone on: the same bytes as without the stop.
check "12 steps" tune $quick --steps 12 --save-every 6 --out "$work/b"
check "and again" tune $quick --steps 12 --save-every 6 --out "$work/c"
rm -f "$work/c/checkpoint-000012.safetensors" "$work/c/model.safetensors"
check "goes on from 6" tune $quick --steps 12 --save-every 6 --out "$work/c" --resume
check "to the same bytes" cmp "$work/b/model.safetensors" "$work/c/model.safetensors"
check "and the same state" cmp "$work/b/checkpoint-000012.safetensors" "$work/c/checkpoint-000012.safetensors"
check "stored activations" tune $quick --steps 12 --save-every 6 --out "$work/d" --activations stored
check "give the same bytes" cmp "$work/b/model.safetensors" "$work/d/model.safetensors"
check "optimizer state on the disk" tune $quick --steps 12 --save-every 6 --out "$work/o" --offload "$work"
check "give the same bytes, too" cmp "$work/b/checkpoint-000012.safetensors" "$work/o/checkpoint-000012.safetensors"
check "shared layers" tune $quick --steps 3 --share 2 --out "$work/s"
check "are written out for others" sh -c "'$POTLUCK' show '$work/s/model.safetensors' | grep -q 'h.3.mlp.c_fc.weight'"
check "and go on" tune $quick --steps 4 --share 2 --out "$work/s" --resume
refuses 1 "n_group is 9" tune $quick --share 9 --out "$work/i"
refuses 1 "offload: .*No such file" tune $quick --offload "$work/nowhere" --out "$work/i"
check "32 bits" tune $quick --steps 3 --optimizer adam32 --out "$work/e"
refuses 1 "no tensor optimizer" tune $quick --steps 5 --optimizer adam8 --out "$work/e" --resume
refuses 1 "other files, or with another" tune $quick --steps 5 --optimizer adam32 --seed 2 --out "$work/e" --resume

# From a checkpoint, with a vocabulary of GPT-2's kind.
check "with BPE" tune $quick --steps 2 --vocab test/golden/tokenizer/gpt2_bpe --out "$work/f"
cp test/golden/tokenizer/gpt2_bpe/vocab.json test/golden/tokenizer/gpt2_bpe/merges.txt "$work/f"
check "a folder of the hub's kind" tune $quick --steps 2 --model "$work/f" --out "$work/g"
check "parts of a batch" tune $quick --steps 2 --accumulate 2 --out "$work/h"

# The paper's tutorial word for word, over files in the published layout.
if command -v python3 >/dev/null; then
    check "the hub's gpt2-large and C4's shards, small" python3 test/program/gpt2_large.py "$work"
    tutorial="--data $work/c4/en --length 32 --batch 4 --lr 2e-3 --held-out 4 --evaluate-every 0"
    check "are fine-tuned" tune --model "$work/gpt2-large" $tutorial --steps 30 --out "$work/large"
    before=$(sed -n 's/held-out perplexity \([0-9]*\).*/\1/p' "$work/log") after=$(sed -n 's/.*-> \([0-9]*\).*/\1/p' "$work/log")
    check "perplexity falls from $before to $after" test "$after" -lt "$before"
    check "to a model of the same names" sh -c "'$POTLUCK' show '$work/large/model.safetensors' | grep -q 'h.1.attn.c_attn.weight'"
    check "as PyTorch's file" "$POTLUCK" convert "$work/gpt2-large/model.safetensors" "$work/gpt2-large/pytorch_model.bin"
    rm "$work/gpt2-large/model.safetensors"
    check "the same from that" tune --model "$work/gpt2-large" $tutorial --steps 30 --out "$work/large2"
    check "to the same bytes" cmp "$work/large/model.safetensors" "$work/large2/model.safetensors"
else
    skipped=$((skipped + 1))
    echo "skip the published layout: python3 is missing"
fi

printf '{"text": "fine"}\n{"txt": 1}\n' >"$work/bad.json"
refuses 1 "bad.json: line 2: not an object" tune $quick --data "$work/bad.json" --out "$work/i"
head -c 300 "$work/text.jsonl.gz" >"$work/cut.json.gz"
refuses 1 "cut.json.gz: cannot read" tune --length 32 --data "$work/cut.json.gz" --out "$work/i"
refuses 1 "nowhere: No such file" tune --data "$work/nowhere"
echo "too little" >"$work/little.txt"
refuses 1 "less than one window" tune --data "$work/little.txt" --out "$work/i"
refuses 1 "4096 ids, the model has 128 positions" tune --length 4096 --out "$work/i"
rm "$work/f/vocab.json"
refuses 1 "no vocab.json" tune $quick --model "$work/f" --out "$work/i"
refuses 2 "neither adam8 nor adam32" tune --optimizer adam16
refuses 2 "does not divide" tune --batch 8 --accumulate 3
refuses 1 "bad.json: not a safetensors file" tune --model "$work/bad.json" --out "$work/i"
finish
