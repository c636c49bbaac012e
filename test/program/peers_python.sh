#!/bin/sh
# peers_python.sh - a Python with hivemind that was made once is found again: also where it lies in build/ because the
# user had no cache then, and another program has begun one since. Otherwise the tests with real peers are skipped, and
# all looks well. Run from the top of the tree.
. test/program/lib.inc

made_in() { # folder
    mkdir -p "$1/bin"
    printf '#!/bin/sh\n' >"$1/bin/python"
    chmod +x "$1/bin/python"
    cksum <test/interop/requirements.txt >"$1/installed"
}
found() { env -u XDG_CACHE_HOME -u INTEROP_VENV "$@" sh test/interop/environment.sh; }

mkdir "$work/home"
refuses_quietly() { ! found HOME="$work/home" BUILD="$work/build" >"$work/out" && grep -q 'make interop' "$work/out"; }
check "none there: says how to make one" refuses_quietly
made_in "$work/build/venv"
check "in build/, without a cache" found HOME="$work/home" BUILD="$work/build"
mkdir "$work/home/.cache"
check "in build/, with a cache since" found HOME="$work/home" BUILD="$work/build"
made_in "$work/home/.cache/potluck/hivemind"
check "in the cache" found HOME="$work/home" BUILD="$work/none"
check "where INTEROP_VENV says" sh -c "made=\$(INTEROP_VENV='$work/build/venv' sh test/interop/environment.sh) &&
    [ \"\$made\" = '$work/build/venv/bin/python' ]"
echo 'another list' >"$work/build/venv/installed"
rm -r "$work/home/.cache/potluck"
check "one by another list is none" refuses_quietly
finish
