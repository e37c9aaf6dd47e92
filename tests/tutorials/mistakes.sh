#!/bin/sh
# mistakes.sh ROOT: tests the runner of tutorials. found.awk must find outputs that differ, and blocks.awk must refuse
# blocks that would not run.
# shellcheck disable=SC2016 # backquotes are fences of Markdown
set -u
root=$1
. "$root/tests/source/tap.sh"
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

# compare EXPECTED OUTPUT: succeeds if found.awk finds all lines.
compare() {
    printf '%s\n' "$1" >"$folder/expected"
    printf '%s\n' "$2" >"$folder/output"
    awk -f "$root/tests/tutorials/found.awk" "$folder/expected" "$folder/output"
}
differs() {
    ! compare "$@"
}
# blocks MARKDOWN: prints the list of its blocks.
blocks() {
    printf '%s\n' "$1" >"$folder/tutorial.md"
    awk -v folder="$folder" -f "$root/tests/tutorials/blocks.awk" "$folder/tutorial.md"
}
kinds() { # KINDS MARKDOWN
    list=$(blocks "$2") && [ "$(printf '%s\n' "$list" | cut -d ' ' -f 1 | tr '\n' ' ')" = "$1 " ]
}
refused() {
    ! blocks "$1"
}

point "a line is found" compare 'two' "$(printf 'one\ntwo')"
point "a part of a line is not the line" differs 'tw' 'two'
point "a missing line" differs "$(printf 'one\nthree')" 'one'
point "any text in the middle" compare '97.… % right' '97.3 % right'
point "text before and after" differs '97.… % right' '97.3 % wrong'
point "parts have an order" differs '…b…a…' 'a b'
point "parts do not overlap" differs 'ab…bc' 'abc'
point "a text without a line to compare" differs '…' 'anything'
point "kinds of blocks" kinds 'sh text file skip' "$(printf '```sh\n```\n```text\n```\n<!-- file: a.c -->\n```c\n```\n<!-- not run: why -->\n```sh\n```')"
point "a command in place of a block" kinds 'skip sh' "$(printf '<!-- not run: why -->\n<!-- instead: true -->\n```sh\n```')"
point "a block that needs something" kinds 'needs text' "$(printf '<!-- needs slurm: where -->\n```sh\n```\n```text\n```')"
point "a command in place of a block that needs something" kinds 'needs' "$(printf '<!-- needs packages: why -->\n<!-- instead: true -->\n```sh\n```')"
point "and it is beside the block" grep -qx true "$folder/1.instead"
point "a block without a name" refused "$(printf '```c\n```')"
point "a block without an end" refused "$(printf '```sh\n')"
plan
