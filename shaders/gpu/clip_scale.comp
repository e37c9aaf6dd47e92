// Computes the factor by which the next step multiplies the gradients, so that their norm is at
// most max_norm, from the sum of the squares of all gradients. One invocation does this.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/clip_scale.h"

layout(local_size_x_id = 0) in;

layout(push_constant, std430) uniform tsr_push
{
    tsr_clip_scale_params p;
};

void main()
{
    if (tsr_flat_invocation() != 0u)
        return;
    float sum = tsr_floats(p.sum).v[0];
    // The bits are compared, because drivers may assume that numbers are finite.
    bool finite = (floatBitsToUint(sum) & 0x7f800000u) != 0x7f800000u;
    float norm = sqrt(sum) * p.inverse + 1e-6;
    float factor = norm > p.max_norm ? p.max_norm / norm : 1.0;
    tsr_floats(p.scale).v[TSR_SCALE_FACTOR] = finite ? factor * p.inverse : 0.0;
    tsr_floats(p.scale).v[TSR_SCALE_STEPS] = finite ? 1.0 : 0.0;
}
