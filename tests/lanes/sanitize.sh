#!/bin/sh
# Sanitizers: unit tests and the lavapipe suite under clang's address, leak and undefined-behaviour sanitizers.
# Clang's sanitizers find more than gcc's, for example offsets from NULL. A sanitized shared library has undefined symbols (b_lundef), because
# only the program contains the sanitizer's functions.
. "$(dirname "$0")/lane.sh"
CC_LD=lld configure_in build/sanitize clang -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1 \
    "-Dc_args=-fsanitize=float-cast-overflow -fno-sanitize-recover=all $line_numbers" || exit 1
# Tests in the suite `repeats` run the same code as other tests, with other numbers of ranks or with all benchmarks one after another. The
# driver's cache has the shaders that other lanes have compiled: compiling them again would take half of this lane's time.
without_suites="slow repeats"
programs=$(python3 tests/lanes/needed.py build/sanitize unit lavapipe --without "$without_suites") || exit 1
# shellcheck disable=SC2086 # several words
build build/sanitize $programs tests/gpu/other_width || exit 1
timeout_multiplier=4
export CK_TIMEOUT_MULTIPLIER=4
gcc -shared -fPIC -o build/sanitize/keep_modules.so tests/lanes/keep_modules.c || exit 1
preloaded=$root/build/sanitize/keep_modules.so
compile_kernels_once || exit 1
# keep_modules.so keeps a driver loaded, so it does not read its environment variables again. They are therefore set from the start. They
# have the values that the library chooses for this processor (src/gpu/device/mesa.h), because the cache has the kernels of other lanes for
# this width of vectors only.
if build/sanitize/tests/gpu/other_width /bin/true | grep -qx '# vectors of 256 bits'; then
    export LP_NATIVE_VECTOR_WIDTH=512 GALLIVM_PERF=no_aos_sampling
else
    export LP_NATIVE_VECTOR_WIDTH=256 GALLIVM_PERF=
fi
# Tests request impossible sizes and expect NULL.
ASAN_OPTIONS=allocator_may_return_null=1
# The driver's compiler makes far more allocations than tessera. For each of them, the sanitizer walks the stack, and uses new pages after
# the memory is freed. These options limit both.
export ASAN_OPTIONS=$ASAN_OPTIONS:malloc_context_size=8:quarantine_size_mb=4:thread_local_quarantine_size_kb=16
# By default, the sanitizer guesses where the thread-local storage of a library begins, from the contents of the memory before it. A wrong
# guess, which depends on an address, ends the leak check with a fatal error.
export ASAN_OPTIONS=$ASAN_OPTIONS:intercept_tls_get_addr=0
export UBSAN_OPTIONS=print_stacktrace=1
run_suites build/sanitize unit lavapipe
