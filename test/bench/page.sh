#!/bin/sh
# page.sh - the page at its limits: page.sh BUILD. 10,000 peers and a month of history, opened by
# Chromium; 1,000 watchers (wrk) on the page that a training peer serves with --dash. What is
# missing is left out.
BUILD=${1:-build}
watchers=${WATCHERS:-1000} seconds=${SECONDS_EACH:-10} rounds=${ROUNDS:-12}
work=$(mktemp -d) || exit 1
trap 'kill $pids 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT
pids=
ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; } # of processor time
ulimit -n 8192 2>/dev/null

echo "== 10,000 peers, all with new records every 10 s, and 30 days of history"
"$BUILD/bench/page" 10000 30 >"$work/page" 2>&1 &
page=$! pids=$!
until grep -q port "$work/page"; do sleep 0.2; done
port=$(sed -n 's/^port \([0-9]*\).*/\1/p' "$work/page" | head -n 1)
if command -v chromedriver >/dev/null; then python3 test/bench/page_open.py "http://127.0.0.1:$port/"; fi
if command -v wrk >/dev/null; then
    wrk -t2 -c"$watchers" -d25 "http://127.0.0.1:$port/api/events" >"$work/wrk" 2>&1 &
    sleep 3; before=$(ticks $page); sleep 20; after=$(ticks $page)
    wait $!
    grep -E 'Transfer|errors' "$work/wrk"
    echo "with $watchers watchers it takes $(awk "BEGIN { print ($after - $before) / 20 }") % of a processor, updates included"
    for feed in peers history board; do # an open page asks for what has changed: mostly peers, every update
        before=$(ticks $page)
        wrk -t1 -c50 -d6 -H 'Accept-Encoding: gzip' "http://127.0.0.1:$port/api/$feed.json" >"$work/wrk" 2>&1
        after=$(ticks $page) requests=$(sed -n 's/^ *\([0-9]*\) requests in.*/\1/p' "$work/wrk")
        echo "$feed.json: $(awk "BEGIN { printf \"%.0f\", 1e4 * ($after - $before) / $requests }") us of a processor a request," \
            "$(curl -s -H 'Accept-Encoding: gzip' "http://127.0.0.1:$port/api/$feed.json" | wc -c) bytes packed," \
            "$(curl -s "http://127.0.0.1:$port/api/$feed.json" | wc -c) as they are"
    done
fi
tail -n 1 "$work/page"
kill $page; wait $page 2>/dev/null

echo "== a training peer that serves its page, with and without $watchers watchers"
if ! command -v wrk >/dev/null; then echo "wrk is not installed: no watchers"
elif ! command -v python3 >/dev/null; then echo "python3 is not installed: no watchers"
else python3 test/bench/watchers.py "$BUILD/potluck" "$watchers" "$rounds" "$seconds"; fi
