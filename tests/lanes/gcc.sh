#!/bin/sh
# The whole suite, as a user would build it, on both CPU drivers.
. "$(dirname "$0")/lane.sh"
find_drivers || exit 1
# shellcheck disable=SC2086 # options
build_with gcc $driver_options || exit 1
# shellcheck disable=SC2046 # suites
run_suites build/gcc unit examples lavapipe $([ -n "$driver_options" ] && echo swiftshader)
