#!/bin/sh
# halves.sh - a swarm begins in two halves, each with its own bootstrap peer and parameters. Once
# they are connected, all four trainers average together, no epoch decreases or stays behind, and
# all end with the same parameters.
. "$(dirname "$0")/lib.inc"
peers=
trap 'kill -KILL $peers 2>/dev/null; wait; rm -rf "$work"' EXIT
command -v python3 >/dev/null || { echo "skip halves: python3 is not installed"; skipped=1; finish; exit; }

wait_for() { # command...
    for _ in $(seq 3000); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
    for n in 1 2 3 4; do echo "peer $n:"; tail -n 2 "$work/t$n" "$work/t$n.err"; done
    return 1
}
address() { sed -n 's/.*"multiaddr":"\([^"]*\)".*/\1/p' "$1"; }
entry() { # name, where it listens, options...
    name=$1 listen=$2; shift 2
    for _ in $(seq 60); do # where it has listened before, a connection of somebody else's may have that port for a while
        "$POTLUCK" peer --json --run r --listen "$listen" --identity "$work/$name.key" "$@" >"$work/$name" 2>"$work/$name.err" &
        last=$!
        for _ in $(seq 3000); do
            grep -q '"event":"listening"' "$work/$name" && { peers="$peers $last"; return; }
            kill -0 $last 2>/dev/null || break
            sleep 0.1
        done
        sleep 1
    done
}
learn() { # name, seed, seconds a batch, options...
    name=$1 seed=$2 slow=$3; shift 3
    "$POTLUCK" train --json --quiet --run r --config test/program/tiny.json --limit 128 --seed "$seed" --data-seed "$seed$name" --threads 1 \
        --target-batch 32 --batch 8 --slow "$slow" --steps 1000000 --matchmaking-time 1.5 --averaging-timeout 20 --allreduce-timeout 10 \
        --save-every 1 --keep 0 --listen /ip4/127.0.0.1/tcp/0 --out "$work/o$name" "$@" >"$work/t$name" 2>"$work/t$name.err" &
    peers="$peers $!"
    trainers="$trainers $!"
}
stepped() { grep -qE '"event":"epoch","epoch":([2-9]|[1-9][0-9]+),' "$work/t$1"; } # twice, or it has taken a step over
# Gradient rounds that had all four; rounds of the parameters, likewise.
with_all() { [ "$(grep "\"event\":\"$2\"" "$work/t$1" | grep -c '"round_status":0,"round_peers":4,')" -ge "$3" ]; }
all_together() { for n in 1 2 3 4; do with_all $n epoch 4 && with_all $n corrected 4 || return 1; done; }

# No epoch ever goes back, and at one of the last steps that all have written their parameters (the
# largest tensor of them) are no further apart than a step or two make them, as rounds with all four
# are no rule on a busy machine; `strangers`: the halves' first ones were.
cat >"$work/judge.py" <<'END'
import array, glob, json, os, struct, sys
work, strangers = sys.argv[1], sys.argv[2:] == ["strangers"]
for n in "1234":
    epochs = [e["epoch"] for e in map(json.loads, open(f"{work}/t{n}")) if e["event"] in ("loaded", "epoch", "corrected")]
    assert epochs == sorted(epochs), f"peer {n}'s epoch goes back: {epochs}"
def read(path):
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    spans = [head[k]["data_offsets"] for k in sorted(head) if k != "__metadata__" and head[k]["dtype"] == "F32"]
    start, end = max(spans, key=lambda s: s[1] - s[0])
    return array.array("f", data[start:end])
def apart(paths):
    first, *others = map(read, paths)
    return max(abs(a - b) for x in others for a, b in zip(first, x))
def steps(n):
    return {os.path.basename(f) for f in glob.glob(f"{work}/o{n}/checkpoint-*.safetensors")}
common = sorted(set.intersection(*map(steps, "1234")))[-8:]
now = {name: apart([f"{work}/o{n}/{name}" for n in "1234"]) for name in common}
print(now)
assert min(now.values()) < 0.01, f"apart: {now}"
before = apart([f"{work}/o{n}/{min(steps(n))}" for n in "13"])
assert not strangers or before > 0.05, f"the halves began only {before} apart"
END
judge() { # what, whether the halves begin as strangers
    check "$1: all four average with one another" wait_for all_together
    kill $trainers; wait $trainers 2>/dev/null
    check "$1: nobody goes back, and the parameters are the same" python3 "$work/judge.py" "$work" $2
    kill -KILL $peers 2>/dev/null; wait
    peers= trainers=
    rm -rf "$work"/o* "$work"/t*
}

# One half's entry names the other's, which is not up yet.
trainers=
entry b /ip4/127.0.0.1/tcp/0
b=$(address "$work/b")
kill -KILL $last; wait $last 2>/dev/null
entry a /ip4/127.0.0.1/tcp/0 --join "$b"
learn 1 1 0.3 --join "$(address "$work/a")"
learn 2 1 0.3 --join "$(address "$work/a")"
check "half a swarm trains" wait_for stepped 1
listen=${b%/p2p*}
entry b "$listen"
learn 3 2 0.3 --join "$b"
learn 4 2 0.3 --join "$b"
judge "its entry comes late"

# Two entries that have never heard of one another, until somebody joins by both. The halves are as
# fast, so they may meet at the same epoch.
entry a /ip4/127.0.0.1/tcp/0
entry b /ip4/127.0.0.1/tcp/0
for n in 1 2; do learn $n 1 0.3 --join "$(address "$work/a")"; done
for n in 3 4; do learn $n 2 0.3 --join "$(address "$work/b")"; done
check "one half" wait_for stepped 1
check "and the other" wait_for stepped 3
check "are two" sh -c '! grep -qE "\"peers\":[34]," "$@"' sh "$work/t1" "$work/t2" "$work/t3" "$work/t4"
entry c /ip4/127.0.0.1/tcp/0 --join "$(address "$work/a")" --join "$(address "$work/b")"
judge "somebody joins both" strangers
finish
