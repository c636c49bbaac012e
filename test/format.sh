#!/bin/sh
# format.sh - the code is as `.clang-format` says. `sh test/format.sh -i` rewrites what is not.
# The layout depends on the formatter's version, so another version than Debian 12's is no judge:
# exit status 77.
cd "$(dirname "$0")/.." || exit 1
formatter=${CLANG_FORMAT:-clang-format}
"$formatter" --version 2>/dev/null | grep -q 'version 14\.' || { echo "$formatter 14 is needed"; exit 77; }
sources() { find cmd cuda data fast net ref runtime test -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp'; }
if [ "${1:-}" = -i ]; then
    sources | xargs "$formatter" -i
else
    sources | xargs -P "$(nproc 2>/dev/null || echo 2)" -n 50 "$formatter" --dry-run -Werror
fi
