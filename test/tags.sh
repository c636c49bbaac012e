#!/bin/sh
# tags.sh - every reference in a comment leads somewhere.
#
#   [spec numerics 2.1, 3]      headings "2.1" and "3" of paper/spec/numerics.md
#   [TTT 3.1], [LAMB alg. 2]    a heading of paper/bibliography.md names the work; for TTT it names
#                               the section, too
#
# A reference that looks like an author and a year must be one of the bibliography's names.
#
# A file that a comment or a README names (x.h, x.c, x.py, x.sh) is in the tree, or a header that
# something includes with <>. A file of more than 500 lines says in its first comment why it is long.
cd "$(dirname "$0")/.." || exit 1
failed=0
find ref runtime fast cuda data net cmd test notebooks \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' -o -name '*.sh' \
    -o -name '*.py' -o -name '*.cpp' \) -not -path '*/golden/*' -not -name tags.sh 2>/dev/null | sort | xargs awk '
    function bad(why) { print FILENAME ": [" tag "]: " why; failed = 1 }
    function check_spec(text,   parts, k, name, rest, n) {
        n = split(text, parts, /; */)
        name = ""
        for (k = 1; k <= n; k++) {
            rest = parts[k]
            if (match(rest, /^[a-z][a-z0-9-]+/)) {
                name = substr(rest, 1, RLENGTH)
                rest = substr(rest, RLENGTH + 1)
            }
            if (!(name in document)) { bad("there is no paper/spec/" name ".md"); return }
            sub(/:.*/, "", rest)
            while (match(rest, /([AB]\.)?[0-9]+(\.[0-9]+)*/)) {
                if (!((name, substr(rest, RSTART, RLENGTH)) in heading))
                    bad("paper/spec/" name ".md has no heading " substr(rest, RSTART, RLENGTH))
                rest = substr(rest, RSTART + RLENGTH)
            }
        }
    }
    BEGIN {
        while (("grep -HE \"^#\" paper/spec/*.md" | getline line) > 0) {
            name = line; sub(/^paper\/spec\//, "", name); sub(/\.md:.*/, "", name)
            sub(/^[^:]*:#+ */, "", line)
            document[name] = 1
            if (match(line, /^([AB]\.)?[0-9]+(\.[0-9]+)*/)) heading[name, substr(line, 1, RLENGTH)] = 1
        }
        while ((getline line < "paper/bibliography.md") > 0)
            if (line ~ /^### /) {
                n = split(substr(line, 5), names, / · /)
                for (k = 1; k <= n; k++) work[names[k]] = 1
            }
        RS = "\001" # a file is one record: references may go over lines
    }
    {
        text = $0
        gsub(/\n[ \t]*(\*|\/\/|#)?[ \t]*/, " ", text)
        while (match(text, /\[[^][]+\]/)) {
            tag = substr(text, RSTART + 1, RLENGTH - 2)
            text = substr(text, RSTART + RLENGTH)
            if (tag ~ /^spec /) { check_spec(substr(tag, 6)); continue }
            if (tag ~ /^TTT/) {
                rest = tag; sub(/^TTT */, "", rest); sub(/:.*/, "", rest); n = 0
                while (match(rest, /[0-9](\.[0-9])?/)) {
                    n++
                    if (!(("TTT " substr(rest, RSTART, RLENGTH)) in work)) bad("the paper has no such section")
                    rest = substr(rest, RSTART + RLENGTH)
                }
                continue
            }
            if (tag ~ /^[A-Z][A-Za-z-]+ (& [A-Z][a-z]+ |and [A-Z][a-z]+ |et al\. )?(19|20)[0-9][0-9]/ ||
                tag ~ /^[A-Z0-9][A-Za-z0-9 -]*:? .*(alg\.|eq\.|arXiv|et al\.)/) {
                found = 0
                for (name in work)
                    if (substr(tag, 1, length(name)) == name && substr(tag, length(name) + 1, 1) ~ /^$|[ ,:;]/) found = 1
                if (!found) bad("paper/bibliography.md has no such work")
            }
        }
    }
    END { exit failed }' || failed=1

# --- names of files

files=$(git ls-files 2>/dev/null || find . -path ./build -prune -o -type f -print | sed 's,^\./,,')
code=$(echo "$files" | grep -E '\.(c|h|cu|cuh|inc|cpp|cl|py|sh|js|mk)$|(^|/)(Makefile|README\.md)$' | grep -vE '^test/(golden|fuzz/corpus)/|^paper/')
# shellcheck disable=SC2086
{
    echo "$files"
    grep -hoE '#include <[a-z_0-9/.-]+>' $code | sed 's/.*<\(.*\)>/\1/' | sort -u
    printf '%s\n' www.c data.js # made: by net/http/www/embed.sh, by the program
} | awk '
    # What a comment says, one file at a time; a README is all comment.
    function tell(text,   n, words, k, word) {
        gsub(/[^A-Za-z0-9_.\/*{},-]/, " ", text)
        n = split(text, words, " ")
        for (k = 1; k <= n; k++) {
            word = words[k]
            sub(/^,+/, "", word); sub(/[.,]+$/, "", word)
            while (sub(/^\.\.?\//, "", word)) ;
            # patterns, examples (x.h, attack_NAME.py) and what protoc-c makes
            if (word !~ /^[a-z_0-9][a-zA-Z_0-9.\/-]*\.(c|h|cu|cuh|inc|cpp|cl|py|sh|js)$/ || word ~ /[A-Z]|pb-c|^x\.|\.[a-z]+\//) continue
            if (!(word in known)) { print FILENAME ": there is no " word; failed = 1 }
        }
    }
    FILENAME == "-" {
        for (path = $0; ; path = substr(path, RSTART + 1)) {
            known[path] = 1
            if (!match(path, /\//)) break
        }
        next
    }
    FNR == 1 { inside = 0; script = FILENAME ~ /\.(py|sh|mk)$|Makefile$/ }
    FILENAME ~ /README\.md$/ { tell($0); next }
    script && FILENAME ~ /\.py$/ && /"""/ { n = gsub(/"""/, " "); tell($0); if (n == 1) inside = !inside; next }
    script && inside { tell($0); next }
    script { if (match($0, /(^|[ \t])#/)) tell(substr($0, RSTART)); next }
    {
        line = $0
        while (line != "") {
            if (inside) {
                if (!(k = index(line, "*/"))) { tell(line); break }
                tell(substr(line, 1, k - 1)); line = substr(line, k + 2); inside = 0
            } else {
                if (!(k = index(line, "/*"))) { if (match(line, /(^|[ \t;])\/\//)) tell(substr(line, RSTART + 2)); break }
                line = substr(line, k + 2); inside = 1
            }
        }
    }
    END { exit failed }' - $code || failed=1

# --- long files: net/http/www, tables and READMEs are no code

for file in $(echo "$files" | grep -E '\.(c|h|cu|cuh|inc|cpp|cl|py|sh)$'); do
    [ "$(wc -l <"$file")" -le 500 ] && continue
    sed -n '1,/\*\/\|"""$/p' "$file" | head -n 100 | tr -s '\n *' ' ' | grep -qiE 'long file|more than 500 lines|longer than other files' ||
        { echo "$file: more than 500 lines, and its first comment does not say why"; failed=1; }
done
exit $failed
