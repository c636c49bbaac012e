# train.sh - training resumes with the same bits, survives a kill and a full disk, and refuses wrong
# options.
. test/program/lib.inc
train() {
    "$POTLUCK" train --config test/program/tiny.json --limit 128 --steps 12 --target-batch 16 --batch 8 \
        --save-every 4 --quiet "$@"
}

# However slow the machine is: until the log has that many lines.
until_line() { # file, lines
    for _ in $(seq 1200); do
        [ "$(cat "$1" 2>/dev/null | wc -l)" -ge "${2:-1}" ] && return
        sleep 0.05
    done
}

# The same bits with and without a break, and with any number of threads.
check "trains" train --out "$work/a" --keep 0
mkdir "$work/b"
cp "$work/a/checkpoint-000004.safetensors" "$work/b/"
check "goes on" train --out "$work/b" --keep 0 --resume
check "resumed = uninterrupted, bit for bit" cmp "$work/a/checkpoint-000012.safetensors" "$work/b/checkpoint-000012.safetensors"
check "trains with one thread" train --out "$work/c" --threads 1
check "results do not depend on threads" cmp "$work/a/checkpoint-000012.safetensors" "$work/c/checkpoint-000012.safetensors"
check "Muon trains" train --optimizer muon --out "$work/m" --keep 0
mkdir "$work/m.two"
cp "$work/m/checkpoint-000004.safetensors" "$work/m.two/"
check "and goes on" train --optimizer muon --out "$work/m.two" --resume
check "bit for bit" cmp "$work/m/checkpoint-000012.safetensors" "$work/m.two/checkpoint-000012.safetensors"
check "trains with noise in its tokens" train --out "$work/noise" --keep 0 --token-noise 0.5
mkdir "$work/noise2"
cp "$work/noise/checkpoint-000004.safetensors" "$work/noise2/"
check "goes on" train --out "$work/noise2" --keep 0 --token-noise 0.5 --resume
check "draws the same noise" cmp "$work/noise/checkpoint-000012.safetensors" "$work/noise2/checkpoint-000012.safetensors"
check "which changes the model" sh -c '! cmp -s "$0" "$1"' "$work/a/checkpoint-000012.safetensors" "$work/noise/checkpoint-000012.safetensors"
check "keeps two checkpoints" test "$(ls "$work/c" | grep -c checkpoint)" -eq 2
check "leaves a loss curve" test -s "$work/a/loss.svg"
check "logs every step" test "$(grep -c loss_image "$work/a/log.jsonl")" -eq 12

# The page of its folder: how many steps the run has is in the folder, and so whether it has ended.
touch -d '-1 minute' "$work/a/log.jsonl"
"$POTLUCK" dash --folder "$work/a" --port 0 --export "$work/page" >"$work/output" 2>&1 &
until_line "$work/output"
kill $!
wait $!
check "its page says that it has ended" grep -q '"step":12,"total_steps":12,.*"status":"ended"' "$work/page/api/state.json"

# Pairs that are held out are measured on, and that changes nothing.
head -n 40 data/demo/holdout.txt >"$work/without"
check "trains without some" train --steps 4 --out "$work/w1" --exclude "$work/without" --evaluate-every 0
check "and measures on them" train --steps 4 --out "$work/w2" --without "$work/without" --evaluate-every 2
check "the same bits" cmp "$work/w1/checkpoint-000004.safetensors" "$work/w2/checkpoint-000004.safetensors"
check "their loss is logged twice" test "$(grep -c '"held_out":[0-9]' "$work/w2/log.jsonl")" -eq 2

# At this rate norms of tensors grow, until the clamp of one of the two optimizers holds them.
check "trains at a rate of 3" train --lr 3 --out "$work/l1"
check "and with norms that count up to 30" train --lr 3 --optimizer lamb8_clamp30 --out "$work/l2"
last_loss() { tail -n 1 "$1/log.jsonl" | sed 's/.*"loss":\([0-9]*\).*/\1/'; }
check "it makes smaller steps" test $((100 * $(last_loss "$work/l2"))) -lt "$(last_loss "$work/l1")"

# Peers that are given parts read every shard, and none reads another's: the position in a
# checkpoint names them.
shards() { "$POTLUCK" show "$1" 2>/dev/null | grep -o '[a-z]*-[0-9]*\.parquet'; }
for part in 1 2 3; do
    check "trains on part $part of 3" train --steps 1 --out "$work/part$part" --part $part/3
    shards "$work/part$part/checkpoint-000001.safetensors" >>"$work/read"
done
ls data/demo | grep '\.parquet$' >"$work/all"
check "parts make up the data" test "$(sort "$work/read")" = "$(cat "$work/all")"
refuses 1 "4 shards cannot be shared among 5 peers" train --steps 1 --out "$work/none" --part 1/5
refuses 2 "from 1 to 3" train --steps 1 --out "$work/none" --part 4/3
refuses 1 "saved for other shards" train --steps 1 --out "$work/part1" --part 2/3 --resume

# Ctrl-C saves and stops.
"$POTLUCK" train --config test/program/tiny.json --limit 128 --steps 100000 --target-batch 16 --save-every 0 \
    --quiet --out "$work/d" 2>"$work/err" &
pid=$!
until_line "$work/d/log.jsonl"
kill -INT $pid
wait $pid
check "Ctrl-C ends with status 0 and a checkpoint" test $? -eq 0 -a "$(ls "$work/d" | grep -c checkpoint)" -eq 1

# A pipe that nobody reads is full after some hundred events. A trainer that waits for its reader
# still hears that it is to stop.
mkfifo "$work/unread"
exec 4<>"$work/unread"
timeout -k 60 600 "$POTLUCK" train --config test/program/tiny.json --limit 128 --steps 100000 --target-batch 16 --batch 8 \
    --save-every 0 --json --run r --listen /ip4/127.0.0.1/tcp/0 --out "$work/unread.d" >"$work/unread" 2>"$work/err" &
pid=$!
until_line "$work/unread.d/log.jsonl"
stands() { # until no step has come for a second
    for _ in $(seq 120); do
        steps=$(wc -l <"$work/unread.d/log.jsonl")
        sleep 1
        [ "$steps" -eq "$(wc -l <"$work/unread.d/log.jsonl")" ] && return 0
    done
    return 1
}
check "a trainer waits for the reader of its events" stands
kill -TERM $pid
wait $pid
check "SIGTERM ends it, with a checkpoint" test $? -eq 0 -a "$(ls "$work/unread.d" | grep -c checkpoint)" -eq 1
exec 4>&-

# With delayed steps, too, every sample that the data had given by a checkpoint is in one of its
# steps, and no other is: when Ctrl-C comes while a step is on its way, and when the training goes
# on from there.
newest() { ls "$1" | grep '^checkpoint.*safetensors$' | tail -n 1; }
all_counted() { # folder
    given=$(grep -aoE 'given[\]":[0-9]+' "$1/$(newest "$1")" | grep -oE '[0-9]+')
    logged=$(sed -n 's/.*"samples":\([0-9]*\),.*/\1/p' "$1/log.jsonl" | awk '{ n += $1 } END { print n + 0 }')
    steps=$(wc -l <"$1/log.jsonl")
    [ "$given" -ge 48 ] && [ "$given" = "$logged" ] && [ "$(newest "$1")" = "$(printf 'checkpoint-%06d.safetensors' "$steps")" ] ||
        { echo "$given given, $logged in $steps steps, $(newest "$1")"; return 1; }
}
for delay in step round; do
    "$POTLUCK" train --config test/program/tiny.json --limit 128 --steps 100000 --target-batch 16 --batch 8 --save-every 0 \
        --quiet --run r --listen /ip4/127.0.0.1/tcp/0 --delay $delay --out "$work/$delay" >/dev/null 2>&1 &
    pid=$!
    until_line "$work/$delay/log.jsonl" 3
    kill -INT $pid
    wait $pid
    check "Ctrl-C within --delay $delay ends with status 0" test $? -eq 0
    check "and with all that was given in its steps" all_counted "$work/$delay"
    steps=$(($(wc -l <"$work/$delay/log.jsonl") + 4))
    check "goes on" train --run r --listen /ip4/127.0.0.1/tcp/0 --delay $delay --out "$work/$delay" --steps $steps --resume
    check "to the last step" test "$(wc -l <"$work/$delay/log.jsonl")" -eq $steps
    check "and nothing is lost" all_counted "$work/$delay"
done

# Killed at a bad moment, again and again: the newest checkpoint is always whole.
for delay in 0.02 0.05 0.08; do
    rm -rf "$work/e"
    "$POTLUCK" train --config test/program/tiny.json --limit 128 --steps 100000 --target-batch 16 --save-every 1 \
        --quiet --out "$work/e" 2>/dev/null &
    pid=$!
    until_line "$work/e/log.jsonl" 2
    sleep $delay
    kill -KILL $pid
    wait $pid 2>/dev/null
    check "whole after a kill" "$POTLUCK" show "$work/e/$(newest "$work/e")"
done

# A full disk: a line, and the old checkpoint is still there and whole.
mkdir "$work/f"
cp "$work/a/checkpoint-000004.safetensors" "$work/f/"
(ulimit -f 100; refuses 1 "cannot write" train --out "$work/f" --resume; exit "$failed") || failed=$((failed + 1))
check "old checkpoint survives a full disk" cmp "$work/a/checkpoint-000004.safetensors" "$work/f/checkpoint-000004.safetensors"
check "nothing half-written is left" test "$(ls "$work/f" | grep -c part)" -eq 0

# A value that no training saves.
mkdir "$work/n"
cp "$work/a/checkpoint-000004.safetensors" "$work/n/"
printf '\377\377\377\177' | dd of="$work/n/checkpoint-000004.safetensors" bs=1 conv=notrunc 2>/dev/null \
    seek=$(($(wc -c <"$work/n/checkpoint-000004.safetensors") - 4))
refuses 1 "checkpoint-000004.*: value .* is not finite" train --out "$work/n" --resume

# Damaged checkpoints.
mkdir "$work/g"
head -c 5000 "$work/a/checkpoint-000004.safetensors" >"$work/g/checkpoint-000004.safetensors"
refuses 1 "checkpoint-000004.safetensors" train --out "$work/g" --resume
refuses 1 "no checkpoint" train --out "$work/empty" --resume
check "and leaves no folder" [ ! -e "$work/empty" ]
mkdir "$work/mine"
refuses 1 "no checkpoint" train --out "$work/mine" --resume
check "but the user's own one" [ -d "$work/mine" ]
refuses 1 "a/checkpoint-.* exists: --resume continues from it" train --out "$work/a"
check "folders within folders" train --out "$work/deep/in/it" --steps 1
refuses 1 "not a folder" train --out "$work/a/loss.svg"

# What is reported: which options differ, an error for programs, a command to type, in the terminal's width.
prints() { # what, pattern, command...
    what=$1 want=$2; shift 2
    "$@" >"$work/output" 2>&1
    if grep -qE -- "$want" "$work/output"; then ok "$what"; else fail "$what: no '$want'"; tail -n 3 "$work/output"; fi
}
train_tiny() { "$POTLUCK" train --config test/program/tiny.json --limit 16 --batch 4 "$@"; }
prints "the next command, quoted" "^next: potluck generate --model '.*/a b'" train_tiny --steps 1 --target-batch 4 --out "$work/a b"
prints "--resume names what differs" 'other options: learning rate: 0.5 here, 0.01 in the run; token noise: 0.1 here, 0 in the run; steps: 2 here, 1 in the run; seed: 9 here, 1 in the run before' \
    train_tiny --steps 2 --target-batch 4 --lr 0.5 --token-noise 0.1 --seed 9 --data-seed 1 --resume --out "$work/a b" --quiet
prints "and nothing else" '^$' sh -c "'$POTLUCK' train --config test/program/tiny.json --limit 16 --batch 4 --steps 2 --target-batch 4 --lr 0.5 \
    --token-noise 0.1 --seed 9 --data-seed 1 --resume --out '$work/a b' --quiet 2>&1 | grep -c warning: | sed 's/^0$//'"
prints "an option's value that is refused is an event" '^{"event": *"error", *"command": *"train", *"text": *"--data: nowhere' \
    train_tiny --data nowhere --json --steps 1
prints "so is an unknown option" '^{"event": *"error", *"command": *"train", *"text": *".*did you mean --steps' train_tiny --json --stepz 1
prints "an error is an event, too" '^{"event": *"error", *"command": *"train", *"text": *".*nosuch' train_tiny --run r --json --quiet --tokenizer /nosuch/t --out "$work/e"
prints "that of a backend" '^{"event": *"error", *"command": *"train", *"text": *"backend nosuch: ' train_tiny --json --backend nosuch --out "$work/e"
prints "the folder is tried before the model is made" 'cannot|No such file|Not a directory|denied' timeout 20 "$POTLUCK" train --config run --out /proc/nosuch
prints "a codec's file is tried before the training" '/proc/nosuch' timeout 60 "$POTLUCK" vqgan train --data data/demo --steps 1000000 --out /proc/nosuch/codec

# A codec that was stopped and goes on is the one that was not: bit for bit.
codec() { "$POTLUCK" vqgan train --data test/golden/clip/images --side 16 --batch 2 --steps 60 --threads 1 "$@"; }
check "a codec is trained" codec --out "$work/whole.codec"
check "and leaves nothing else" test ! -e "$work/whole.codec.resume"
"$POTLUCK" vqgan train --data test/golden/clip/images --side 16 --batch 2 --steps 60 --threads 1 --out "$work/part.codec" >"$work/output" 2>&1 &
for _ in $(seq 600); do grep -q parameters "$work/output" && break; sleep 0.1; done
sleep 0.3
kill -INT $!
wait $!
check "another one is stopped" grep -q '^stopped at step [0-9]* of 60; everything is saved, continue with --resume' "$work/output"
prints "it refuses another rate" 'resume: lr is 0.01 here, 0.001 in .*part.codec.resume' codec --out "$work/part.codec" --lr 0.01 --resume
prints "and another batch" 'resume: batch is 3 here, 2 in .*part.codec.resume' codec --out "$work/part.codec" --batch 3 --resume
prints "and to continue what has ended" 'whole.codec.resume: No such file' codec --out "$work/whole.codec" --resume
check "and goes on" codec --out "$work/part.codec" --resume
check "to the same bits" cmp "$work/whole.codec" "$work/part.codec"
check "and leaves nothing else either" test ! -e "$work/part.codec.resume"
prints "and the folder of pictures" '/proc/nosuch' timeout 60 "$POTLUCK" generate --model "$work/a b" "a cat" --out /proc/nosuch/pictures
if command -v script >/dev/null; then
    script -qec "stty cols 40; NO_COLOR=1 TERM=xterm '$POTLUCK' train --config test/program/tiny.json --limit 16 --steps 40 --target-batch 4 --batch 4 --out '$work/w'" \
        /dev/null </dev/null | tr '\r' '\n' >"$work/output"
    check "without colours if \$NO_COLOR is set" sh -c "! grep -q \"\$(printf '\033')\" '$work/output'"
    script -qec "stty cols 40; NO_COLOR= TERM=xterm '$POTLUCK' train --config test/program/tiny.json --limit 16 --steps 40 --target-batch 4 --batch 4 \
        --out '$work/bars'" /dev/null </dev/null | tr '\r' '\n' | grep -a 'step .*loss' >"$work/bar"
    tail -n 1 "$work/bar" >"$work/bar_end"
    escape=$(printf '\033')
    check "else the line is a bar: all of it at the end" grep -q "^$escape\[30;46mstep 40 of 40 .*$escape\[0m\$" "$work/bar_end"
    sed "s/$escape\[[0-9;]*m//g" "$work/bar" >"$work/bar_words"
    check "which fits, too" sh -c "! grep -q '.\{40\}' '$work/bar_words'"
    check "a line of progress fits the terminal" sh -c "grep -q '^step .*loss' '$work/output' && ! grep '^step' '$work/output' | grep -q '.\{40\}'"
else
    echo "skip a line of progress fits the terminal: script is not installed"; skipped=$((skipped + 1))
fi

# Image tokens of two codecs are not trained on together.
one=$(find data/demo -name '*.parquet' | sort | head -n 1)
LC_ALL=C sed 's/41bbb66f/0badc0de/g' "$one" >"$work/other.parquet"
refuses 1 "shards of two codecs: .* is of codec 41bbb66f, .*other.parquet of 0badc0de" train --data "$one" --data "$work/other.parquet" \
    --out "$work/two"

# A checkpoint names the codec: --resume and generate refuse another one.
check "trained with a codec's name" train --data "$one" --steps 1 --out "$work/codec"
prints "--resume refuses shards of another codec" 'codec/checkpoint-000001.safetensors is trained on image tokens of codec 41bbb66f, --data is of 0badc0de' \
    train --data "$work/other.parquet" --steps 2 --resume --out "$work/codec"
draw() { "$POTLUCK" generate --model "$work/codec" --quiet --out "$work/pictures" "$@" "a cat"; }
check "drawn by the same codec" draw
cp data/demo/codec.safetensors "$work/other.safetensors"
printf '\1' | dd of="$work/other.safetensors" bs=1 conv=notrunc seek=200000 2>/dev/null
refuses 1 "codec is trained on image tokens of codec 41bbb66f, .*other.safetensors is codec [0-9a-f]\{8\}: --codec FILE" draw --codec "$work/other.safetensors"

# Flags.
refuses 2 "steps" train --out "$work/h" --steps 0
refuses 2 "not one of none, step, round" train --out "$work/h" --run r --delay forever
refuses 2 "zeros and ones" train --out "$work/h" --run r --group-bits 012
refuses 2 "group-size" train --out "$work/h" --run r --group-size 1
refuses 2 "bandwidth" train --out "$work/h" --run r --bandwidth -1
refuses 2 "lr" train --out "$work/h" --lr abc
refuses 2 "does not divide" train --out "$work/h" --batch 7
refuses 1 "nosuch" train --out "$work/h" --config nosuch
for value in OMP_NUM_THREADS=abc OMP_NUM_THREADS=0 OMP_NUM_THREADS=2, OMP_WAIT_POLICY=often GOMP_SPINCOUNT=1e3 \
    PL_FAST_ISA=mmx PL_BACKEND_DIR=/nosuch PL_DATA_DIR=/nosuch HF_ENDPOINT=ftp://x HF_TOKEN='a b' AWS_REGION=a/b; do
    refuses 2 "environment's ${value%%=*}: expected" env "$value" "$POTLUCK" --version
done
refuses_nothing() { env OMP_NUM_THREADS= PL_FAST_ISA= "$POTLUCK" --version >"$work/version" 2>&1; }
check "an empty variable is one that is not set" refuses_nothing
check "and nobody complains" sh -c "! grep -i invalid '$work/version'"
refuses 1 "nosuch.parquet" train --out "$work/h" --data "$work/nosuch.parquet"
refuses 1 "backend" train --out "$work/h" --backend ./nosuch.so
refuses 1 "spiece" train --out "$work/h" --tokenizer test/golden/tokenizer/spiece.nosuch
finish
