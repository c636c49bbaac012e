# potluck.bash - completion for bash. Commands, options and values are asked of the program itself, so they are always
# those of the one that is installed: `potluck help COMMAND --list` prints a line for each option, its name, a tab, its
# values (FILE: file names), a tab, its help.

_potluck() {
    local program=$1 word=$2 before=$3 command=${COMP_WORDS[1]} values
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "help --help --version \
            $("$program" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p')" -- "$word")
    elif [ "$command" = help ]; then
        mapfile -t COMPREPLY < <(compgen -W \
            "$("$program" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p')" -- "$word")
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "--help $("$program" help "$command" --list 2>/dev/null | cut -f 1)" -- "$word")
    else
        values=FILE
        [[ $before != --* ]] ||
            values=$("$program" help "$command" --list 2>/dev/null | awk -F '\t' -v o="$before" '$1 == o { print $2 }')
        mapfile -t COMPREPLY < <(compgen -W "${values/FILE/}" -- "$word"
            [[ $values != *FILE* ]] || compgen -f -- "$word")
    fi
}
complete -o filenames -F _potluck potluck
