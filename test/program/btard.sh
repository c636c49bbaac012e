# btard.sh - three trainers that verify each other. One of them trains on other data than it names.
# The other two, which have the same data, ban it for this reason.
. test/program/lib.inc
pids=
trap 'kill $pids 2>/dev/null; wait; rm -rf "$work"' EXIT

train() { # name, data, options...
    name=$1 data=$2; shift 2
    "$POTLUCK" train --config test/program/tiny.json --data "$data" --run b --robust btard:1 --steps 1000000 --target-batch 24 \
        --batch 8 --matchmaking-time 4 --save-every 0 --listen /ip4/127.0.0.1/tcp/0 --json --out "$work/$name" "$@" \
        >"$work/$name.log" 2>"$work/$name.err" &
    pids="$pids $!"
    for _ in $(seq 1200); do grep -q listening "$work/$name.log" && break; sleep 0.1; done
}
address() { sed -n 's/.*"multiaddr":"\([^"]*\)".*/\1/p' "$work/$1.log"; }
until_seen() { # pattern, file: however slow the machine is
    for _ in $(seq 6000); do grep -qE "$1" "$2" && return; sleep 0.1; done
    tail -n 4 "$work"/?.log "$work"/?.err
    return 1
}

refuses 2 "which validators cannot recompute" "$POTLUCK" train --run r --robust btard:1 --delay step --out "$work/x"
refuses 2 "does not take --token-noise" "$POTLUCK" train --run r --robust btard --token-noise 0.1 --out "$work/x"
refuses 2 "btard\[:VALIDATORS\]" "$POTLUCK" train --run r --robust btard:-1 --out "$work/x"

# The same names, as many rows, other contents.
cp -r "$DEMO" "$work/other"
chmod -R u+w "$work/other"
mv "$work/other/emoji-00000.parquet" "$work/zero"
mv "$work/other/emoji-00002.parquet" "$work/other/emoji-00000.parquet"
mv "$work/zero" "$work/other/emoji-00002.parquet"

train a "$DEMO"
entry=$(address a)
train b "$DEMO" --join "$entry"
train c "$work/other" --join "$entry"
attacker=$(address c)
attacker=${attacker##*/}
check "one of the honest bans who has other data" until_seen "\"caught\":\"$attacker is banned for .*: " "$work/a.log"
check "so does the other" until_seen "\"caught\":\"$attacker is banned for .*: " "$work/b.log"
check "and says why" grep -qE "a peer's values are not those of its data|a validator accuses a peer falsely" "$work/a.log"
if grep -h '"caught":"' "$work/a.log" "$work/b.log" | grep -v "\"caught\":\"$attacker" >"$work/log"; then
    fail "nobody else is banned"
    head -n 3 "$work/log"
else
    ok "nobody else is banned"
fi
finish
