#!/bin/sh
# Plain C: a release build without Vulkan and UCX, its unit tests and its exported functions.
. "$(dirname "$0")/lane.sh"
CC=gcc configure build/plain --buildtype=release --werror -Dvulkan=disabled -Dshaderc=disabled \
    -Ducx=disabled -Dpmix=disabled &&
    build build/plain || exit 1
without_suites=deadlines
run_suites build/plain unit source
