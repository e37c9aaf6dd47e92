#!/bin/sh
# Compiles every shader for AMD GPUs that need not be there: Mesa's RADV on null hardware.
. "$(dirname "$0")/lane.sh"
CC=gcc configure build/gcc --werror && build build/gcc || exit 1
run_suites build/gcc radv-null
