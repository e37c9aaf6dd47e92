#!/bin/sh
# No warning from clang either.
. "$(dirname "$0")/lane.sh"
CC=clang configure build/clang --werror && build build/clang || exit 1
run_suites build/clang unit
