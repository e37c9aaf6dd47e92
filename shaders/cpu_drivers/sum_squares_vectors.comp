// Sums of squares of complete chunks, on Mesa's CPU driver. A subgroup of eight lanes adds up one
// chunk by the same additions as sum_squares.comp. It is compiled with -O0, which leaves its loops
// for the driver to unroll (see matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "params/sum_squares.h"
#include "params/vectors.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_sum_squares_vectors_push p;
};

#define TSR_IDENTITY_BITS 3
#include "include/float16.glsl"
#include "cpu_drivers/lavapipe.glsl"

layout(constant_id = 0) const uint WORKGROUP = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint FORM = 8; // the alignment of all tensors, 8 or 4 bytes

const uint LANES = 8;
const uint GROUP = 4; // elements of a vector
const bool EXACT = false;

#include "cpu_drivers/vector_floats.glsl"

void main()
{
    uint tensor = p.identity[p.identity[gl_WorkGroupID.y]];
    uint number = uniform_index(gl_WorkGroupID.x) * (WORKGROUP / LANES) + p.identity[p.identity[gl_SubgroupID]];
    // A subgroup past the end computes the last chunk again.
    uint chunk = min(number, p.chunks[tensor] - 1);
    uint64_t at = p.x[tensor] + uint64_t(chunk) * (TSR_SUM_SQUARES_CHUNK * BYTES_OF(X_DTYPE));

    precise vec4 sum = vec4(0.0);
    [[unroll]] for (uint i = 0; i < TSR_SUM_SQUARES_CHUNK / (GROUP * LANES); i++) {
        vec4 value = LOAD_OPERAND(at + i * (GROUP * LANES * BYTES_OF(X_DTYPE)), X_DTYPE, FORM);
        precise vec4 scaled = value * p.scale;
        precise vec4 squares = scaled * scaled;
        sum += squares;
    }
    // Adds in the same order as group_sum() in thread_group.glsl.
    precise float whole = (sum.x + sum.z) + (sum.y + sum.w);
    whole += subgroupShuffleXor(whole, 4);
    whole += subgroupShuffleXor(whole, 2);
    whole += subgroupShuffleXor(whole, 1);
    if (gl_SubgroupInvocationID == 0)
        Float(p.parts + uint64_t(p.part[tensor] + chunk) * 4).v = whole;
}
