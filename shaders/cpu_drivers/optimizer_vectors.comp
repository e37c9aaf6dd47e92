// The steps of the optimizers for contiguous operands, on Mesa's CPU driver. The kernel is
// structured like vectors.comp with one row.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "params/clip_scale.h"
#include "params/optimizer.h"
#include "params/vectors.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_optimizer_vectors_push p;
};

#define TSR_IDENTITY_BITS 3
#include "include/float16.glsl"
#include "cpu_drivers/lavapipe.glsl"
#include "include/optimizer_step.glsl"

layout(constant_id = 0) const uint WORKGROUP = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint PARAMETER_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint GRADIENT_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint HAS_MASTER = 0;
layout(constant_id = 4) const uint MODE = 0;
layout(constant_id = 5) const uint OPTIMIZER = TSR_OPT_ADAMW;
layout(constant_id = 6) const uint LANES = 8;
layout(constant_id = 7) const uint UNITS = 4;

const uint GROUP = TSR_VECTOR_BYTES / (PARAMETER_DTYPE == TSR_DT_F32 ? 4 : 2);
const uint BLOCK = UNITS * LANES;
const uint NONE = 0xffffffffu;
const bool EXACT = false;

#include "cpu_drivers/vector_floats.glsl"

// READS_STATE says whether the optimizer loads its state, and KEEPS_STATE whether it stores it.
const bool READS_STATE = OPTIMIZER == TSR_OPT_ADAMW || MODE == TSR_SGD_MOMENTUM_NEXT || MODE == TSR_SGD_NESTEROV_NEXT;
const bool KEEPS_STATE = OPTIMIZER == TSR_OPT_ADAMW || MODE != TSR_SGD_PLAIN;

// The address of a vector of the parameter, or of the corresponding elements of another operand.
uint64_t place(uint operand, uint vector, uint dtype)
{
    return p.base[operand] + uint64_t(vector) * (GROUP * BYTES_OF(dtype));
}

void store_state(uint64_t at, vec4 values)
{
    store_vector(at, floatBitsToUint(values.xy));
    if (GROUP == 4)
        store_vector(at + 8, floatBitsToUint(values.zw));
}

void store_parameter(uint64_t at, vec4 values)
{
    if (PARAMETER_DTYPE == TSR_DT_F32)
        store_state(at, values);
    else
        store_vector(at, ENCODE_FLOAT16S(values, PARAMETER_DTYPE));
}

void main()
{
    uint number = uniform_index(gl_WorkGroupID.x) * (WORKGROUP / LANES) + p.identity[p.identity[gl_SubgroupID]];
    uint blocks = (p.vectors + BLOCK - 1) / BLOCK;
    uint start = min(number, blocks - 1) * BLOCK;
    uint first = min(start, p.vectors - BLOCK);
    // If there is no scale in memory, these loads read elements of the gradient instead, and
    // nothing uses the values.
    bool in_memory = p.scale != 0;
    uint64_t scale_at = in_memory ? p.scale : p.base[TSR_OPT_GRADIENT];
    float factor = Float(scale_at + 4 * TSR_SCALE_FACTOR).v, takes = Float(scale_at + 4 * TSR_SCALE_STEPS).v;
    float scale = mix(p.number[TSR_OPT_GRADIENT_SCALE], factor, in_memory);
    bool nothing = number >= blocks || in_memory && takes == 0.0;
    uint lowest = mix(start - first, NONE, nothing);

    vec4 parameter[UNITS], gradient[UNITS], state[UNITS], state2[UNITS];
    [[unroll]] for (uint u = 0; u < UNITS; u++) {
        uint vector = first + u * LANES;
        if (HAS_MASTER != 0)
            parameter[u] = LOAD_OPERAND(place(TSR_OPT_MASTER, vector, TSR_DT_F32), TSR_DT_F32, 8);
        else
            parameter[u] = LOAD_OPERAND(place(TSR_OPT_PARAMETER, vector, PARAMETER_DTYPE), PARAMETER_DTYPE, 8);
        gradient[u] = LOAD_OPERAND(place(TSR_OPT_GRADIENT, vector, GRADIENT_DTYPE), GRADIENT_DTYPE, 8);
        state[u] = state2[u] = vec4(0.0);
        if (READS_STATE)
            state[u] = LOAD_OPERAND(place(TSR_OPT_STATE, vector, TSR_DT_F32), TSR_DT_F32, 8);
        if (OPTIMIZER == TSR_OPT_ADAMW)
            state2[u] = LOAD_OPERAND(place(TSR_OPT_STATE2, vector, TSR_DT_F32), TSR_DT_F32, 8);
    }
    [[unroll]] for (uint u = 0; u < UNITS; u++)
        [[unroll]] for (uint i = 0; i < GROUP; i++) {
            float mean = state[u][i], square = state2[u][i], g = gradient[u][i] * scale;
            if (OPTIMIZER == TSR_OPT_ADAMW)
                parameter[u][i] = adamw_step(parameter[u][i], g, mean, square);
            else
                parameter[u][i] = sgd_step(parameter[u][i], g, mean, MODE);
            state[u][i] = mean;
            state2[u][i] = square;
        }

    uint lane = first + gl_SubgroupInvocationID;
    uint64_t to = place(TSR_OPT_PARAMETER, lane, PARAMETER_DTYPE), to_master = place(TSR_OPT_MASTER, lane, TSR_DT_F32);
    uint64_t to_state = place(TSR_OPT_STATE, lane, TSR_DT_F32), to_state2 = place(TSR_OPT_STATE2, lane, TSR_DT_F32);
    [[unroll]] for (uint u = 0; u < UNITS; u++) {
        uint before = u * LANES;
        if (before + gl_SubgroupInvocationID >= lowest) {
            store_parameter(to + before * TSR_VECTOR_BYTES, parameter[u]);
            if (HAS_MASTER != 0)
                store_state(to_master + before * GROUP * 4, parameter[u]);
            if (KEEPS_STATE)
                store_state(to_state + before * GROUP * 4, state[u]);
            if (OPTIMIZER == TSR_OPT_ADAMW)
                store_state(to_state2 + before * GROUP * 4, state2[u]);
        }
    }
}
