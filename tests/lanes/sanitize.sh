#!/bin/sh
# Address, leak and undefined-behaviour sanitizers, on lavapipe.
. "$(dirname "$0")/lane.sh"
CC=gcc configure build/sanitize --werror -Db_sanitize=address,undefined -Dc_args=-fno-sanitize-recover=all &&
    build build/sanitize || exit 1
timeout_multiplier=4
export CK_TIMEOUT_MULTIPLIER=4
# Tests ask for impossible sizes and expect NULL.
export ASAN_OPTIONS=allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1
run_suites build/sanitize unit lavapipe
