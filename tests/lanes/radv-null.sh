#!/bin/sh
# Compiles every shader for AMD GPUs that need not be there: Mesa's RADV on null hardware.
. "$(dirname "$0")/lane.sh"
build_with gcc || exit 1
run_suites build/gcc radv-null
