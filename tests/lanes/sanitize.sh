#!/bin/sh
# Sanitizers: unit tests and the lavapipe suite under clang's address, leak and undefined-behaviour sanitizers.
# Clang's sanitizers find more than gcc's, for example offsets from NULL. Reports need line numbers but no variables (-g1). A sanitized
# shared library has undefined symbols (b_lundef), because only the program contains the sanitizer's functions.
. "$(dirname "$0")/lane.sh"
CC=clang CC_LD=lld configure build/sanitize --werror -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1 -Ddebug=false \
    '-Dc_args=-fsanitize=float-cast-overflow -fno-sanitize-recover=all -g1' && build build/sanitize || exit 1
timeout_multiplier=4
export CK_TIMEOUT_MULTIPLIER=4
gcc -shared -fPIC -o build/sanitize/keep_modules.so tests/lanes/keep_modules.c || exit 1
wrapper="env LD_PRELOAD=$root/build/sanitize/keep_modules.so"
# Tests request impossible sizes and expect NULL.
ASAN_OPTIONS=allocator_may_return_null=1
# The driver's compiler makes far more allocations than tessera. Each one costs a walk of its stack, and new pages after it is freed.
export ASAN_OPTIONS=$ASAN_OPTIONS:malloc_context_size=8:quarantine_size_mb=4:thread_local_quarantine_size_kb=16
# By default, the sanitizer guesses where the thread-local storage of a library begins, from what lies in memory in front of it. A wrong
# guess, which depends on an address, ends the leak check with a fatal error.
export ASAN_OPTIONS=$ASAN_OPTIONS:intercept_tls_get_addr=0
export UBSAN_OPTIONS=print_stacktrace=1
# Tests in the suite `repeats` run the same code as another test does, with other numbers of ranks or all benchmarks in a row. What the
# driver made of shaders in other lanes is in its cache: compiling them again would take half of this lane's time.
without_suites="slow repeats"
run_suites build/sanitize unit lavapipe
