/* Products whose f32 or quantised operands are narrowed to 16 bits, for the matrix units of GPUs
 * (tsr_matmul_params.precision).
 *
 * One dispatch narrows all rows of a, and one all columns of b, or some of them at a time: a line
 * becomes a scale and one to three terms (TSR_MM_TERM_UNIT in shaders/params/matmul.h). A kernel
 * with cooperative matrices then multiplies the terms, and its epilogue the scales. A product of
 * operands with s and t terms takes s + t - 1 passes over k. */
#ifndef TSR_GPU_MATMUL_NARROWED_H
#define TSR_GPU_MATMUL_NARROWED_H

#include "gpu/matmul/common/call.h"

/* Lines to be narrowed, and where to. Strides and `offset` count elements. */
typedef struct tsr__narrow_lines {
    const tsr_tensor *from; /* f32, or blocks, whose k_stride is 1 */
    int64_t offset;         /* of the first element in from's buffer */
    int64_t line_stride, k_stride;
    int64_t lines, k;
    tsr_dtype dtype; /* of the terms: f16 or bf16 */
    uint32_t terms;
    tsr__buffer *to;              /* the narrowed lines begin at its first byte */
    const tsr__matmul_norm *norm; /* an RMS norm that is applied first, or NULL; not for blocks */
    const tsr__matmul_gate *gate; /* makes a line act(line) · up, or NULL; not for blocks */
} tsr__narrow_lines;

/* The number of elements of a narrowed line. */
int64_t tsr__matmul_line_elements(int64_t k, uint32_t terms);

/* Records the dispatch that narrows lines. */
tsr_status tsr__matmul_narrow_lines(tsr_stream *stream,
                                    const tsr__narrow_lines *lines) TSR_NODISCARD;

/* Narrows a problem whose operands have these dtypes; b's may be a block format. Writes the
 * narrowed problem, and the fields of `out` for TSR__MATMUL_NARROWED. Returns false if the
 * problem's precision forbids this, if no operand would be narrowed, or if the problem has too few
 * rows or batch dimensions. */
bool tsr__matmul_narrow(const tsr__matmul_problem *problem, tsr_dtype a, tsr_dtype b,
                        tsr__matmul_problem *narrowed, tsr__matmul_plan *out);

/* Records the product. On failure nothing is recorded. */
tsr_status tsr__matmul_record_narrowed(const tsr__matmul_call *call,
                                       const tsr__matmul_plan *plan) TSR_NODISCARD;

#endif
