// Functions of the kernels that normalise short rows on Mesa's CPU driver. The including file declares
// LANES, UNITS and GROUP, the number of elements of a vector.
#ifndef TSR_NORM_SHORT_GLSL
#define TSR_NORM_SHORT_GLSL

const uint UNIT = LANES * GROUP;
const uint HALF = UNITS / 2;
const bool EXACT = false;

#include "cpu_drivers/vector_floats.glsl"

// The index in the row of the first element of unit i. A unit is one vector per lane. The units of the
// second half start p.overlap elements earlier, because a row need not have a whole number of units.
uint start_of(uint i)
{
    return i * UNIT - mix(0, p.overlap, i >= HALF);
}

// Returns the value, or 0 for an element of unit i that an earlier unit has as well.
float once(float value, uint i, uint k)
{
    return mix(value, 0.0, i >= HALF && (i - HALF) * UNIT + gl_SubgroupInvocationID * GROUP + k < p.overlap);
}

float subgroup_sum(float mine)
{
    precise float sum = mine;
    [[unroll]] for (uint distance = LANES / 2; distance > 0; distance /= 2)
        sum += subgroupShuffleXor(sum, distance);
    return sum;
}

vec4 load_weight(uint64_t at, uint i, uint dtype, uint form, float nothing)
{
    if (dtype == 0)
        return vec4(nothing);
    return LOAD_OPERAND(at + start_of(i) * BYTES_OF(dtype), dtype, form);
}

#endif
