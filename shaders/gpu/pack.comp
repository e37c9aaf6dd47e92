// Packs numbers into blocks of 8-bit integers (src/gpu/quant/pack.h). An invocation packs two
// blocks, because only every second block starts at a multiple of 4 bytes.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/divide.glsl"
#include "include/rows.glsl"
#include "params/pack.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint FORM = TSR_ROW_STRIDED; // DENSE4 if x starts at a multiple of 4 bytes
layout(constant_id = 3) const bool PARTIAL = true; // x may end inside the blocks of this dispatch

layout(push_constant) uniform Push {
    tsr_pack_params p;
};

const uint VECTORS = TSR_PACK_BLOCK / 4u;

// Returns the exponent of the factor, a power of two. The packed numbers are divided by it: this
// brings the largest of them near the largest number that a block can hold, whose scale is an f16.
int factor_exponent(uint largest)
{
    return largest == 0u ? 0 : max(int(largest >> 23) - 126 - TSR_PACK_LOG2_LARGEST, -126);
}

float power_of_two(int exponent)
{
    return uintBitsToFloat(uint(exponent + 127) << 23);
}

// Rounds to the nearest integers, and halves away from 0, as C's roundf. It adds no floats, because
// a compiler could fuse such a sum with the product that gives the value.
ivec4 round_away(vec4 value)
{
    ivec4 magnitude = (ivec4(abs(value) * 2.0) + 1) >> 1;
    return mix(magnitude, -magnitude, lessThan(value, vec4(0.0)));
}

uint bytes_of(ivec4 levels)
{
    uvec4 bits = uvec4(levels) & 0xffu;
    return bits.x | bits.y << 8 | bits.z << 16 | bits.w << 24;
}

// Returns a block's scale, and its elements in `words`.
uint pack_block(uint block, float inverse_factor, bool finite, out uint words[VECTORS])
{
    uvec2 step = uvec2(tsr_dtype_bytes(X_DTYPE), 0u);
    uint first = block * TSR_PACK_BLOCK;
    vec4 value[VECTORS];
    vec4 most = vec4(0.0);
    [[unroll]] for (uint i = 0u; i < VECTORS; i++) {
        uint j = first + 4u * i;
        value[i] = vec4(0.0);
        if (!PARTIAL)
            value[i] = tsr_load_row4(p.x, step, j, p.count, X_DTYPE, FORM, 0.0);
        else if (j < p.count)
            value[i] = tsr_load_row4(p.x, step, j, p.count, X_DTYPE, TSR_ROW_STRIDED, 0.0);
        value[i] = finite ? value[i] * inverse_factor : vec4(0.0);
        most = max(most, abs(value[i]));
    }
    uint scale = tsr_divide(floatBitsToUint(max(max(most.x, most.y), max(most.z, most.w))), floatBitsToUint(127.0));
    // The elements of a block with a subnormal scale are 0, because the scale is 0 in f16.
    float inverse = scale < 0x800000u ? 0.0 : uintBitsToFloat(tsr_divide(floatBitsToUint(1.0), scale));
    [[unroll]] for (uint i = 0u; i < VECTORS; i++) {
        precise vec4 level = value[i] * inverse;
        words[i] = bytes_of(round_away(level));
    }
    return tsr_f16_from_f32(uintBitsToFloat(scale));
}

void main()
{
    uint pair = tsr_flat_invocation();
    if (pair >= p.pairs)
        return;
    uint largest = tsr_words(p.largest).v[0];
    bool finite = largest < 0x7f800000u;
    int exponent = finite ? factor_exponent(largest) : 0;
    float inverse_factor = power_of_two(-exponent);
    uvec2 y = tsr_at_mul(p.y, pair, TSR_PACK_PAIR_WORDS * 4u);

    uint even[VECTORS], odd[VECTORS];
    uint even_scale = pack_block(2u * pair, inverse_factor, finite, even);
    uint odd_scale = pack_block(2u * pair + 1u, inverse_factor, finite, odd);
    uint before = even_scale;
    [[unroll]] for (uint i = 0u; i < VECTORS; i++) {
        tsr_words(y).v[i] = before | even[i] << 16;
        before = even[i] >> 16;
    }
    tsr_words(y).v[VECTORS] = before | odd_scale << 16;
    [[unroll]] for (uint i = 0u; i < VECTORS - 1u; i++)
        tsr_words(y).v[VECTORS + 1u + i] = odd[i];
    // An element that is NaN or infinite makes the factor NaN, and so all elements.
    uint factor = finite ? floatBitsToUint(power_of_two(exponent)) : 0x7fc00000u;
    tsr_words(y).v[TSR_PACK_PAIR_WORDS - 1u] = pair == p.last ? factor : odd[VECTORS - 1u];
}
