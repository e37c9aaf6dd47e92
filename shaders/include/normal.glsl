// The inverse of the normal distribution function, by additions and multiplications. It must give
// the same bits as src/base/variate.c. Therefore every sum and product is `precise`, which forbids
// reordering, and no product is fused with a sum. `zero` is as in tsr_rounded().
#ifndef TSR_NORMAL_GLSL
#define TSR_NORMAL_GLSL

#extension GL_EXT_control_flow_attributes : require
#include "include/normal_table.h"
#include "include/rounded.glsl"

#define TSR_NORMAL_ROW(c0, c1, c2, c3, c4, c5, c6, c7) vec4(c0, c1, c2, c3), vec4(c4, c5, c6, c7),
const vec4 tsr_normal_table[64] = {TSR_NORMAL_TABLE(TSR_NORMAL_ROW)};

// Gets the coefficients of one octave, row number `row` of the table, by selections. This is for
// compilers that would otherwise copy the complete table to the stack for every lane.
void tsr_normal_select(int row, out vec4 low, out vec4 high)
{
    // A binary tree: first the 32 rows, then what is selected from elements 0 and 1, from elements
    // 2 and 3, and so on.
    vec4 lows[64];
    vec4 highs[64];
    [[unroll]] for (int i = 0; i < 32; i++) {
        lows[i] = tsr_normal_table[2 * i];
        highs[i] = tsr_normal_table[2 * i + 1];
    }
    [[unroll]] for (int i = 0; i < 31; i++) {
        int bit = i < 16 ? 1 : i < 24 ? 2 : i < 28 ? 4 : i < 30 ? 8 : 16;
        bvec4 second = bvec4((row & bit) != 0);
        lows[32 + i] = mix(lows[2 * i], lows[2 * i + 1], second);
        highs[32 + i] = mix(highs[2 * i], highs[2 * i + 1], second);
    }
    low = lows[62];
    high = highs[62];
}

float tsr_normal_step(float z, float g, float coefficient, uint zero)
{
    precise float product = z * g;
    precise float sum = tsr_rounded(product, zero) + coefficient;
    return sum;
}

float tsr_normal_from_word(uint word, bool select, uint zero)
{
    // The number of words whose result has the same sign and is further from 0.
    uint below = (word >> 31) != 0u ? ~word : word;
    uint t = 2u * below + 1u;
    int octave = findMSB(t);
    uint distance = (2u << octave) - t; // the distance from t to the next power of two; for the last octave 2^32 − t, by overflow
    int excess = findMSB(distance) - 23; // the number of bits for which a float has no room; they are rounded away
    if (excess > 0) {
        distance += (1u << excess) >> 1;
        distance &= ~((1u << excess) - 1u);
    }
    precise float g = float(distance) * uintBitsToFloat(uint(127 - octave) << 23);

    vec4 low, high;
    if (select) {
        tsr_normal_select(octave, low, high);
    } else {
        // Copies the table once for both look-ups, because drivers without constant arrays would
        // copy it for each.
        vec4 table[64] = tsr_normal_table;
        low = table[2 * octave];
        high = table[2 * octave + 1];
    }
    float z = high.w;
    z = tsr_normal_step(z, g, high.z, zero);
    z = tsr_normal_step(z, g, high.y, zero);
    z = tsr_normal_step(z, g, high.x, zero);
    z = tsr_normal_step(z, g, low.w, zero);
    z = tsr_normal_step(z, g, low.z, zero);
    z = tsr_normal_step(z, g, low.y, zero);
    z = tsr_normal_step(z, g, low.x, zero);
    return (word >> 31) != 0u ? z : -z;
}

#endif
