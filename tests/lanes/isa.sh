#!/bin/sh
# GPU kernels judged by the machine code that Mesa's RADV driver makes of them on null hardware: limits, and figures kept in the tree.
. "$(dirname "$0")/lane.sh"
build_with gcc || exit 1
run_suites build/gcc isa
