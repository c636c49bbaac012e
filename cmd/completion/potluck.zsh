#compdef potluck
# potluck.zsh - completion for zsh: commands, options and values with their lines of help, as the program's own
# `potluck help COMMAND --list` gives them.

local -a commands options values
local line=${words[CURRENT-1]} program=$words[1]
if (( CURRENT == 2 )) || [[ $words[2] == help ]]; then
    commands=(${(f)"$($program --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)  *\(.*\)/\1:\2/p')"})
    _describe command commands
elif [[ $words[CURRENT] == -* ]]; then
    options=(--help:'explain the command' ${(f)"$($program help $words[2] --list 2>/dev/null | awk -F '\t' '{ print $1 ":" $3 }')"})
    _describe -o option options
elif [[ $line == --* ]]; then
    values=(${=$($program help $words[2] --list 2>/dev/null | awk -F '\t' -v o=$line '$1 == o { print $2 }')})
    [[ -z ${values:#FILE} ]] || compadd -- ${values:#FILE}
    (( ! ${values[(I)FILE]} )) || _files
else
    _files
fi
