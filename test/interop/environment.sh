#!/bin/sh
# environment.sh - the Pythons for the scripts here, two, so that what fails for one leaves the
# other whole:
#   hivemind   with hivemind 1.1.12 and DALLE-pytorch 1.6.6 (requirements.txt)
#   files      with transformers, safetensors, pyarrow, datasets; for pages, axe-core (files.txt)
#
#   environment.sh NAME                      prints its Python; or, with exit status 1, why there is
#                                            none
#   environment.sh NAME install PACKAGE ...  makes it first where it is not there: Debian's packages
#   (torch is small
#                                            there), a virtual environment, its list from PyPI
#
# It is where INTEROP_VENV (for files: FILES_VENV) says; else in the user's cache (XDG_CACHE_HOME,
# or ~/.cache where that exists), so that a clone or `make clean` does not cost it; else in build/.
# Making one takes a minute or two; after INTEROP_LIMIT seconds (360) it is given up, and the tests
# that need it are skipped with the reason.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build} name=$1
shift
case $build in */asan | */tsan) build=${build%/*} ;; esac # a build for sanitizers shares its neighbour's
# space: MB that the environment takes, with what pip keeps while it installs
case $name in
hivemind) list=requirements module=hivemind named=$INTEROP_VENV in_build=$build/venv space=400 ;;
files) list=files module=datasets,transformers named=$FILES_VENV in_build=$build/files space=450 ;;
*) echo "usage: environment.sh hivemind|files [install PACKAGE ...]" >&2; exit 2 ;;
esac
list=test/interop/$list.txt
reason=$build/interop/$name.reason
cache=${XDG_CACHE_HOME:-$HOME/.cache}
[ -d "$cache" ] && [ -w "$cache" ] && place=$cache/potluck/$name || place=$in_build
place=${named:-$place}
wanted=$(cksum <"$list")

# Whole: what this list asks for, or what somebody made by hand and gave a name.
whole() {
    python=$place/bin/python
    [ -x "$python" ] || return 1
    [ "$(cat "$place/installed" 2>/dev/null)" = "$wanted" ] && return
    [ -n "$named" ] && ls "$place/lib/python3"*"/site-packages/${module%,*}/__init__.py" >/dev/null 2>&1
}

# An environment that was made in build/ when there was no cache is still found there after another
# program made a cache.
made_before() {
    elsewhere=$place
    whole && return
    [ -z "$named" ] && place=$in_build && whole && return
    place=$elsewhere python=$elsewhere/bin/python
    return 1
}

if [ "$1" != install ]; then
    made_before && { echo "$python"; exit 0; }
    cat "$reason" 2>/dev/null || echo "$name is not installed: make interop"
    exit 1
fi
shift
made_before && exit 0

begun=$(date +%s) limit=${INTEROP_LIMIT:-360}
left() { echo $((begun + limit > $(date +%s) ? begun + limit - $(date +%s) : 1)); }
mkdir -p "$(dirname "$reason")" || exit 1
give_up() {
    echo "$1" >"$reason"
    echo "interop: $1"
    echo "interop: the tests that need it will be skipped"
    exit 1
}
errors=$build/interop/$name.pip.log
do_or() { # reason command...
    why=$1; shift
    "$@"
    case $? in
    0) ;;
    124 | 137) give_up "$why within $limit s" ;;
    *) give_up "$why" ;;
    esac
}

mkdir -p "$(dirname "$place")" || give_up "$(dirname "$place") could not be made"
free=$(df -Pk "$(dirname "$place")" | awk 'NR == 2 { print int($4 / 1024) }')
[ "${free:-$space}" -ge $space ] || give_up "$(dirname "$place") has $free MB left, and $name takes up to $space"

echo "interop: making the Python for $name in $place (at most $limit s)"
do_or "could not install Debian's packages $*" sh debian/missing.sh -t "$(left)" "$@"
base=$(command -v /usr/bin/python3 || command -v python3) || give_up "Python 3 is missing"
"$base" -c 'import venv, ensurepip' 2>/dev/null || give_up "Python's venv is missing (Debian: python3-venv)"
"$base" -c 'import torch' 2>/dev/null || give_up "torch is missing for $base (Debian: python3-torch)"

# Two runs may share a cache: the second waits for the first.
exec 8>"$place.lock"
do_or "another installation was not done" flock -w "$(left)" 8
if ! whole; then
    [ -e "$place/installed" ] && rm -rf "$place" # by another list
    "$python" -m pip --version >/dev/null 2>&1 || # else an earlier run did not get to its end: this one goes on
        do_or "no virtual environment in $place" timeout "$(left)" "$base" -m venv --system-site-packages "$place"
    echo "interop: fetching what $list names"
    timeout -k 5 "$(left)" "$python" -m pip install -qq --disable-pip-version-check --no-input --timeout 20 \
        --retries 2 --no-deps -r "$list" 2>"$errors"
    case $? in
    0) ;;
    124 | 137) give_up "pip could not install $list within $limit s; the next try goes on from here" ;;
    *)  cat "$errors"
        grep -q 'connection broken' "$errors" && give_up "pip could not install $list: PyPI can't be reached from here"
        give_up "pip could not install $list: $(grep -a . "$errors" | tail -n 1 | cut -c 1-300)" ;;
    esac
    timeout -k 5 "$(left)" "$python" -W ignore -c "import $module" >/dev/null 2>"$errors"
    case $? in
    0) ;;
    124 | 137) give_up "$module: the first import was not done within $limit s; the next try goes on from here" ;;
    *) cat "$errors"; rm -rf "$place"; give_up "$module: installed but can't be imported: $(tail -n 1 "$errors")" ;;
    esac
    echo "$wanted" >"$place/installed"
    whole || give_up "$place could not be finished: is the disk full?"
fi
rm -f "$reason"
echo "interop: ready after $(($(date +%s) - begun)) s"
