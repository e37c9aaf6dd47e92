/* The operands of a normalisation in the form that norm_short.c and norm_chunks.c need. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_NORM_OPERANDS_H
#define TSR_GPU_CPU_DRIVERS_OPS_NORM_OPERANDS_H

#include "gpu/cpu_drivers/ops/softmax_chunks.h"
#include "gpu/ops/norm/norm_plane.h"

/* True if the kernels of norm_short.c, or those of norm_chunks.c, should compute `output`, one of
 * TSR_NORM_…, for a plane. */
bool tsr__norm_short_suit(const tsr__norm *norm, const tsr__norm_plane *plane, uint32_t output);
bool tsr__norm_chunks_suit(const tsr__norm *norm, const tsr__norm_plane *plane, uint32_t output);

typedef struct tsr__norm_operands {
    tsr__softmax_rows rows; /* a is x, b is dy */
    /* a is the weight; b is the bias or, for TSR_NORM_GRADIENT, the gradient that is added */
    tsr__softmax_rows vectors;
    bool gaps; /* some row has gaps, or the distances between rows differ */
} tsr__norm_operands;

/* Returns the operands of the kernel that computes `output`, one of TSR_NORM_…. The results
 * TSR_NORM_PRODUCTS and TSR_NORM_STATS are not tensors: y then has no address, but only a dtype
 * and, for TSR_NORM_PRODUCTS, a stride. */
tsr__norm_operands tsr__norm_operands_of(const tsr__norm *norm, const tsr__norm_plane *plane,
                                         uint32_t output);

/* True if the kernels support all operands. */
bool tsr__norm_operands_suit(const tsr__norm_operands *operands);

/* Lists the operands in the order of the kernels' specialization constants: y, x, dy, weight,
 * bias. */
#define TSR__NORM_ORDER 5
void tsr__norm_operands_order(const tsr__norm_operands *operands,
                              const tsr__softmax_operand *order[TSR__NORM_ORDER]);

/* Writes the operands' dtypes as specialization constants from spec[0] on, and adds the accesses to
 * the operands that exist. */
void tsr__norm_operands_access(const tsr__norm_operands *operands, uint32_t *spec,
                               tsr__dispatch *dispatch);

#endif
