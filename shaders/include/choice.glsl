// The arithmetic of choosing tokens (params/choose.h). It must give the same bits as
// src/base/choice.h. Only a difference and a product are computed in floats; they are rounded in
// the same way on every device, and subnormal numbers are replaced by 0.
#ifndef TSR_CHOICE_GLSL
#define TSR_CHOICE_GLSL

#include "params/choose.h"

const float TSR_CHOICE_LARGEST = 3.40282347e38; // the largest float

// Integers of 64 bits as two words, the low one first.
uvec2 tsr_add64(uvec2 a, uvec2 b)
{
    uint carry;
    uint low = uaddCarry(a.x, b.x, carry);
    return uvec2(low, a.y + b.y + carry);
}

uvec2 tsr_sub64(uvec2 a, uvec2 b)
{
    return uvec2(a.x - b.x, a.y - b.y - (a.x < b.x ? 1u : 0u));
}

bool tsr_less64(uvec2 a, uvec2 b)
{
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

// The low 64 bits of a · b.
uvec2 tsr_mul64(uvec2 a, uint b)
{
    uint high, low;
    umulExtended(a.x, b, high, low);
    return uvec2(low, high + a.y * b);
}

// The high 64 bits of a · b.
uvec2 tsr_mul_high64(uvec2 a, uvec2 b)
{
    uvec2 ll, lh, hl, hh; // products of low and high words
    umulExtended(a.x, b.x, ll.y, ll.x);
    umulExtended(a.x, b.y, lh.y, lh.x);
    umulExtended(a.y, b.x, hl.y, hl.x);
    umulExtended(a.y, b.y, hh.y, hh.x);
    uvec2 middle = tsr_add64(hl, uvec2(ll.y, 0u));
    uvec2 other = tsr_add64(lh, uvec2(middle.x, 0u));
    return tsr_add64(tsr_add64(hh, uvec2(middle.y, 0u)), uvec2(other.y, 0u));
}

uint tsr_mul_high32(uint a, uint b)
{
    uint high, low;
    umulExtended(a, b, high, low);
    return high;
}

float tsr_choice_normal(float value)
{
    return (floatBitsToUint(value) & 0x7f800000u) == 0u ? 0.0 : value;
}

// The logit of a token that the sequence already has.
float tsr_choice_penalised(float logit, float penalty, float inverse_penalty)
{
    if (floatBitsToUint(logit) == 0xff800000u)
        return logit;
    float normal = tsr_choice_normal(logit);
    precise float product = normal * (normal < 0.0 ? penalty : inverse_penalty);
    return tsr_choice_normal(clamp(product, -TSR_CHOICE_LARGEST, TSR_CHOICE_LARGEST));
}

uint tsr_choice_distance(float largest, float logit, float scale)
{
    precise float below = tsr_choice_normal(largest) - tsr_choice_normal(logit);
    below = min(tsr_choice_normal(below), TSR_CHOICE_LARGEST);
    precise float distance = below * scale;
    return uint(min(distance, 2147483520.0));
}

uvec2 tsr_choice_weight(uint distance)
{
    uint r = distance << (32u - TSR_CHOICE_DISTANCE_BITS);
    uint q = TSR_CHOICE_C6 - tsr_mul_high32(r, TSR_CHOICE_C7);
    q = TSR_CHOICE_C5 - tsr_mul_high32(r, q);
    q = TSR_CHOICE_C4 - tsr_mul_high32(r, q);
    q = TSR_CHOICE_C3 - tsr_mul_high32(r, q);
    q = TSR_CHOICE_C2 - tsr_mul_high32(r, q);
    q = TSR_CHOICE_C1 - tsr_mul_high32(r, q);
    q = 0x80000000u - tsr_mul_high32(r, q);
    const uint up = TSR_CHOICE_WEIGHT_BITS - 31u;
    uint down = distance >> TSR_CHOICE_DISTANCE_BITS; // at most 63
    uint low = q << up, high = q >> (32u - up);
    if (down >= 32u)
        return uvec2(high >> (down - 32u), 0u);
    return down == 0u ? uvec2(low, high) : uvec2(low >> down | high << (32u - down), high >> down);
}

#endif
