// Converts rows of q8_0, q4_0 or mxfp4 to f32 on lavapipe. A workgroup, which is one subgroup, converts UNITS vectors (quant_words.glsl) of
// a row. All loads come before the first store, because a store is a loop over lanes, across which LLVM moves no load.
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

layout(constant_id = 0) const uint LANES = 8; // the subgroup size, 8 or 16
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint UNITS = 8;
layout(constant_id = 2) const uint FORMAT = TSR_QUANT_ROWS_Q8_0;

#include "cpu_drivers/quant_words.glsl"

void main()
{
    uint group = uniform_index(gl_WorkGroupID.x), row = uniform_index(gl_WorkGroupID.y);
    uint64_t x = p.x + uint64_t(row) * p.x_stride + group * (UNITS * VECTOR_BYTES);
    uint words[UNITS];
    float scales[UNITS];
    [[unroll]] for (uint u = 0; u < UNITS; u++) {
        words[u] = load_words(x + u * VECTOR_BYTES);
        scales[u] = load_scales(x + u * VECTOR_BYTES);
    }
    uint lane = gl_SubgroupInvocationID;
    uint64_t y = p.y + uint64_t(row) * p.y_stride + group * (UNITS * VECTOR * 4) +
                 (NIBBLES ? lane / 4 * 128 + lane % 4 * 16 : lane * 16);
    [[unroll]] for (uint u = 0; u < UNITS; u++) {
        uint64_t at = y + u * (VECTOR * 4);
        uvec4 bytes = uvec4(words[u]) >> uvec4(0, 8, 16, 24);
        if (MXFP4) {
            store_pairs(at, numbers_of_mxfp4(words[u]) * (1.0 / MXFP4_UNIT) * scales[u]);
            store_pairs(at + 64, numbers_of_mxfp4(words[u] >> 4) * (1.0 / MXFP4_UNIT) * scales[u]);
        } else if (NIBBLES) {
            store_pairs(at, vec4(ivec4(bytes & 15u) - 8) * scales[u]);
            store_pairs(at + 64, vec4(ivec4(bytes >> 4 & 15u) - 8) * scales[u]);
        } else {
            store_pairs(at, vec4(ivec4(bytes << 24) >> 24) * scales[u]);
        }
    }
}
