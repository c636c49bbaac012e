#!/bin/sh
# stream.sh - training on shards of an unreliable web server, over HTTP and HTTPS. Run from the top
# of the tree.
. test/program/lib.inc
if ! command -v python3 >/dev/null || ! command -v openssl >/dev/null; then
    echo "skip streaming: python3 or openssl is missing"
    skipped=1
    finish
    exit
fi
servers=
trap 'kill $servers 2>/dev/null; rm -rf "$work"' EXIT

serve() { # name, mode, what TLS takes: the port is in $port
    name=$1; shift
    : >"$work/$name.port"
    python3 test/program/web_server.py "$work" "$@" >"$work/$name.port" 2>"$work/$name.log" &
    servers="$servers $!"
    for _ in $(seq 1200); do [ -s "$work/$name.port" ] && break; sleep 0.1; done
    port=$(cat "$work/$name.port")
}
train() { # folder, URL
    timeout 300 "$POTLUCK" train --data "$2" --steps 2 --batch 4 --target-batch 4 --evaluate-every 0 --threads 1 \
        --quiet --out "$work/$1"
}
cp data/demo/*.parquet "$work"
(cd data/demo && ls ./*.parquet) >"$work/list.txt"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test \
    -addext subjectAltName=IP:127.0.0.1 -keyout "$work/key.pem" -out "$work/ca.pem" 2>/dev/null

check "train from the disk" train disk "$work"
serve harsh harsh
gets_on() { # in time: an idle machine takes a few seconds
    rm -rf "$work/harsh"
    began=$(date +%s)
    train harsh "http://127.0.0.1:$port/list.txt" || return 1
    took=$(($(date +%s) - began))
    [ $took -lt 60 ] || { echo "$took s"; return 1; }
}
check "train from a server that cuts, falls silent and is busy, and it gets on" again gets_on
check "the same pairs, in the same order" cmp "$work/disk/checkpoint-000002.safetensors" \
    "$work/harsh/checkpoint-000002.safetensors"
check "train from the folder as the server shows it" train page "http://127.0.0.1:$port/"
check "the same pairs from the page" cmp "$work/disk/checkpoint-000002.safetensors" \
    "$work/page/checkpoint-000002.safetensors"
LC_ALL=C sed 's/41bbb66f/0badc0de/g' data/demo/emoji-00000.parquet >"$work/zz-other.parquet"
refuses_again 1 "shards of two codecs: .* is of codec .*, .* of " train two "http://127.0.0.1:$port/"
rm "$work/zz-other.parquet"
mkdir "$work/empty"
refuses 1 "potluck train: --data: http://127.0.0.1:$port/empty/: a page with no link to a \*.parquet in its folder" \
    train none "http://127.0.0.1:$port/empty/"

serve secure harsh "$work/ca.pem" "$work/key.pem"
check "HTTPS, by the authority that SSL_CERT_FILE names" env SSL_CERT_FILE="$work/ca.pem" timeout 300 "$POTLUCK" train \
    --data "https://127.0.0.1:$port/list.txt" --steps 2 --batch 4 --target-batch 4 --evaluate-every 0 --threads 1 \
    --quiet --out "$work/secure"
check "the same pairs again" cmp "$work/disk/checkpoint-000002.safetensors" \
    "$work/secure/checkpoint-000002.safetensors"
refuses 1 "potluck train: --data: https://127.0.0.1:$port/list.txt: .*certificate" \
    train none "https://127.0.0.1:$port/list.txt"
SSL_CERT_FILE=$work/nowhere.pem refuses 1 "$work/nowhere.pem" train none "https://127.0.0.1:$port/list.txt"
refuses 1 "localhost" env SSL_CERT_FILE="$work/ca.pem" "$POTLUCK" train --quiet --out "$work/none" \
    --data "https://localhost:$port/list.txt"
refuses 1 "https://127.0.0.1:$port/list.txt: .*certificate" \
    "$POTLUCK" upload --quiet --to "https://127.0.0.1:$port/" "$work/list.txt"
check "nothing is left of what did not begin" [ ! -e "$work/none" ]

serve silent silent
timeout -k 5 300 "$POTLUCK" train --data "http://127.0.0.1:$port/list.txt" --steps 2 --batch 4 --target-batch 4 \
    --evaluate-every 0 --threads 1 --quiet --out "$work/silent" >"$work/out" 2>"$work/err" &
training=$!
for _ in $(seq 1200); do grep -q 'silent now' "$work/silent.log" && break; sleep 0.1; done
began=$(date +%s)
kill -TERM $training
wait $training
took=$(($(date +%s) - began))
check "a silent server does not delay a stop: ${took} s" [ $took -lt 40 ] # its silences would be waited for, twelve times up to 20 s
check "and all is saved" [ -f "$work/silent/checkpoint-000000.safetensors" ]

finish
