// Computes a row's statistics from those of its chunks (params/softmax_chunks.h).
#ifndef TSR_SOFTMAX_STATS_GLSL
#define TSR_SOFTMAX_STATS_GLSL

#include "include/tessera.glsl"
#include "include/exp_log.glsl"
#include "params/softmax_chunks.h"

// Returns the largest element of a row and the sum of exponentials relative to it, or relative to 0
// if all elements are -inf.
vec2 tsr_row_exponentials(uvec2 chunks, uint across)
{
    float largest = uintBitsToFloat(0xff800000u), sum = 0.0;
    for (uint i = 0u; i < across; i++)
        largest = max(largest, tsr_floats(chunks).v[2u * i]);
    float shift = largest == uintBitsToFloat(0xff800000u) ? 0.0 : largest;
    for (uint i = 0u; i < across; i++)
        sum += tsr_floats(chunks).v[2u * i + 1u] * tsr_exp(tsr_floats(chunks).v[2u * i] - shift);
    return vec2(largest, sum);
}

float tsr_row_sum(uvec2 chunks, uint across)
{
    float sum = 0.0;
    for (uint i = 0u; i < across; i++)
        sum += tsr_floats(chunks).v[2u * i + 1u];
    return sum;
}

#endif
