// Converts rows of q4_k, q5_k or q6_k to f32 on lavapipe with eight lanes. A workgroup, which is one
// subgroup, converts UNITS blocks of a row. See dequantize_vectors.comp.
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
    uint low[UNITS * 4], high[UNITS * 2];
    vec2 scales[UNITS * GROUPS]; // the scale and the minimum of each group
    [[unroll]] for (uint u = 0; u < UNITS; u++) {
        uint64_t block = x + u * BLOCK_BYTES;
        [[unroll]] for (uint w = 0; w < 4; w++)
            low[u * 4 + w] = load_words(block + (LOW_AT + w * 32));
        high[u * 2] = Q4 ? 0 : load_words(block + HIGH_AT);
        high[u * 2 + 1] = Q6 ? load_words(block + (HIGH_AT + 32)) : 0;
        float factor = 0.0;
        vec2 of_lanes = vec2(0.0);
        if (Q6)
            factor = unpackHalf2x16(uint(Word16(block + 208).v)).x;
        else
            of_lanes = load_scales(block);
        [[unroll]] for (uint g = 0; g < GROUPS; g++) {
            if (Q6)
                scales[u * GROUPS + g] = vec2(factor * SCALE_OF_LANE(floatBitsToUint(Float(block + (192 + g / 2 * 4)).v), g), 0.0);
            else
                scales[u * GROUPS + g] = vec2(subgroupShuffle(of_lanes.x, g), subgroupShuffle(of_lanes.y, g));
        }
    }
    uint64_t y = p.y + uint64_t(row) * p.y_stride + group * (UNITS * GROUPS * 128) + gl_SubgroupInvocationID * 16;
    [[unroll]] for (uint u = 0; u < UNITS; u++) {
        [[unroll]] for (uint g = 0; g < GROUPS; g++) {
            vec4 value = NUMBERS(low[u * 4 + LOW_OF(g)], high[u * 2 + HIGH_OF(g)], g) * K_FACTORS(g);
            vec2 scale = scales[u * GROUPS + g];
            store_pairs(y + (u * GROUPS + g) * 128, Q6 ? (value - 32.0) * scale.x : value * scale.x - scale.y);
        }
    }
}
