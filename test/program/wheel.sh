#!/bin/sh
# wheel.sh - `make wheel`: installed with pip into an empty environment, program and module work with nothing of the source tree
# near. auditwheel and numpy come from PyPI; what cannot be had is skipped. With ARCH=arm64 the wheel is that processor's, and
# Debian's Python for it uses it under qemu-user.
. "$(dirname "$0")/lib.inc"
qemu=
[ -z "${ARCH:-}" ] || . test/cross/arch.inc
BUILD=${BUILD:-build}
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac
case $POTLUCK in /*) ;; *) POTLUCK=$PWD/$POTLUCK ;; esac
source=$PWD
unset POTLUCK_LIBRARY PYTHONPATH PL_BACKEND_DIR
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1

for python in python3 /usr/bin/python3; do
    "$python" -c 'import setuptools, wheel, pip, venv, ensurepip' 2>/dev/null && break
    python=
done
if [ -z "$python" ]; then
    echo "skip the wheel: no Python with venv, pip and wheel (Debian: python3-venv python3-pip python3-wheel)"
    skipped=1
    finish
    exit
fi
if [ -n "$qemu" ]; then
    check "it is built for $ARCH" env -u MAKEFLAGS -u MAKELEVEL BUILD="$BUILD" sh test/cross/make.sh -s PYTHON="$python" wheel
    folder=$BUILD/cross/$ARCH/wheel
    root=$(sh test/cross/sysroot.sh) || exit 1
    export QEMU_LD_PREFIX="$root" QEMU_CPU="$cpu"
else
    check "it is built" env -u MAKEFLAGS -u MAKELEVEL make -s BUILD="$BUILD" CC="${CC:-cc}" NVCC= PYTHON="$python" wheel
    folder=$BUILD/wheel
fi
wheel=$(ls "$folder"/*.whl 2>/dev/null)
name=$(basename "$wheel")
if [ -x "$folder/tools/bin/auditwheel" ]; then
    "$folder/tools/bin/auditwheel" show "$wheel" >"$work/shown" 2>&1
    tag=$(tr '\n' ' ' <"$work/shown" | sed -n 's/.*following platform tag: "\(manylinux[^"]*\)".*/\1/p')
    check "auditwheel finds it as its name says: ${tag:-nothing}" test "$name" = "potluck-$("$POTLUCK" --version | sed -n '1s/^potluck //p')-py3-none-$tag.whl"
else
    echo "skip manylinux: no auditwheel from PyPI"
    skipped=$((skipped + 1))
fi

# --- an environment that has nothing, or, without PyPI, Debian's numpy
cd "$work" || exit 1
"$python" -m venv env
if [ -n "$qemu" ]; then # pip is this machine's, and only unpacks
    tag=${name%.whl}
    check "pip installs it for $ARCH" env/bin/pip install -q --no-deps --only-binary=:all: --platform "${tag##*-}" --target env/site "$wheel"
    home=env/site/potluck
    command="$qemu $home/installed/bin/potluck" used="$qemu $root/usr/bin/python3"
    export PYTHONPATH="$work/env/site" PYTHONHOME="$root/usr"
else
    if ! timeout 300 env/bin/pip install -q "$wheel" >"$work/pip" 2>&1; then
        "$python" -m venv --clear --system-site-packages env
        env/bin/pip install -q --no-deps "$wheel" >"$work/pip" 2>&1
    fi
    home=$(echo env/lib/python*/site-packages/potluck)
    command=env/bin/potluck used=env/bin/python
fi
# shellcheck disable=SC2086
check "its command runs" $command --version
check "which is the program" sh -c '$1 --version | head -n 1 | grep -qx "$("$0" --version | head -n 1)"' "$POTLUCK" "$command"
check "with its fast backend" sh -c '$0 --version | grep -q "^backend fast"' "$command"
libraries() { find "$home/installed" -type f \( -name '*.so' -o -name potluck \); }
missing() { libraries | while read -r f; do [ -n "$qemu" ] || ldd "$f"; done | grep 'not found'; }
check "program and libraries find what they link to" sh -c "[ -z '$(missing)' ] && [ $(libraries | wc -l) = 3 ]"
check "and a command's exit status" sh -c '$0 nothing 2>/dev/null; [ $? -eq 2 ]' "$command"
# shellcheck disable=SC2086
check "it trains on the demo's data" $command train --quiet --config "$source/test/program/tiny.json" --limit 32 --threads 1 \
    --steps 2 --batch 4 --out "$work/out"
# shellcheck disable=SC2086
if $used -c 'import numpy' 2>/dev/null; then
    check "the module is the wheel's" $used -c '
import pathlib, potluck, sys
home = pathlib.Path(potluck.__file__).parent
assert home == pathlib.Path(sys.argv[1]).resolve() and (home / "py.typed").exists()
assert pathlib.Path(potluck.lib._name) == home / "installed/lib/libpotluck.so"
assert pathlib.Path(potluck.program.__globals__["find"]()) == home / "installed/bin/potluck"' "$home"
    check "it computes, with the fast backend and the demo's files" $used -c '
import numpy, potluck
fast = potluck.Backend("fast")
assert fast.name == "fast" and potluck.mask("axial_row", 5, 4).sum() == 135
assert numpy.array_equal(fast.linear(numpy.eye(3), [[1, 2, 3]]), [[1], [2], [3]])
assert potluck.Codec(backend=fast).decode(potluck.pairs(limit=1)[1]).shape == (1, 64, 64, 3)'
    check "its docstrings' examples hold" $used -c '
import doctest, sys
import potluck.operations, potluck.model
found = [doctest.testmod(m) for m in (potluck, potluck.operations, potluck.model)]
sys.exit(any(r.failed for r in found) or sum(r.attempted for r in found) < 15)'
    check "everything that is public has a docstring and types" $used "$source/test/notebooks/typed.py"
else
    echo "skip the module: no numpy from PyPI or Debian"
    skipped=$((skipped + 1))
fi
finish
