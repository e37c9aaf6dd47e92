// Narrows lines of f32; see include/matmul_narrow.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/matmul_narrow.glsl"

// 1: x_k is the size of an element, and lines start at multiples of four elements.
layout(constant_id = 8) const uint VECTORS = 0;

// Elements k … k + 3 of a line of x; those beyond its end are 0.
vec4 elements(uvec2 line, uint k)
{
    if (VECTORS != 0 && k + 4 <= p.k)
        return tsr_floats4(tsr_at(line, k * 4)).v[0];
    vec4 x = vec4(0.0);
    [[unroll]] for (uint i = 0; i < 4; i++)
        if (k + i < p.k)
            x[i] = tsr_floats(tsr_at_mul(line, k + i, p.x_k)).v[0];
    return x;
}

void main()
{
    uint number = tsr_flat_group();
    if (number >= p.lines)
        return;
    uvec2 x = tsr_at_stride(p.x, number, p.x_line), y = line_at(number);
    uint most = 0;
    for (uint k = gl_LocalInvocationIndex * 4; k < p.k; k += THREADS * 4)
        most = max(most, largest(elements(x, k)));
    int shift = shift_of(largest_of_line(most));
    store_scale(y, shift);
    for (uint k = gl_LocalInvocationIndex * 4; k < term_elements(); k += THREADS * 4)
        store_terms(y, k, elements(x, k), power_of_two(shift));
}
