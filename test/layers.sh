#!/bin/sh
# layers.sh - the arrows between rooms hold.
# An arrow points at what may be included: ref -> nothing; runtime, fast, cuda -> ref;
# data -> runtime, ref; net -> data, runtime, ref; cmd and test -> everything; nobody -> test
# (but the program, which carries `conform`).
cd "$(dirname "$0")/.." || exit 1
bad=0

check() { # room, what it may include
    [ -d "$1" ] || return 0
    for f in $(find "$1" -name '*.[ch]' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh'); do
        for i in $(sed -n 's/^ *# *include *"\([^"]*\)".*/\1/p' "$f"); do
            dir=$(dirname "$f")
            if [ -e "$dir/$i" ]; then target=$(realpath -m --relative-to=. "$dir/$i"); else target=$i; fi
            room=${target%%/*}
            case " $1 $2 " in
            *" $room "*) ;;
            *) case $room in *.pb-c.h|*.h) ;; *) echo "$f includes $i: $1 may not look into $room"; bad=1 ;; esac ;;
            esac
        done
    done
}
check ref ""
check runtime "ref"
check fast "ref"
check cuda "ref"
check data "ref runtime"
check net "ref runtime data"

# Somebody looks at the status of every call of CUDA's and cuBLAS', or (void) says that nobody does;
# cudaGetLastError is there to be forgotten. Kernels are started through one macro.
for f in cuda/*.cu cuda/*.cuh; do
    awk -v f="$f" '{ line = $0; sub(/\/\*.*\*\/ *$/, "", line) }
        line ~ /^ *(if \([a-z]+\) )?(cuda|cublas)[A-Z][A-Za-z0-9]*\(/ && line !~ /cudaGetLastError\(\);/ &&
            before ~ /[;{}:]$|^$|\)$/ && before !~ /[(,]$/ { print f ": the status of " $0 " is lost"; bad = 1 }
        line ~ /<<</ && f !~ /launch.cuh$/ { print f ": starts a kernel by itself: " $0; bad = 1 }
        { sub(/ *$/, "", line); if (line != "") before = line } END { exit bad }' "$f" || bad=1
done

exit $bad
