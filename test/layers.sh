#!/bin/sh
# layers.sh - includes follow the layers. A folder may include itself and what its arrow names:
# ref -> nothing; runtime, fast, cuda -> ref; data -> runtime, ref; net -> data, runtime, ref; cmd
# and test -> everything. No folder includes test, except the program, which has `conform`.
cd "$(dirname "$0")/.." || exit 1
bad=0

check() { # folder, what it may include
    [ -d "$1" ] || return 0
    for f in $(find "$1" -name '*.[ch]' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh'); do
        for i in $(sed -n 's/^ *# *include *"\([^"]*\)".*/\1/p' "$f"); do
            dir=$(dirname "$f")
            if [ -e "$dir/$i" ]; then target=$(realpath -m --relative-to=. "$dir/$i"); else target=$i; fi
            folder=${target%%/*}
            case " $1 $2 " in
            *" $folder "*) ;;
            *) case $folder in *.pb-c.h|*.h) ;; *) echo "$f includes $i: $1 may not include $folder"; bad=1 ;; esac ;;
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

# Within net/: a folder may include itself and those named with it. Folders of libp2p are built in
# this order; the host names none of its protocols, which register with it. HTTP's client side is
# below hivemind, whose members ask an authority for tokens; its servers are above.
net_folder() { # a file's folder
    case $1 in
    net/libp2p/*/*) echo "$1" | cut -d/ -f1-3 ;;
    net/libp2p/*) echo net/libp2p ;;
    net/http/client/* | net/http/libraries.*) echo net/http/client ;;
    net/*/*) echo "$1" | cut -d/ -f1-2 ;;
    net/*) echo net ;;
    esac
}
check_net() { # folder, what it may include
    for f in $(find "$1" -name '*.[ch]'); do
        [ "$(net_folder "$f")" = "$1" ] || continue
        for i in $(sed -n 's/^ *# *include *"\([^"]*\)".*/\1/p' "$f"); do
            dir=$(dirname "$f")
            if [ -e "$dir/$i" ]; then i=$(realpath -m --relative-to=. "$dir/$i"); fi
            folder=$(net_folder "$i")
            case " $1 $2 " in
            *" ${folder:-$1} "*) ;;
            *) echo "$f includes $i: $1 may not include $folder"; bad=1 ;;
            esac
        done
    done
}
check_net net ""
check_net net/loop "net"
check_net net/libp2p/peer "net"
check_net net/libp2p/security "net net/libp2p/peer"
check_net net/libp2p/muxing "net net/libp2p/peer net/libp2p/security"
below_host="net net/loop net/libp2p/peer net/libp2p/security net/libp2p/muxing"
check_net net/libp2p/connections "$below_host"
below_host="$below_host net/libp2p/connections"
check_net net/libp2p/streams "$below_host"
below_host="$below_host net/libp2p/streams"
check_net net/libp2p/host "$below_host"
check_net net/libp2p/rpc "$below_host net/libp2p/host"
check_net net/libp2p/relay "$below_host net/libp2p/host net/libp2p/rpc"
check_net net/libp2p/protocols "$below_host net/libp2p/host"
libp2p="$below_host net/libp2p/host net/libp2p/rpc net/libp2p/relay net/libp2p/protocols"
check_net net/libp2p "$libp2p"
check_net net/http/client "net"
check_net net/hivemind "$libp2p net/libp2p net/http/client"
check_net net/http "$libp2p net/libp2p net/hivemind net/http/client"

# No circles between the folders of hivemind, either; its public header counts as the optimizer's.
circles=$(for f in $(find net/hivemind -name '*.[ch]'); do
    dir=$(dirname "$f")
    echo "$dir $dir"
    for i in $(sed -n 's/^ *# *include *"\([^"]*\)".*/\1/p' "$f"); do
        if [ -e "$dir/$i" ]; then i=$(realpath -m --relative-to=. "$dir/$i"); fi
        case $i in net/hivemind/*/*) [ "$dir" = "$(dirname "$i")" ] || echo "$dir $(dirname "$i")" ;; esac
    done
done | tsort 2>&1 >/dev/null)
[ -z "$circles" ] || { echo "folders that include each other in a circle:"; echo "$circles"; bad=1; }

# No circles: the files x.c and x.h are one node, and an include is an arrow. tsort names those in a
# circle. Where x has an internal header, x.h is what others include: it is a node of its own at the
# bottom, the internal header stands on it, and x.c at the top.
sources=$(mktemp) || exit 1
find ref runtime data fast cuda net cmd -name "*.[ch]" -o -name "*.cu" -o -name "*.cuh" >"$sources"
circles=$(xargs awk '
    function node(file) {
        if (file ~ /_internal\.h$/ || (file ~ /\.h$/ && exists[substr(file, 1, length(file) - 2) "_internal.h"]))
            return file
        sub(/\.[a-z]*$/, "", file)
        return file
    }
    BEGIN { while ((getline file < ARGV[1]) > 0) exists[file] = 1; ARGV[1] = "" }
    FNR == 1 { folder = FILENAME; sub(/[^\/]*$/, "", folder); print node(FILENAME), node(FILENAME) }
    /^ *# *include *"/ {
        split($0, part, "\"")
        file = folder part[2]
        while (sub(/[^\/]*\/\.\.\//, "", file)) continue
        if (!exists[file]) file = part[2]
        if (node(file) != node(FILENAME)) print node(FILENAME), node(file)
    }' "$sources" <"$sources" | tsort 2>&1 >/dev/null)
rm -f "$sources"
[ -z "$circles" ] || { echo "files that include each other in a circle:"; echo "$circles"; bad=1; }

# The status of every call of CUDA and cuBLAS is used, or cast to (void). cudaGetLastError may be
# called only to clear the error. Kernels are started through one macro.
for f in cuda/*.cu cuda/*.cuh; do
    awk -v f="$f" '{ line = $0; sub(/\/\*.*\*\/ *$/, "", line) }
        line ~ /^ *(if \([a-z]+\) )?(cuda|cublas)[A-Z][A-Za-z0-9]*\(/ && line !~ /cudaGetLastError\(\);/ &&
            before ~ /[;{}:]$|^$|\)$/ && before !~ /[(,]$/ { print f ": the status of " $0 " is lost"; bad = 1 }
        line ~ /<<</ && f !~ /launch.cuh$/ { print f ": starts a kernel by itself: " $0; bad = 1 }
        { sub(/ *$/, "", line); if (line != "") before = line } END { exit bad }' "$f" || bad=1
done

exit $bad
