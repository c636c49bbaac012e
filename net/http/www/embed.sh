#!/bin/sh
# embed.sh - the page's files as C arrays: embed.sh FILE... > www.c. od and sed are on every system.
echo '#include "net/http/www.h"'
n=0
for f in "$@"; do
    echo "static const unsigned char file_$n[] = {"
    od -An -v -tu1 "$f" | sed 's/  */,/g; s/^,//; s/$/,/'
    echo '};'
    n=$((n + 1))
done
echo 'const struct www_file www_files[] = {'
n=0
for f in "$@"; do
    echo "    { \"$(basename "$f")\", file_$n, sizeof file_$n },"
    n=$((n + 1))
done
echo '    { 0, 0, 0 } };'
