/* Products whose b is in a block format. */
#ifndef TSR_GPU_MATMUL_QUANT_H
#define TSR_GPU_MATMUL_QUANT_H

#include "gpu/matmul/common/call.h"

/* Checks what only products with blocks need: that b has two dimensions and is transposed. */
tsr_status tsr__matmul_check_quant(const tsr_tensor *b,
                                   const tsr_matmul_params *params) TSR_NODISCARD;

/* Runs a checked product, whose y is not empty. Few rows are multiplied directly by the blocks. For
 * more rows, some rows of b at a time are converted to floats in scratch memory, and multiplied
 * like any other operand. */
tsr_status tsr__matmul_run_quant(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                                 const tsr_tensor *b, const tsr_matmul_params *params,
                                 const tsr__matmul_problem *problem) TSR_NODISCARD;

/* Computes a checked product as gated.h describes it and sets *recorded to true, if there are few
 * rows. Otherwise records nothing. The problem is that of the first half of b's rows, and the call
 * has all of b and bias. */
tsr_status tsr__matmul_few_gated(const tsr__matmul_call *call, bool *recorded) TSR_NODISCARD;

#endif
