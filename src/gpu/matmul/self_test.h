/* The self-test of the kernels for products. */
#ifndef TSR_GPU_MATMUL_SELF_TEST_H
#define TSR_GPU_MATMUL_SELF_TEST_H

#include "gpu/self_test/self_test.h"

/* The functions that tsr__kernel_works() calls to test a kernel: tsr__matmul_test_config for the
 * configuration called `name`; tsr__matmul_test_sum for the kernel that adds up the sums of all
 * ranges of k, which is called tsr__matmul_sum_name and is tested with f32;
 * tsr__matmul_test_narrow for products with f32 operands that are narrowed to terms of the dtype,
 * which are called tsr__matmul_narrow_name; tsr__matmul_test_fused for the forms of products that
 * families with `fuses_tiles` compute, which are called tsr__matmul_fused_name. */
tsr_status tsr__matmul_test_config(tsr_device *gpu, const char *name, tsr_dtype dtype, bool *out);
tsr_status tsr__matmul_test_sum(tsr_device *gpu, const char *name, tsr_dtype dtype, bool *out);
tsr_status tsr__matmul_test_narrow(tsr_device *gpu, const char *name, tsr_dtype dtype, bool *out);
tsr_status tsr__matmul_test_fused(tsr_device *gpu, const char *name, tsr_dtype dtype, bool *out);
extern const char tsr__matmul_sum_name[];
extern const char tsr__matmul_fused_name[];
extern const char tsr__matmul_narrow_name[];

/* Adds the tests, for all dtypes, of all kernels for products that the device can choose without a
 * tuning of its own. Other kernels are tested when they are first chosen. */
void tsr__matmul_add_tests(tsr_device *gpu, tsr__kernel_tests *list);

#endif
