#!/bin/sh
# The plain-C half, without Vulkan and UCX: it builds, also as a release, whose optimizer finds more to warn of; passes its tests; and
# exports the same functions.
. "$(dirname "$0")/lane.sh"
CC=gcc configure build/plain --buildtype=release --werror -Dvulkan=disabled -Dshaderc=disabled \
    -Ducx=disabled -Dpmix=disabled &&
    build build/plain || exit 1
run_suites build/plain unit source
