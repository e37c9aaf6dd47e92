// Converts rows of q4_k, q5_k or q6_k to f32 on lavapipe. A workgroup, which is one subgroup,
// converts UNITS blocks of a row. All loads come before the first store, as in
// dequantize_vectors.comp.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "include/tessera.glsl"
#include "params/matmul_quant_rows.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_dequantize_vectors_push p;
};

#define TSR_MEMORY volatile
#include "cpu_drivers/lavapipe.glsl"

layout(constant_id = 0) const uint LANES = 8;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint UNITS = 1;
layout(constant_id = 2) const uint FORMAT = TSR_QUANT_ROWS_Q4_K;

#include "cpu_drivers/quant_k.glsl"

void main()
{
    uint group = uniform_index(gl_WorkGroupID.x), row = uniform_index(gl_WorkGroupID.y);
    uint64_t x = p.x + uint64_t(row) * p.x_stride + group * (UNITS * BLOCK_BYTES);
    uint low[UNITS * LOW_WORDS], high[UNITS * HIGH_WORDS];
    vec2 scales[UNITS * TURNS]; // the scale and the minimum for each turn (quant_k.glsl)
    [[unroll]] for (uint u = 0; u < UNITS; u++) {
        uint64_t block = x + u * BLOCK_BYTES;
        [[unroll]] for (uint w = 0; w < LOW_WORDS; w++)
            low[u * LOW_WORDS + w] = LOAD_LOW(block, w);
        [[unroll]] for (uint w = 0; w < HIGH_WORDS; w++)
            high[u * HIGH_WORDS + w] = LOAD_HIGH(block, w);
        float factor = 0.0;
        vec2 of_lanes = vec2(0.0);
        if (Q6)
            factor = unpackHalf2x16(uint(Word16(block + 208).v)).x;
        else
            of_lanes = load_scales(block);
        [[unroll]] for (uint t = 0; t < TURNS; t++) {
            if (Q6)
                scales[u * TURNS + t] = vec2(factor * SCALE_OF_LANE(floatBitsToUint(Float(block + SCALES_AT(t)).v), t), 0.0);
            else
                scales[u * TURNS + t] = vec2(OF_TURN(of_lanes.x, t), OF_TURN(of_lanes.y, t));
        }
    }
    uint64_t y = p.y + uint64_t(row) * p.y_stride + group * (UNITS * GROUPS * 128) + gl_SubgroupInvocationID * 16;
    [[unroll]] for (uint u = 0; u < UNITS; u++) {
        [[unroll]] for (uint t = 0; t < TURNS; t++) {
            vec4 value = NUMBERS(low[u * LOW_WORDS + LOW_OF(t)], high[u * HIGH_WORDS + HIGH_OF(t)], t) * K_FACTORS(t);
            vec2 scale = scales[u * TURNS + t];
            store_pairs(y + (u * TURNS + t) * (TURN_ELEMENTS * 4), Q6 ? (value - 32.0) * scale.x : value * scale.x - scale.y);
        }
    }
}
