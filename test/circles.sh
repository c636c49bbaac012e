#!/bin/sh
# circles.sh - calls and includes of the sources go one way. Each object file is a node; it has an arrow to every
# object that defines a function or variable which it uses. tsort names those in a circle.
#
# Without circles files can be read from the bottom up, and each be understood by those below it.
# What a lower file tells an upper one goes through a pointer to a function, which is no arrow here.
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
objects=
# By the sources: objects of files that are gone may still lie in the folder. (data/demo is a
# program of its own, cmd/static is linked into the static one alone.)
for f in $(find ref runtime fast data net cmd -name '*.c' -not -path 'data/demo/*' -not -path 'cmd/static/*'); do
    object=$BUILD/obj/${f%.c}.o
    [ -e "$object" ] || { echo "$object is not built"; exit 1; }
    objects="$objects $object"
done
# nm prints "FILE:ADDRESS TYPE NAME": U is used, a capital letter else is defined for all.
# shellcheck disable=SC2086
arrows=$(nm -A $objects | sed "s|^$BUILD/obj/||; s|\.o:| |" | awk '
    { file = $1; type = $(NF - 1); name = $NF }
    type == "U" { used[file " " name] = 1 }
    type ~ /^[TDBRC]$/ { home[name] = file; print file, file }
    END {
        for (u in used) {
            split(u, part, " ")
            if (part[2] in home && home[part[2]] != part[1]) print part[1], home[part[2]]
        }
    }')
[ -n "$arrows" ] || { echo "nm shows no symbols"; exit 1; }
circles=$(echo "$arrows" | tsort 2>&1 >/dev/null)
[ -z "$circles" ] || { echo "files that call each other in a circle:"; echo "$circles"; exit 1; }
