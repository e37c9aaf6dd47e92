#!/bin/sh
# The plain-C half, without Vulkan: it builds, passes its tests and exports the same functions.
. "$(dirname "$0")/lane.sh"
CC=gcc configure build/plain --werror -Dvulkan=disabled -Dshaderc=disabled &&
    build build/plain || exit 1
run_suites build/plain unit source
