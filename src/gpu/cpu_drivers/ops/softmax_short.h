/* Softmax, its logarithm and their gradients of short rows on Mesa's CPU driver, in one kernel:
 * shaders/cpu_drivers/softmax_short.comp. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_SOFTMAX_SHORT_H
#define TSR_GPU_CPU_DRIVERS_OPS_SOFTMAX_SHORT_H

#include "gpu/cpu_drivers/ops/softmax_chunks.h"

bool tsr__softmax_short_suit(const tsr__softmax_rows *work);
tsr_status tsr__softmax_short_add(tsr__dispatches *list,
                                  const tsr__softmax_rows *work) TSR_NODISCARD;

/* How such kernels take a row, also that of norm_short.c: in so many units, the second half of
 * which starts `overlap` elements early. */
typedef struct tsr__short_rows {
    uint32_t units, overlap;
} tsr__short_rows;

/* No units where rows are longer than `most`, too few for a pipeline, or otherwise do not suit. */
tsr__short_rows tsr__short_rows_of(const tsr__softmax_rows *work, uint32_t most);

/* What an operand's vectors are aligned to, in both halves. */
uint32_t tsr__short_rows_form(tsr__short_rows rows, const tsr__softmax_operand *operand);

#endif
