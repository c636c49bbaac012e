#!/bin/sh
# copyright.sh - the package's copyright file: copyright.sh LICENSE NOTICE
cat <<END
potluck: https://arxiv.org/abs/2207.03481 says what it is an implementation of.

Everything but the files named below:

END
cat "$1"
printf '\nIn share/potluck/demo:\n\n'
cat "$2"
