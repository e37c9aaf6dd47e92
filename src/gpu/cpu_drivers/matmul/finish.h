/* The epilogue of products on Mesa's CPU driver. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_FINISH_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_FINISH_H

#include "gpu/matmul/common/call.h"

/* False where 16-bit elements of y or bias would have to be packed in words; tsr__matmul_finish()
 * does it. */
bool tsr__lavapipe_finishes(const tsr__matmul_call *call);

/* Sums of products, and where what becomes of them belongs. */
typedef struct tsr__lavapipe_sums {
    tsr__buffer *partial; /* f32, [matrices, parts, rows, n]: the parts are added up */
    uint32_t matrices;    /* of a batch */
    uint32_t parts, rows;
    uint64_t y, bias;             /* addresses of the first matrix's first elements */
    uint32_t y_batch, bias_batch; /* elements from matrix to matrix */
    bool batched;                 /* one kernel for any number of matrices, else for a single one */
} tsr__lavapipe_sums;

/* y = act(alpha · sums + y + bias). */
tsr_status tsr__lavapipe_finish(const tsr__matmul_call *call, const tsr__lavapipe_sums *sums);

#endif
