#!/bin/sh
# words.sh - code and documents call things what PyTorch, hivemind, libp2p, BLAS and CUDA call them. A private word that was
# replaced once does not come back, in a comment, a string, a symbol's name or a document.
cd "$(dirname "$0")/.." || exit 1

rooms="README.md Makefile cmd cuda data fast net notebooks paper ref runtime"
# Each is a private word in any sense: liar (Byzantine peer), wish (request), referee (verifier), attendance (liveness),
# checkup (preflight check), remark (warning), entry peer (initial peer), stair (step table), door-keeper (bootstrap peer), nobody can call (behind NAT).
words="liars?|remarks?|entry peers?|wish(es|ed)?|referees?|attendance|checkups?|stairs?|door-?keepers?|nobody can call"
# In identifiers their parts are joined by underscores.
pattern="(^|[^A-Za-z])($words)([^A-Za-z]|\$)"

# Where a word may stay, by file: specifications and a licence quote others; the notebook's stored figures name liars.
excepted() {
    case $1 in
    paper/spec/* | data/demo/NOTICE) ;;
    notebooks/1-algorithms.ipynb) ;;
    *) return 1 ;;
    esac
}

failed=0
# shellcheck disable=SC2086
for file in $(find $rooms -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' -o -name '*.cl' -o -name '*.mk' \
    -o -name '*.md' -o -name '*.py' -o -name '*.sh' -o -name '*.js' -o -name '*.html' -o -name '*.ipynb' -o -name Makefile \) \
    -exec grep -lEi "$pattern" {} + | sort); do
    excepted "$file" && continue
    grep -nEi "$pattern" "$file" | sed "s|^|$file:|"
    failed=1
done
exit $failed
