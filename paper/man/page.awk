# page.awk - what a command says with --help, as a manual page: man's markup on standard output.
# Variables: name (potluck-train), about (its line in the table of commands), version, date.
# The form of the help texts (cmd/options/options_help.c): "usage:" lines, an empty line, paragraphs that begin in the
# first column, headings that end with a colon, and options that begin in the third column, their sentences two spaces
# or a line behind.

function plain(s) { # text in which man finds no markup of its own
    gsub(/\\/, "\\e", s)
    gsub(/-/, "\\-", s)
    return s
}
function marked(s,    out) { # options bold, wherever they stand
    out = ""
    while (match(s, /--[a-z0-9][a-z0-9-]*/)) {
        out = out plain(substr(s, 1, RSTART - 1)) "\\fB" plain(substr(s, RSTART, RLENGTH)) "\\fR"
        s = substr(s, RSTART + RLENGTH)
    }
    return out plain(s)
}
function line(s) { # a line of running text
    s = marked(s)
    if (s ~ /^[.']/) s = "\\&" s
    print s
}
function section(s) {
    if (now != s) print ".SH " s
    now = s
}
function verbatim(on) {
    if (on != literal) print on ? ".RS 4\n.nf" : ".fi\n.RE"
    literal = on
}

BEGIN {
    title = toupper(name)
    print ".\\\" made by paper/man/page.awk from what the program says with \\-\\-help"
    print ".TH " plain(title) " 1 \"" date "\" \"potluck " version "\" \"Training transformers together\""
    print ".SH NAME"
    print plain(name) " \\- " plain(about)
    print ".SH SYNOPSIS\n.nf"
    state = "usage"
}
state == "usage" {
    if ($0 == "") {
        print ".fi"
        section("DESCRIPTION")
        state = "text"
    } else {
        sub(/^usage: /, "")
        sub(/^       /, "")
        line($0)
    }
    next
}
/^$/ { gap = 1; next }
heading != "" && !/^  -/ { # it was a paragraph of one line
    line(heading ":")
    heading = ""
}
gap && /^[^ ].*:$/ {
    heading = substr($0, 1, length($0) - 1)
    next
}
/^  -/ { # an option
    verbatim(0)
    section("OPTIONS")
    if (heading != "") print ".SS " plain(heading)
    heading = ""
    rest = substr($0, 3)
    if (match(rest, /   */)) {
        head = substr(rest, 1, RSTART - 1)
        rest = substr(rest, RSTART + RLENGTH)
    } else {
        head = rest
        rest = ""
    }
    sub(/ *$/, "", head)
    sub(/^ */, "", rest)
    print ".TP"
    line(head)
    if (rest != "") line(rest)
    option = 1
    gap = 0
    next
}
/^  / && option && !gap { # goes on with the option's words
    sub(/^ */, "")
    if (/^- /) print ".br"
    line($0)
    next
}
/^  / { # an example
    if (gap && !literal) print ".PP"
    verbatim(1)
    print marked(substr($0, 3))
    gap = 0
    next
}
{
    verbatim(0)
    if (now == "OPTIONS" && gap) section("NOTES")
    else if (gap) print ".PP"
    line($0)
    option = gap = 0
}
END { verbatim(0) }
