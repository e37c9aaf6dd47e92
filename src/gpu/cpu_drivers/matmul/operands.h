/* The operands of a product on lavapipe in a form that its kernels can read, and read fast: the
 * caller's own; or copies in scratch, packed and perhaps widened to f32; or both operands in panels
 * (panels.h), if the host can write them. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_OPERANDS_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_OPERANDS_H

#include "gpu/matmul/common/call.h"

typedef struct tsr__lavapipe_operands {
    tsr__matmul_problem problem; /* its a and b describe the tensors below */
    tsr_tensor a, b;
    tsr_tensor a_source, b_source; /* what to pack into a and b; nothing if ndim is 0 */
    bool panels;                   /* the host writes both as panels */
} tsr__lavapipe_operands;

/* True if the kernels can read both operands, as they are or packed. */

bool tsr__lavapipe_operands_fit(const tsr__matmul_problem *problem);

/* Decides on the forms and reserves the scratch. */
tsr_status tsr__lavapipe_operands_prepare(const tsr__matmul_call *call,
                                          tsr__lavapipe_operands *out) TSR_NODISCARD;

/* Records the packing, or lets the host pack. */
tsr_status tsr__lavapipe_operands_pack(const tsr__matmul_call *call,
                                       tsr__lavapipe_operands *operands) TSR_NODISCARD;

/* True for strides that fit the kernels' push constants. */
bool tsr__lavapipe_narrow(int64_t stride);

#endif
