#!/bin/sh
# exit_status.sh - every command's exit status and its one line, for wrong command lines (2) and for
# files, peers and machines that refuse (1). What is decided by the command line alone is found
# before anything is read, opened or called.
. "$(dirname "$0")/lib.inc"
id=12D3KooWSkvkGQpYmokxqw6g5oz8UUNRDjUwW24iXeXc6gQ5rJ7a
peer=/ip4/127.0.0.1/tcp/1/p2p/$id
mkdir "$work/folder"
echo 'no table, no tensors, no JSON' >"$work/text"

# The status, what the last line on stderr holds, the words. A misuse prints one line; neither leaves
# a file behind.
try() { # status, sentence, words...
    want=$1 sentence=$2; shift 2
    (cd "$work/folder" && timeout 60 "$program" "$@" </dev/null >"$work/out" 2>"$work/err")
    got=$?
    left=$(ls -A "$work/folder")
    if [ "$got" -eq "$want" ] && [ -z "$left" ] && tail -n 1 "$work/err" | grep -qF -- "$sentence" &&
        { [ "$want" -eq 1 ] || [ "$(cat "$work/err" "$work/out" | wc -l)" -eq 1 ]; }; then
        ok "$want: potluck $*"
    else
        fail "potluck $*: status $got, expected $want and '$sentence'; left: $left"
        tail -n 3 "$work/err" "$work/out"
    fi
}
program=$(cd "$(dirname "$POTLUCK")" && pwd)/$(basename "$POTLUCK")
tokenizer=$PWD/$DEMO/t5_2k.model shard=$PWD/$DEMO/emoji-00000.parquet codec=$PWD/$DEMO/codec.safetensors

# --- commands and their words
while IFS='|' read -r status sentence words; do
    case $status in '' | '#'*) continue ;; esac
    # Words are split at spaces; what needs one is tried below.
    # shellcheck disable=SC2086
    eval "try $status '$(echo "$sentence" | sed "s/'/'\\\\''/g")' $words"
done <<END
2|no command 'frob'|frob
2|no command '--frob'|--frob
2|no command 'frob'|help frob
2|unexpected argument 'word'|demo word
2|unexpected argument 'word'|train word
2|give one MULTIADDR|join
2|give one MULTIADDR|join word
2|give one MULTIADDR|join $peer $peer
2|unexpected argument 'word'|new-run word
2|no caption was given|generate
2|--model is needed|tokenize
2|unexpected argument 'word'|tokenize word
2|--data, --codec and --out are needed|prepare
2|one file is needed|show
2|one file is needed|show a b
2|two files are needed|convert a
2|two files are needed|convert a b c
2|both are the same file|convert $work/text $work/text
2|--to or --hub is needed|upload $work/text
2|a file is needed|upload --to http://127.0.0.1:1/
2|--prefix and --tensors are needed|average
2|unexpected argument 'word'|peer word
2|get, put, ping or bench comes first|dht
2|'frob': get, put, ping or bench comes first|dht frob k
2|'gte': did you mean get?|dht gte k
2|get: a key is needed|dht get
2|put: a key and a value are needed|dht put k
2|--join is missing|dht get k
2|unexpected argument 'word'|doctor word
2|are needed|authority
2|train, measure, encode or decode comes first|vqgan frob
2|'trian': did you mean train?|vqgan trian
2|encode: --weights, --data and --out are needed|vqgan encode
2|--run is missing|dash --join $peer
2|unexpected argument 'word'|dash word
2|unexpected argument 'word'|finetune word
2|no model is called 'word'|calc word
2|unexpected argument 'word'|bench word
2|unexpected argument 'word'|conform word
2|'frob': run or compare comes first|lab frob
2|'comapre': did you mean compare?|lab comapre
2|run: one file is needed|lab run

# --- addresses, names and URLs
2|names no peer: it must end in /p2p/PEER-ID|join /ip4/127.0.0.1/tcp/1
2|/p2p/xyz is not a peer ID|join /ip4/127.0.0.1/tcp/1/p2p/xyz
2|/ip4/300.0.0.1 is not an IP address|join /ip4/300.0.0.1/tcp/1/p2p/$id
2|/tcp/99999 is not a port|join /ip4/127.0.0.1/tcp/99999/p2p/$id
2|--maker: expected a peer ID|join $peer --maker me
2|is not an IP address|join /ip4/here/tcp/1 --maker $id
2|give the page's address with https://|join http://example.org/
2|--join: address 'here' does not begin with /|train --run r --join here
2|--join: address '' does not begin with /|train --run r --join=
2|--listen: address 'here' does not begin with /|train --run r --listen here
2|--announce: address 'here' does not begin with /|train --run r --announce here
2|--join: address 'here' does not begin with /|average --join here
2|--join: address 'here' does not begin with /|peer --join here
2|--listen: address: /tcp/99999 is not a port|peer --listen /ip4/0.0.0.0/tcp/99999
2|--join: address 'here' does not begin with /|dht get k --join here
2|--join: address 'here' does not begin with /|doctor --join here
2|--join: address 'here' does not begin with /|dash --run r --join here
2|--peer: address 'here' does not begin with /|conform --peer here
2|--join: no TCP address|peer --join /ip4/127.0.0.1/udp/1/quic-v1
2|give one address for each --join|peer --join $peer,$peer
2|your side: it looks like /ip4/0.0.0.0/tcp/4001|peer --listen 4001
2|no /p2p/ID at its end|conform --peer /ip4/127.0.0.1/tcp/1
2|--address: 'here' is neither an IPv4 nor an IPv6 address|dash --address here
2|--address: '127.0.0.1:80' is neither|authority --address 127.0.0.1:80
2|--coordinator: 'here' is not IP:PORT|authority --coordinator here
2|--coordinator: '127.0.0.1:0' is not IP:PORT|authority --coordinator 127.0.0.1:0
2|--coordinator: '127.0.0.1:9x' is not IP:PORT|authority --coordinator 127.0.0.1:9x
2|--invite: 'two words' is not a name|authority --invite "two words" --allow list
2|--authority: 'here' is not a valid address; your side: give --authority as https://NAME:PORT|train --run r --authority here
2|--to: 'here' is not a URL|upload --to here $work/text
2|--to: 'ftp://x/' is not a URL|upload --to ftp://x/ $work/text
2|--to: 'http:///x' is not a URL|upload --to http:///x $work/text
2|'two words' is not a name of up to 63|new-run --run "two words"
2|'a.b' is not a name of up to 63|new-run --run a.b
2|'' is not a name of up to 63|new-run --run=
2|--run: 'a.b': a run's name has|train --run a.b
2|--run: '': a run's name has|train --run=
2|--run: 'a.b': a run's name has|peer --run a.b
2|--run: 'a.b': a run's name has|dash --run a.b
2|--run: 'a.b': a run's name has|doctor --run a.b
2|--run: 'a.b': a run's name has|conform --peer $peer --run a.b

# --- options that contradict or miss each other
2|need the run's name: --run ID|train --join $peer
2|--client-mode accepts no connections|train --run r --client-mode
2|--client-mode accepts no connections|peer --client-mode
2|--client-mode and --listen exclude each other|doctor --client-mode --listen /ip4/0.0.0.0/tcp/0
2|--save saves a run's state|peer --save dir
2|several files|upload --to http://127.0.0.1:1/x a b
2|--cert and --cert-key go together|authority --key k --allow l --cert c
2|--run and --prefix go with --peer|conform --run a
2|--bench cannot be combined|conform --bench --report page.html
2|ends neither in .json nor in .html|conform --report page.txt
2|ends neither in .json nor in .html|conform --peer $peer --report page.txt
2|there is no terminal to ask on|new-run
2|does not divide|finetune --batch 8 --accumulate 3
2|--greedy samples nothing|generate --greedy --top-k 3 a
2|--size: 'huge' is not one of|finetune --size huge
2|--gpus: 'two' is neither|train --gpus two
2|--gpus: '0' is neither|train --gpus 0
2|--gpus: '65' is neither|train --gpus 65
2|--gpus: '0,,1' is neither|train --gpus 0,,1

# --- files, machines and peers
1|nowhere: No such file|show nowhere
1|folder: not a regular file|show $work/folder
1|text: |show $work/text
1|nowhere: No such file|convert nowhere to.safetensors
1|text: not a safetensors file|convert $work/text to.safetensors
1|nowhere: No such file|train --data nowhere
1|nowhere: No such file|train --manifest nowhere
1|nowhere.json: No such file|train --config nowhere.json --data $shard
1|nowhere: No such file|tokenize --model nowhere
1|nowhere|generate --model nowhere a
1|nowhere: No such file|prepare --data nowhere --codec $codec --out made
1|nowhere: No such file|vqgan encode --weights nowhere --data $shard --out made
1|nowhere: No such file|lab run nowhere
1|nowhere: No such file|finetune --model nowhere
1|nowhere: No such file|upload --to http://127.0.0.1:1/ nowhere
1|nowhere: No such file|average --prefix p --tensors nowhere
1|nowhere: No such file|conform --golden nowhere
1|'nowhere' is not a folder|dash --folder nowhere
1|nowhere|authority --key $work/key --allow nowhere --port 0
1|backend nosuch: not built|train --backend nosuch
1|backend nosuch: not built|bench --backend nosuch
1|backend nosuch: not built|conform --backend nosuch
1|backend ./nosuch.so|train --backend ./nosuch.so
1|backend ref: has no devices to choose from|train --backend ref --gpus 2
1|no case's line contains|conform --filter nosuch
1|no program listens|dht get k --join $peer
1|no program listens|join $peer
END
# The same for a program that reads JSON.
"$POTLUCK" join /ip4/127.0.0.1/tcp/1 --json >"$work/out" 2>/dev/null
check "a wrong address is an event, too" sh -c '[ "$0" -eq 2 ] && grep -q "\"event\": *\"error\"" "$1"' $? "$work/out"

# --- with --json the last line is an event with the sentence of standard error

# What fails is last on standard error and an event on standard output; no other line is one.
event() { # command, words...
    (cd "$work/folder" && timeout 60 "$program" "$@" --json </dev/null >"$work/out" 2>"$work/err")
    got=$?
    sentence=$(tail -n 1 "$work/err" | sed "s/^potluck $1: //; s/[\\\"]/\\\\&/g")
    if [ "$got" -ne 0 ] && [ "$(tail -n 1 "$work/out")" = "{\"event\":\"error\",\"command\":\"$1\",\"text\":\"$sentence\"}" ] &&
        [ "$(grep -c '"error"' "$work/out")" -eq 1 ]; then
        ok "an event: potluck $* --json"
    else
        fail "an event: potluck $* --json: status $got"
        tail -n 3 "$work/err" "$work/out"
    fi
}
event train --backend nosuch
event train --steps 0
event train --tokenizer /nosuch
event train --manifest /nosuch
event join "$peer" --no-check
event join "$peer" --backend nosuch
event peer --identity /nosuch/key
event average --prefix p --tensors /nosuch
event average --prefix p --tensors /nosuch --backend nosuch
event dht get k --join "$peer"
event dht put k v --join "$peer"
event dht bench --join "$peer"
event dht ping --join "$peer"
event dash --folder /nosuch
event dash --allowed-host 'two words'
event dash --database /nosuch/file
event calc nosuch
event authority --key /nosuch/key --allow "$work/text"
event doctor --model nosuch
event show /nosuch
finish
