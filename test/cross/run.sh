#!/bin/sh
# run.sh - builds for ARCH=arm64|riscv64|s390x, or runs on that processor itself, and plays what shows
# a processor's own mistakes: golden values of formats, wire and optimizers, byte for byte; pairs of
# the vector kernels; units; one average with a peer of this machine. Programs run under qemu-user.
# PART=quick leaves out all but a minute; PART=average is the average alone.
cd "$(dirname "$0")/../.." || exit 1
. test/cross/arch.inc
. test/program/lib.inc
case ${PART:-all} in
quick) goldens="wire quant" pairs="rotary" units="compress torch" ;;
average) goldens="" pairs="" units="" ;;
*)
    goldens="wire protocol quant aggregate optim outer tokenizer calculator"
    pairs="rotary adam e3m0 attention_step geglu float16"
    units="torch safetensors parquet msgpack multiaddr compress quant ties average robust rpc_stream host gemm gemm_bf16 gemm_bf16_cpu"
    ;;
esac

# riscv64 has no instructions for bfloat16 here, and its emulation is the slowest: arm64 and s390x play
# these two, which take four minutes of its ten.
[ "$ARCH" = riscv64 ] && units=$(printf '%s' "$units" | sed 's/ gemm_bf16 gemm_bf16_cpu//')

if [ -n "$qemu" ]; then
    built=${BUILD:-build}/cross/$ARCH
    need="gcc-$triple qemu-user protobuf-c-compiler pkg-config $more_tools"
    sh debian/missing.sh $need || exit 1
    root=$(sh test/cross/sysroot.sh) || exit 1
    export QEMU_LD_PREFIX="$root" QEMU_CPU="$cpu"
    make="sh test/cross/make.sh"
else
    built=${BUILD:-build} make=make
fi
programs="$built/potluck $built/libpl_fast.so"
for unit in $units; do programs="$programs $built/test/$unit"; done
# shellcheck disable=SC2086
check "$ARCH: the program, its backend and its tests are built" $make --no-print-directory -s -j"$(nproc)" $programs
[ $failed -eq 0 ] || { finish; exit; }
export OMP_NUM_THREADS=2
emulated="$qemu $built/potluck"

# --- golden values and pairs

counted() { # what, command...
    what=$1; shift
    "$@" >"$work/log" 2>&1
    last=$(tail -n 1 "$work/log")
    case $last in *" 0 failed"*) ok "$ARCH: $what: $last" ;; *) fail "$ARCH: $what: $last"; grep '^FAIL' "$work/log" | head -n 5 ;; esac
}
for area in $goldens; do
    # shellcheck disable=SC2086
    counted "golden $area" $emulated conform --golden test/golden/$area --backend ref
done
# riscv64: qemu before 8.1 does not say that it has vectors
levels="best plain"
[ "$ARCH" = riscv64 ] && levels="rvv plain"
for level in $levels; do
    [ $level = best ] && unset PL_FAST_ISA || export PL_FAST_ISA=$level
    echo "     $($emulated --version | sed -n 's/^backend //p')"
    for pair in $pairs; do
        # shellcheck disable=SC2086
        counted "pairs of $pair, $level" $emulated conform --quick --backend fast --filter "$pair"
    done
    [ "${PART:-all}" = all ] || break
done
[ "$ARCH" = riscv64 ] && export PL_FAST_ISA=rvv || unset PL_FAST_ISA

for unit in $units; do
    # shellcheck disable=SC2086
    check "$ARCH: unit $unit" $qemu "$built/test/$unit"
done

# The program as one file: no libraries of that processor are needed to run it.
if [ "${PART:-all}" = all ] && [ "$ARCH" = arm64 ]; then
    # shellcheck disable=SC2086
    check "$ARCH: the static program is built" $make --no-print-directory -s -j"$(nproc)" static
    # shellcheck disable=SC2086
    counted "golden quant, static program" env -u QEMU_LD_PREFIX $qemu "$built/static/potluck" conform --golden test/golden/quant --backend fast
fi

# The wheel: pip unpacks it, and that processor's Python uses it.
if [ "${PART:-all}" = all ] && [ "$ARCH" = arm64 ] && [ -n "$qemu" ]; then
    counted "the wheel" env -u PL_FAST_ISA ARCH=$ARCH POTLUCK="${BUILD:-build}/potluck" sh test/program/wheel.sh
fi

# --- a peer of this machine and an emulated one average a file of tensors

native=${BUILD:-build}/potluck
skip() { echo "skip $1"; skipped=$((skipped + 1)); }
average="an average with a peer of this machine"
if [ "${PART:-all}" = quick ] || [ -z "$qemu" ]; then finish; exit; fi
if [ ! -x "$native" ]; then skip "$ARCH: $average: $native is not built"; finish; exit; fi
command -v python3 >/dev/null || { skip "$ARCH: $average: no python3"; finish; exit; }
python3 test/cross/mean.py make data/demo/codec.safetensors "$work/minus.safetensors"

average() { # tensors, out, weight, an option, program...
    tensors=$1 out=$2 weight=$3 more=$4; shift 4
    # shellcheck disable=SC2086
    "$@" average $more --prefix cross --no-check --compression float16 --tensors "$tensors" --weight "$weight" --out "$out" \
        --listen /ip4/127.0.0.1/tcp/0 --expect 2 --matchmaking-time 30 --chunk-timeout 60 --allreduce-timeout 120 --timeout 200 --json
}
meet() {
    rm -f "$work"/[ab].safetensors
    average data/demo/codec.safetensors "$work/a.safetensors" 1 "" "$native" >"$work/a.log" 2>&1 &
    first=$!
    for _ in $(seq 100); do grep -q multiaddr "$work/a.log" && break; sleep 0.2; done
    join=$(sed -n 's/.*"multiaddr":"\([^"]*\)".*/\1/p' "$work/a.log" | head -n 1)
    # shellcheck disable=SC2086
    average "$work/minus.safetensors" "$work/b.safetensors" 3 "--join $join" $emulated >"$work/log" 2>&1
    status=$?
    [ $status -eq 0 ] || kill $first 2>/dev/null
    wait $first && [ $status -eq 0 ] &&
        python3 test/cross/mean.py check data/demo/codec.safetensors "$work/a.safetensors" "$work/b.safetensors" >>"$work/log"
}
if again meet; then ok "$ARCH: $average: $(tail -n 1 "$work/log")"; else fail "$ARCH: $average"; tail -n 5 "$work/log" "$work/a.log"; fi
finish
