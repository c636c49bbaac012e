#!/bin/sh
# lines.sh [-f] [COMMIT ...] - lines that are neither blank nor comment at each commit (HEAD), and
# semicolons in them, by folder; -f: by feature, so that like is compared with like: what
# paper/log/size.md compares. C, CUDA, C++, OpenCL, scripts; not golden values, corpora, pages. All
# commits are laid out by this tree's .clang-format first.
#
# lines.sh -k [COMMIT] - what each commit since 0.1, to COMMIT (HEAD), added to or removed from "the
# same" files, as they were laid out then, by the kind that paper/log/size.tsv gives it. Writes the
# list anew and keeps its kinds; a commit without one gets "?" and is named on standard error.
cd "$(dirname "$0")/.." || exit 1
feature=0
kinds=0
case ${1:-} in
-f) feature=1; shift ;;
-k) feature=1; kinds=1; shift ;;
esac
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
# What is left of a line without its comments.
code_of='function open_file(path) { inside = 0; python = path ~ /\.py$/; script = path ~ /\.(py|sh)$/ }
function code(line,   text, k, n) {
    if (python && line ~ /"""/) { n = gsub(/"""/, "", line); if (n == 1) inside = !inside; return "" }
    if (script) return inside || line ~ /^[ \t]*#/ ? "" : line
    for (text = ""; line != ""; )
        if (inside) {
            if (!(k = index(line, "*/"))) break
            line = substr(line, k + 2); inside = 0
        } else {
            if (!(k = index(line, "/*"))) { sub(/^[ \t]*\/\/.*/, "", line); text = text line; break }
            text = text substr(line, 1, k - 1); line = substr(line, k + 2); inside = 1
        }
    return text
}'

if [ $kinds = 1 ]; then
    list=paper/log/size.tsv
    # Each commit, and the files it changed: ":mode mode blob blob status <tab> path [<tab> path]".
    git log --no-abbrev --raw -M -l0 --format='@%H%x09%s' e4a2c82.."$1" | grep '^[@:]' >"$work/log" || exit 1
    # The lines of each version of a file.
    awk -F '\t' '/^:/ { split($1, f, " "); print f[3], $2; print f[4], $NF }' "$work/log" |
        grep -E '\.([ch]|cu|cuh|cpp|cl|inc|py|sh)$' | grep -vE '^0+ | test/golden/' | sort -u |
        git cat-file --batch='@@blob %(objectname) %(rest)' | LC_ALL=C awk "$code_of"'
            /^@@blob / { blob = $2; open_file($3); lines[blob] = 0; next }
            code($0) ~ /[^ \t]/ { lines[blob]++ }
            END { for (blob in lines) print blob "\t" lines[blob] }' >"$work/blobs"
    cat $list >"$work/kinds" 2>/dev/null
    # From the last commit back: a file counts where it is in the end, so that a move changes nothing.
    # By names there and then some lines moved from or to another feature or room: the last line.
    (cd "$work" && awk -F '\t' -v OFS='\t' -v by_feature=1 "$group_of"'
        function room(path,   g) { g = group(path); return sub(/^the same: /, "", g) || g == "tests" ? g : "others" }
        function row(commit, kind, net, subject,   k, text, some) {
            for (k = 1; k <= rooms; k++) { text = text OFS net[name[k]] + 0; if (k < rooms && net[name[k]]) some = 1 }
            if (some) print commit, kind text, subject
            for (k in net) delete net[k]
        }
        function close_commit() { if (commit != "") row(commit, commit in kind ? kind[commit] : "?", net, subject) }
        BEGIN { rooms = split("cmd;ref, runtime, data;fast, cuda;notebooks;net;others", name, ";") }
        FILENAME == "kinds" { kind[$1] = $2; next }
        FILENAME == "blobs" { lines[$1] = $2; next }
        /^@/ { close_commit(); commit = substr($1, 2, 8); subject = $2; next }
        {
            split($1, file, " ")
            end = $NF in final ? final[$NF] : $NF
            grown = lines[file[4]] - lines[file[3]]
            net[room(end)] += grown
            moved[room(end)] -= grown
            moved[room($NF)] += lines[file[4]]
            moved[room($2)] -= lines[file[3]]
            delete final[$NF]
            if (file[5] != "A") final[$2] = end
        }
        END { close_commit(); row("-", "moved", moved, "by their names then and now, not by the names that files have in the end") }' kinds blobs log) >"$work/list" || exit 1
    cp "$work/list" $list
    awk -F '\t' '
        function total(k,   text, j, together) {
            for (j = 3; j <= 7; j++) { text = text sprintf(sum[k, j] ? " %+d |" : " |", sum[k, j]); together += sum[k, j] }
            return sprintf("%s %+d | %s |", text, together, sum[k, 8] ? sprintf("%+d", sum[k, 8]) : "")
        }
        function add(k,   j) { count[k]++; for (j = 3; j <= 8; j++) sum[k, j] += $j }
        { add($2); add("all") }
        $2 ~ /^(same|less)$/ { add("same and less") }
        $2 == "?" { print "no kind yet: " $1 " " $9 >"/dev/stderr" }
        END {
            print "| kind | commits | `cmd` | `ref`, `runtime`, `data` | `fast`, `cuda` | `notebooks` | `net` | together | other features |"
            print "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
            n = split("new,same,less,same and less,layout,?,moved,all", kind, ",")
            count["all"] -= count["moved"]
            count["moved"] = ""
            for (k = 1; k <= n; k++) if (kind[k] in count) print "| " kind[k] " | " count[kind[k]] " |" total(kind[k])
        }' $list
    exit
fi

for commit in "$@"; do
    mkdir "$work/tree"
    git archive "$commit" | tar -x -C "$work/tree" || exit 1
    cp .clang-format "$work/tree"
    (cd "$work/tree" && find $(ls -d ref runtime fast cuda data net cmd notebooks test 2>/dev/null) -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \
        -o -name '*.cpp' -o -name '*.cl' -o -name '*.inc' -o -name '*.py' -o -name '*.sh' \) -not -path 'test/golden/*' |
        sort >../files && grep -E '\.([ch]|cu|cuh|cpp)$' ../files | xargs "${CLANG_FORMAT:-clang-format}" -i &&
        xargs awk -v by_feature=$feature "$group_of $code_of"'
        FNR == 1 { open_file(FILENAME); g = group(FILENAME) }
        { text = code($0) }
        text ~ /[^ \t]/ { lines[g]++; if (!script) ends[g] += gsub(/;/, "", text) }
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
