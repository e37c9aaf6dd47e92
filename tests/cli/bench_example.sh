#!/bin/sh
# bench_example.sh ROOT BUILD CC…: compiles the benchmark that docs/benchmarks.md shows.
set -u
root=$1
build=$2
shift 2
cd "$root" || exit 1
. tests/source/tap.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# shellcheck disable=SC2016 # the backticks are part of the pattern
sed -n '/^```c$/,/^```$/p' docs/benchmarks.md | grep -v '^```' >"$folder/example.c"

compiles() {
    "$@" -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fsyntax-only \
        -Iinclude -Isrc -I. -I"$build/src" "$folder/example.c"
}
is_formatted() {
    clang-format --style=file:.clang-format --dry-run -Werror "$folder/example.c"
}

point "the documented benchmark compiles" compiles "$@"
case $(clang-format --version 2>/dev/null) in
*'version 14.'*) point "the documented benchmark is formatted" is_formatted ;;
*) skip "the documented benchmark's format" "clang-format 14 is not here" ;;
esac
plan
