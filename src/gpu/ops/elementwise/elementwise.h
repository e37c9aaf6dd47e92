/* Runs the kernels that are built on shaders/include/elementwise.glsl. */
#ifndef TSR_GPU_OPS_ELEMENTWISE_ELEMENTWISE_H
#define TSR_GPU_OPS_ELEMENTWISE_ELEMENTWISE_H

#include "gpu/ops/common/walk.h"

typedef struct tsr__elementwise {
    const char *op; /* begins error texts */
    tsr__shader shader;
    uint32_t function; /* the kernel's specialization constant of that name */
    float alpha, beta;
    tsr_tensor *y;
    const tsr_tensor *a, *b; /* b may be NULL; both broadcast to y */
    const char *y_name, *a_name, *b_name;
} tsr__elementwise;

/* Checks all operands, then records the work. */
tsr_status tsr__elementwise_run(tsr_stream *stream, const tsr__elementwise *work);

#endif
