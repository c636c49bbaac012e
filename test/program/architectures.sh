# architectures.sh - the GPU architectures that the Makefile compiles for, with several versions of
# nvcc. nvcc's list of them is made up, nothing is compiled. Run from the top of the tree.
. test/program/lib.inc

# lists the compute_ of these as nvcc --list-gpu-arch does; nothing: knows no such option
nvcc_of() {
    mkdir -p "$work/bin"
    {
        echo '#!/bin/sh'
        echo 'case $* in *--list-gpu-arch*) ;; *) exit 1 ;; esac'
        [ -n "$1" ] || echo 'echo "nvcc fatal   : Unknown option" >&2; exit 1'
        for a in $1; do echo "echo compute_$a"; done
    } >"$work/bin/nvcc"
    chmod +x "$work/bin/nvcc"
}
asks() { # words for make: what is reported, then what one file is compiled for
    env -u MAKEFLAGS -u MAKELEVEL PATH="$work/bin:$PATH" make -n cuda BUILD="$work/build" "$@" >"$work/asked" 2>&1
    sed -n 's/^echo "\(CUDA .*\)"$/\1/p' "$work/asked"
    compiled_for vector
}
compiled_for() { # file of the last asks
    grep "obj/cuda/$1.o" "$work/asked" | grep -v shared | grep -o 'code=[a-z0-9_]*' | tr '\n' ' '
}
is() { # what, expected, got
    if [ "$2" = "$3" ]; then ok "$1"; else fail "$1: $3"; fi
}
eleven="35 37 50 52 53 60 61 62 70 72 75 80 86 87 89 90"
twelve="50 52 53 60 61 62 70 72 75 80 86 87 89 90 100 101 103 120 121"
thirteen="75 80 86 87 88 89 90 100 103 110 120 121"
lacks="this nvcc does not know it (12.8 and 12.9 know all)"

nvcc_of "$eleven"
is "nvcc 11.8: the oldest's intermediate form" "code=compute_70 " "$(asks)"
is "and one for the tensor cores" "code=compute_70 code=compute_80 " "$(compiled_for attention_bf16_backward)"
is "nvcc 11.8: all that it knows, and says what it lacks" "CUDA without machine code for sm_100 sm_120: $lacks
code=sm_70 code=sm_75 code=sm_80 code=sm_86 code=sm_89 code=sm_90 code=compute_90 " "$(asks CUDA_ARCH=all)"
nvcc_of "$twelve"
is "nvcc 12.9: one library with all of them" \
    "code=sm_70 code=sm_75 code=sm_80 code=sm_86 code=sm_89 code=sm_90 code=sm_100 code=sm_120 code=compute_120 " \
    "$(asks CUDA_ARCH=all)"
is "numbers: those, and the last one's intermediate form" "code=sm_80 code=sm_90 code=compute_90 " \
    "$(asks CUDA_ARCH="80 90")"
is "and those for the tensor cores" "code=sm_80 code=sm_90 code=compute_90 " "$(compiled_for attention_bf16)"
nvcc_of "$thirteen"
is "nvcc 13.0: no sm_70, but sm_110" "CUDA without machine code for sm_70: $lacks
code=sm_75 code=sm_80 code=sm_86 code=sm_89 code=sm_90 code=sm_100 code=sm_110 code=sm_120 code=compute_120 " \
    "$(asks CUDA_ARCH=all)"
nvcc_of ""
is "an nvcc too old: left out, with the reason" \
    "CUDA left out: nvcc lists no device of sm_70 or later with --list-gpu-arch" "$(asks)"
rm "$work/bin/nvcc"
is "no nvcc" "CUDA left out: no some-nvcc on the PATH" "$(asks NVCC=some-nvcc)"
finish
