# potluck.bash - completion for bash. Commands and options are asked of the program itself, so they are
# always those of the one that is installed.

_potluck() {
    local program=$1 word=$2 before=$3 command=${COMP_WORDS[1]}
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "--help --version \
            $("$program" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p')" -- "$word")
        return
    fi
    case $before in
    --backend) mapfile -t COMPREPLY < <(compgen -W "auto ref fast cuda" -- "$word"; compgen -f -- "$word") ;;
    --precision) mapfile -t COMPREPLY < <(compgen -W "float32 bf16" -- "$word") ;;
    --config) mapfile -t COMPREPLY < <(compgen -W "run middle small demo" -- "$word"; compgen -f -- "$word") ;;
    *)
        if [[ $word == -* ]]; then
            mapfile -t COMPREPLY < <(compgen -W "--help \
                $("$program" "$command" --help 2>/dev/null | grep -oE -e '--[a-z0-9][a-z0-9-]*' | sort -u)" -- "$word")
        else
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
        fi ;;
    esac
}
complete -o filenames -F _potluck potluck
