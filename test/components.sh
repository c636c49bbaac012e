#!/bin/sh
# components.sh - the table of README.md and the tests that exist name each other.
cd "$(dirname "$0")/.." || exit 1
failed=0
complain() { echo "test/README.md: $1"; failed=1; }

# Where the tests of a column lie; column 3 is golden.
files_of() { # column name
    case $1 in
    3) echo "test/golden/$2/README.md" ;;
    4) echo "test/conform/pairs/pair_$2.c" ;;
    5) echo "test/unit/*/$2.c test/unit/*/*/$2.c" ;;
    6) echo "test/fuzz/$2.c" ;;
    7) echo "test/interop/$2.py" ;;
    8) echo "test/program/$2.sh test/attack/$2.py test/soak/$2.py" ;;
    esac
}
names_in() { # column
    awk -F '|' -v column="$1" '/^\| component/ { inside = 1 } inside && /^\| `/ { print $column }' test/README.md | grep -o '`[^`]*`' | tr -d '`' | sort -u
}

for place in $(names_in 2); do [ -e "$place" ] || complain "there is no $place"; done
for column in 3 4 5 6 7 8; do
    for name in $(names_in $column); do
        # shellcheck disable=SC2046
        ls $(files_of $column "$name") 2>/dev/null | grep -q . || complain "no test is called $name (column $column)"
    done
done
known() { # column name path
    [ "$1" = "$listed" ] || { names=" $(names_in "$1" | tr '\n' ' ')"; listed=$1; }
    case $names in *" $2 "*) ;; *) complain "nothing says what $3 tests" ;; esac
}
for path in test/golden/*/README.md; do name=${path%/README.md}; known 3 "${name##*/}" "$path"; done
for path in test/conform/pairs/pair_*.c; do
    name=${path##*/pair_}
    [ "$name" = run.c ] && continue # what they share
    known 4 "${name%.c}" "$path"
done
for path in test/unit/*/*.c test/unit/*/*/*.c; do name=${path##*/}; known 5 "${name%.c}" "$path"; done
for path in test/fuzz/*.c; do name=${path##*/}; known 6 "${name%.c}" "$path"; done
for name in $(sh test/interop/run.sh --list); do known 7 "$name" "test/interop/$name.py"; done
for path in test/program/*.sh test/attack/attack_*.py; do name=${path##*/}; known 8 "${name%.*}" "$path"; done
exit $failed
