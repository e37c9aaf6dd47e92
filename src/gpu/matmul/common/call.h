/* A validated call of tsr_matmul, and what all kernels share when they record one. */
#ifndef TSR_GPU_MATMUL_COMMON_CALL_H
#define TSR_GPU_MATMUL_COMMON_CALL_H

#include "gpu/matmul/common/kernel.h"
#include "gpu/stream/stream.h"

struct tsr_matmul_push;

/* Tensors are in the problem's order: if the roles were swapped, `a` is the caller's b. */
struct tsr__matmul_call {
    tsr_stream *stream;
    const tsr__matmul_problem *problem;
    const tsr_tensor *y, *a, *b, *bias; /* bias may be NULL */
};

/* Runs a kernel that takes struct tsr_matmul_push (tiles.c). */
tsr_status tsr__matmul_run_tiles(const tsr__matmul_call *call, const tsr__matmul_plan *plan);

/* Address of a side's first element in `tensor`'s buffer, `elements` further on. */
uint64_t tsr__matmul_address(const tsr_tensor *tensor, const tsr__matmul_side *side,
                             int64_t elements);

/* The `mode` word of the push constants, for this call's epilogue. */
uint32_t tsr__matmul_mode(const tsr__matmul_problem *problem);

/* Steps through the first `dims` batch dimensions of a problem like an odometer. False when all
 * combinations were seen. */
bool tsr__matmul_next_batch(const tsr__matmul_problem *problem, int dims,
                            int64_t index[TSR__MATMUL_BATCH]);

/* Elements from a side's first to that of the matrix at `index`. */
int64_t tsr__matmul_batch_offset(const tsr__matmul_side *side, int dims,
                                 const int64_t index[TSR__MATMUL_BATCH]);

/* True when y = the sums, or y + the sums: f32 and no epilogue. */
bool tsr__matmul_plain(const tsr__matmul_problem *problem);

/* The epilogue's part of the push constants: everything but addresses and batch. */
void tsr__matmul_epilogue(const tsr__matmul_problem *problem, struct tsr_matmul_push *push);

/* Adds up the `parts` partial sums of each of `matrices` matrices, [matrices, parts, m, n] f32 in
 * `partial`, and applies the epilogue. `push` has the epilogue and the addresses of y and bias. */
tsr_status tsr__matmul_finish(const tsr__matmul_call *call, tsr__buffer *partial, uint32_t parts,
                              uint32_t matrices, const struct tsr_matmul_push *push);

#endif
