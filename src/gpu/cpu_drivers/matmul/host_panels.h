/* Panels (panels.h) of a call's operands, which the host packs while no recorded work uses them. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_HOST_PANELS_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_HOST_PANELS_H

#include "gpu/cpu_drivers/matmul/plan.h"
#include "gpu/matmul/common/call.h"

/* True if both operands are bf16. The kernels then read them as 32-bit words of two elements, if
 * the device has 16-bit storage, with one operation for each; widening single elements takes more.
 * The order of addition differs. */
bool tsr__lavapipe_reads_words(const tsr__matmul_problem *problem);

/* The fields of the product on which panels depend. */
tsr__lavapipe_product tsr__lavapipe_panels_product(const tsr__matmul_call *call);

/* True if the host can read both operands now: they are mapped and no recorded work uses them. */
bool tsr__lavapipe_host_may_pack(const tsr__matmul_call *call);

/* Reserves scratch for the panels and makes the sides of `packed`, `a` and `b` describe them.
 * `*reserved` is false if there is too little memory or recorded work uses the scratch. One of each
 * operand's strides in `call` must be 1. */
tsr_status tsr__lavapipe_reserve_panels(const tsr__matmul_call *call, tsr__matmul_problem *packed,
                                        tsr_tensor *a, tsr_tensor *b, bool *reserved) TSR_NODISCARD;

/* Packs both operands. */
void tsr__lavapipe_fill_panels(const tsr__matmul_call *call, const tsr__matmul_problem *packed,
                               const tsr_tensor *a, const tsr_tensor *b);

#endif
