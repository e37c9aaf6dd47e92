#!/bin/sh
# Tests that every change must pass: unit tests, source rules, examples, processes that communicate, the GPU suite on lavapipe.
. "$(dirname "$0")/lane.sh"
build_with gcc || exit 1
without_suites=slow
run_suites build/gcc unit source examples lavapipe
