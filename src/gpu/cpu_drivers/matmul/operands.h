/* The operands of a product on Mesa's CPU driver, as its kernels can read them, and read them fast:
 * the caller's, or packed in scratch and widened to f32, both in panels where the host can do it.
 */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_OPERANDS_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_OPERANDS_H

#include "gpu/matmul/common/call.h"

typedef struct tsr__lavapipe_operands {
    tsr__matmul_problem problem; /* with a and b as they lie here */
    tsr_tensor a, b;
    tsr_tensor a_source, b_source; /* what to pack there, where ndim is not 0 */
    bool panels;                   /* both are to be filled by the host */
} tsr__lavapipe_operands;

bool tsr__lavapipe_operands_fit(const tsr__matmul_problem *problem);

/* Decides, and takes the scratch. */
tsr_status tsr__lavapipe_operands_prepare(const tsr__matmul_call *call,
                                          tsr__lavapipe_operands *out) TSR_NODISCARD;

/* Records the packing, or does it. */
tsr_status tsr__lavapipe_operands_pack(const tsr__matmul_call *call,
                                       tsr__lavapipe_operands *operands) TSR_NODISCARD;

/* Whether both are bf16 and read as words of two of them, an operation each: less than widening one
 * takes. The kernels add in another order then. */
bool tsr__lavapipe_reads_words(const tsr__matmul_call *call);

/* Strides that the kernels' push constants can carry. */
bool tsr__lavapipe_narrow(int64_t stride);

#endif
