/* The self-test of all kernels of a device. */
#ifndef TSR_GPU_CHECKS_CHECKS_H
#define TSR_GPU_CHECKS_CHECKS_H

#include "gpu/pipeline/pipeline.h"

/* Tests all kernels that have a test, for all dtypes, as opening a device with
 * TESSERA_SELF_TEST=full does. */
void tsr__self_test_all(tsr_device *device);

/* Tests one kernel, unless its result is known. Returns whether it may be used. True for kernels
 * that have no test. */
bool tsr__self_test_shader(tsr_device *device, tsr__shader shader, tsr_dtype dtype);

#endif
