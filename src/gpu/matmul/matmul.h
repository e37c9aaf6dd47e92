/* Steps of tsr_matmul, for tunings and tests. */
#ifndef TSR_GPU_MATMUL_MATMUL_H
#define TSR_GPU_MATMUL_MATMUL_H

#include "gpu/matmul/choose_kernel.h"
#include "gpu/matmul/common/call.h"

/* Checks the arguments as tsr_matmul does and writes the problem to compute. Records nothing. */
tsr_status tsr__matmul_check(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *a,
                             const tsr_tensor *b, const tsr_matmul_params *params,
                             tsr__matmul_problem *out);

/* Does the same as tsr_matmul(), except that `override`, which may be NULL, can replace the
 * configuration or the number of ranges of k. */
tsr_status tsr__matmul_run(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                           const tsr_tensor *b, const tsr_matmul_params *params,
                           const tsr__matmul_override *override);

#endif
