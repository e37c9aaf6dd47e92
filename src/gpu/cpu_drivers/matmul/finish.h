/* The epilogue of products on lavapipe, as a separate dispatch. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_FINISH_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_FINISH_H

#include "gpu/matmul/common/call.h"

/* True if tsr__lavapipe_finish() can be used. It is false if 16-bit elements of y or bias would
 * have to be packed in 32-bit words; the caller must then use tsr__matmul_finish(). */
bool tsr__lavapipe_finishes(const tsr__matmul_call *call);

/* The partial sums of some rows of a product, and the addresses for the results. A split is a
 * range of k with sums of its own. */
typedef struct tsr__lavapipe_sums {
    tsr__buffer *partial; /* f32 [matrices, splits, rows, n]; the epilogue adds up the splits */
    uint32_t matrices;    /* the number of matrices that this dispatch covers */
    uint32_t splits, rows;
    uint64_t y, bias;             /* the first elements of the first matrix */
    uint32_t y_batch, bias_batch; /* the number of elements from one matrix to the next */
    bool batched;                 /* use the kernel for several matrices even if there is one */
} tsr__lavapipe_sums;

/* Records y = act(alpha · sum + y + bias), where `sum` is the sum over all splits. */
tsr_status tsr__lavapipe_finish(const tsr__matmul_call *call, const tsr__lavapipe_sums *sums);

#endif
