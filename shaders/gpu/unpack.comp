// Adds packed numbers, in f32 and in the order of the contributions. An invocation computes four
// elements.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/rows.glsl"
#include "params/pack.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint FORM = TSR_ROW_STRIDED; // DENSE4 if y starts at a multiple of 4 bytes

layout(push_constant) uniform Push {
    tsr_unpack_params p;
};

void main()
{
    uint j = 4u * tsr_flat_invocation();
    if (j >= p.count)
        return;
    uint block = j / TSR_PACK_BLOCK, word = j % TSR_PACK_BLOCK / 4u;
    bool odd = (block & 1u) != 0u;
    uvec2 x = tsr_at_mul(p.x, block / 2u, TSR_PACK_PAIR_WORDS * 4u), factor = tsr_next(p.x, p.factor);
    precise vec4 sum = vec4(0.0);
    for (uint r = 0u; r < p.contributions; r++) {
        uint middle = tsr_words(x).v[TSR_PACK_BLOCK / 4u];
        uint low = tsr_words(x).v[odd ? TSR_PACK_BLOCK / 4u + 1u + word : word];
        uint high = odd ? 0u : tsr_words(x).v[word + 1u];
        uint scale = odd ? middle >> 16 : tsr_words(x).v[0] & 0xffffu;
        uint bytes = odd ? low : low >> 16 | high << 16;
        vec4 levels = vec4(ivec4(uvec4(bytes) << uvec4(24u, 16u, 8u, 0u)) >> 24);
        precise vec4 value = levels * tsr_f32_from_f16(scale);
        precise vec4 each = value * tsr_floats(factor).v[0];
        sum = r == 0u ? each : sum + each;
        x = tsr_next(x, p.stride);
        factor = tsr_next(factor, p.stride);
    }
    uvec2 step = uvec2(tsr_dtype_bytes(Y_DTYPE), 0u);
    if (j + 4u <= p.count)
        tsr_store_row4(p.y, step, j, p.count, Y_DTYPE, FORM, sum);
    else
        tsr_store_row4(p.y, step, j, p.count, Y_DTYPE, TSR_ROW_STRIDED, sum);
}
