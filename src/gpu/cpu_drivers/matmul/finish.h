/* The epilogue of products on lavapipe, as a separate dispatch. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_FINISH_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_FINISH_H

#include "gpu/matmul/common/call.h"

/* True if this epilogue can be used. It is false if 16-bit elements of y or bias would have to be
 * packed in 32-bit words; tsr__matmul_finish() must then be used. */
bool tsr__lavapipe_finishes(const tsr__matmul_call *call);

/* Sums of products, and the destination of the results. */
typedef struct tsr__lavapipe_sums {
    tsr__buffer *partial; /* f32 [matrices, parts, rows, n]; the parts are added up */
    uint32_t matrices;    /* matrices of the batch in this dispatch */
    uint32_t parts, rows;
    uint64_t y, bias;             /* addresses of the first matrix's first elements */
    uint32_t y_batch, bias_batch; /* elements from matrix to matrix */
    bool batched;                 /* use the kernel for several matrices even if there is one */
} tsr__lavapipe_sums;

/* Records y = act(alpha · sums + y + bias). */
tsr_status tsr__lavapipe_finish(const tsr__matmul_call *call, const tsr__lavapipe_sums *sums);

#endif
