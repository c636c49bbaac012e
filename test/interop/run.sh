#!/bin/sh
# run.sh [SCRIPT ...] - runs the scripts here (or those named) with our program, each with the first
# Python that has what it needs: those that environment.sh makes, the one on the PATH, Debian's.
# --list names them. INTEROP_SLOW=N: the program is N times as slow as usual (sanitizers).
cd "$(dirname "$0")/../.." || exit 1
scripts=$(for s in test/interop/*.py; do basename "$s" .py; done | grep -vE '^(hivemind_.*|steps|axe|browser)$') # peers, helpers
[ "$1" = --list ] && { echo "$scripts"; exit 0; }
export BUILD="${BUILD:-build}" PYTHONDONTWRITEBYTECODE=1
log=$(mktemp -d) || exit 1
trap 'rm -rf "$log"' EXIT
passed=0 failed=0 skipped=0
hivemind=$(sh test/interop/environment.sh hivemind) || { no_hivemind=$hivemind hivemind=; }
files=$(sh test/interop/environment.sh files) || { no_files=$files files=; }

count() { # passed failed skipped
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + ${3:-0}))
}

run() {
    echo "== $name"
    rc=77 # steps.py: this Python lacks a module
    for python in $files $hivemind python3 /usr/bin/python3; do
        [ $rc -eq 77 ] && command -v "$python" >/dev/null || continue
        # steps.py ends a script by itself, unless it cannot run any more
        { timeout --foreground -k 10 $((2700 * ${INTEROP_SLOW:-1})) "$python" "test/interop/$name.py" "$BUILD/potluck" 2>"$log/errors"; echo $? >"$log/rc"; } | tee "$log/out"
        rc=$(cat "$log/rc")
    done
    if [ "$rc" -eq 77 ]; then
        lacks=$(sed -n 's/.*: no \([^ ]*\) for .*/\1/p' "$log/errors" | head -n 1)
        case $lacks in
        hivemind | dalle_pytorch) why=$no_hivemind ;;
        *) why=$no_files ;;
        esac
        echo "skip $name: no Python with ${lacks:-what it needs} here${why:+; $why}"
        count 0 0 1
        return
    fi
    [ "$rc" -eq 0 ] || cat "$log/errors" # what the peers printed
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log/out" | tail -n 1 | tr -dc '0-9 ')
    [ -n "$line" ] || { echo "FAIL $name: exit status $rc and no closing count"; line="0 1 0"; }
    set -- $line
    count "$@"
    [ "$rc" -ne 0 ] && [ "$2" -eq 0 ] && { echo "FAIL $name: exit status $rc"; count 0 1; }
}

for name in ${*:-$scripts}; do run; done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
