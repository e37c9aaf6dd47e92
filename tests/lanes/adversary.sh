#!/bin/sh
# Mistakes that drivers for the CPU hide: programs of the GPU suite on a driver that runs commands, invocations and workgroups in another
# order, lets each command access only what it has declared, and puts pages that fault around buffers (tests/gpu/driver/driver.h).
. "$(dirname "$0")/lane.sh"
build_with gcc && compile_kernels_once || exit 1
run_suites build/gcc adversary
