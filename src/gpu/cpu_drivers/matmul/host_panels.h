/* Packs a call's operands into panels (panels.h) on the host. This is possible only if no recorded
 * work uses the operands. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_HOST_PANELS_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_HOST_PANELS_H

#include "gpu/cpu_drivers/matmul/plan.h"
#include "gpu/matmul/common/call.h"

/* True if both operands are bf16. If the device has 16-bit storage, the kernels then load two
 * neighbouring elements as one 32-bit word and widen each of them with one operation, which is
 * faster than loading and widening single elements. The order in which products are added is
 * different. */
bool tsr__lavapipe_reads_words(const tsr__matmul_problem *problem);

/* Returns a product that has only the fields on which panels depend. */
tsr__lavapipe_product tsr__lavapipe_panels_product(const tsr__matmul_call *call);

/* True if the host can read both operands now: they are mapped, and no recorded work uses them. */
bool tsr__lavapipe_host_may_pack(const tsr__matmul_call *call);

/* Reserves scratch memory for the panels, and sets `a`, `b` and both sides of `packed` to describe
 * them. Sets `*reserved` to false if there is too little memory or if recorded work uses the
 * scratch memory. In `call`, each operand must have stride 1 along its rows or along its
 * columns. */
tsr_status tsr__lavapipe_reserve_panels(const tsr__matmul_call *call, tsr__matmul_problem *packed,
                                        tsr_tensor *a, tsr_tensor *b, bool *reserved) TSR_NODISCARD;

/* Packs both operands into the panels that tsr__lavapipe_reserve_panels() has reserved. */
void tsr__lavapipe_fill_panels(const tsr__matmul_call *call, const tsr__matmul_problem *packed,
                               const tsr_tensor *a, const tsr_tensor *b);

#endif
