// Narrows lines, the rows of a or the columns of b of a product, to 16-bit terms (TSR_MM_TERM_UNIT in
// params/matmul.h). A workgroup narrows one line. Its scale is a power of two by which the largest
// finite element becomes a number from 2^TOP up to, but not including, 2^(TOP + 1). Each term is the
// rest that earlier terms have left, rounded. Infinities and NaN are in the first term.
#ifndef TSR_MATMUL_NARROW_GLSL
#define TSR_MATMUL_NARROW_GLSL

#include "include/rows.glsl"
#include "params/matmul.h"

layout(constant_id = 5) const uint THREADS = 64; // a multiple of 8
layout(local_size_x_id = 5) in;
layout(constant_id = 6) const uint DTYPE = TSR_DT_F16;
layout(constant_id = 7) const uint TERMS = 1;

layout(push_constant, std430) uniform Push {
    tsr_matmul_narrow_push p;
};

// f16 reaches 65504. bf16 has the range of f32, and products with it must not overflow.
const int TOP = DTYPE == TSR_DT_F16 ? 14 : 0;

shared uint parts[THREADS];
shared uint eighths[8];

uint term_elements()
{
    return (p.k + TSR_MM_TERM_UNIT - 1) / TSR_MM_TERM_UNIT * TSR_MM_TERM_UNIT;
}

uvec2 line_at(uint line)
{
    return tsr_at_mul(p.y, line, (TERMS * term_elements() + TSR_MM_TERM_UNIT) * 2);
}

bvec4 is_finite(vec4 x)
{
    return lessThan(floatBitsToUint(x) & 0x7fffffffu, uvec4(0x7f800000u));
}

// The bits of the largest finite absolute value, which are ordered as the values are.
uint largest(vec4 x)
{
    uvec4 bits = mix(uvec4(0), floatBitsToUint(x) & 0x7fffffffu, is_finite(x));
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

// Returns the maximum over the workgroup to each of its invocations.
uint largest_of_line(uint own)
{
    parts[gl_LocalInvocationIndex] = own;
    barrier();
    if (gl_LocalInvocationIndex < 8) {
        for (uint i = 1; i < THREADS / 8; i++)
            own = max(own, parts[gl_LocalInvocationIndex + 8 * i]);
        eighths[gl_LocalInvocationIndex] = own;
    }
    barrier();
    uint most = 0;
    [[unroll]] for (uint i = 0; i < 8; i++)
        most = max(most, eighths[i]);
    return most;
}

// The exponent of the number that the elements of a line are multiplied by. Its limits keep that
// number and the scale normal.
int shift_of(uint bits)
{
    return clamp(TOP - (int(bits >> 23) - 127), -126, 126);
}

float power_of_two(int exponent)
{
    return uintBitsToFloat(uint(exponent + 127) << 23);
}

void store_scale(uvec2 line, int shift)
{
    if (gl_LocalInvocationIndex == 0)
        tsr_floats(tsr_at(line, TERMS * term_elements() * 2)).v[0] = power_of_two(-shift);
}

// Stores the terms of elements k … k + 3, where k is a multiple of 4.
void store_terms(uvec2 line, uint k, vec4 x, float factor)
{
    bvec4 finite = is_finite(x);
    precise vec4 rest = x * factor;
    [[unroll]] for (uint term = 0; term < TERMS; term++) {
        uvec4 bits = DTYPE == TSR_DT_F16 ? tsr_f16_from_f32(rest) : tsr_bf16_from_f32(rest);
        uvec2 pairs = uvec2(bits.x | bits.y << 16, bits.z | bits.w << 16);
        tsr_words2(tsr_at(line, (term * term_elements() + k) * 2)).v[0] = pairs;
        vec4 rounded = DTYPE == TSR_DT_F16 ? vec4(tsr_f32_from_f16_pair(pairs.x), tsr_f32_from_f16_pair(pairs.y))
                                           : uintBitsToFloat(bits << 16);
        precise vec4 difference = rest - rounded;
        rest = mix(vec4(0.0), difference, finite);
    }
}

#endif
