/* A checked call of tsr_matmul, and the functions with which kernels record it. */
#ifndef TSR_GPU_MATMUL_COMMON_CALL_H
#define TSR_GPU_MATMUL_COMMON_CALL_H

#include "gpu/internal.h"
#include "gpu/matmul/common/kernel.h"
#include "gpu/stream/stream.h"

struct tsr_matmul_push;

/* A call of tsr_matmul, or of one of the fused products of gpu/internal.h. If the problem has
 * swapped the roles, `a` is the caller's b and `b` the caller's a, unless b is in blocks. */
struct tsr__matmul_call {
    tsr_stream *stream;
    const tsr__matmul_problem *problem;
    const tsr_tensor *y, *a, *b, *bias; /* bias may be NULL */
    /* At most one of the following is set, except that a product with a norm may be gated.
     * slope: tsr__matmul_with_slope's second result.
     * times: y is multiplied by the bias instead of adding it, as in tsr__matmul_times.
     * gated: the product is that of tsr__matmul_gated. The problem is that of the first half of b's
     * rows; the call has all of b and bias. */
    const tsr_tensor *slope;
    const tsr_tensor *added; /* of tsr__matmul_fused */
    const tsr_tensor *sums;  /* of tsr__matmul_with_row_sums */
    bool times, gated;
    /* NULL, or the norm of tsr__matmul_fused, whose weight has k contiguous elements that start at
     * a multiple of the size of four */
    const tsr__matmul_norm *norm;
    const tsr__matmul_gate *gate;    /* NULL, or that of tsr__matmul_fused */
    const tsr_matmul_params *params; /* the caller's; only for b in blocks */
};

/* Runs a kernel that takes struct tsr_matmul_push (record.c). */
tsr_status tsr__matmul_run_tiles(const tsr__matmul_call *call, const tsr__matmul_plan *plan);

/* Sets the push constants of call->norm. */
void tsr__matmul_push_norm(const tsr__matmul_call *call, struct tsr_matmul_push *push);

/* The number of multiply-adds for one row of y. */
double tsr__matmul_row_work(const tsr__matmul_problem *problem);

/* The number of rows, of one matrix or of several, that a dispatch can compute within the device's
 * work limit. It can be 0. */
int64_t tsr__matmul_rows_within_work(const tsr__matmul_call *call);

/* The device address of the element that is `elements` elements after a side's first element, in
 * `tensor`'s buffer. */
uint64_t tsr__matmul_address(const tsr_tensor *tensor, const tsr__matmul_side *side,
                             int64_t elements);

/* Returns the word `mode` of the push constants, which describes the problem's epilogue. */
uint32_t tsr__matmul_mode(const tsr__matmul_problem *problem);

/* True if a family with `fuses_tiles` computes this product, which has one of `slope`, `times` and
 * `added`. */
bool tsr__matmul_tiles_fuse(const tsr__matmul_call *call);

/* True if the plan's kernel computes this product, which has `sums`. */
bool tsr__matmul_tiles_sum_rows(const tsr__matmul_call *call, const tsr__matmul_plan *plan);

/* Advances `index` to the next combination of the first `dims` batch dimensions; the last dimension
 * changes fastest. After the last combination, sets `index` to zeros and returns false. */
bool tsr__matmul_next_batch(const tsr__matmul_problem *problem, int dims,
                            int64_t index[TSR__MATMUL_BATCH]);

/* The number of elements from a side's first element to the first element of the matrix at
 * `index`. */
int64_t tsr__matmul_batch_offset(const tsr__matmul_side *side, int dims,
                                 const int64_t index[TSR__MATMUL_BATCH]);

/* True if the result is y = a·b or y = y + a·b, in f32, with no other epilogue. */
bool tsr__matmul_plain(const tsr__matmul_problem *problem);

/* Sets those push constants that describe the epilogue, except for addresses and batch strides. */
void tsr__matmul_epilogue(const tsr__matmul_problem *problem, struct tsr_matmul_push *push);

/* Records the dispatch that adds up the partial sums of each of `matrices` matrices, and applies
 * the epilogue. k was split into `ranges` ranges, and `partial` has the sums of each range, as
 * f32 [matrices, ranges, m, n]. `push` has the epilogue and the addresses of y and bias. */
tsr_status tsr__matmul_finish(const tsr__matmul_call *call, tsr__buffer *partial, uint32_t ranges,
                              uint32_t matrices, const struct tsr_matmul_push *push);

#endif
