// The reduction tree of the three reduction kernels. The kernels distribute the lanes of the tree
// differently over invocations, but all use the same tree, so that the bits of a result depend on
// the number of elements only. The tree has 32 lanes. Element j belongs to lane j % 32, and a lane
// combines its elements in order.
//
// The lanes are then combined in pairs. Lane 4·i + k is called (i, k). The first three steps
// combine lanes (i, k) and (i + d, k) for d = 4, 2, 1. The last two steps combine lanes (0, k) and
// (0, k + d) for d = 2, 1.
#ifndef TSR_REDUCE_GLSL
#define TSR_REDUCE_GLSL

#include "include/rows.glsl"
#include "params/reduce.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint KIND = TSR_REDUCE_KIND_SUM;

layout(push_constant) uniform Push {
    tsr_reduce_params p;
};

// The identity of the operation, which is the result for no elements.
float identity()
{
    if (KIND == TSR_REDUCE_KIND_SUM)
        return 0.0;
    return uintBitsToFloat(KIND == TSR_REDUCE_KIND_MAX ? 0xff800000u : 0x7f800000u);
}

// Combines two values. The result is NaN if one of them is NaN; max() and min() do not guarantee
// this. If the values are equal, the result is a.
vec4 combine(vec4 a, vec4 b)
{
    if (KIND == TSR_REDUCE_KIND_SUM) {
        precise vec4 sum = a + b;
        return sum;
    }
    bvec4 is_nan = greaterThan(floatBitsToUint(b) & 0x7fffffffu, uvec4(0x7f800000u));
    bvec4 better = KIND == TSR_REDUCE_KIND_MAX ? greaterThan(b, a) : lessThan(b, a);
    return mix(a, b, bvec4(uvec4(is_nan) | uvec4(better)));
}

// Does the first three steps, for all four k. The code has no loops, because glslc's optimizer drops `precise` when it unrolls a loop.
vec4 combine_lanes(vec4 lanes[8])
{
    vec4 even = combine(combine(lanes[0], lanes[4]), combine(lanes[2], lanes[6]));
    vec4 odd = combine(combine(lanes[1], lanes[5]), combine(lanes[3], lanes[7]));
    return combine(even, odd);
}

// Does the last two steps, which combine the results for the four k.
float combine_parts(vec4 parts)
{
    parts = combine(parts, parts.zwxy);
    return combine(parts, parts.yxwz).x;
}

// Reduces up to 4·quads elements with the tree, where 4·quads is a power of two up to 32. sums[q] contains elements 4·q to 4·q + 3, and the
// identity in place of missing elements. The steps that would combine only lanes without elements are left out.
float combine_quads(vec4 sums[8], uint quads)
{
    // Every lane starts with the identity, so that a sum of -0 becomes 0. The code has no loops,
    // because glslc's optimizer drops `precise` when it unrolls a loop.
    vec4 none = vec4(identity());
    sums[0] = combine(none, sums[0]);
    if (quads > 1u)
        sums[1] = combine(none, sums[1]);
    if (quads > 2u) {
        sums[2] = combine(none, sums[2]);
        sums[3] = combine(none, sums[3]);
    }
    if (quads > 4u) {
        sums[4] = combine(none, sums[4]);
        sums[5] = combine(none, sums[5]);
        sums[6] = combine(none, sums[6]);
        sums[7] = combine(none, sums[7]);
        sums[0] = combine(sums[0], sums[4]);
        sums[1] = combine(sums[1], sums[5]);
        sums[2] = combine(sums[2], sums[6]);
        sums[3] = combine(sums[3], sums[7]);
    }
    if (quads > 2u) {
        sums[0] = combine(sums[0], sums[2]);
        sums[1] = combine(sums[1], sums[3]);
    }
    if (quads > 1u)
        sums[0] = combine(sums[0], sums[1]);
    return combine_parts(sums[0]);
}

void write_result(uint offset, float result)
{
    precise float value = result * p.scale;
    if (p.accumulate != 0u)
        value += tsr_load_float(tsr_at_mul(p.y, offset, tsr_dtype_bytes(Y_DTYPE)), 0u, Y_DTYPE);
    tsr_store_float(tsr_at_mul(p.y, offset, tsr_dtype_bytes(Y_DTYPE)), 0u, Y_DTYPE, value);
}

#endif
