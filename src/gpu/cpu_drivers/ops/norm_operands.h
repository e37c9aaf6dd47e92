/* The operands of a normalisation as the kernels for Mesa's CPU driver take them: norm_short.c and
 * norm_chunks.c. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_NORM_OPERANDS_H
#define TSR_GPU_CPU_DRIVERS_OPS_NORM_OPERANDS_H

#include "gpu/cpu_drivers/ops/softmax_chunks.h"
#include "gpu/ops/norm/plane.h"

typedef struct tsr__norm_operands {
    tsr__softmax_rows rows;    /* a: x, b: dy */
    tsr__softmax_rows vectors; /* a: weight, b: bias */
    bool gaps;                 /* in any of them, or between rows that are not equally far apart */
} tsr__norm_operands;

/* Of what is needed for `output`, one of TSR_NORM_…; y of TSR_NORM_PRODUCTS, which are scratch, has
 * a dtype and a stride only, that of TSR_NORM_STATS a dtype. */
tsr__norm_operands tsr__norm_operands_of(const tsr__norm *norm, const tsr__norm_plane *plane,
                                         uint32_t output);

/* Whether all are such that those kernels can take them. */
bool tsr__norm_operands_suit(const tsr__norm_operands *operands);

/* y, x, dy, weight and bias, in the order of the kernels' constants. */
#define TSR__NORM_ORDER 5
void tsr__norm_operands_order(const tsr__norm_operands *operands,
                              const tsr__softmax_operand *order[TSR__NORM_ORDER]);

/* Their dtypes, as specialization constants from spec[0] on, and the accesses to those there are.
 */
void tsr__norm_operands_access(const tsr__norm_operands *operands, uint32_t *spec,
                               tsr__dispatch *dispatch);

#endif
