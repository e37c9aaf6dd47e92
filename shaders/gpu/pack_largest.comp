// Finds the largest absolute value of a contiguous tensor. An invocation takes STEPS groups of four
// elements.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/rows.glsl"
#include "params/pack.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint FORM = TSR_ROW_STRIDED; // DENSE4 if x starts at a multiple of 4 bytes
layout(constant_id = 3) const bool PARTIAL = true; // x may end inside the elements of a workgroup
layout(constant_id = 4) const uint STEPS = 16;

layout(push_constant) uniform Push {
    tsr_pack_largest_params p;
};

void main()
{
    uint first = (tsr_flat_group() * STEPS * WORKGROUP + gl_LocalInvocationID.x) * 4u;
    uvec2 step = uvec2(tsr_dtype_bytes(X_DTYPE), 0u);
    uint largest = 0u;
    for (uint i = 0u; i < STEPS; i++) {
        uint j = first + i * WORKGROUP * 4u;
        if (PARTIAL && j >= p.count)
            break;
        vec4 value = tsr_load_row4(p.x, step, j, p.count, X_DTYPE, PARTIAL ? TSR_ROW_STRIDED : FORM, 0.0);
        // The bits are compared as integers, because comparisons of floats ignore NaN.
        uvec4 bits = floatBitsToUint(value) & 0x7fffffffu;
        largest = max(largest, max(max(bits.x, bits.y), max(bits.z, bits.w)));
    }
    if (largest > tsr_words(p.largest).v[0])
        atomicMax(tsr_words(p.largest).v[0], largest);
}
