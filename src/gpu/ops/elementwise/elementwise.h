/* Runs the kernels that are built on shaders/include/elementwise.glsl. */
#ifndef TSR_GPU_OPS_ELEMENTWISE_ELEMENTWISE_H
#define TSR_GPU_OPS_ELEMENTWISE_ELEMENTWISE_H

#include "gpu/ops/common/walk.h"

typedef struct tsr__elementwise_input {
    const tsr_tensor *tensor; /* broadcasts to y */
    const char *name;
} tsr__elementwise_input;

typedef struct tsr__elementwise {
    const char *op;    /* begins error texts */
    bool activation;   /* `function` is a tsr_activation, not TSR_EW_… */
    uint32_t function; /* the kernel's specialization constant of that name */
    float alpha, beta; /* unused with three inputs */
    tsr_tensor *y;
    const char *y_name;
    bool y_flags;                 /* y holds 0 and 1, and may be u8 */
    bool a_flags;                 /* the first input is a condition, and may be u8 */
    tsr__elementwise_input in[3]; /* 1 to 3; ends before an input without a name */
} tsr__elementwise;

#define TSR__ELEMENTWISE_MAX 2

/* Checks all operands of `count` operations (at most TSR__ELEMENTWISE_MAX), then records the
 * operations in order. On failure none is recorded. */
tsr_status tsr__elementwise_run(tsr_stream *stream, const tsr__elementwise *work,
                                int count) TSR_NODISCARD;

#endif
