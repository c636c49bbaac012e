#!/bin/sh
# run.sh - every test; the last line counts them all.
#
# Two lanes. In front goes, mostly one after the other, what has peers and clocks: it mostly waits. Behind it, on the
# processors that are left, goes what only computes: goldens, pairs, fuzzers, notebooks. Each suite has a log of its own, and
# what it has to say is printed in one piece and in one order, with the time that it took.
#
# A suite with peers and clocks that fails is played once more: a machine that stands still for seconds makes real
# peers give up, too. What the first play had to say is printed all the same, and named at the end.
BUILD=${BUILD:-build}
JOBS=${JOBS:-$(nproc 2>/dev/null || echo 2)}
# A thread that waits must not take the processor that another suite could use.
OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
export OMP_WAIT_POLICY
passed=0 failed=0 skipped=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

count() { # passed failed skipped
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

skip() { # what, why
    echo "skip $1: $2"
    count 0 0 1
}

say() { echo; echo "== $1"; }

# --- kinds of suites: each runs in a shell of its own, in which $log is its file

# Failures with what follows each of them, and skips.
said() {
    awk '/^(ok|FAIL|skip|[0-9]+ passed, )/ { left = /^FAIL/ ? 25 : /^skip/ } left-- > 0' "$log"
}

# A suite that ends with "N passed, N failed, N skipped". Only failures and skips are shown.
counted() { # title command...
    say "$1"; shift
    "$@" >"$log" 2>&1
    rc=$?
    said
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    if [ -z "$line" ]; then
        tail -n 20 "$log"
        echo "FAIL $*: exit status $rc and no closing count"
        count 0 1 0
        return
    fi
    took
    echo "$line$took"
    set -- $(echo "$line" | tr -dc '0-9 ')
    count "$1" "$2" "${3:-0}"
    [ "$2" -ne 0 ] && { echo "-- its last lines"; tail -n 15 "$log"; }
    [ "$rc" -ne 0 ] && [ "$2" -eq 0 ] && { tail -n 5 "$log"; echo "FAIL exit status $rc"; count 0 1 0; }
}

# One test that speaks by its exit status.
single() { # title command...
    title=$1; shift
    if "$@" >"$log" 2>&1; then
        took
        echo "ok   $title$took"
        count 1 0 0
    else
        tail -n 25 "$log"
        echo "FAIL $title"
        count 0 1 0
    fi
}

# Every operation of a backend beside the reference's.
pairs() { # backend options...
    say "pairs: $1 beside ref"
    "$BUILD/potluck" conform --backend "$@" >"$log" 2>&1
    rc=$?
    good=$(grep -c '^ok' "$log") bad=$(grep -c '^FAIL' "$log")
    grep '^FAIL' "$log"
    took
    echo "$(tail -n 1 "$log")$took"
    [ $rc -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    count "$good" "$bad" 0
}

# A program of cmocka's.
unit() { # program
    timeout -k 10 900 "$1" >"$log" 2>&1 # one that hangs is told by name
    rc=$?
    good=$(grep -c '^\[       OK' "$log") bad=$(grep -c '^\[  FAILED  \] [a-z_0-9]*$' "$log")
    none=$(grep -c '^\[  SKIPPED \]' "$log")
    [ $rc -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    [ $rc -ne 0 ] && { grep -aE '^(ERROR: |\[  ERROR   \]|\[   LINE   \])' "$log"; tail -n 25 "$log"; }
    took
    echo "$([ "$bad" -eq 0 ] && echo 'ok  ' || echo FAIL) $(basename "$1"): $good passed, $bad failed$took"
    count "$good" "$bad" "$none"
}

# --- the lanes

# $took: how long this suite has taken, where that is more than a moment; and how much of it was computing. Not in a
# shell of its own, which would have no children to count.
took() {
    times >"$log.times"
    took=$(awk -v s=$(($(date +%s) - begun)) 'NR == 2 {
        split($1 "m" $2, t, "[ms]+"); cpu = 60 * t[1] + t[2] + 60 * t[3] + t[4]
        if (s >= 2 || cpu >= 2) printf "   (%d s, %d s of a processor)", s, cpu }' "$log.times")
}

play() { # kind arguments...
    passed=0 failed=0 skipped=0 begun=$(date +%s)
    "$@" 2>&1
}

suite() { # name kind arguments...
    name=$1; shift
    log=$work/$name.log
    play "$@" >"$work/$name.out"
    if [ "$failed" -ne 0 ] && [ "${name%.*}" = front ]; then
        sed 's/^FAIL/failed at first:/' "$work/$name.out" >"$work/$name.first"
        { cat "$work/$name.first"; echo "-- once more"; } >"$work/$name.out"
        play "$@" >>"$work/$name.out"
        [ "$failed" -eq 0 ] && grep '^failed at first:' "$work/$name.first" >>"$work/twice"
    fi
    echo "$passed $failed $skipped" >"$work/$name.part" && mv "$work/$name.part" "$work/$name.count"
}

front_n=0
front() { # kind arguments...
    front_n=$((front_n + 1))
    (suite front.$front_n "$@")
}

# In front, too, but beside what follows there, until the shell waits for it: what hardly computes.
beside() { # kind arguments...
    front_n=$((front_n + 1))
    (suite front.$front_n "$@") &
}

# Behind: as many at a time as there are lines in a pipe; the lane in front gives it its own when it is done.
mkfifo "$work/slots" && exec 9<>"$work/slots" || exit 1
i=1
while [ $i -lt "$JOBS" ] || [ $i -eq 1 ]; do echo >&9; i=$((i + 1)); done
behind_n=0
behind() { # kind arguments...
    read -r slot <&9
    behind_n=$((behind_n + 1))
    (suite behind.$behind_n "$@" 9>&-; echo >&9) &
    show behind
}

# Prints what is there of a lane, in its order, and counts it.
behind_shown=0 front_shown=0
show() { # lane
    eval "k=\$${1}_shown"
    while [ -f "$work/$1.$((k + 1)).count" ]; do
        k=$((k + 1))
        cat "$work/$1.$k.out"
        read -r a b c <"$work/$1.$k.count"
        count "$a" "$b" "$c"
    done
    eval "${1}_shown=$k"
}

# --- what is run

# Scripts without peers and clocks, which go behind.
computes() { # name
    case $1 in
    architectures | bench | calc | conform | finetune | gpu_memory | hostile | manual | models | opencl | package) ;;
    other_files | parquet | torch_files) ;;
    *) return 1 ;;
    esac
}

programs() { # lane, wanted: 0 those that compute, 1 the others
    for t in test/program/*.sh; do
        name=$(basename "$t" .sh)
        computes "$name"
        [ $? -eq "$2" ] && "$1" counted "$name" env POTLUCK="$BUILD/potluck" sh "$t"
    done
}

other_peoples() { # the same beside other people's programs
    for name in $(sh test/interop/run.sh --list); do
        computes "$name"
        [ $? -eq "$2" ] && "$1" counted "$name" sh test/interop/run.sh "$name"
    done
}

peers_and_clocks() {
    front say "unit tests"
    for t in "$BUILD"/test/*; do
        [ -x "$t" ] || continue
        case $(basename "$t") in # these wait for peers that are silent, slow or late
        abuse | attacks | averager | host_strangers | http_source) beside unit "$t" ;;
        *) front unit "$t" ;;
        esac
    done
    wait

    front say "programs"
    programs front 1

    front say "attacks on a living peer"
    if python3 -c 'import cryptography' 2>/dev/null; then
        for t in test/attack/attack_*.py; do
            name=$(basename "$t" .py)
            front counted "$name" env POTLUCK="$BUILD/potluck" python3 "$t"
        done
    else
        front skip attacks "no python3-cryptography found"
    fi

    front say "swarms that come and go"
    if command -v python3 >/dev/null; then
        front counted "churn" env SOAK_S="${SOAK_S:-120}" SOAK_PEERS="${SOAK_PEERS:-8}" SOAK_DELAYS="${SOAK_DELAYS:-none}" \
            python3 test/soak/soak.py "$BUILD/potluck"
        front counted "links between network namespaces" python3 test/soak/links_test.py "$BUILD/links"
        front counted "network namespaces" python3 test/soak/namespaces.py "$BUILD/potluck"
    else
        front skip soak "no python3 found"
    fi

    front say "beside other people's programs"
    other_peoples front 1
}

fuzz() { # program: after it was built
    while [ ! -f "$work/fuzzers" ]; do sleep 1; done
    n=$(basename "$1" .c)
    [ -x "$BUILD/fuzz/$n" ] || return
    case $n in # so many inputs, not so many seconds: a fast machine tries what a slow one does
    key_file) runs=1000 ;; # RSA takes ten
    authority | averaging | bpe | noise_payload | upload) runs=2000 ;; # these take a millisecond or more each
    *) runs=20000 ;;
    esac
    mkdir "$log.new"
    single "fuzz $n" "$BUILD/fuzz/$n" -seed=1 -runs=$runs -max_total_time=60 -rss_limit_mb=1024 -timeout=60 \
        "$log.new" "test/fuzz/corpus/$n"
    rm -rf "$log.new"
}

build_fuzzers() {
    make --no-print-directory fuzz >"$log" 2>&1 || { tail -n 15 "$log"; echo "FAIL fuzzers do not build"; count 0 1 0; }
    : >"$work/fuzzers"
}

computing() {
    behind say "layers: includes against the arrows, prefixes"
    behind single layers sh test/layers.sh
    behind single "references in comments lead to headings" sh test/tags.sh
    if command -v "${CLANG:-clang}" >/dev/null; then
        behind build_fuzzers
    fi

    for backend in ref fast; do
        for area in test/golden/*/; do
            behind counted "golden $(basename "$area") with $backend" "$BUILD/potluck" conform --golden "$area" --backend $backend
        done
    done
    if command -v python3 >/dev/null; then
        behind counted "golden values that are wrong" python3 test/program/corrupt.py "$BUILD/potluck"
    else
        behind skip "golden values that are wrong" "no python3 found"
    fi
    behind pairs fast

    # CUDA's kernels on an emulated device: everything that they compute, at all but the large shapes. What
    # lies on streams is done as late as it may be, and blocks and threads take their turns in other orders
    # than the rising one: what is right then is right in any.
    if [ -f "$BUILD/libpl_cuda_on_cpu.so" ]; then
        behind counted "the emulated device: finds what it should" "$BUILD/cuda_on_cpu_check"
        for run in dalle:late:0 vqgan:late:1 quant:early:2 optim:early:3 aggregate:7:4 gpt2:late:5; do
            area=${run%%:*} how=${run#*:}
            behind counted "golden $area with cuda-on-cpu, $how" env CUDA_ON_CPU_STREAMS="${how%:*}" CUDA_ON_CPU_ORDER="${how#*:}" \
                "$BUILD/potluck" conform --golden "test/golden/$area" --backend cuda-on-cpu
        done
        export CUDA_ON_CPU_ORDER=7
        behind pairs cuda-on-cpu --quick
        unset CUDA_ON_CPU_ORDER
    else
        behind skip cuda-on-cpu "not built: no C++ compiler"
    fi

    # What a stranger's backend begins with.
    behind pairs "$BUILD/skeleton_host.so" --quick
    behind pairs "$BUILD/skeleton_device.so" --quick --filter norm
    behind counted "golden dalle with the device skeleton" "$BUILD/potluck" conform --golden test/golden/dalle \
        --backend "$BUILD/skeleton_device.so"

    behind say "fuzzers, briefly"
    if command -v "${CLANG:-clang}" >/dev/null; then
        for t in test/fuzz/*.c; do
            behind fuzz "$t"
        done
    else
        behind skip fuzzers "no clang found"
    fi

    behind say "programs, and files of other people's programs"
    programs behind 0
    other_peoples behind 0

    behind say "from Python"
    behind counted "the Python module" sh notebooks/run.sh module
    behind counted "notebooks" sh notebooks/run.sh
}

begin=$(date +%s)
(peers_and_clocks 9>&-; : >"$work/front.done"; echo >&9) &
computing
while [ $behind_shown -lt $behind_n ]; do sleep 0.2; show behind; done
while [ ! -f "$work/front.done" ]; do show front; sleep 0.2; done
show front
echo
t=$(($(date +%s) - begin))
echo "$((t / 60)) min $((t % 60)) s"
[ -f "$work/twice" ] && { echo "what passed when it was played once more:"; sed 's/^failed at first:/  /' "$work/twice" | sort -u; }
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
