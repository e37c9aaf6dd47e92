#!/bin/sh
# Format and static analysis: clang-format, clang-tidy, shellcheck.
. "$(dirname "$0")/lane.sh"
# Clang-tidy needs the generated headers and the compiler's commands, but no object files.
CC=clang configure build/clang --werror -Ddebug=false || exit 1
headers=$(ninja -C build/clang -t targets all | sed -n 's/^\(.*\.inc\): .*/\1/p')
# shellcheck disable=SC2086 # several words
build build/clang $headers || exit 1
run_tap tests/source/lint.sh "$root/build/clang" "$caches/clang-tidy"
