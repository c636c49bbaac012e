#!/bin/sh
# environment.sh - a Python with hivemind 1.1.12 for the scripts here.
#
#   environment.sh                      prints its Python; or, with exit status 1, why there is none
#   environment.sh install PACKAGE ...  makes it first where it is not there: Debian's packages (torch is small
#                                       there), a virtual environment, requirements.txt from PyPI
#
# It lies where INTEROP_VENV says; else in the user's cache (XDG_CACHE_HOME, or ~/.cache where that exists), so
# that a clone or `make clean` does not cost it; else in build/. Making it takes a minute or two; after
# INTEROP_LIMIT seconds (360) it is given up, and the tests that need it are skipped with the reason.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build} list=test/interop/requirements.txt
reason=$build/interop/reason
cache=${XDG_CACHE_HOME:-$HOME/.cache}
[ -d "$cache" ] && [ -w "$cache" ] && place=$cache/potluck/hivemind || place=$build/venv
place=${INTEROP_VENV:-$place}
python=$place/bin/python
wanted=$(cksum <$list)

# Whole: what this list asks for, or what somebody made by hand and gave a name.
whole() {
    [ -x "$python" ] || return 1
    [ "$(cat "$place/installed" 2>/dev/null)" = "$wanted" ] && return
    [ -n "$INTEROP_VENV" ] && ls "$place"/lib/python3*/site-packages/hivemind/__init__.py >/dev/null 2>&1
}

if [ "$1" != install ]; then
    whole && { echo "$python"; exit 0; }
    cat "$reason" 2>/dev/null || echo "hivemind is not installed: make interop"
    exit 1
fi
shift
whole && exit 0

begun=$(date +%s) limit=${INTEROP_LIMIT:-360}
left() { echo $((begun + limit > $(date +%s) ? begun + limit - $(date +%s) : 1)); }
mkdir -p "$(dirname "$reason")" "$(dirname "$place")" || exit 1
give_up() {
    echo "$1" >"$reason"
    echo "interop: $1"
    echo "interop: the tests beside real hivemind peers will be skipped"
    exit 1
}
do_or() { # reason command...
    why=$1; shift
    "$@"
    case $? in
    0) ;;
    124 | 137) give_up "$why within $limit s" ;;
    *) give_up "$why" ;;
    esac
}

echo "interop: making a Python with hivemind in $place (at most $limit s)"
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
    do_or "pip could not install $list" timeout -k 5 "$(left)" "$python" -m pip install -qq --disable-pip-version-check \
        --no-input --timeout 20 --retries 2 --no-deps -r $list
    timeout -k 5 "$(left)" "$python" -c 'import hivemind' || { rm -rf "$place"; give_up "hivemind was installed but can't be imported"; }
    echo "$wanted" >"$place/installed"
fi
rm -f "$reason"
echo "interop: ready after $(($(date +%s) - begun)) s"
