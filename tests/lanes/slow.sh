#!/bin/sh
# Slow tests of the default build, which few changes break: build options, all benchmarks, attention with random options, gpt on every grid.
. "$(dirname "$0")/lane.sh"
build_with gcc || exit 1
run_suites build/gcc slow
