#!/bin/sh
# pages.sh - the program's manual: pages.sh POTLUCK CHANGELOG FOLDER writes FOLDER/potluck.1 and a
# page a command. The options come from the program itself. The *.man files in this folder are
# written by hand: examples, files, pitfalls.
set -e
program=$1 folder=$3
here=$(dirname "$0")
version=$("$program" --version | sed -n '1s/^potluck //p')
date=$(sed -n 's/^## .*(\([0-9-]*\))$/\1/p' "$2" | head -n 1)
mkdir -p "$folder"

table=$("$program" --help | sed -n 's/^  \([a-z][a-z-]*\)  *\(.*\)/\1 \2/p')
echo "$table" | while read -r command about; do
    {
        "$program" "$command" --help | awk -v name="potluck-$command" -v about="$about" -v version="$version" \
            -v date="$date" -f "$here/page.awk"
        [ ! -f "$here/$command.man" ] || cat "$here/$command.man"
        printf '.SH SEE ALSO\n.BR potluck (1)\n'
    } >"$folder/potluck-$command.1"
done

{
    printf '.\\" made by paper/man/pages.sh\n'
    printf '.TH POTLUCK 1 "%s" "potluck %s" "Training transformers together"\n' "$date" "$version"
    printf '.SH NAME\npotluck \\- train transformers together over the internet\n'
    printf '.SH SYNOPSIS\n.B potluck\n.I COMMAND\n.RI [ OPTION\n\\&...]\n.br\n.B potluck \\-\\-help\n.br\n.B potluck \\-\\-version\n'
    cat "$here/potluck.man"
    printf '.SH COMMANDS\n'
    echo "$table" | while read -r command about; do
        printf '.TP\n.BR potluck\\-%s (1)\n%s\n' "$command" "$(echo "$about" | sed 's/-/\\-/g')"
    done
    cat "$here/potluck_end.man"
} >"$folder/potluck.1"
