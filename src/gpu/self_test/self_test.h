/* The self-test of kernels: each kernel is tested for each dtype before its first use on a device.
 * The results are remembered in a file, which belongs to one kind of device, one version of its
 * driver and one build of the kernels. A kernel that fails is not used.
 *
 * This folder decides when a kernel is tested, and remembers the results. The folders that contain
 * the tests (checks/ and matmul/) decide how it is tested. */
#ifndef TSR_GPU_SELF_TEST_SELF_TEST_H
#define TSR_GPU_SELF_TEST_SELF_TEST_H

#include "gpu/device/device.h"
#include "gpu/self_test/findings.h"

typedef enum tsr__self_test_mode {
    /* a kernel is tested before its first use, unless the file has its result */
    TSR__SELF_TEST_FIRST_USE,
    TSR__SELF_TEST_OFF, /* no kernel is tested; all are used */
    /* opening a device tests all kernels that the device uses, even if a file has their results */
    TSR__SELF_TEST_FULL
} tsr__self_test_mode;

/* Reads TESSERA_SELF_TEST. Errors: TSR_ERR_INVALID. */
tsr_status tsr__self_test_mode_wanted(tsr__self_test_mode *out) TSR_NODISCARD;

/* Runs the kernel called `name` with elements of `dtype`, compares its results with the host's and
 * sets *out to whether they agree. Returns TSR_ERR_UNSUPPORTED if the kernel cannot be tested in
 * this way on the device. The kernel may then be used, and the result is not stored. */
typedef tsr_status tsr__check_fn(tsr_device *device, const char *name, tsr_dtype dtype, bool *out);

/* True if the kernel may be used. The first call for a kernel and a dtype runs `check`, unless a
 * file has the result, and blocks until the check is complete. If the check cannot be run because
 * memory is missing, the kernel may be used this time, and the next call tries again. If the check
 * fails in any other way, the kernel may not be used. `name` is a constant of up to 23 bytes.
 * Always true while a check runs in this thread. Thread-safe. */
bool tsr__kernel_works(tsr_device *device, const char *name, tsr_dtype dtype, tsr__check_fn *check);

/* A kernel, and a dtype for which it is to be tested. */
typedef struct tsr__kernel_test {
    const char *name;
    tsr_dtype dtype;
    tsr__check_fn *check;
} tsr__kernel_test;

typedef struct tsr__kernel_tests {
    int count;
    tsr__kernel_test tests[TSR__MAX_SELF_TESTS];
} tsr__kernel_tests;

/* Adds a test. A list has room for all kernels of a device. */
void tsr__kernel_tests_add(tsr__kernel_tests *list, const char *name, tsr_dtype dtype,
                           tsr__check_fn *check);

/* Calls tsr__kernel_works for all tests of the list, on one thread for each CPU, because compiling
 * takes most of the time. Blocks until all results are known. */
void tsr__kernel_tests_run(tsr_device *device, const tsr__kernel_tests *list);

/* True while a check runs in this thread. */
bool tsr__in_check(void);

#endif
