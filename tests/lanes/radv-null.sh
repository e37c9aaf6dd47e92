#!/bin/sh
# AMD: compiles every shader with Mesa's RADV driver on null hardware, which needs no GPU.
. "$(dirname "$0")/lane.sh"
build_with gcc || exit 1
run_suites build/gcc radv-null
