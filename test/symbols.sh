#!/bin/sh
# symbols.sh - what the libraries export: libpotluck names with its prefixes, a backend the symbol
# that opens it.
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
bad=0

only() { # library, what nm reads, the names that may be there
    found=$(nm $2 --defined-only "$1" | awk '$2 ~ /[A-Z]/ { print $3 }' | grep -vE "$3")
    [ -z "$found" ] || { echo "$1 exports $(echo "$found" | wc -l) other names:" $(echo "$found" | head -n 5); bad=1; }
    nm $2 --defined-only "$1" | awk '$2 ~ /[A-Z]/ { print $3 }' | grep -qE "$3" || { echo "$1 exports nothing"; bad=1; }
}

only "$BUILD/libpotluck.so" -D '^(pl|ref)_'
only "$BUILD/install/libpotluck.a" -g '^(pl|ref)_'
for backend in "$BUILD"/libpl_*.so; do
    only "$backend" -D '^(pl_backend_v1|cuda_on_cpu_.*)$'
done
exit $bad
