#!/bin/sh
# Slow tests of the default build, which few changes break: every build option, and a complete run of the benchmarks.
. "$(dirname "$0")/lane.sh"
build_with gcc || exit 1
run_suites build/gcc slow
