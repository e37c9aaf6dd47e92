/* Functions that all optimizers use: checks of the operands, and dispatches. */
#ifndef TSR_GPU_OPS_OPTIMIZER_OPTIMIZER_H
#define TSR_GPU_OPS_OPTIMIZER_OPTIMIZER_H

#include "gpu/stream/stream.h"
#include "shaders/params/optimizer.h"
#include "tessera/ops.h"

typedef struct tsr__optimizer {
    const char *op;
    /* The index is TSR_OPT_PARAMETER and so on. An operand that this optimizer or this call does
     * not have is NULL. */
    tsr_tensor *operand[TSR_OPT_OPERANDS];
    const char *name[TSR_OPT_OPERANDS];
} tsr__optimizer;

/* One call of tsr__optimizer_record. */
typedef struct tsr__optimizer_step {
    tsr_stream *stream;
    const tsr__optimizer *optimizer;
    const float *numbers;
    /* the device address of the gradients' scale; 0: the scale is one of `numbers` */
    uint64_t scale;
    /* the number that an operand of the optimizer has in a piece; −1: the call does not have it */
    int slot[TSR_OPT_OPERANDS];
    tsr__dispatch dispatch; /* without push constants and groups */
} tsr__optimizer_step;

/* Checks the operands. The gradient is never written, because it is const for the caller. */
tsr_status tsr__optimizer_check(const tsr_stream *stream, const tsr__optimizer *optimizer);

/* Records the dispatches of `shader`. `mode` is the specialization constant that follows those of
 * optimizer.glsl, and `numbers` are the push constants `number`. `scale` is as in
 * tsr__gradient_scale.at. */
tsr_status tsr__optimizer_record(tsr_stream *stream, const tsr__optimizer *optimizer,
                                 tsr__shader shader, uint32_t mode,
                                 const float numbers[TSR_OPT_NUMBERS], const tsr_tensor *scale);

/* Checks that `value` is finite and not negative. */
tsr_status tsr__optimizer_require_rate(const char *op, const char *name, float value);

#endif
