#!/bin/sh
# join.sh - the run's manifest: one address is enough to train along, and options that differ from the
# run's are refused with both values.
. "$(dirname "$0")/lib.inc"
peers=
trap 'kill $peers 2>/dev/null; wait; rm -rf "$work"' EXIT
tiny=test/program/tiny.json

wait_for() { # pattern, file
    for _ in $(seq 1200); do grep -q -- "$1" "$2" && return; sleep 0.1; done
    return 1
}
train() { # its output, options...
    out=$1; shift
    "$POTLUCK" train --limit 128 --threads 1 --matchmaking-time 1 --slow 0.3 --save-every 0 --quiet --json \
        --listen /ip4/127.0.0.1/tcp/0 --out "$out.d" "$@" >"$out" 2>"$out.err" &
    peers="$peers $!"
    wait_for '"event":"ready"' "$out"
}
address() { sed -n 's/.*"multiaddr":"\([^"]*\)".*/\1/p' "$1" | head -n 1; }
printed() { # pattern, command...
    want=$1; shift
    "$@" >"$work/log" 2>&1 && grep -qE -- "$want" "$work/log"
}
prints() { # what, pattern, command...
    what=$1; shift
    if again printed "$@"; then ok "$what"; else fail "$what: no '$want'"; head -n 12 "$work/log"; fi
}

"$POTLUCK" peer --json --listen /ip4/127.0.0.1/tcp/0 >"$work/entry" 2>/dev/null &
peers="$peers $!"
check "a bootstrap peer is a swarm of its own" wait_for '"event":"joined"' "$work/entry"
entry=$(address "$work/entry")
train "$work/a" --run emoji --join "$entry" --config $tiny --steps 100000 --target-batch 16 --lr 0.02 --average-state-every 3
first=$(address "$work/a")

# --- one address

prints "the manifest in lines" '^run "emoji", signed by peer 12D3' "$POTLUCK" join "$first" --show
for line in 'model       tiny: 2 blocks of width 32' 'optimizer   lamb8, learning rate 0.02' \
    'schedule    100000 steps of 16 samples' 'parameters every 3 steps' 'data        demo' 'memory      0\.[0-9]* GiB needed'; do
    if grep -q "$line" "$work/log"; then ok "it says: $line"; else fail "it says: $line"; fi
done
check "as one event" sh -c "'$POTLUCK' join '$first' --show --json | grep -q '\"event\":\"manifest\".*\"steps\":100000'"
"$POTLUCK" join "$first" --limit 128 --threads 1 --matchmaking-time 1 --slow 0.3 --save-every 0 --quiet --json \
    --listen /ip4/127.0.0.1/tcp/0 --out "$work/b.d" >"$work/b" 2>"$work/b.err" &
second=$!
peers="$peers $second"
check "joins and averages" wait_for '"event":"epoch".*"group":2\|"event":"epoch".*"peers":2' "$work/b"
check "and can be joined by in its turn" again printed 'peers       2 publish' "$POTLUCK" join "$(address "$work/b")" --show
kill -INT $second; wait $second 2>/dev/null

# --- options that differ

same="--run emoji --config $tiny --steps 100000 --target-batch 16 --lr 0.02 --average-state-every 3"
other() { # words, options that replace some of `same`
    words=$1; shift
    # shellcheck disable=SC2086
    refuses_again 1 "$words" "$POTLUCK" train --limit 128 --quiet --no-check --json --threads 1 --out "$work/c" $same --join "$first" "$@"
}
# Words for people: a peer that takes part says how others join it, one that is refused does not.
"$POTLUCK" join "$first" --limit 16 --threads 1 --quiet --no-check --out "$work/t.d" 2>"$work/t" &
words=$!
peers="$peers $words"
check "a newcomer says how others join" wait_for 'others join this run by potluck join' "$work/t"
kill -INT $words; wait $words 2>/dev/null
# shellcheck disable=SC2086
refuses_again 1 'steps: 60 here, 100000 in the run' "$POTLUCK" train --limit 128 --quiet --no-check --threads 1 --out "$work/c" $same --join "$first" --steps 60
other 'steps: 50 here, 100000 in the run' --steps 50
other 'target batch: 32 here, 16 in the run' --target-batch 32
other 'learning rate: 0.5 here, 0.02 in the run' --lr 0.5
other 'token noise: 0.2 here, 0 in the run' --token-noise 0.2
other 'optimizer: adamw8 here, lamb8 in the run' --optimizer adamw8
other 'compression: float16 here, run in the run' --compression float16
other 'algorithm: local_sgd here, gradients in the run' --algorithm local_sgd
other 'model: demo (.*) here, tiny (2 blocks of width 32) in the run' --config demo
other 'no peer trains run "emojy".*--run emoji' --run emojy
refuses_again 1 'tokenizer: .* here, .* in the run' "$POTLUCK" join "$first" --quiet --no-check --tokenizer test/golden/tokenizer/t5_8k/spiece.model \
    --out "$work/c"
refuses_again 1 'compression: none here, run in the run' "$POTLUCK" join "$first" --quiet --compression none --out "$work/c"

# --- whose manifest counts

refuses_again 1 'publishes no manifest of a run: give the address of a peer that trains, or --maker' "$POTLUCK" join "$entry"
prints "a trusted peer's ID will do" '^run "emoji"' "$POTLUCK" join "$entry" --maker "${first##*/}" --show
refuses 2 "give one MULTIADDR" "$POTLUCK" join
refuses_again 2 "names no peer: it must end in /p2p/PEER-ID" "$POTLUCK" join "${first%/p2p/*}"
refuses_again 2 "expected a peer ID, got 'nobody'" "$POTLUCK" join "/ip4/127.0.0.1/tcp/1/p2p/${entry##*/}" --maker nobody # nobody is called

# A stranger under the run's name redirects nobody: others go on, get a warning, and newcomers read the first's.
train "$work/s" --run emoji --join "$entry" --config $tiny --steps 7000 --target-batch 16
prints "the stranger's is counted" 'warning     1 other: .*steps: 100000 here, 7000 in the run' "$POTLUCK" join "$first" --show
if grep -q 'schedule    100000 steps' "$work/log"; then ok "and not taken"; else fail "and not taken"; fi
check "the stranger itself gets a warning" wait_for 'warning: .* of run "emoji" train.* another way: .*steps: 7000 here, 100000 in the run' "$work/s.err"

# --- the run's page

"$POTLUCK" dash --run emoji --join "$first" --port 0 --json >"$work/page" 2>/dev/null &
peers="$peers $!"
wait_for '"serving"' "$work/page"
page=$(sed -n 's/.*"url":"\([^"]*\)".*/\1/p' "$work/page")
prints "the page's address will do" '^run "emoji", signed by' "$POTLUCK" join "$page" --show
prints "without the slash, too" '^run "emoji", signed by' "$POTLUCK" join "${page%/}" --show
# The first peer makes several steps in each of the page's polls; the board has them all.
credited() {
    python3 - "$page" <<'END'
import json, sys, urllib.request
get = lambda name: json.load(urllib.request.urlopen(sys.argv[1] + "api/" + name + ".json", timeout=20))
state, board, peers = get("state"), get("board"), get("peers")
first = next((b for b in board if b["id"] in [p["id"] for p in peers if p["state"] == "reachable"]), {"samples": 0, "seconds": 0})
print(state["step"], board)
sys.exit(not (state["status"] == "live" and state["step"] > 9 and first["samples"] > 8 * (state["step"] - 2) and first["seconds"] > 1))
END
}
if command -v python3 >/dev/null; then check "all samples are credited, seen by the page or not" again credited
else echo "skip credits: python3 is not installed"; skipped=$((skipped + 1)); fi
refuses 2 "give the page's address with https://" "$POTLUCK" join http://example.org/
refuses 2 "give the page's address with https://" "$POTLUCK" join http://127.0.0.1.example.org/
refuses 2 "give the page's address with https://" "$POTLUCK" join http://localhost@example.org/

# Data that a manifest names: over https, and without our token.
if command -v python3 >/dev/null && command -v openssl >/dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/tls.key" -out "$work/tls.crt" -days 2 -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost >/dev/null 2>&1
    python3 - "$work" >"$work/server" 2>"$work/asked" <<'END' &
import http.server, os, re, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        print("asked with", self.headers.get("Authorization"), file=sys.stderr, flush=True)
        data = open(FILE, "rb").read()
        asked = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        a, b = (int(asked[1]), min(int(asked[2] or len(data) - 1), len(data) - 1)) if asked else (0, len(data) - 1)
        self.send_response(206 if asked else 200)
        if asked: self.send_header("Content-Range", f"bytes {a}-{b}/{len(data)}")
        self.send_header("Content-Length", str(b + 1 - a))
        self.end_headers()
        self.wfile.write(data[a:b + 1])
    def log_message(self, *words): pass
FILE = sorted("data/demo/" + f for f in os.listdir("data/demo") if f.endswith(".parquet"))[0]
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1] + "/tls.crt", sys.argv[1] + "/tls.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
print("port", server.server_port, flush=True)
server.serve_forever()
END
    peers="$peers $!"
    wait_for port "$work/server"
    shard=https://localhost:$(sed -n 's/^port //p' "$work/server")/shard.parquet
    export SSL_CERT_FILE="$work/tls.crt"
    POTLUCK_TOKEN=mine train "$work/h" --run web --config $tiny --steps 100000 --target-batch 16 --data "$shard"
    check "our own data are asked for with our token" grep -q 'asked with Bearer mine' "$work/asked"
    : >"$work/asked"
    prints "its manifest names them" "data        $shard" "$POTLUCK" join "$(address "$work/h")" --show
    POTLUCK_TOKEN=secret "$POTLUCK" join "$(address "$work/h")" --limit 16 --threads 1 --quiet --json --out "$work/w.d" >"$work/w" 2>"$work/w.err" &
    last=$!
    peers="$peers $last"
    check "a newcomer reads them" wait_for '"event":"batch"' "$work/w"
    check "without its token" sh -c "grep -q 'asked with None' '$work/asked' && ! grep -q secret '$work/asked'"
    unset SSL_CERT_FILE
else
    echo "skip data over https: python3 or openssl is not installed"; skipped=$((skipped + 1))
fi
# --- the first step waits for --min-peers

ended() { # process
    for _ in $(seq 600); do kill -0 "$1" 2>/dev/null || return 0; sleep 0.1; done
    return 1
}
# One batch fills the target: without the option the first peer would step alone at once.
train "$work/m" --run pair --config $tiny --steps 100000 --target-batch 2 --batch 2 --lr 0.02 --min-peers 2
sleep 3
check "one peer of two makes no step" sh -c "! grep -q '\"event\":\"epoch\"' '$work/m'"
"$POTLUCK" join "$(address "$work/m")" --limit 128 --threads 1 --batch 2 --matchmaking-time 1 --slow 0.3 --save-every 0 --quiet --json \
    --no-check --min-peers 2 --listen /ip4/127.0.0.1/tcp/0 --out "$work/n.d" >"$work/n" 2>"$work/n.err" &
peers="$peers $!"
check "two do" wait_for '"event":"epoch"' "$work/m"
check "and the first step is of both" sh -c "grep '\"event\":\"epoch\"' '$work/m' | head -n 1 | grep -q '\"peers\":2,'"
train "$work/o" --run single --config $tiny --steps 100000 --target-batch 2 --batch 2 --lr 0.02 --min-peers 2
single=${peers##* }
sleep 2
kill -INT "$single"
check "Ctrl-C ends the wait" ended "$single"
check "with a checkpoint" sh -c "ls '$work/o.d' | grep -q checkpoint"
finish
