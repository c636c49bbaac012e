#!/bin/sh
# format.sh - the code is as `.clang-format` says, and no line of it is longer than 100 columns.
# `sh test/format.sh -i` rewrites what is not, except for comments and strings, which the formatter
# does not break. The layout depends on the formatter's version, so another version than Debian 12's
# is no judge: exit status 77.
cd "$(dirname "$0")/.." || exit 1
formatter=${CLANG_FORMAT:-clang-format}
"$formatter" --version 2>/dev/null | grep -q 'version 14\.' || { echo "$formatter 14 is needed"; exit 77; }
sources() { find cmd cuda data fast net paper ref runtime test -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp'; }
long_lines() { # of the code; tests may hold recorded values
    sources | grep -v '^test/' | LC_ALL=C.UTF-8 xargs grep -nE '^.{101,}' | sed 's/^\([^:]*:[0-9]*\):.*/\1: more than 100 columns/'
}
if [ "${1:-}" = -i ]; then
    sources | xargs "$formatter" -i
else
    long=$(long_lines)
    [ -z "$long" ] || { echo "$long"; exit 1; }
    sources | xargs -P "$(nproc 2>/dev/null || echo 2)" -n 50 "$formatter" --dry-run -Werror
fi
