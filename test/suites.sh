#!/bin/sh
# suites.sh - the table of suites that run.sh plays. A row says: queue, kind, name, command.
#
# queue  peers   measures seconds, or waits for programs that are slow to start: one suite at a time
#        idle    waits for silent, slow or dying peers and hardly computes: several at a time, while
#                the others run
#        cpu     computes, without a clock: as many at a time as there are processors left
#        Suites of "peers" and "idle" end by time-outs, so run.sh plays one that fails once more;
#        never one of "cpu".
# kind   counted  ends with "N passed, N failed, N skipped"
#        exit     one test, which speaks by its exit status
#        pairs    `potluck conform`: one "ok" or "FAIL" line for each case
#        cmocka   a unit test program
#        fuzz     a fuzzer with its corpus
#        skip     not run; the command is the reason
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}

suite() { printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4"; }
have() { command -v "$1" >/dev/null; }

# Of program tests, attacks and interop scripts.
queue_of() { # name
    case $1 in
    architectures | bench | calc | conform | demo_replay | exit_status | finetune | gpu_memory | hostile | lab | manual | models | opencl | options | outputs | package | service | wheel) echo cpu ;;
    authority | btard | moderated | conform_peer | gathered | halves | join | killed | peer_auxiliary | peer_save | stream | swarm) echo idle ;;
    attack_declarations | attack_moderated | attack_state) echo idle ;;
    *) echo peers ;;
    esac
}

unit_source() { ls test/unit/*/"$1".c test/unit/*/*/"$1".c 2>/dev/null; }

# A unit test whose own text opens a loop, sleeps or reads a clock has time-outs; any other one
# computes.
unit_queue() { # name
    case $1 in
    abuse | attacks | averager* | training | training_* | optimizer_delay | optimizer_gather | dht_join | dht_join_clock | host_strangers | http_source | membership) echo idle && return ;;
    esac
    sources=$(unit_source "$1")
    helpers=
    for header in $(sed -n 's/^#include "\([a-z_0-9/]*\.h\)".*/\1/p' "$sources"); do
        case $header in test/*) ;; *) header=$(dirname "$sources")/$header ;; esac
        [ -f "$header" ] && helpers="$helpers $header"
    done
    # shellcheck disable=SC2086
    if grep -qE 'loop_open|nanosleep|pl_seconds|clock_gettime|pthread_create|fork\(' $sources $helpers; then echo peers; else echo cpu; fi
}

# --- what the code must look like
suite cpu exit "includes follow the layers" "sh test/layers.sh"
suite cpu exit "calls within net/ go one way" "sh test/circles.sh"
suite cpu exit "references in comments lead to headings" "sh test/tags.sh"
suite cpu exit "private words stay away" "sh test/words.sh"
suite cpu exit "the table of tests names those that exist" "sh test/components.sh"
suite cpu exit "every field of a stranger has a bound and a test" "sh test/claims.sh"
if have python3; then
    suite cpu counted "figures in texts are those of their sources" "python3 test/figures.py $BUILD/potluck"
else
    suite cpu skip "figures in texts are those of their sources" "no python3 found"
fi
if have node; then
    suite cpu counted "the page's QR codes" "node test/page/qr.js"
else
    suite cpu skip "the page's QR codes" "no node found"
fi
suite cpu exit "libraries export their prefixes and nothing else" "sh test/symbols.sh"

if have clang-format && clang-format --version | grep -q 'version 14\.'; then
    suite cpu exit "the code is as .clang-format says" "sh test/format.sh"
else
    suite cpu skip "the code is as .clang-format says" "no clang-format 14 found"
fi

# --- fuzzers are compiled first and run last
if have "${CLANG:-clang}"; then
    suite cpu exit "fuzzers compile" "make --no-print-directory -s fuzz && : >\$work/fuzzers"
else
    suite cpu skip "fuzzers" "no clang found"
fi

# --- golden values
for backend in ref fast; do
    for area in test/golden/*/; do
        area=$(basename "$area")
        suite cpu counted "golden $area with $backend" "$BUILD/potluck conform --golden test/golden/$area --backend $backend"
    done
done
if have python3; then
    suite cpu counted "golden values that are wrong" "python3 test/program/corrupt.py $BUILD/potluck"
else
    suite cpu skip "golden values that are wrong" "no python3 found"
fi
suite cpu pairs "pairs of fast" "$BUILD/potluck conform --backend fast"
# The CPU's best vector instructions hide the code for lesser CPUs, so that is played, too.
case $(uname -m) in x86_64) lesser="plain avx2" ;; *) lesser=plain ;; esac
for isa in $lesser; do
    suite cpu counted "golden values with fast, $isa" "PL_FAST_ISA=$isa $BUILD/potluck conform --golden test/golden --backend fast"
    suite cpu pairs "pairs of fast, $isa" "PL_FAST_ISA=$isa $BUILD/potluck conform --backend fast --quick"
done

# --- where all backends can be built (.ci/run), one that is absent is a failure and not a skip
for backend in ${BACKENDS_EXPECTED:-}; do
    suite cpu exit "backend $backend was built" "[ -f $BUILD/libpl_$backend.so ]"
done

# --- CUDA's kernels on an emulated device: everything that they compute, at all but the large
# shapes. Work on streams is done as late as it may be, and blocks and threads take their turns in
# other orders than the rising one: what is right then is right in any order.
if [ -f "$BUILD/libpl_cuda_on_cpu.so" ]; then
    suite cpu counted "the emulated device finds what it should" "$BUILD/cuda_on_cpu_check"
    for run in dalle:late:0 vqgan:late:1 quant:early:2 optim:early:3 aggregate:7:4 gpt2:late:5 outer:late:6; do
        area=${run%%:*} how=${run#*:}
        suite cpu counted "golden $area with cuda-on-cpu, $how" "CUDA_ON_CPU_STREAMS=${how%:*} CUDA_ON_CPU_ORDER=${how#*:} \
            $BUILD/potluck conform --golden test/golden/$area --backend cuda-on-cpu"
    done
    suite cpu pairs "pairs of cuda-on-cpu" "CUDA_ON_CPU_ORDER=7 $BUILD/potluck conform --backend cuda-on-cpu --quick"
else
    suite cpu skip cuda-on-cpu "not built: no C++ compiler"
fi

# --- what a stranger's backend begins with
suite cpu pairs "pairs of the host skeleton" "$BUILD/potluck conform --backend $BUILD/skeleton_host.so --quick"
suite cpu pairs "pairs of the device skeleton" "$BUILD/potluck conform --backend $BUILD/skeleton_device.so --quick --filter norm"
suite cpu counted "golden dalle with the device skeleton" \
    "$BUILD/potluck conform --golden test/golden/dalle --backend $BUILD/skeleton_device.so"

# --- unit tests
for t in "$BUILD"/test/*; do
    [ -x "$t" ] && [ -n "$(unit_source "$(basename "$t")")" ] || continue # of a test that went away
    suite "$(unit_queue "$(basename "$t")")" cmocka "unit $(basename "$t")" "timeout -k 10 900 $t"
done

# --- programs
for t in test/program/*.sh; do
    name=$(basename "$t" .sh)
    suite "$(queue_of "$name")" counted "$name" "POTLUCK=$BUILD/potluck sh $t"
done

# --- calls that fail: a sample; `make fault-injection` plays all
if [ -f "$BUILD/faults/inject.so" ] && have python3; then
    suite cpu counted "calls that fail" "python3 test/faults/inject.py $BUILD/potluck $BUILD/faults/inject.so --set alone --runs 6"
    suite idle counted "calls that fail, of commands that talk to others" \
        "python3 test/faults/inject.py $BUILD/potluck $BUILD/faults/inject.so --set talking --runs 4"
    suite cpu counted "power cuts" "python3 test/faults/crash.py $BUILD/potluck $BUILD/faults/journal.so $BUILD/faults/store"
else
    suite cpu skip "calls that fail, power cuts" "no python3 found, or test/faults not built"
fi

# --- attacks on a living peer
if python3 -c 'import cryptography' 2>/dev/null; then
    for t in test/attack/attack_*.py; do
        suite "$(queue_of "$(basename "$t" .py)")" counted "$(basename "$t" .py)" "POTLUCK=$BUILD/potluck python3 $t"
    done
else
    suite peers skip attacks "no python3-cryptography found"
fi

# --- swarms that come and go
if have python3; then
    suite idle counted churn "SOAK_S=${SOAK_S:-120} SOAK_PEERS=${SOAK_PEERS:-8} SOAK_DELAYS=${SOAK_DELAYS:-none} \
        python3 test/soak/soak.py $BUILD/potluck"
    suite peers counted "links between network namespaces" "python3 test/soak/links_test.py $BUILD/links"
    suite idle counted "network namespaces" "python3 test/soak/namespaces.py $BUILD/potluck"
    suite idle counted "ports that routers forward" "python3 test/nat/mapping.py $BUILD"
    suite idle counted "a swarm behind seven kinds of routers" "python3 test/nat/swarm.py $BUILD/potluck"
    suite peers counted "peers behind routers" "python3 test/nat/pairs.py $BUILD --pair port port"
    suite peers counted "peers behind IPv6 firewalls, and behind one router" "python3 test/nat/pairs.py $BUILD --more"
else
    suite peers skip churn "no python3 found"
fi

# --- whole swarms in one process, from seeds: two minutes of them
suite cpu exit "swarms from seeds, under faults" "$BUILD/simulate_faults --seeds 100000 --seconds ${SIMULATE_S:-120}"

# --- with other programs
for name in $(sh test/interop/run.sh --list); do
    case $name in
    averager | trainer) # their scenarios mostly wait for Python to start and for groups to form
        for part in 1 2; do
            suite idle counted "interop $name, part $part of 2" "INTEROP_PART=$part/2 sh test/interop/run.sh $name"
        done
        continue
        ;;
    book | other_files | parquet | torch_files) queue=cpu ;;
    conform_peer | dalle | diloco | leftovers) queue=idle ;; # each of their limits is minutes
    *) queue=peers ;;
    esac
    suite $queue counted "interop $name" "sh test/interop/run.sh $name"
done

# --- from Python
suite cpu counted "the Python module" "sh notebooks/run.sh module"
suite cpu counted notebooks "sh notebooks/run.sh"

# --- fuzzers, briefly: a number of inputs, not of seconds, so that a fast machine tries what a
# slow one does
if have "${CLANG:-clang}"; then
    for t in test/fuzz/*.c; do
        name=$(basename "$t" .c)
        case $name in
        key_file) runs=1000 ;; # RSA takes ten milliseconds
        authority | averaging | bpe | noise_payload | upload) runs=2000 ;; # these take a millisecond or more each
        *) runs=20000 ;;
        esac
        suite cpu fuzz "fuzz $name" "mkdir \$log.new; $BUILD/fuzz/$name -seed=1 -runs=$runs -max_len=4194304 \
            -max_total_time=60 -rss_limit_mb=1024 -timeout=60 \$log.new test/fuzz/corpus/$name; rc=\$?; rm -rf \$log.new; exit \$rc"
        suite cpu fuzz "fuzz $name, 4 MiB" "sh test/fuzz/large.sh $name"
    done
fi
