#!/bin/sh
# lines.sh [-f] [COMMIT ...] - lines that are neither blank nor comment at each commit (HEAD), and
# semicolons in them, by folder; -f: by feature, so that like is compared with like: what
# paper/log/size.md compares. C, CUDA, C++, OpenCL, scripts; not golden values, corpora, pages. All
# commits are laid out by this tree's .clang-format first.
cd "$(dirname "$0")/.." || exit 1
feature=0
[ "${1:-}" = -f ] && { feature=1; shift; }
[ $# -gt 0 ] || set -- HEAD
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# What has grown or come since 0.1, by the names of its files then and now; the rest is "the same".
group_of='function group(path,   part) {
    split(path, part, "/")
    if (by_feature) {
        if (part[1] == "test") return "tests"
        if (path ~ /^ref\/(outer\/|muon)|^(fast|cuda)\/(chunks|e3m0|outer_steps)/) return "outer algorithms"
        if (path ~ /^(runtime|cmd)\/lab\//) return "swarms on a virtual clock"
        if (path ~ /(run|train)_manifest|train_(agree|describe)|^cmd\/(join\/|new_run)/) return "a signed manifest of the run, and potluck join"
        if (path ~ /^cmd\/static\//) return "a static program"
        if (path ~ /hivemind\/(verification|refer)|signed_message/) return "verified rounds"
        if (path ~ /hivemind\/(optimizer|swarm)|^cmd\/(together|averaging\.|membership|swarm\.)|potluck\/optimizer/)
            return "collaborative optimizer"
        if (path ~ /\/(resources|budget|stream_budget|rate_limit|dht_quota|dht_share|hash_index|reliability|averager_witness|state_witness)\./ ||
            path ~ /\/(averager_faults|claims|state_claim|liveness|attend[a-z]+|bans|auth_nonce|slots|handshakes|failures|host_name|credential)\./)
            return "bounds on strangers"
        if (path ~ /libp2p\/.*\/(dcutr|dcutr_message|punch|observed|dial_charges|port_mapping|gateway)\./) return "connections through NATs"
        if (path ~ /^net\/.*powersgd/) return "PowerSGD in a run"
        if (path ~ /data\/files\/json/) return "JSON when memory runs out"
        return "the same: " (part[1] ~ /^(ref|runtime|data)$/ ? "ref, runtime, data" : part[1] ~ /^(fast|cuda)$/ ? "fast, cuda" : part[1])
    }
    if (part[1] == "net") return part[2] ~ /\./ ? "net/*.c" : "net/" part[2]
    if (part[1] == "ref" && part[2] == "outer") return "ref/outer"
    return part[1] == "test" && part[2] !~ /\./ ? "test/" part[2] : part[1]
}'
for commit in "$@"; do
    mkdir "$work/tree"
    git archive "$commit" | tar -x -C "$work/tree" || exit 1
    cp .clang-format "$work/tree"
    (cd "$work/tree" && find $(ls -d ref runtime fast cuda data net cmd notebooks test 2>/dev/null) -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \
        -o -name '*.cpp' -o -name '*.cl' -o -name '*.inc' -o -name '*.py' -o -name '*.sh' \) -not -path 'test/golden/*' |
        sort >../files && grep -E '\.([ch]|cu|cuh|cpp)$' ../files | xargs "${CLANG_FORMAT:-clang-format}" -i &&
        xargs awk -v by_feature=$feature "$group_of"'
        FNR == 1 { inside = 0; script = FILENAME ~ /\.(py|sh)$/; g = group(FILENAME) }
        script {
            if (FILENAME ~ /\.py$/ && /"""/) { n = gsub(/"""/, ""); if (n == 1) inside = !inside; next }
            if (!inside && $0 !~ /^[ \t]*(#|$)/) lines[g]++
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
            if (code ~ /[^ \t]/) { lines[g]++; ends[g] += gsub(/;/, "", code) }
        }
        END { for (r in lines) print r "\t" lines[r] "\t" ends[r] + 0 }' <../files) >>"$work/$commit" || exit 1
    rm -rf "$work/tree"
done
# One row a folder or feature, one column a commit.
(cd "$work" && awk -F '\t' -v commits="$*" 'BEGIN { n = split(commits, commit, " ") }
    { lines[$1, FILENAME] = $2; ends[$1, FILENAME] = $3; sum[FILENAME] += $2; all[FILENAME] += $3; seen[$1] = 1 }
    END {
        printf "| |"; for (k = 1; k <= n; k++) printf " %s | ; |", commit[k]
        printf "\n| --- |"; for (k = 1; k <= n; k++) printf " ---: | ---: |"
        printf "\n"
        for (r in seen) { printf "| %s |", r | "sort"; for (k = 1; k <= n; k++) printf " %d | %d |", lines[r, commit[k]], ends[r, commit[k]] | "sort"; print "" | "sort" }
        close("sort")
        printf "| all |"; for (k = 1; k <= n; k++) printf " %d | %d |", sum[commit[k]], all[commit[k]]
        printf "\n"
    }' "$@")
