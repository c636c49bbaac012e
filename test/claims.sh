#!/bin/sh
# claims.sh - paper/security.md names every field that a stranger can send, with its bound and a test that exists.
#
# The fields are read from the code: protobuf messages, records' schemas, keys of msgpack maps and of JSON, HTTP headers,
# and the structs of messages that are parsed by hand. In the tables below "Claims, bounds and costs" a field is named in a
# row's first column: `Message.field`, or `Message.{field, field}`. Both sides have to name the same fields.
#
# The last column of a table that ends in "test" names tests: attack NAME (test/attack/attack_NAME.py), unit NAME
# (`function`, ...), fuzz NAME, golden NAME, interop NAME, nat NAME, program NAME; a kind holds for the names that follow it.
# Behind each field of a .proto file stands a comment with its bound; the constants in it have to exist.
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0
complain() { echo "$1"; failed=1; }

# --- what the code reads

struct_fields() { # file struct name
    awk -v head="^(typedef )?struct $2 [{]" -v name="$3" '
        $0 ~ head { inside = 1; next }
        inside && /^}/ { exit }
        inside && match($0, /^    [^;]*;/) {
            text = substr($0, 1, RLENGTH); gsub(/\[[^]]*\]|[*;]|const |unsigned |struct [a-z_]+|enum [a-z_]+/, "", text)
            sub(/^ *[a-z0-9_]+ +/, "", text); gsub(/ /, "", text)
            n = split(text, names, ",")
            for (i = 1; i <= n; i++) if (names[i] !~ /_n$|_bytes$|^n$/) print name "." names[i]
        }' "$1"
}
json_keys() { # name file...: every key that is looked up, but in what we have written ourselves (`state`)
    name=$1; shift
    grep -ohE '(json_object_get\(|add_text\(|is_text\()[^;]*"[A-Za-z0-9_]+"' "$@" | grep -v 'json_object_get(state,' |
        grep -oE '"[A-Za-z0-9_]+"\)?$|, "[A-Za-z0-9_]+"\)' | tr -dc 'A-Za-z0-9_\n' | sed "s/^/$name./"
}
{
    # PrivateKey is in our own file only.
    awk '/^message /{ name = $2 } name != "PrivateKey" && match($0, / [a-z_]+ = [0-9]+/) {
            split(substr($0, RSTART + 1, RLENGTH - 1), part, " "); print name "." part[1] }' net/*/*/*.proto
    awk '/^const struct schema schema_/ { name = $4; sub(/^schema_/, "", name) }
        match($0, /[{] "[a-z_]+", SCHEMA_/) { split(substr($0, RSTART, RLENGTH), part, "\""); print name "." part[2] }' net/hivemind/records/schema.c
    # The report's fields that came later than its schema.
    sed -n '/^static const char DEVICE/,/^} later/p;/^} later/,/^};/p' net/hivemind/progress/peer_report.c | grep -oE '"[a-z_]+"' | tr -d '"' | sed 's/^/report./'
    grep -oE 'mp_get\([a-z]+, "[a-z_]+"\)' net/hivemind/messages/state_message.c | sed 's/.*"\(.*\)".*/metadata.\1/'
    { grep -oE '^    [{] "[a-z_]+", "' net/hivemind/records/run_manifest.c
      grep -oE 'json_object_get\(root, "[a-z_]+"' net/hivemind/records/run_manifest.c; } |
        sed 's/[^"]*"\([a-z_]*\)".*/run_manifest.\1/'
    struct_fields net/hivemind/matchmaking/group.h gather gather
    struct_fields net/hivemind/messages/signed_message.h signed_message signed_message
    struct_fields net/hivemind/messages/gather_message.h gather_request gather_request
    struct_fields net/hivemind/messages/gather_message.h gather_piece gather_piece
    struct_fields net/hivemind/verification/verifier.h verifier_claim verifier_claim
    struct_fields net/libp2p/muxing/yamux.h yamux_frame yamux_frame
    struct_fields net/libp2p/rpc/rpc_frame.h rpc_frame rpc_frame
    json_keys authority net/hivemind/moderation/authority.c net/hivemind/moderation/authority_client.c
    json_keys list net/http/client/shard_list.c
    json_keys join_page cmd/join/join_page.c
    json_keys hub net/http/upload/upload_hub.c
    grep -ohE 'MHD_HTTP_HEADER_[A-Z_]+\)|strcasecmp\(name, MHD_HTTP_HEADER_[A-Z_]+' net/http/server/*.c net/http/authority/*.c |
        sed 's/.*MHD_HTTP_HEADER_//; s/)//' | tr 'A-Z_' 'a-z-' | sed 's/^/request./'
    { grep -ohE 'begins\(text, n, "[a-z-]+:"' net/http/client/client_request.c
      grep -ohE 'strcasecmp\(text, "[a-z-]+"' net/http/upload/upload_request.c; } | sed 's/.*"\([a-z-]*\):*"/response.\1/'
    grep -ohE 'element\([a-z]+, sizeof [a-z]+, [^"]*"[A-Za-z]+"' net/http/upload/upload_s3.c | sed 's/.*"\(.*\)"/s3.\1/'
} | sort -u >"$work/read"

# --- what the tables name

awk '/^## / { inside = /^## Claims, bounds and costs/ } inside && /^\| / {
        n = split($0, cell, / \| /); text = cell[1]
        while (match(text, /`[^`]+`/)) {
            span = substr(text, RSTART + 1, RLENGTH - 2); text = substr(text, RSTART + RLENGTH)
            if (span !~ /^[A-Za-z0-9_]+\.[{a-zA-Z]/) continue
            dot = index(span, "."); name = substr(span, 1, dot - 1); rest = substr(span, dot + 1)
            gsub(/[{} ]/, "", rest); n = split(rest, field, ",")
            for (i = 1; i <= n; i++) print name "." field[i]
        }
    }' paper/security.md | sort >"$work/listed"
sort -u "$work/listed" >"$work/named"

for field in $(comm -23 "$work/read" "$work/named"); do complain "paper/security.md: no row names $field"; done
for field in $(comm -13 "$work/read" "$work/named"); do complain "paper/security.md: the code has no field $field"; done
for field in $(uniq -d "$work/listed"); do complain "paper/security.md: two rows name $field"; done
[ "$(wc -l <"$work/read")" -ge 150 ] || complain "claims.sh: only $(wc -l <"$work/read") fields found in the code"

# --- the rows: all columns, and tests that exist

awk '/^## / { inside = /^## Claims, bounds and costs/ } inside && /^\| / && split($0, cell, / \| /) != 6 {
        print "paper/security.md:" FNR ": a row without six columns" }' paper/security.md >"$work/rows"
[ -s "$work/rows" ] && complain "$(cat "$work/rows")"

awk -F ' \\| ' '/^\| / { last = $NF; sub(/ \|$/, "", last)
        if (last == "test") { inside = 1; next }
        if (inside && last !~ /^-+$/) print FNR "\t" last; next }
    { inside = 0 }' paper/security.md |
while IFS="$(printf '\t')" read -r line tests; do
    [ "$tests" = "–" ] && continue
    kind='' file=''
    # A name, a kind and a name, or a function in backticks; words after a colon or in plain parentheses are for people.
    printf '%s\n' "$tests" | sed 's/([^`)]*)//g' | grep -oE '`[a-z_0-9]+`|[a-z_0-9]+' | while read -r word; do
        case $word in
        attack | unit | fuzz | golden | interop | nat | program | simulator) kind=$word file=''; continue ;;
        and) continue ;;
        '`'*) # a function of the unit, or a file of golden values
            name=$(printf '%s' "$word" | tr -d '`')
            case $kind in
            golden) ls test/golden/*/"$name"* >/dev/null 2>&1 || echo "$line: no golden values $name" ;;
            *) [ -n "$file" ] && grep -qE "(^static void |\()$name\(?" "$file" || echo "$line: $file has no $name" ;;
            esac
            continue ;;
        esac
        case $kind in
        attack) file=test/attack/attack_$word.py ;;
        unit) file=$(ls test/unit/*/"$word".c test/unit/*/*/"$word".c 2>/dev/null) ;;
        fuzz) file=test/fuzz/$word.c ;;
        golden) file=test/golden/$word/README.md ;;
        interop) file=test/interop/$word.py ;;
        nat) file=test/nat/$word.py ;;
        program) file=test/program/$word.sh ;;
        simulator) file=test/unit/hivemind/matchmaking/simulator.c ;;
        *) file='' ;;
        esac
        [ -n "$file" ] && [ -e "$file" ] || { echo "$line: no test is called $kind $word"; file=/dev/null; }
    done
done >"$work/tests"
while read -r why; do complain "paper/security.md:$why"; done <"$work/tests"

# --- the code: each field of a message carries its bound

awk '/^message /{ inside = 1 } /^}/ { inside = 0 }
    inside && / = [0-9]+/ && !/\/\/ ./ && before !~ /^  \/\// && $1 != "optional" && $1 != "required" && $1 !~ /^[A-Z]/ { print FILENAME ": no bound behind " $0 }
    inside && / = [0-9]+/ && !/\/\/ ./ && before !~ /^  \/\// && ($1 == "optional" || $1 == "required") && $2 !~ /^[A-Z]/ { print FILENAME ": no bound behind " $0 }
    { before = $0 }' net/*/*/*.proto >"$work/bounds"
while read -r why; do complain "$why"; done <"$work/bounds"
for name in $(grep -ohE '//.*' net/*/*/*.proto | grep -oE '\b[A-Z]+(_[A-Z]+)+\b' | sort -u); do
    grep -rqE "(define |^ +|X[(])$name\b" net ref --include='*.[ch]' || complain "a .proto file names $name, which is no constant"
done
exit $failed
