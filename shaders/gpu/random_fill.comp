// Fills y with random bits, or with uniform or normal numbers. The value of an element depends only
// on the seed, the subsequence and the index of the element.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/rows.glsl"
#include "include/normal.glsl"
#include "params/random.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint DENSE = 0u;
layout(constant_id = 2) const uint KIND = TSR_RANDOM_BITS;
layout(constant_id = 3) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 4) const uint SELECT = 0u; // 1 on CPU drivers; see tsr_normal_select()

layout(push_constant, std430) uniform Push {
    tsr_random_fill_params p;
};

#include "include/random_walk.glsl"

float variate(uint word)
{
    if (KIND == TSR_RANDOM_NORMAL) {
        precise float product = p.scale * tsr_normal_from_word(word, SELECT != 0u, p.threshold);
        precise float sum = tsr_rounded(product, p.threshold) + p.shift;
        return sum;
    }
    precise float product = float(word >> 8) * 5.9604644775390625e-08 * p.scale; // 2^-24: exact
    precise float sum = tsr_rounded(product, p.threshold) + p.shift;
    // The limit can be represented exactly in y's dtype, so that storing does not round a number
    // beyond it.
    return min(sum, p.limit);
}

void tsr_random_emit(uint y_row, uint x_row, uint e, uint word)
{
    uint at = y_row + e * p.y_strides[3];
    if (KIND == TSR_RANDOM_BITS)
        tsr_words(p.y).v[at] = word;
    else
        tsr_store_float(p.y, at, Y_DTYPE, variate(word));
}

void tsr_random_emit4(uint e, uvec4 words)
{
    if (KIND == TSR_RANDOM_BITS) {
        tsr_words4_loose(tsr_at_mul(p.y, e, 4u)).v[0] = words;
        return;
    }
    vec4 values;
    [[unroll]] for (uint k = 0u; k < 4u; k++)
        values[k] = variate(words[k]);
    tsr_store_dense4(tsr_at_mul(p.y, e, tsr_dtype_bytes(Y_DTYPE)), Y_DTYPE, values);
}

void main()
{
    tsr_random_walk();
}
