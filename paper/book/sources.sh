#!/bin/sh
# sources.sh OUT NOTES - for every file that a page links to (NOTES/*.sources) a page with numbered lines,
# OUT/source/PATH.html.
out=$1 notes=$2
cat "$notes"/*.sources | sort -u | while read -r file; do
    page=$out/source/$file.html
    [ -f "$page" ] && [ "$page" -nt "$file" ] && [ "$page" -nt paper/book/sources.sh ] && continue
    mkdir -p "$(dirname "$page")"
    up=$(echo "source/$file" | sed 's,[^/]*$,,; s,[^/]*/,../,g')
    awk -v file="$file" -v up="$up" '
        BEGIN {
            print "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">"
            print "<title>" file "</title><link rel=\"stylesheet\" href=\"" up "book.css\"></head><body class=\"source\"><main>"
            print "<p><a href=\"" up "index.html\">The book</a></p><h1><code>" file "</code></h1>"
            print "<pre role=\"region\" aria-label=\"" file "\" tabindex=\"0\"><code>"
        }
        {
            gsub(/&/, "\\&amp;"); gsub(/</, "\\&lt;"); gsub(/>/, "\\&gt;")
            printf "<span class=\"line\" id=\"L%d\">%s\n</span>", NR, $0
        }
        END { print "</code></pre></main></body></html>" }' "$file" >"$page.new" && mv "$page.new" "$page" || exit 1
done
find "$out/source" -name '*.html' | while read -r page; do
    file=${page#"$out/source/"}
    [ -e "${file%.html}" ] || rm "$page"
done
