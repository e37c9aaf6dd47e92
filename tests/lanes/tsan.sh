#!/bin/sh
# The thread sanitizer, on what has threads of its own.
. "$(dirname "$0")/lane.sh"
# It does not know fences, of which there are some between processes, and says so.
CC=gcc configure build/tsan --werror -Dvulkan=disabled -Dshaderc=disabled -Dtools=disabled -Db_sanitize=thread -Dc_args=-Wno-tsan &&
    build build/tsan || exit 1
timeout_multiplier=4
export CK_TIMEOUT_MULTIPLIER=4
# Tests ask for impossible sizes and expect NULL.
export TSAN_OPTIONS=allocator_may_return_null=1
run_suites build/tsan threads
