#!/bin/sh
# conform.sh - the report of `potluck conform`: what the page and the JSON hold, and what they must
# not. No time is judged. Run from the top of the tree.
. test/program/lib.inc

here=$(dirname "$POTLUCK")
conform() { "$POTLUCK" conform --quick "$@" >"$work/out" 2>&1; }
# A backend with one wrong operation, whose words are not to be trusted.
cat >"$work/wrong.c" <<'EOC'
#include "ref/backend.h"
#include <stdio.h>
static int wrong_scale(float *x, float by, size_t n)
{
    for (size_t i = 0; i < n; i++) x[i] *= by * 1.001f;
    return PL_OK;
}
int pl_backend_v1(struct pl_backend *be)
{
    be->name = "wrong<script>";
    snprintf(be->note, sizeof be->note, "\"wrong\" & <b>loud</b>");
    be->scale = wrong_scale;
    return PL_OK;
}
EOC

check "a report of fast" conform --backend fast --filter norm --report "$work/fast.html"
check "fast isn't compared with itself" sh -c "! grep -Eq '<th>(fast, ms|to fast)' '$work/fast.html' && grep -q '<th>to ref' '$work/fast.html'"
check "names it" grep -q '<h1>Conformance of fast</h1>' "$work/fast.html"
check "counts as the terminal does" grep -q '[1-9] native, 0 reference, 0 failed of [1-9] operations' "$work/fast.html"
check "says the machine" grep -Eq '<dt>Machine</dt><dd>.+ cores?, ' "$work/fast.html"
check "shows errors against their bounds" grep -q '<meter max="1" value="0' "$work/fast.html"
check "light and dark" grep -q 'prefers-color-scheme:dark' "$work/fast.html"
check "loads nothing" sh -c "! grep -Eqi 'https?:|src=|<script|@import|url\(' '$work/fast.html'"
check "every tag is closed" sh -c "[ \$(grep -o '<tr>' '$work/fast.html' | wc -l) = \$(grep -o '</tr>' '$work/fast.html' | wc -l) ]"
check "the JSON, with golden values" conform --backend "$here/skeleton_host.so" --filter quant \
    --golden test/golden/quant --report "$work/host.json"
check "has them" grep -q '"area"' "$work/host.json"
check "operations of the reference are no native ones" grep -q '"native": false' "$work/host.json"
${CC:-cc} -std=c11 -fPIC -shared -iquote . -I. -o "$work/wrong.so" "$work/wrong.c"
check "a wrong backend fails" sh -c "! '$POTLUCK' conform --quick --backend '$work/wrong.so' --filter scale --report '$work/wrong.html'"
check "and its page says so" grep -q '1 failed of' "$work/wrong.html"
check "with the first wrong element" grep -q 'expected' "$work/wrong.html"
check "its words stay words" grep -q '&quot;wrong&quot; &amp; &lt;b&gt;loud&lt;/b&gt;' "$work/wrong.html"
check "in the title too" sh -c "! grep -q '<script' '$work/wrong.html'"
"$POTLUCK" conform --backend "$work/wrong.so" --filter scale --report "$work/timed.html" >"$work/out" 2>&1
check "fast has its column where it was timed" grep -q '<th>fast, ms</th>.*<th>to fast</th>' "$work/timed.html"
check "fast is timed as well" sh -c "'$POTLUCK' conform --backend '$work/wrong.so' --filter scale --report '$work/wrong.json'; grep -Eq '\"fast_s\": [0-9]' '$work/wrong.json'"
cat >"$work/broken.c" <<'EOC'
#include "ref/backend.h"

static const char *broken_words(void) { return "an illegal address was met"; }

static int broken_scale(float *x, float a, size_t n)
{
    (void)x, (void)a, (void)n;
    return PL_EDEVICE;
}

int pl_backend_v1(struct pl_backend *be)
{
    be->name = "broken";
    be->scale = broken_scale;
    be->memory_error = broken_words;
    return PL_OK;
}
EOC
${CC:-cc} -std=c11 -fPIC -shared -iquote . -I. -o "$work/broken.so" "$work/broken.c"
conform --backend "$work/broken.so" --filter scale
check "of a device that fails, its words" grep -q 'broken says: .*: an illegal address was met' "$work/out"
# The lines of porting.md, as they stand there, from this tree and with the skeletons of it.
sed -n 's/^    \(cc .*\)$/\1/p' paper/porting.md | sed "s,-o mine.so,-Wall -Wextra -Werror -o $work/mine.so," >"$work/lines"
check "the how-to has lines to compile by" test "$(wc -l <"$work/lines")" = 2
while read -r line; do
    check "the how-to's line: ${line##*mine.so }" sh -c "$line"
    check "and passes" conform --backend "$work/mine.so" --filter axpy
done <"$work/lines"
# The memory that every backend has to give: aligned to 64 bytes and zeroed, also when it was used
# before.
broken_memory() { # name, edit of the device skeleton, what conform says
    sed "$2" test/skeleton/device.c >"$work/$1.c"
    check "$1: the skeleton has what is edited" sh -c "! cmp -s '$work/$1.c' test/skeleton/device.c"
    ${CC:-cc} -std=c11 -O2 -fPIC -shared -I. -o "$work/$1.so" "$work/$1.c"
    check "$1: refused" sh -c "! '$POTLUCK' conform --quick --backend '$work/$1.so' --filter fill >'$work/out' 2>&1"
    check "$1: and why" grep -q "^FAIL alloc gave memory that is not $3" "$work/out"
}
broken_memory misaligned 's/aligned_alloc(64, size);/(char *)malloc(size + 64) + 8;/; s/{ free(p); }/{ free((char *)p - 8); }/' aligned
broken_memory dirty 's/memset(p, 0, size)/memset(p, 1, size)/' zeroed
check "fast with operands in bfloat16" conform --backend fast --filter bf16
refuses 1 "no case's line contains 'nosuch'" "$POTLUCK" conform --filter nosuch
refuses 1 "no case's line contains 'nosuch'" "$POTLUCK" conform --filter nosuch --golden test/golden/quant
refuses 1 "no case's line contains 'nosuch'" "$POTLUCK" conform --filter nosuch --report "$work/none.html"
cp "$work/host.json" "$work/old.json"
refuses 2 "neither in .json nor in .html" "$POTLUCK" conform --report "$work/page.txt"
refuses 1 "no/where" "$POTLUCK" conform --report "$work/no/where/page.html"
refuses 2 "--bench cannot be combined" "$POTLUCK" conform --bench --report "$work/page.html"
check "golden trouble leaves the old report" sh -c "'$POTLUCK' conform --quick --filter sumsq --golden '$work/none' \
    --report '$work/host.json'; cmp '$work/host.json' '$work/old.json'"
mkdir -p "$work/dalle"
refuses 1 "dalle: nothing to replay for area 'dalle'" "$POTLUCK" conform --golden "$work/dalle" --backend ref
finish
