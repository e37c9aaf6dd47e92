#!/bin/sh
# Slow tests of the default build, which few changes break: the rest of lavapipe's suite, benchmarks, trainings on every grid. After the lane
# swiftshader, the build also knows that driver, and this lane also runs jobs that use both drivers.
. "$(dirname "$0")/lane.sh"
build_with gcc && compile_kernels_once || exit 1
run_suites build/gcc slow
