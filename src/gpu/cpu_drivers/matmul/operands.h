/* The operands of a product on lavapipe, in a form that its kernels can read fast. An operand is
 * the caller's tensor or a packed copy in scratch memory, which may be widened to f32. If the host
 * can write panels (panels.h), both operands may be in panels instead. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_OPERANDS_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_OPERANDS_H

#include "gpu/matmul/common/call.h"

typedef struct tsr__lavapipe_operands {
    /* the problem to compute: its a and b describe the tensors below */
    tsr__matmul_problem problem;
    tsr_tensor a, b;
    /* the tensors from which a and b are packed; ndim is 0 if there is no packing */
    tsr_tensor a_source, b_source;
    bool panels; /* the host packs both operands into panels */
} tsr__lavapipe_operands;

/* True if the kernels can read each operand, either directly or after it has been packed. */
bool tsr__lavapipe_operands_fit(const tsr__matmul_problem *problem);

/* True if lanes along n are faster than lanes along k. One dispatch then covers all of k, and
 * there are several rows and at least one complete tile of columns. */
bool tsr__lavapipe_suits_lanes_along_n(const tsr__matmul_problem *problem, uint32_t lanes);

/* Chooses the form of each operand and reserves scratch memory for the copies. */
tsr_status tsr__lavapipe_operands_prepare(const tsr__matmul_call *call,
                                          tsr__lavapipe_operands *out) TSR_NODISCARD;

/* Makes the copies that tsr__lavapipe_operands_prepare has chosen: if `panels` is set, the host
 * packs both operands now; otherwise commands are recorded. */
tsr_status tsr__lavapipe_operands_pack(const tsr__matmul_call *call,
                                       tsr__lavapipe_operands *operands) TSR_NODISCARD;

/* True if the stride fits the 32 bits that the kernels' push constants have for it. */
bool tsr__lavapipe_narrow(int64_t stride);

#endif
