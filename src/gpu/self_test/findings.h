/* The results of self-tests that are stored for a device, as the tool shows them. This header
 * contains no Vulkan types. */
#ifndef TSR_GPU_SELF_TEST_FINDINGS_H
#define TSR_GPU_SELF_TEST_FINDINGS_H

#include "tessera/device.h"

#define TSR__SELF_TEST_KERNEL_SIZE 24
#define TSR__MAX_SELF_TESTS 512

/* The result of testing a kernel of the library against the host, with elements of one dtype. */
typedef struct tsr__self_test {
    char kernel[TSR__SELF_TEST_KERNEL_SIZE]; /* for example "tiled-m" or "softmax" */
    tsr_dtype dtype;
    bool right; /* if false, the device does not use the kernel for this dtype */
} tsr__self_test;

typedef struct tsr__self_tests {
    int count;
    tsr__self_test tests[TSR__MAX_SELF_TESTS];
} tsr__self_tests;

/* Gives the stored results of the kernels that were tested on this kind of device, with this
 * version of its driver and this build of the library. A kernel is tested before its first use;
 * results are stored when the device is closed. Errors: TSR_ERR_INVALID (an argument is NULL),
 * TSR_ERR_NO_MEMORY. */
tsr_status tsr__self_tests_find(const tsr_device_info *device, tsr__self_tests *out) TSR_NODISCARD;

#endif
