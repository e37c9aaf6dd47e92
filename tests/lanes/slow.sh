#!/bin/sh
# Slow tests of the default build, which few changes break: the rest of lavapipe's suite, benchmarks, gpt on every grid.
# After the lane swiftshader, whose driver its build then knows, it also runs jobs that use both drivers.
. "$(dirname "$0")/lane.sh"
build_with gcc || exit 1
run_suites build/gcc slow
