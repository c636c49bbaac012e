#!/bin/sh
# run.sh [PATTERN] - plays the suites of suites.sh whose names match PATTERN, or all of them; the
# last line counts all tests.
#
# Three queues run at the same time (see suites.sh). Each suite has a log of its own, and its report
# is printed in one piece. A suite that ends by time-outs (queues "peers" and "idle") and fails is
# played once more: a machine that stands still for seconds makes real peers give up, too. The first
# play's failures are still printed, and the last line counts every suite that was played
# twice: more than REPLAYS_MAX fail, for a fault that comes now and then looks like a slow machine. So
# does what a script tries again by itself, or does not judge because the machine stood still: each is
# a line at the end, with its reason, the last line counts them, and more than RETRIES_MAX fail.
cd "$(dirname "$0")/.." || exit 1
export BUILD="${BUILD:-build}" OMP_WAIT_POLICY="${OMP_WAIT_POLICY:-passive}" # a waiting thread leaves its processor to others
JOBS=${JOBS:-$(nproc 2>/dev/null || echo 2)}
REPLAYS_MAX=${REPLAYS_MAX:-5} # of some ninety suites with clocks
RETRIES_MAX=${RETRIES_MAX:-10} # within scripts: calls among peers that end by a time-out
IDLE_WORKERS=3 # each waits most of its time: together they need less than a processor
work=$(mktemp -d) || exit 1
export work RETRIES="$work/retries" # a line for each: suite, what, why
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# --- one suite: its report goes to standard output, its counts into $passed, $failed, $skipped

report_counted() {
    awk '/^(ok|FAIL|skip|[0-9]+ passed, )/ { left = /^FAIL/ ? 25 : /^skip/ } left-- > 0' "$log"
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1 | tr -dc '0-9 ')
    if [ -z "$line" ]; then
        tail -n 20 "$log"
        echo "FAIL $name: exit status $rc and no closing count"
        failed=1
        return
    fi
    read -r passed failed skipped <<END
$line
END
    skipped=${skipped:-0}
    [ "$failed" -ne 0 ] && { echo "-- its last lines"; tail -n 15 "$log"; }
    [ "$rc" -ne 0 ] && [ "$failed" -eq 0 ] && { tail -n 5 "$log"; echo "FAIL $name: exit status $rc"; failed=1; }
}

report_exit() {
    [ "$rc" -eq 0 ] && { passed=1; return; }
    tail -n 25 "$log"
    echo "FAIL $name: exit status $rc"
    failed=1
}

report_pairs() {
    passed=$(grep -c '^ok' "$log") failed=$(grep -c '^FAIL' "$log")
    grep '^FAIL' "$log"
    tail -n 1 "$log"
    [ "$rc" -ne 0 ] && [ "$failed" -eq 0 ] && failed=1
}

report_cmocka() {
    passed=$(grep -c '^\[       OK' "$log") failed=$(grep -c '^\[  FAILED  \] [a-z_0-9]*$' "$log")
    skipped=$(grep -c '^\[  SKIPPED \]' "$log")
    grep '^\[  SKIPPED \]' "$log" | sort -u | sed "s/^\[  SKIPPED \]/skip $name:/"
    [ "$rc" -eq 0 ] && return
    [ "$failed" -eq 0 ] && failed=1
    grep -aE '^(ERROR: |\[  ERROR   \]|\[   LINE   \])' "$log"
    tail -n 25 "$log"
    echo "FAIL $name: exit status $rc"
}

report_fuzz() { report_exit; }

play() {
    passed=0 failed=0 skipped=0 begun=$(date +%s)
    if [ "$kind" = skip ]; then
        echo "skip $name: $command"
        skipped=1
        return
    fi
    [ "$kind" = fuzz ] && until [ -f "$work/fuzzers" ] || [ -f "$work/no_fuzzers" ]; do sleep 1; done
    [ "$kind" = fuzz ] && [ -f "$work/no_fuzzers" ] && return # one failure has reported it
    sh -c "$command" >"$log" 2>&1
    rc=$?
    times >"$log.times" # the children's time, of this shell and its suites
    "report_$kind"
    [ "$name" = "fuzzers compile" ] && [ "$failed" -ne 0 ] && : >"$work/no_fuzzers"
    verdict=ok; [ "$failed" -ne 0 ] && verdict=FAIL
    printf '%-4s %s: %d passed, %d failed%s   (%d s)\n' $verdict "$name" "$passed" "$failed" \
        "$([ "$skipped" -gt 0 ] && echo ", $skipped skipped")" $(($(date +%s) - begun))
}

suite() { # number queue kind name command
    n=$1 queue=$2 kind=$3 name=$4 command=$5
    export log=$work/$n.log SUITE="$name"
    started=$(date +%s)
    play >"$work/$n.out" 2>&1
    if [ "$failed" -ne 0 ] && [ "$queue" != cpu ]; then
        sed 's/^FAIL/failed at first:/' "$work/$n.out" >"$work/$n.first"
        cp "$work/$n.first" "$work/$n.out"
        echo "-- once more" >>"$work/$n.out"
        play >>"$work/$n.out" 2>&1
        echo "$name" >>"$work/replayed"
        [ "$failed" -eq 0 ] && grep '^failed at first:' "$work/$n.first" >>"$work/twice"
    fi
    printf '%5d s  %-5s  %s\n' $(($(date +%s) - started)) "$queue" "$name" >>"$work/seconds"
    echo "$passed $failed $skipped" >"$work/$n.part" && mv "$work/$n.part" "$work/$n.count"
}

# --- the queues

# Takes the queue's rows one after the other; several workers of one queue share its rows.
work_on() { # queue
    tab=$(printf '\t')
    while IFS=$tab read -r n queue kind name command; do
        [ "$queue" = "$1" ] && mkdir "$work/$n.taken" 2>/dev/null || continue
        suite "$n" "$queue" "$kind" "$name" "$command" </dev/null
    done <"$work/rows"
}

sh test/suites.sh | awk -F '\t' -v pattern="${1:-}" '$3 ~ pattern { print ++n "\t" $0 }' >"$work/rows"
rows=$(wc -l <"$work/rows")
[ "$rows" -gt 0 ] || { echo "no suite's name matches '$1'"; exit 2; }
begin=$(date +%s)
{ work_on peers; work_on cpu; } & # a processor of its own, which goes on with what computes
i=0
while [ $i -lt "$IDLE_WORKERS" ]; do work_on idle & i=$((i + 1)); done
i=1
while [ $i -lt "$JOBS" ] || [ $i -eq 1 ]; do work_on cpu & i=$((i + 1)); done

passed=0 failed=0 skipped=0 shown=0
while [ $shown -lt "$rows" ]; do
    for count in "$work"/*.count; do
        [ -f "$count" ] || continue
        n=$(basename "$count" .count)
        cat "$work/$n.out"
        read -r a b c <"$count"
        passed=$((passed + a)) failed=$((failed + b)) skipped=$((skipped + c)) shown=$((shown + 1))
        rm "$count"
    done
    sleep 0.2
done
wait
t=$(($(date +%s) - begin))
echo
echo "$((t / 60)) min $((t % 60)) s; the ten slowest suites and their queues:"
sort -rn "$work/seconds" | head -n 10
replayed=0
[ -f "$work/replayed" ] && replayed=$(wc -l <"$work/replayed")
[ -f "$work/twice" ] && { echo "what passed when it was played once more:"; sed 's/^failed at first:/  /' "$work/twice" | sort -u; }
if [ "$replayed" -gt "$REPLAYS_MAX" ]; then
    echo "FAIL more than $REPLAYS_MAX suites played twice, which a slow machine does not explain:"
    sed 's/^/  /' "$work/replayed"
    failed=$((failed + 1))
fi
retries=0
[ -f "$RETRIES" ] && { retries=$(wc -l <"$RETRIES"); echo "what was tried again within a script, and why:"; sed 's/^/  /' "$RETRIES"; }
if [ "$retries" -gt "$RETRIES_MAX" ]; then
    echo "FAIL more than $RETRIES_MAX tries again, which a slow machine does not explain"
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed, $skipped skipped; $replayed suites played twice, $retries tries again within scripts"
[ "$failed" -eq 0 ]
