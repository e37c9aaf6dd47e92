#!/bin/sh
# No warning from clang either, and what it compiles passes the tests of the host's part.
. "$(dirname "$0")/lane.sh"
build_with clang || exit 1
# Tests of deadlines mostly wait, whichever compiler made them.
without_suites=deadlines
run_suites build/clang unit
