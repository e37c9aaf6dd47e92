// Adds up several packed copies of a tensor, the contributions, in f32 and in their order in
// memory. An invocation computes UNITS times four elements of one block.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/rows.glsl"
#include "params/pack.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint FORM = TSR_ROW_STRIDED; // DENSE4 if y starts at a multiple of 4 bytes
layout(constant_id = 3) const bool PARTIAL = true;         // y may end inside the blocks of this dispatch
layout(constant_id = 4) const uint UNITS = 1;              // 1 or 8

layout(push_constant) uniform Push {
    tsr_unpack_params p;
};

const uint BLOCK_WORDS = TSR_PACK_BLOCK / 4u;

void main()
{
    uint first = tsr_flat_invocation() * UNITS * 4u;
    if (first >= p.count)
        return;
    uint block = first / TSR_PACK_BLOCK, unit = first % TSR_PACK_BLOCK / 4u;
    // The second block of a pair starts in the middle of a word, whose first half belongs to the
    // first block.
    bool odd = (block & 1u) != 0u;
    uvec2 x = tsr_at_mul(p.x, block / 2u, TSR_PACK_PAIR_WORDS * 4u), factor = tsr_next(p.x, p.factor);
    x = tsr_at(x, odd ? BLOCK_WORDS * 4u : 0u);
    vec4 sum[UNITS];
    for (uint r = 0u; r < p.contributions; r++) {
        uint start = tsr_words(x).v[0];
        // The scale is widened exactly on every device, even if it is subnormal, so that all ranks
        // get the same bits.
        float scale = uintBitsToFloat(tsr_widen_f16(odd ? start >> 16 : start & 0xffffu));
        float times = tsr_floats(factor).v[0];
        uint before = unit == 0u ? start : tsr_words(x).v[unit];
        [[unroll]] for (uint u = 0u; u < UNITS; u++) {
            uint word = tsr_words(x).v[unit + u + 1u];
            uint bytes = odd ? word : before >> 16 | word << 16;
            before = word;
            vec4 levels = vec4(ivec4(uvec4(bytes) << uvec4(24u, 16u, 8u, 0u)) >> 24);
            precise vec4 value = levels * scale;
            precise vec4 each = value * times;
            precise vec4 total = r == 0u ? each : sum[u] + each;
            sum[u] = total;
        }
        x = tsr_next(x, p.stride);
        factor = tsr_next(factor, p.stride);
    }
    uvec2 step = uvec2(tsr_dtype_bytes(Y_DTYPE), 0u);
    [[unroll]] for (uint u = 0u; u < UNITS; u++) {
        uint j = first + 4u * u;
        if (!PARTIAL || j < p.count)
            tsr_store_row4(p.y, step, j, p.count, Y_DTYPE, PARTIAL ? TSR_ROW_STRIDED : FORM, sum[u]);
    }
}
