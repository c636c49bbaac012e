#!/bin/sh
# run.sh - executes the notebooks (or, as `run.sh module`, tests the Python module) with the first
# Python that has what they need: on machines with several, the first on the PATH is seldom
# Debian's.
cd "$(dirname "$0")/.." || exit 1
POTLUCK_LIBRARY=${POTLUCK_LIBRARY:-$PWD/${BUILD:-build}/libpotluck.so}
# A waiting thread must not take the core that the others need: tests run on busy machines.
OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
PYTHONDONTWRITEBYTECODE=1
PYDEVD_DISABLE_FILE_VALIDATION=1
export POTLUCK_LIBRARY OMP_WAIT_POLICY PYTHONDONTWRITEBYTECODE PYDEVD_DISABLE_FILE_VALIDATION
[ "$1" = module ] && needs=numpy || needs=ipykernel,matplotlib,nbclient,nbformat,numpy
for python in python3 /usr/bin/python3; do
    command -v "$python" >/dev/null && "$python" -c "import $needs" 2>/dev/null || continue
    [ "$1" = module ] && exec "$python" test/notebooks/module.py
    exec "$python" notebooks/execute.py "$@"
done
echo "skip notebooks: no Python with $needs (Debian: python3-nbclient python3-nbformat python3-ipykernel" \
    "python3-matplotlib python3-numpy)"
echo "0 passed, 0 failed, 1 skipped"
