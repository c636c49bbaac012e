# lib.sh - what the program tests share. Each test prints "ok   ..." or "FAIL ..." lines and closes
# with a count; $POTLUCK is the program.
POTLUCK=${POTLUCK:-build/potluck}
DEMO=data/demo
passed=0 failed=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

ok() { echo "ok   $1"; passed=$((passed + 1)); }
fail() { echo "FAIL $1"; failed=$((failed + 1)); }
check() { # what, command...
    what=$1; shift
    if "$@" >"$work/log" 2>&1; then ok "$what"; else fail "$what"; tail -n 3 "$work/log"; fi
}

# The command fails with this status, in one line that holds these words, and prints nothing else.
refuses() { # status, words, command...
    want=$1 words=$2; shift 2
    "$@" >"$work/out" 2>"$work/err"
    got=$?
    lines=$(wc -l <"$work/err")
    if [ "$got" -eq "$want" ] && grep -q -- "$words" "$work/err" && { [ "$want" -eq 2 ] || [ "$lines" -eq 1 ]; }; then
        ok "refuses: $words"
    else
        fail "refuses: $words (status $got, expected $want, $lines lines)"
        head -n 3 "$work/err"
    fi
}

finish() {
    echo "$passed passed, $failed failed, 0 skipped"
    [ "$failed" -eq 0 ]
}
