#!/bin/sh
# Clang: no warning, and a build without UCX, whose unit tests and examples pass.
# The sanitizers' lane builds everything else with clang.
. "$(dirname "$0")/lane.sh"
build_with clang -Ducx=disabled || exit 1
# Tests of deadlines mostly wait, so running them for a second compiler would only cost time.
without_suites=deadlines
run_suites build/clang unit examples
