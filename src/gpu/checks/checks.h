/* The self-test of all kernels of a device. */
#ifndef TSR_GPU_CHECKS_CHECKS_H
#define TSR_GPU_CHECKS_CHECKS_H

#include "gpu/pipeline/pipeline.h"

/* Tests all kernels that have a test, for all dtypes, as opening a device with
 * TESSERA_SELF_TEST=full does. */
void tsr__self_test_all(tsr_device *device);

/* Tests the kernel of this name, unless its result is known. Returns whether it may be used. True
 * for names that no test has. */
bool tsr__self_test_kernel(tsr_device *device, const char *name, tsr_dtype dtype);

#endif
