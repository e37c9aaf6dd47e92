#!/bin/sh
# No warning from clang either, and GPUs without processes to talk to: a build without UCX, whose tests of the host's part and examples
# pass. Clang meets the rest in the sanitizers' lane.
. "$(dirname "$0")/lane.sh"
build_with clang -Ducx=disabled || exit 1
# Tests of deadlines mostly wait, whichever compiler made them.
without_suites=deadlines
run_suites build/clang unit examples
