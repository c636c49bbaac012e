#!/bin/sh
# peers_python.sh - the Python environments with hivemind and with other packages are found again
# after they were made: also in build/, if the user had no cache then and another program has made
# one since. Otherwise the tests that need them would be skipped unnoticed. Run from the top of the
# tree.
. test/program/lib.inc

made_in() { # folder, list
    mkdir -p "$1/bin"
    printf '#!/bin/sh\n' >"$1/bin/python"
    chmod +x "$1/bin/python"
    cksum <"test/interop/$2.txt" >"$1/installed"
}
found() { env -u XDG_CACHE_HOME -u INTEROP_VENV -u FILES_VENV "$@" sh test/interop/environment.sh "$name"; }
refuses_quietly() { ! found HOME="$work/home" BUILD="$work/build" >"$work/out" && grep -q 'make interop' "$work/out"; }
is_found_again() { # name, list, folder in build/, variable
    name=$1
    rm -rf "$work/home"
    mkdir "$work/home"
    check "$name: none there, says how to make one" refuses_quietly
    made_in "$work/build/$3" "$2"
    check "$name in build/, without a cache" found HOME="$work/home" BUILD="$work/build"
    mkdir "$work/home/.cache"
    check "$name in build/, with a cache since" found HOME="$work/home" BUILD="$work/build"
    made_in "$work/home/.cache/potluck/$1" "$2"
    check "$name in the cache" found HOME="$work/home" BUILD="$work/none"
    check "$name where $4 says" sh -c "made=\$($4='$work/build/$3' sh test/interop/environment.sh $name) &&
        [ \"\$made\" = '$work/build/$3/bin/python' ]"
    echo 'another list' >"$work/build/$3/installed"
    rm -r "$work/home/.cache/potluck"
    check "$name by another list is none" refuses_quietly
}
is_found_again hivemind requirements venv INTEROP_VENV
is_found_again files files files FILES_VENV
finish
