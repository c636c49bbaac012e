#!/bin/sh
# changelog.sh - Debian's changelog out of ours: changelog.sh CHANGELOG.md. A release is "## X.Y.Z
# (DAY)", its entries are the list's items, set anew in lines of 76.
awk '
function close_item(    words, n, i, text) {
    if (item == "") return
    gsub(/[*`]/, "", item)
    n = split(item, words, " ")
    text = "  *"
    for (i = 1; i <= n; i++) {
        if (length(text " " words[i]) > 76) {
            print text
            text = "   "
        }
        text = text " " words[i]
    }
    print text
    item = ""
}
function close_entry() {
    close_item()
    if (day != "") printf "\n -- potluck developers <potluck@example.org>  %s\n\n", stamp
}
/^## / {
    close_entry()
    day = $3
    gsub(/[()]/, "", day)
    ("LC_ALL=C date -u -R -d " day) | getline stamp
    printf "potluck (%s) unstable; urgency=medium\n\n", $2
    next
}
day != "" && /^- / { close_item(); item = substr($0, 3); next }
day != "" && item != "" && /^  / { item = item $0; next }
{ close_item() }
END { close_entry() }' "$1"
