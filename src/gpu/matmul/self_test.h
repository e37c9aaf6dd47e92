/* The self-test of the kernels for products. */
#ifndef TSR_GPU_MATMUL_SELF_TEST_H
#define TSR_GPU_MATMUL_SELF_TEST_H

#include "gpu/matmul/chooser.h"
#include "gpu/self_test/self_test.h"

/* Chooses as tsr__matmul_choose() does, but leaves out kernels that fail the self-test for the
 * dtypes of the problem's operands. A kernel is tested when it is first chosen; a kernel that
 * `override` names is not tested. Returns TSR_ERR_UNSUPPORTED if every kernel that could compute
 * the problem has failed. */
tsr_status tsr__matmul_choose_tested(tsr_device *gpu, tsr__tuned *tuned,
                                     const tsr__matmul_problem *problem,
                                     const tsr__matmul_override *override, tsr__matmul_plan *out);

/* Adds the tests, for all dtypes, of all kernels for products that the device can choose without a
 * tuning of its own. Other kernels are tested when they are first chosen. */
void tsr__matmul_add_tests(tsr_device *gpu, tsr__kernel_tests *list);

#endif
