#!/bin/sh
# Format and static analysis.
. "$(dirname "$0")/lane.sh"
build_with clang || exit 1
run_tap tests/source/lint.sh "$root/build/clang"
