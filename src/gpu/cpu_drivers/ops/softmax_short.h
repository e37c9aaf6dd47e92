/* Softmax, its logarithm and their gradients for short rows on Mesa's CPU driver, in one dispatch
 * of shaders/cpu_drivers/softmax_short.comp. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_SOFTMAX_SHORT_H
#define TSR_GPU_CPU_DRIVERS_OPS_SOFTMAX_SHORT_H

#include "gpu/cpu_drivers/ops/softmax_chunks.h"

bool tsr__softmax_short_suit(const tsr__softmax_rows *work);
tsr_status tsr__softmax_short_add(tsr__dispatches *list,
                                  const tsr__softmax_rows *work) TSR_NODISCARD;

/* How the kernels for short rows, including that of norm_short.c, cover a row. In a unit, each lane
 * of a subgroup has one vector. There are `units` units; the second half of them starts `overlap`
 * elements before the first half ends. */
typedef struct tsr__short_rows {
    uint32_t units, overlap;
} tsr__short_rows;

/* Chooses the number of units. It is 0 if rows are longer than `most`, if there are too few
 * elements to justify a pipeline, or if the kernels do not support the operands. */
tsr__short_rows tsr__short_rows_of(const tsr__softmax_rows *work, uint32_t most);

/* Returns the alignment of an operand's vectors that holds in both halves of a row. */
uint32_t tsr__short_rows_form(tsr__short_rows rows, const tsr__softmax_operand *operand);

#endif
