#!/bin/sh
# SwiftShader: the complete GPU suite on a second CPU driver, which lacks 64-bit integers and 16-bit storage.
. "$(dirname "$0")/lane.sh"
find_drivers || exit 1
if [ -z "$driver_options" ]; then # --without-swiftshader was given
    echo "0 0 1" >>"$TALLY"
    exit 0
fi
# shellcheck disable=SC2086 # options
build_with gcc $driver_options && compile_kernels_once || exit 1
run_suites build/gcc swiftshader
