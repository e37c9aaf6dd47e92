#!/bin/sh
# readme.sh README PROGRAM: the README's C block is the program, to the letter.
set -u
text=$(mktemp) || exit 1
trap 'rm -f "$text"' EXIT
awk '/^```c$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$1" >"$text"
[ -s "$text" ] || { echo "no C block in $1"; exit 1; }
diff -u "$text" "$2"
