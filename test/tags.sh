#!/bin/sh
# tags.sh - every reference in a comment leads somewhere.
#
#   [spec numerics 2.1, 3]      headings "2.1" and "3" of paper/spec/numerics.md
#   [TTT 3.1], [LAMB alg. 2]    a heading of paper/bibliography.md names the work; for TTT it names
#                               the section, too
#
# A reference that looks like an author and a year must be one of the bibliography's names.
cd "$(dirname "$0")/.." || exit 1
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
    END { exit failed }'
