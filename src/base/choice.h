/* The arithmetic of choosing tokens (shaders/params/choose.h). shaders/include/choice.glsl gives
 * the same bits. */
#ifndef TSR_BASE_CHOICE_H
#define TSR_BASE_CHOICE_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "shaders/params/choose.h"

static inline uint32_t tsr__float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Returns 0 for a subnormal number, because some devices treat them as 0. */
static inline float tsr__choice_normal(float value)
{
    return (tsr__float_bits(value) & 0x7f800000u) == 0 ? 0 : value;
}

/* Returns the logit of a token that the sequence already has. Each product is stored in a float
 * variable, as in variate.c. */
static inline float tsr__choice_penalised(float logit, float penalty, float inverse_penalty)
{
    if (logit == -INFINITY)
        return logit;
    const float normal = tsr__choice_normal(logit);
    const float product = normal * (normal < 0 ? penalty : inverse_penalty);
    const float bounded = product < -FLT_MAX ? -FLT_MAX : product > FLT_MAX ? FLT_MAX : product;
    return tsr__choice_normal(bounded);
}

/* Returns the distance of a token from the most likely one. Neither logit may be −inf. */
static inline uint32_t tsr__choice_distance(float largest, float logit, float scale)
{
    const float below = tsr__choice_normal(largest) - tsr__choice_normal(logit);
    const float bounded = below > FLT_MAX ? FLT_MAX : tsr__choice_normal(below);
    const float distance = bounded * scale;
    return distance < 2147483520.0f ? (uint32_t)distance : UINT32_C(2147483520);
}

static inline uint32_t tsr__mul_high_u32(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}

/* Returns the high 64 bits of a product. */
static inline uint64_t tsr__mul_high_u64(uint64_t a, uint64_t b)
{
    const uint64_t al = (uint32_t)a, ah = a >> 32, bl = (uint32_t)b, bh = b >> 32;
    const uint64_t middle = ah * bl + (al * bl >> 32);
    const uint64_t other = al * bh + (uint32_t)middle;
    return ah * bh + (middle >> 32) + (other >> 32);
}

static inline uint64_t tsr__choice_weight(uint32_t distance)
{
    const uint32_t r = distance << (32 - TSR_CHOICE_DISTANCE_BITS);
    uint32_t q = TSR_CHOICE_C6 - tsr__mul_high_u32(r, TSR_CHOICE_C7);
    q = TSR_CHOICE_C5 - tsr__mul_high_u32(r, q);
    q = TSR_CHOICE_C4 - tsr__mul_high_u32(r, q);
    q = TSR_CHOICE_C3 - tsr__mul_high_u32(r, q);
    q = TSR_CHOICE_C2 - tsr__mul_high_u32(r, q);
    q = TSR_CHOICE_C1 - tsr__mul_high_u32(r, q);
    q = (UINT32_C(1) << 31) - tsr__mul_high_u32(r, q);
    return (uint64_t)q << (TSR_CHOICE_WEIGHT_BITS - 31) >> (distance >> TSR_CHOICE_DISTANCE_BITS);
}

#endif
