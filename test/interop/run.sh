#!/bin/sh
# run.sh - installs real hivemind peers into a virtual environment and runs every script here against our
# program. Skipped, with the reason, where that cannot be done. INTEROP_VENV names another environment.
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
venv=${INTEROP_VENV:-$build/venv}

skip() { echo "interop: skipped: $1"; exit 0; }

if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import hivemind' 2>/dev/null; then
    python=$(command -v /usr/bin/python3 || command -v python3) || skip "Python 3 is missing"
    "$python" -c 'import venv, ensurepip' 2>/dev/null || skip "Python's venv is missing (python3-venv)"
    "$python" -c 'import torch' 2>/dev/null ||
        skip "torch is missing; Debian's is small: apt-get install --no-install-recommends python3-torch"
    echo "interop: installing hivemind into $venv"
    "$python" -m venv --system-site-packages "$venv" || skip "no virtual environment in $venv"
    "$venv/bin/pip" install -q --no-deps -r test/interop/requirements.txt ||
        skip "pip could not install test/interop/requirements.txt"
fi

failed=0
for script in test/interop/*.py; do
    case $script in */hivemind_*) continue ;; esac # these are peers, not tests
    echo "== $script"
    "$venv/bin/python" "$script" "$build/potluck" || failed=$((failed + 1))
done
[ $failed = 0 ] && echo "interop: all passed" || { echo "interop: $failed scripts failed"; exit 1; }
