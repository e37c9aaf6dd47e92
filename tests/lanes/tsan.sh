#!/bin/sh
# The thread sanitizer, on the tests of code that several threads run (suite "threads"); builds nothing else. Communicators have no threads
# of their own. Their processes share the shared-memory transport, but the sanitizer sees nothing between processes. So in the test of that
# transport, ranks are threads (tests/comm/shm).
. "$(dirname "$0")/lane.sh"
programs='tests/test-base tests/test-comm_shm tests/test-host_threads tests/test-loader tests/test-quantize_rows tests/bootstrap/test-bootstrap'
# The thread sanitizer does not support fences, which some code for several processes uses: gcc would warn (-Wno-tsan).
# shellcheck disable=SC2086 # several words
configure_in build/tsan gcc -Dvulkan=disabled -Dshaderc=disabled -Dtools=disabled -Db_sanitize=thread "-Dc_args=-Wno-tsan $line_numbers" &&
    build build/tsan $programs || exit 1
timeout_multiplier=4
export CK_TIMEOUT_MULTIPLIER=4
# Tests request impossible sizes and expect NULL.
export TSAN_OPTIONS=allocator_may_return_null=1
run_suites build/tsan threads
