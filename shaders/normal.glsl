// The inverse of the normal distribution by additions and multiplications alone. The twin of src/base/variate.c: both give
// the same bits, so every sum and product is `precise`: no fused multiply-add, no reordering.
#ifndef TSR_NORMAL_GLSL
#define TSR_NORMAL_GLSL

#include "normal_table.h"

#define TSR_NORMAL_ROW(c0, c1, c2, c3, c4, c5, c6, c7) vec4(c0, c1, c2, c3), vec4(c4, c5, c6, c7),
const vec4 tsr_normal_table[64] = {TSR_NORMAL_TABLE(TSR_NORMAL_ROW)};

float tsr_normal_step(float z, float g, float coefficient)
{
    precise float product = z * g;
    precise float sum = product + coefficient;
    return sum;
}

float tsr_normal_from_word(uint word)
{
    uint below = (word >> 31) != 0u ? ~word : word; // how many words lie further out
    uint t = 2u * below + 1u;
    int octave = findMSB(t);
    uint distance = (2u << octave) - t; // to the next octave; wraps in the last
    int excess = findMSB(distance) - 23; // bits that a float cannot hold: round them away
    if (excess > 0) {
        distance += (1u << excess) >> 1;
        distance &= ~((1u << excess) - 1u);
    }
    precise float g = float(distance) * uintBitsToFloat(uint(127 - octave) << 23);

    vec4 table[64] = tsr_normal_table; // indexed twice, copied once where a driver has no constant arrays
    vec4 low = table[2 * octave];
    vec4 high = table[2 * octave + 1];
    float z = high.w;
    z = tsr_normal_step(z, g, high.z);
    z = tsr_normal_step(z, g, high.y);
    z = tsr_normal_step(z, g, high.x);
    z = tsr_normal_step(z, g, low.w);
    z = tsr_normal_step(z, g, low.z);
    z = tsr_normal_step(z, g, low.y);
    z = tsr_normal_step(z, g, low.x);
    return (word >> 31) != 0u ? z : -z;
}

#endif
