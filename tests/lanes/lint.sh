#!/bin/sh
# Format and static analysis.
. "$(dirname "$0")/lane.sh"
CC=clang configure build/clang --werror && build build/clang || exit 1
run_tap tests/source/lint.sh "$root/build/clang"
