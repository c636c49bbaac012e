#!/bin/sh
# new_run.sh - a new run's manifest, by options and by five questions; the first peer trains by it,
# another one by the first one's address.
. "$(dirname "$0")/lib.inc"
peers=
trap 'kill $peers 2>/dev/null; wait; rm -rf "$work"' EXIT
tiny=test/program/tiny.json
file=$work/run.json

# --- by options

check "writes a manifest" "$POTLUCK" new-run --run emoji --config $tiny --steps 100000 --target-batch 16 --lr 0.02 --out "$file"
check "writes another, and names the next command" sh -c '"$0" new-run --run b --out "$1/b.json" 2>&1 | grep -q "next: potluck train --manifest $1/b.json"' "$POTLUCK" "$work"
for line in '"run": "emoji"' '"steps": 100000' '"target_batch": 16' '"lr": 0.02' '"name": "tiny"' '"demo"' '"codec": "41bbb66f"'; do
    check "it has $line" grep -q -- "$line" "$file"
done
refuses 1 'run.json exists: give another name' "$POTLUCK" new-run --run emoji --out "$file"
refuses 2 "there is no terminal to ask on" "$POTLUCK" new-run --out "$work/none" </dev/null
refuses 1 "no configuration is called" "$POTLUCK" new-run --run a --config none --out "$work/none"
refuses 2 "'0' is not a whole number" "$POTLUCK" new-run --run a --steps 0 --out "$work/none"
check "nothing is left of these" [ ! -e "$work/none" ]
mkdir "$work/own" && cp $DEMO/*-00000.parquet "$work/own/"
"$POTLUCK" new-run --run own --data "$work/own" --out - >"$work/own.json" 2>"$work/err"
check "a path of this machine is not published" sh -c '! grep -q parquet "$0" && ! grep -q "$1" "$0" && grep -q "\"data\": \[\]" "$0"' "$work/own.json" "$work"
check "its codec is" grep -q '"codec": "41bbb66f"' "$work/own.json"
check "which is reported" grep -q 'each peer gives its own shards with --data' "$work/err"
check "and that a model does not fit the demo's shards" sh -c '"$0" new-run --run x --config small --out - 2>&1 >"$1/x.json" |
    grep -q "shards have 64 image tokens, this model takes 256"' "$POTLUCK" "$work"
refuses 2 'peers bring their own data: --data PATH is needed' "$POTLUCK" train --manifest "$work/own.json" --out "$work/none"
"$POTLUCK" new-run --run d --algorithm diloco --inner-steps 30 --steps 100 --out - >"$work/d.json" 2>/dev/null
check "steps are whole outer ones" grep -q '"steps": 120' "$work/d.json"

# --- by questions, on a terminal

if command -v python3 >/dev/null; then
    answer() { # lines; the answers are typed as the questions come
        python3 - "$POTLUCK" "$work/asked.json" "$@" >"$work/talk" 2>&1 <<'END'
import os, pty, sys
child, terminal = pty.fork()
if child == 0: os.execv(sys.argv[1], [sys.argv[1], "new-run", "--steps", "7", "--out", sys.argv[2]])
answers, heard = sys.argv[3:], b""
while True:
    try: more = os.read(terminal, 4096)
    except OSError: break
    if not more: break
    heard += more
    if heard.endswith(b"]: "):
        os.write(terminal, (answers.pop(0) + "\n").encode() if answers else b"\x04")
print(heard.decode().replace("\r", ""))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
END
    }
    check "five answers" answer mine small "" "" 32
    check "are five questions" [ "$(grep -c ']: ' "$work/talk")" -eq 5 ]
    check "an empty answer is the option's value" grep -q '"steps": 7,' "$work/asked.json"
    check "answers are taken" sh -c 'grep -q "\"run\": \"mine\"" "$0" && grep -q "\"name\": \"small\"" "$0" && grep -q "\"target_batch\": 32" "$0"' "$work/asked.json"
    rm -f "$work/asked.json"
    check "wrong answers are asked for again" answer "my run" mine none demo demo zero 5 4
    check "with what was expected" sh -c 'for w in "without spaces" "no configuration is called" "not a whole number"; do grep -q "$w" "$0" || exit 1; done' "$work/talk"
    rm -f "$work/asked.json"
    answer mine demo
    check "without answers nothing is written" sh -c '[ ! -e "$0" ] && grep -q "no answer: nothing is written" "$1"' "$work/asked.json" "$work/talk"
else
    echo "skip questions: python3 is not installed"; skipped=$((skipped + 1))
fi

# --- training by the file

refuses 1 "steps: 50 here, 100000 in the run" "$POTLUCK" train --manifest "$file" --steps 50 --quiet --out "$work/none"
refuses 1 "learning rate: 0.01 here, 0.02 in the run" "$POTLUCK" train --lr 0.01 --manifest "$file" --quiet --out "$work/none"
refuses 1 "run: other here, emoji in the run" "$POTLUCK" train --manifest "$file" --run other --quiet --out "$work/none"
refuses 1 "model: demo (.*) here, tiny" "$POTLUCK" train --manifest "$file" --config demo --quiet --out "$work/none"
sed 's/"steps": 100000/"steps": -1/' "$file" >"$work/bad.json"
refuses 1 "bad.json: manifest: steps: expected a number from 1" "$POTLUCK" train --manifest "$work/bad.json"
head -n 5 "$file" >"$work/bad.json"
refuses 1 "bad.json: line 6" "$POTLUCK" train --manifest "$work/bad.json"
refuses 1 "none.json: No such file" "$POTLUCK" train --manifest "$work/none.json"
"$POTLUCK" train --manifest "$file" --limit 128 --threads 1 --slow 0.3 --save-every 0 --quiet --json \
    --listen /ip4/127.0.0.1/tcp/0 --out "$work/a.d" >"$work/a" 2>"$work/a.err" &
peers=$!
for _ in $(seq 600); do grep -q '"event":"ready"' "$work/a" && break; sleep 0.1; done
first=$(sed -n 's/.*"multiaddr":"\([^"]*\)".*/\1/p' "$work/a" | head -n 1)
shows() { "$POTLUCK" join "$first" --show >"$work/shown" 2>&1 && grep -q 'schedule    100000 steps of 16 samples' "$work/shown"; }
check "the first peer publishes it" again shows
for line in '^run "emoji"' 'tiny: 2 blocks' 'learning rate 0.02' 'data        demo'; do
    check "join shows: $line" grep -q "$line" "$work/shown"
done
finish
