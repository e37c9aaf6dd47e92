/* The operands of a product on lavapipe, in a form that its kernels can read fast. They are the
 * caller's tensors, or copies in scratch memory that are packed and possibly widened to f32, or
 * both are in panels (panels.h) if the host can write them. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_OPERANDS_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_OPERANDS_H

#include "gpu/matmul/common/call.h"

typedef struct tsr__lavapipe_operands {
    tsr__matmul_problem problem; /* its a and b describe the tensors below */
    tsr_tensor a, b;
    tsr_tensor a_source, b_source; /* the tensors to pack into a and b; none if ndim is 0 */
    bool panels;                   /* the host writes both as panels */
} tsr__lavapipe_operands;

/* True if the kernels can read both operands, directly or packed. */

bool tsr__lavapipe_operands_fit(const tsr__matmul_problem *problem);

/* Chooses the forms and reserves scratch memory. */
tsr_status tsr__lavapipe_operands_prepare(const tsr__matmul_call *call,
                                          tsr__lavapipe_operands *out) TSR_NODISCARD;

/* Records the packing, or packs on the host. */
tsr_status tsr__lavapipe_operands_pack(const tsr__matmul_call *call,
                                       tsr__lavapipe_operands *operands) TSR_NODISCARD;

/* True if the stride fits in the kernels' push constants. */
bool tsr__lavapipe_narrow(int64_t stride);

#endif
