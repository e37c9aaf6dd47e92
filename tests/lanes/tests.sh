#!/bin/sh
# Tests that every change must pass: unit tests, source rules, examples, processes that communicate, most of the GPU suite on lavapipe.
. "$(dirname "$0")/lane.sh"
build_with gcc && compile_kernels_once || exit 1
without_suites="slow long"
run_suites build/gcc unit source examples lavapipe
