/* The self-test of the kernels for products. */
#ifndef TSR_GPU_MATMUL_SELF_TEST_H
#define TSR_GPU_MATMUL_SELF_TEST_H

#include "gpu/matmul/common/kernel.h"
#include "gpu/self_test/self_test.h"

/* True if the kernel may be used for operands of this dtype (tsr__kernel_works). The first call
 * tests it. */
bool tsr__matmul_config_works(tsr_device *gpu, const tsr__matmul_config *config, tsr_dtype dtype);

/* The same for the kernel that adds up the sums of all ranges of k. */
bool tsr__matmul_sum_works(tsr_device *gpu);

/* Adds the tests, for all dtypes, of all kernels for products that the device can choose without a
 * tuning of its own. Other kernels are tested when they are first chosen. */
void tsr__matmul_add_tests(tsr_device *gpu, tsr__kernel_tests *list);

#endif
