/* Runs the kernels that are built on shaders/include/elementwise.glsl. */
#ifndef TSR_GPU_OPS_ELEMENTWISE_ELEMENTWISE_H
#define TSR_GPU_OPS_ELEMENTWISE_ELEMENTWISE_H

#include "gpu/ops/common/walk.h"

typedef struct tsr__elementwise_input {
    const tsr_tensor *tensor; /* broadcasts to y's shape */
    const char *name;
} tsr__elementwise_input;

typedef struct tsr__elementwise {
    const char *op; /* the function's name, with which error texts begin */
    /* If `activation` is true, `function` is a tsr_activation. With one input, the result is
     * act(a). With two inputs, it is act'(a) · b, or act(a) · b if `multiplied` is true. If
     * `activation` is false, `function` is TSR_EW_…. */
    bool activation, multiplied;
    uint32_t function; /* the value of the kernel's specialization constant FUNCTION */
    float alpha, beta; /* unused with three inputs */
    tsr_tensor *y;
    const char *y_name;
    bool y_flags; /* y contains only 0 and 1, and may be u8 */
    bool a_flags; /* the first input is a condition, and may be u8 */
    /* one to three inputs; the first one without a name ends the list */
    tsr__elementwise_input in[3];
} tsr__elementwise;

#define TSR__ELEMENTWISE_MAX 2

/* Runs `count` operations (at most TSR__ELEMENTWISE_MAX). Checks the operands of all of them first,
 * then records them in order. On failure none is recorded. */
tsr_status tsr__elementwise_run(tsr_stream *stream, const tsr__elementwise *work,
                                int count) TSR_NODISCARD;

#endif
