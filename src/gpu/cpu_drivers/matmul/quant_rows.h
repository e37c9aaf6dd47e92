/* Products of a few rows and a matrix in q8_0, q4_0, mxfp4, q4_k, q5_k or q6_k, and conversions of
 * such matrices to floats, on lavapipe. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_QUANT_ROWS_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_QUANT_ROWS_H

#include "gpu/matmul/common/call.h"

/* True if these kernels can compute the product and are faster than the general ones. In `call`, b
 * is in blocks, and the problem has k > 0. */
bool tsr__quant_rows_suit(const tsr__matmul_call *call);

/* Records the product. On failure nothing is recorded. */
tsr_status tsr__quant_rows(const tsr__matmul_call *call) TSR_NODISCARD;

/* True if tsr__dequantize_vectors can convert x, a matrix in blocks, to y, a contiguous matrix. */
bool tsr__dequantize_vectors_suit(const tsr_tensor *y, const tsr_tensor *x);

/* Records y = x, converted to floats. */
tsr_status tsr__dequantize_vectors(tsr_stream *stream, const tsr_tensor *y,
                                   const tsr_tensor *x) TSR_NODISCARD;

#endif
