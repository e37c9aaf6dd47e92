/* Products whose b is in a block format. If a has few rows, a kernel multiplies them by the blocks
 * directly. Otherwise, some rows of b at a time, a panel, are converted to floats in scratch
 * memory, and multiplied like any other operand. */
#ifndef TSR_GPU_MATMUL_QUANTIZED_WEIGHTS_H
#define TSR_GPU_MATMUL_QUANTIZED_WEIGHTS_H

#include "gpu/matmul/common/call.h"

/* Checks what only products with blocks need: that b has two dimensions and is transposed. */
tsr_status tsr__matmul_check_quant(const tsr_tensor *b,
                                   const tsr_matmul_params *params) TSR_NODISCARD;

/* Resolves a checked call whose y is not empty. The method is TSR__MATMUL_NOTHING if the call is of
 * a fused product and no kernel computes it. */
void tsr__matmul_plan_blocks(const tsr__matmul_call *call, tsr__matmul_plan *out);

/* Records the product. On failure nothing is recorded. */
tsr_status tsr__matmul_record_blocks(const tsr__matmul_call *call,
                                     const tsr__matmul_plan *plan) TSR_NODISCARD;

#endif
