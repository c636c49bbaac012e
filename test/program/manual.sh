#!/bin/sh
# manual.sh - the manual agrees with the program: each command has a page with exactly the options
# of its --help, and --help lists each row of the command's table once. Completion offers the same.
# The release has one number. Checks that need mandoc, man or zsh are skipped where these are
# missing.
. "$(dirname "$0")/lib.inc"
skipped=0
pages=$work/man
commands=$("$POTLUCK" --help | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p')
options() { grep -oE -e '--[a-z0-9][a-z0-9-]*' | sort -u; }

check "pages are made" sh paper/man/pages.sh "$POTLUCK" CHANGELOG.md "$pages"
check "a page a command, and one for all" [ "$(ls "$pages" | wc -l)" -eq "$(echo "$commands" | wc -l | awk '{ print $1 + 1 }')" ]
for c in $commands; do
    "$POTLUCK" "$c" --help >"$work/help" 2>"$work/err"
    check "$c --help succeeds and complains of nothing" [ $? -eq 0 -a ! -s "$work/err" -a -s "$work/help" ]
    cat "$work/help" >>"$work/all"
    options <"$work/help" >"$work/want"
    sed 's/\\-/-/g' "$pages/potluck-$c.1" 2>/dev/null | grep -v '^\.\\"' | options >"$work/got"
    check "$c: the page has the options of --help and no others" cmp "$work/want" "$work/got"
    check "$c: each option has an entry or stands in a line of one" sh -c '
        sed -n "s/^  \(-.*\)/\1/p" "$0" | sed "s/  .*//" | grep -oE -e "--[a-z0-9-]+" | while read -r o; do
            sed "s/\\\\-/-/g; s/\\\\f[BR]//g" "$1" | grep -A1 "^\.TP" | grep -q -e "$o" || exit 1; done' \
        "$work/help" "$pages/potluck-$c.1"
    check "$c: the first page names it" grep -q "^\.BR potluck.-$c (1)" "$pages/potluck.1"
    check "$c: 'potluck help $c' is the same" sh -c '"$0" help "$1" | cmp - "$2"' "$POTLUCK" "$c" "$work/help"
    check "$c: no line of --help is longer than 100 columns" sh -c '! grep -E ".{101}" "$0"' "$work/help"
    # The help says of every option in the table, and once.
    "$POTLUCK" help "$c" --list | cut -f 1 | sort >"$work/table"
    sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p' "$work/help" | sort >"$work/entries"
    check "$c: --help lists each option once" sh -c 'cmp "$0" "$1" && [ -z "$(uniq -d "$0")" ]' "$work/table" "$work/entries"
    "$POTLUCK" help "$c" --list | cut -f 2 | tr ' ' '\n' | grep -vx FILE | while read -r value; do
        grep -qwF -e "$value" "$work/help" || echo "$value"
    done >"$work/unnamed"
    check "$c: --help names each value of its choices" [ ! -s "$work/unnamed" ]
    cat "$work/table" >>"$work/tables"
    # Of two options the wrong one is the one complained of.
    while read -r o; do
        timeout 20 "$POTLUCK" $([ "$c" = dht ] && echo dht ping || [ "$c" = vqgan ] && echo vqgan train || echo "$c") \
            "$o=1" --no-such-option </dev/null 2>&1 | grep -q "unrecognized option '$o[=']" && echo "$o"
    done <"$work/table" >"$work/unknown"
    check "$c: every option is known to the program" [ ! -s "$work/unknown" ]
done
options <"$work/all" | grep -vxF -e --help | while read -r o; do grep -qxF -e "$o" "$work/tables" || echo "$o"; done >"$work/lost"
check "no help speaks of an option that no command has" sh -c '[ ! -s "$0" ] || { cat "$0"; false; }' "$work/lost"

if command -v mandoc >/dev/null; then
    check "mandoc finds no fault" mandoc -T lint -W warning "$pages"/potluck*.1
else
    echo "skip the pages' markup: mandoc is not installed"; skipped=$((skipped + 1))
fi

# --- what the documents name is there. paper/spec tells of other programs, paper/log of earlier
# versions.

git ls-files '*.md' 2>/dev/null | grep -vE '^(test/golden|paper/spec|paper/log)/' >"$work/documents"
[ -s "$work/documents" ] || ls ./*.md paper/*.md >"$work/documents" # the sources of a release are no checkout
folders='(ref|runtime|fast|cuda|data|net|cmd|test|notebooks|paper)'
while read -r document; do
    grep -ohE "\`$folders/[^\` :(]*" "$document" | tr -d '`' | sort -u | while read -r f; do
        case $f in *\**) set -- $f ;; *) set -- "$f"* ;; esac
        [ -e "$1" ] || echo "$document: $f"
    done
done <"$work/documents" >"$work/lost"
check "no document names a file that is not there" sh -c '[ ! -s "$0" ] || { cat "$0"; false; }' "$work/lost"
# A row of the glossary: | term | one sentence | `file`, `file` |
awk -F' *[|] *' '/^[|] / && $2 !~ /^(term|---)$/ { print $4 }' paper/glossary.md | tr -d '` ' | tr ',' '\n' >"$work/named"
check "the glossary names files" [ "$(wc -l <"$work/named")" -gt 100 ]
while read -r f; do [ -n "$f" ] && [ -e "$f" ] || echo "'$f'"; done <"$work/named" >"$work/lost"
check "and each of them is there" sh -c '[ ! -s "$0" ] || { cat "$0"; false; }' "$work/lost"
check "no term stands in the glossary twice" sh -c '
    twice=$(sed -n "s/^| \([^|]*\) | .*/\1/p" "$0" | grep -vxE "term|---" | sort | uniq -d)
    [ -z "$twice" ] || { echo "$twice"; false; }' paper/glossary.md
awk -F'|' 'NF > 5 {
    n = split($5, part, ";")
    for (i = 1; i <= n; i++) {
        sub(/^ */, "", part[i]); kind = part[i]; sub(/ .*/, "", kind)
        if (kind != "unit" && kind != "program" && kind != "interop") continue
        sub(/^[a-z]+ /, "", part[i]); gsub(/\([^)]*\)/, "", part[i]); sub(/:.*/, "", part[i])
        m = split(part[i], name, ",")
        for (k = 1; k <= m; k++) { gsub(/ /, "", name[k]); print kind "/" name[k] }
    }
}' paper/map.md | sort -u >"$work/held"
while read -r t; do
    [ -n "$(find "test/${t%%/*}" -name "${t#*/}.*")" ] || echo "$t"
done <"$work/held" >"$work/lost"
check "the map names tests" [ "$(wc -l <"$work/held")" -gt 20 ]
check "and each of them is there" sh -c '[ ! -s "$0" ] || { cat "$0"; false; }' "$work/lost"
while read -r document; do
    grep -ohE '\]\([a-z.][^):]*\)' "$document" | tr -d ']()' | sed 's/#.*//' | sort -u | while read -r f; do
        [ -e "$(dirname "$document")/$f" ] || echo "$document: $f"
    done
done <"$work/documents" >"$work/lost"
check "no document links to a file that is not there" sh -c '[ ! -s "$0" ] || { cat "$0"; false; }' "$work/lost"

# --- completion: what bash would offer

offers() { # words; prints one offer a line
    bash -c '. cmd/completion/potluck.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _potluck "$1" "${@: -1}" "${@: -2:1}"; printf "%s\n" "${COMPREPLY[@]}"' x "$@"
}
if command -v bash >/dev/null; then
    offers "$POTLUCK" "" | grep -v -e '^--' -e '^help$' | sort >"$work/got"
    echo "$commands" | sort >"$work/want"
    check "bash completes commands" cmp "$work/want" "$work/got"
    check "bash completes options" sh -c '[ "$(cat)" = --target-batch ]' <<END
$(offers "$POTLUCK" train --target)
END
    check "bash completes values" sh -c '[ "$(cat)" = middle ]' <<END
$(offers "$POTLUCK" train --config mid)
END
else
    echo "skip completion: bash is not installed"; skipped=$((skipped + 1))
fi
if command -v zsh >/dev/null; then check "zsh reads its completion" zsh -n cmd/completion/potluck.zsh
else echo "skip zsh's completion: zsh is not installed"; skipped=$((skipped + 1)); fi

# --- the program itself

check "-V is --version" sh -c '[ "$("$0" -V)" = "$("$0" --version)" ]' "$POTLUCK"
check "head ends show without a word" sh -c '[ -z "$( { "$0" show data/demo/emoji-00000.parquet --rows 1000 | head -n 1 >/dev/null; } 2>&1)" ]' "$POTLUCK"
check "and other output" sh -c '[ -z "$( { (sleep 0.3; exec "$0" help train) | true; } 2>&1)" ]' "$POTLUCK"
refuses 1 "'nofolder' is not a folder" "$POTLUCK" dash --folder nofolder
refuses 2 "did you mean --steps?" "$POTLUCK" train --stesp 4
refuses 2 "no command 'nothing'; 'potluck --help'" "$POTLUCK" help nothing
refuses 2 "no command 'trian'; did you mean train?" "$POTLUCK" trian

# --- the release

number=$(sed -n 's/^## \([0-9.]*\) .*/\1/p' CHANGELOG.md | head -n 1)
check "program and CHANGELOG have one number" [ "$("$POTLUCK" --version | sed -n '1s/^potluck //p')" = "$number" ]
check "the page for Debian has it too" sh -c 'sh debian/changelog.sh CHANGELOG.md | grep -q "^potluck ($0) unstable"' "$number"
check "and its lines fit" sh -c '! sh debian/changelog.sh CHANGELOG.md | grep -qE ".{80}"'

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
