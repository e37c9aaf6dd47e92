/* Cross-entropy on Mesa's CPU driver. It uses the kernels of softmax_chunks.h, but its second
 * kernel is shaders/cpu_drivers/cross_entropy_rows.comp. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_CROSS_ENTROPY_CHUNKS_H
#define TSR_GPU_CPU_DRIVERS_OPS_CROSS_ENTROPY_CHUNKS_H

#include "gpu/ops/common/rows.h"
#include "shaders/params/cross_entropy_rows.h"

typedef struct tsr__cross_entropy {
    uint32_t step;               /* TSR_ROWS_… */
    tsr_tensor *loss, *gradient; /* results; NULL if the caller or this step does not need one */
    const tsr_tensor *logits, *labels;
    /* [3,rows] or [ranks,3,rows]; NULL if the classes are not divided among ranks */
    const tsr_tensor *stats;
    /* the rank's first class and the number of classes of all ranks; unused with TSR_ROWS_ALONE */
    int64_t first, classes;
    float scale;
} tsr__cross_entropy;

bool tsr__cross_entropy_chunks_suit(const tsr__cross_entropy *call);

tsr_status tsr__cross_entropy_chunks_add(tsr__dispatches *list, tsr_stream *stream,
                                         const tsr__cross_entropy *call) TSR_NODISCARD;

#endif
