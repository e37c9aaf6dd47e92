/* Panels (panels.h) of a call's operands. The host packs them if no recorded work uses the
 * operands. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_HOST_PANELS_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_HOST_PANELS_H

#include "gpu/cpu_drivers/matmul/plan.h"
#include "gpu/matmul/common/call.h"

/* True if both operands are bf16. If the device has 16-bit storage, the kernels then read them as
 * 32-bit words of two elements and widen each element with one operation; widening single elements
 * takes more. The order of additions is different. */
bool tsr__lavapipe_reads_words(const tsr__matmul_problem *problem);

/* Returns a product with the fields on which panels depend. */
tsr__lavapipe_product tsr__lavapipe_panels_product(const tsr__matmul_call *call);

/* True if the host can read both operands now, that is, if they are mapped and no recorded work
 * uses them. */
bool tsr__lavapipe_host_may_pack(const tsr__matmul_call *call);

/* Reserves scratch memory for the panels and sets `a`, `b` and the sides of `packed` to describe
 * them. `*reserved` is false if there is too little memory or recorded work uses the scratch
 * memory. One of each operand's strides in `call` must be 1. */
tsr_status tsr__lavapipe_reserve_panels(const tsr__matmul_call *call, tsr__matmul_problem *packed,
                                        tsr_tensor *a, tsr_tensor *b, bool *reserved) TSR_NODISCARD;

/* Packs both operands. */
void tsr__lavapipe_fill_panels(const tsr__matmul_call *call, const tsr__matmul_problem *packed,
                               const tsr_tensor *a, const tsr_tensor *b);

#endif
