// Computes an element of the result of softmax, its logarithm, their gradients or cross-entropy
// from a row's statistics, for the kernels of Mesa's CPU driver. The including file declares
// FUNCTION.
#ifndef TSR_SOFTMAX_RESULT_GLSL
#define TSR_SOFTMAX_RESULT_GLSL

#include "include/exp_log.glsl"
#include "params/softmax_chunks.h"

// True if the function has a second operand, b.
const bool GRADIENT = FUNCTION == TSR_SOFTMAX_GRAD || FUNCTION == TSR_SOFTMAX_LOG_GRAD;

// Computes an element from the scale of its row. For softmax, the caller passes e^(a − largest) as
// a; for its logarithm, a − largest. The gradients use a and b unchanged.
float softmax_scaled(float a, float b, float scale)
{
    precise float value = a * scale;
    if (FUNCTION == TSR_SOFTMAX_LOG)
        value = a - scale;
    if (FUNCTION == TSR_SOFTMAX_GRAD)
        value = a * (b - scale);
    if (FUNCTION == TSR_SOFTMAX_LOG_GRAD)
        value = b - tsr_exp(a) * scale;
    return value;
}

// Computes an element from the statistics of its row. For cross-entropy, `beyond` is the label's
// column minus the element's column.
float softmax_result(float a, float b, vec4 row, uint beyond)
{
    precise float value = GRADIENT ? a : a - row.x;
    if (FUNCTION == TSR_SOFTMAX || FUNCTION == TSR_SOFTMAX_LOSS)
        value = tsr_exp_down(value);
    value = softmax_scaled(value, b, row.y);
    if (FUNCTION == TSR_SOFTMAX_LOSS) {
        value = (value - mix(0.0, 1.0, beyond == 0u)) * row.z;
        value = mix(value, 0.0, floatBitsToUint(row.w) == TSR_SOFTMAX_IGNORED);
    }
    return value;
}

#endif
