/* Recording a planned product. */
#ifndef TSR_GPU_MATMUL_RUN_H
#define TSR_GPU_MATMUL_RUN_H

#include "gpu/matmul/chooser.h"
#include "gpu/stream.h"

/* A call after validation. Tensors are in the problem's order: `a` is the caller's b where the
 * roles were swapped. */
typedef struct tsr__matmul_call {
    tsr_stream *stream;
    const tsr__matmul_problem *problem;
    const tsr_tensor *y, *a, *b, *bias; /* bias may be NULL */
} tsr__matmul_call;

/* Address of a side's first element in `tensor`'s buffer, `elements` further on. */
uint64_t tsr__matmul_address(const tsr_tensor *tensor, const tsr__matmul_side *side,
                             int64_t elements);

/* The `mode` word of the push constants, for this call's epilogue. */
uint32_t tsr__matmul_mode(const tsr__matmul_problem *problem);

/* Kernels of struct tsr_matmul_push, with their splits; and the one of struct
 * tsr_matmul_wide_params. */
tsr_status tsr__matmul_run_tiles(const tsr__matmul_call *call, const tsr__matmul_plan *plan);
tsr_status tsr__matmul_run_wide(const tsr__matmul_call *call, const tsr__matmul_plan *plan);

/* Steps through the first `dims` batch dimensions of a problem like an odometer. False when all
 * combinations were seen. */
bool tsr__matmul_next_batch(const tsr__matmul_problem *problem, int dims,
                            int64_t index[TSR__MATMUL_BATCH]);

/* Elements from a side's first to that of the matrix at `index`. */
int64_t tsr__matmul_batch_offset(const tsr__matmul_side *side, int dims,
                                 const int64_t index[TSR__MATMUL_BATCH]);

#endif
