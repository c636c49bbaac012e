#!/bin/sh
# lines.sh [COMMIT ...] - lines that are neither blank nor comment, by folder, at each commit (HEAD),
# and semicolons in them, which no formatting changes: what paper/log/size.md compares. C, CUDA, C++,
# OpenCL, scripts; not golden values, corpora, pages.
cd "$(dirname "$0")/.." || exit 1
[ $# -gt 0 ] || set -- HEAD
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

room_of='function room(path,   part) {
    split(path, part, "/")
    if (part[1] == "net") return part[2] ~ /\./ ? "net/*.c" : "net/" part[2]
    if (part[1] == "ref" && part[2] == "outer") return "ref/outer"
    return part[1] == "test" && part[2] !~ /\./ ? "test/" part[2] : part[1]
}'
for commit in "$@"; do
    mkdir "$work/tree"
    git archive "$commit" | tar -x -C "$work/tree" || exit 1
    (cd "$work/tree" && find $(ls -d ref runtime fast cuda data net cmd notebooks test 2>/dev/null) -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \
        -o -name '*.cpp' -o -name '*.cl' -o -name '*.inc' -o -name '*.py' -o -name '*.sh' \) -not -path 'test/golden/*' |
        sort | xargs awk "$room_of"'
        FNR == 1 { inside = 0; script = FILENAME ~ /\.(py|sh)$/ }
        script {
            if (FILENAME ~ /\.py$/ && /"""/) { n = gsub(/"""/, ""); if (n == 1) inside = !inside; next }
            if (!inside && $0 !~ /^[ \t]*(#|$)/) lines[room(FILENAME)]++
            next
        }
        {
            code = ""
            for (line = $0; line != ""; )
                if (inside) {
                    if (!(k = index(line, "*/"))) break
                    line = substr(line, k + 2); inside = 0
                } else {
                    if (!(k = index(line, "/*"))) { sub(/^[ \t]*\/\/.*/, "", line); code = code line; break }
                    code = code substr(line, 1, k - 1); line = substr(line, k + 2); inside = 1
                }
            if (code ~ /[^ \t]/) { lines[room(FILENAME)]++; ends[room(FILENAME)] += gsub(/;/, "", code) }
        }
        END { for (r in lines) print r "\t" lines[r] "\t" ends[r] + 0 }') >>"$work/$commit" || exit 1
    rm -rf "$work/tree"
done
# One row a folder, one column a commit.
(cd "$work" && awk -F '\t' -v commits="$*" 'BEGIN { n = split(commits, commit, " ") }
    { lines[$1, FILENAME] = $2; ends[$1, FILENAME] = $3; sum[FILENAME] += $2; all[FILENAME] += $3; seen[$1] = 1 }
    END {
        printf "| folder |"; for (k = 1; k <= n; k++) printf " %s | ; |", commit[k]
        printf "\n| --- |"; for (k = 1; k <= n; k++) printf " ---: | ---: |"
        printf "\n"
        for (r in seen) { printf "| %s |", r | "sort"; for (k = 1; k <= n; k++) printf " %d | %d |", lines[r, commit[k]], ends[r, commit[k]] | "sort"; print "" | "sort" }
        close("sort")
        printf "| all |"; for (k = 1; k <= n; k++) printf " %d | %d |", sum[commit[k]], all[commit[k]]
        printf "\n"
    }' "$@")
