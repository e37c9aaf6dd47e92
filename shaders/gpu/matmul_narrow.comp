// Narrows lines of f32; see include/matmul_narrow.glsl. If NORM is not 0, it narrows their RMS norms. If GATED is not 0, a line is
// act(x) · up.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/matmul_narrow.glsl"
#include "include/activation.glsl"
#include "include/norm.glsl"

// 1: x_k is the size of an element, and lines start at multiples of four elements.
layout(constant_id = 8) const uint VECTORS = 0;
layout(constant_id = 9) const uint NORM = 0; // the dtype of the norm's weight; 0: no norm

layout(constant_id = 10) const uint GATED = 0; // 1: with an activation and `up`
layout(constant_id = 11) const uint ACTIVATION = TSR_ACTIVATION_NONE;

// Elements k … k + 3 of a line; those beyond its end are 0.
vec4 load_four(uvec2 line, uint k)
{
    if (VECTORS != 0 && k + 4 <= p.k)
        return tsr_floats4(tsr_at(line, k * 4)).v[0];
    vec4 x = vec4(0.0);
    [[unroll]] for (uint i = 0; i < 4; i++)
        if (k + i < p.k)
            x[i] = tsr_floats(tsr_at_mul(line, k + i, p.x_k)).v[0];
    return x;
}

// Elements k … k + 3 of a line of x, or of act(x) · up; those beyond its end are 0.
vec4 elements(uvec2 line, uint k)
{
    precise vec4 x = load_four(line, k);
    if (GATED != 0) {
        // without a loop: the compiler's copies of a loop's body are no longer precise
        precise vec4 activated = vec4(tsr_activate(x.x, ACTIVATION), tsr_activate(x.y, ACTIVATION),
                                      tsr_activate(x.z, ACTIVATION), tsr_activate(x.w, ACTIVATION));
        x = activated * load_four(tsr_at_stride(p.up, tsr_flat_group(), p.x_line), k);
    }
    return x;
}

// Elements k … k + 3 of the norm's weight; those beyond its end are 0.
vec4 weights(uint k)
{
    if (k + 4 <= p.k)
        return tsr_load_aligned4(tsr_at(p.weight, k * tsr_dtype_bytes(NORM)), NORM);
    vec4 w = vec4(0.0);
    [[unroll]] for (uint i = 0; i < 4; i++)
        if (k + i < p.k)
            w[i] = tsr_load_float(p.weight, k + i, NORM);
    return w;
}

// Elements k … k + 3 of a line of x, times the norm's weight if there is one.
vec4 weighted(uvec2 line, uint k)
{
    precise vec4 x = elements(line, k);
    if (NORM != 0)
        x = x * weights(k);
    return x;
}

// Returns the sum over the workgroup, in a fixed order, to each of its invocations. Invocations may still
// read `eighths` of the maximum, until the first barrier, and nothing else.
float sum_of_line(float own)
{
    parts[gl_LocalInvocationIndex] = floatBitsToUint(own);
    barrier();
    if (gl_LocalInvocationIndex < 8) {
        for (uint i = 1; i < THREADS / 8; i++)
            own += uintBitsToFloat(parts[gl_LocalInvocationIndex + 8 * i]);
        eighths[gl_LocalInvocationIndex] = floatBitsToUint(own);
    }
    barrier();
    float sum = 0.0;
    [[unroll]] for (uint i = 0; i < 8; i++)
        sum += uintBitsToFloat(eighths[i]);
    return sum;
}

void main()
{
    uint number = tsr_flat_group();
    if (number >= p.lines)
        return;
    uvec2 x = tsr_at_stride(p.x, number, p.x_line), y = line_at(number);
    uint most = 0;
    float squares = 0.0;
    for (uint k = gl_LocalInvocationIndex * 4; k < p.k; k += THREADS * 4) {
        most = max(most, largest(weighted(x, k)));
        if (NORM != 0) {
            vec4 four = elements(x, k);
            squares += dot(four, four);
        }
    }
    most = largest_of_line(most);
    float factor = 1.0;
    if (NORM != 0) {
        factor = norm_factor(sum_of_line(squares) / float(p.k), p.epsilon);
        precise float scaled = uintBitsToFloat(most) * factor;
        most = largest(vec4(scaled));
    }
    int shift = shift_of(most);
    store_scale(y, shift);
    for (uint k = gl_LocalInvocationIndex * 4; k < term_elements(); k += THREADS * 4) {
        precise vec4 four = weighted(x, k);
        if (NORM != 0)
            four = four * factor;
        store_terms(y, k, four, power_of_two(shift));
    }
}
