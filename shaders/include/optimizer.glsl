// Loads and stores of an element's operands, for sgd.comp and adamw.comp.
#ifndef TSR_OPTIMIZER_GLSL
#define TSR_OPTIMIZER_GLSL

#include "include/tessera.glsl"
#include "params/clip_scale.h"
#include "params/optimizer.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint PARAMETER_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint GRADIENT_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint HAS_MASTER = 0;

layout(push_constant, std430) uniform Push {
    tsr_optimizer_params p;
};

uint tsr_opt_row, tsr_opt_column;
float tsr_opt_scale; // the factor of the gradient

uint tsr_opt_at(uint operand)
{
    return tsr_opt_row * p.row_stride[operand] + tsr_opt_column * p.column_stride[operand];
}

// Finds the element of this invocation, and the gradient's factor. Returns false if there is no
// such element, or if the step must change nothing.
bool tsr_opt_begin()
{
    uint e = tsr_flat_invocation();
    tsr_opt_scale = p.number[TSR_OPT_GRADIENT_SCALE];
    if (any(notEqual(p.scale, uvec2(0u)))) {
        tsr_opt_scale = tsr_floats(p.scale).v[TSR_SCALE_FACTOR];
        if (tsr_floats(p.scale).v[TSR_SCALE_STEPS] == 0.0)
            return false;
    }
    tsr_opt_row = e / p.columns;
    tsr_opt_column = e - tsr_opt_row * p.columns;
    return e < p.count;
}

float tsr_opt_parameter()
{
    if (HAS_MASTER != 0)
        return tsr_floats(p.base[TSR_OPT_MASTER]).v[tsr_opt_at(TSR_OPT_MASTER)];
    return tsr_load_float(p.base[TSR_OPT_PARAMETER], tsr_opt_at(TSR_OPT_PARAMETER), PARAMETER_DTYPE);
}

void tsr_opt_set_parameter(float value)
{
    if (HAS_MASTER != 0)
        tsr_floats(p.base[TSR_OPT_MASTER]).v[tsr_opt_at(TSR_OPT_MASTER)] = value;
    tsr_store_float(p.base[TSR_OPT_PARAMETER], tsr_opt_at(TSR_OPT_PARAMETER), PARAMETER_DTYPE, value);
}

// The gradient, multiplied by its factor.
float tsr_opt_gradient()
{
    return tsr_load_float(p.base[TSR_OPT_GRADIENT], tsr_opt_at(TSR_OPT_GRADIENT), GRADIENT_DTYPE) * tsr_opt_scale;
}

float tsr_opt_state(uint operand)
{
    return tsr_floats(p.base[operand]).v[tsr_opt_at(operand)];
}

void tsr_opt_set_state(uint operand, float value)
{
    tsr_floats(p.base[operand]).v[tsr_opt_at(operand)] = value;
}

#endif
