#compdef potluck
# potluck.zsh - completion for zsh: commands with their line of help, options of the command that is typed.

local -a commands options
if (( CURRENT == 2 )); then
    commands=(${(f)"$($words[1] --help 2>/dev/null | sed -n 's/^  \([a-z][a-z]*\)  *\(.*\)/\1:\2/p')"})
    _describe command commands
elif [[ $words[CURRENT] == -* ]]; then
    options=(--help ${(fu)"$($words[1] $words[2] --help 2>/dev/null | grep -oE -e '--[a-z0-9][a-z0-9-]*')"})
    compadd -a options
else
    _files
fi
