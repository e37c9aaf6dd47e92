// Sums, differences, products and linear functions. Each step is rounded once, so that all devices give the same bits, except those
// that flush subnormal numbers to 0.
#version 450
#extension GL_GOOGLE_include_directive : require

#include "include/elementwise.glsl"

layout(constant_id = 7) const uint FUNCTION = TSR_EW_ADD;

float ew_apply(float a, float b)
{
    switch (FUNCTION) {
    case TSR_EW_SUB: {
        precise float y = a - b;
        return y;
    }
    case TSR_EW_MUL: {
        precise float y = a * b;
        return y;
    }
    case TSR_EW_SCALE: {
        precise float y = p.alpha * a + p.beta;
        return y;
    }
    case TSR_EW_AXPY: {
        precise float y = p.alpha * a + b;
        return y;
    }
    }
    precise float y = a + b;
    return y;
}
