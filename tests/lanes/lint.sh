#!/bin/sh
# Format and static analysis: clang-format, clang-tidy, shellcheck.
. "$(dirname "$0")/lane.sh"
build_with clang || exit 1
run_tap tests/source/lint.sh "$root/build/clang"
