// Adds the partial products of a matmul whose k was split, in the order of their index, and applies the epilogue. `a` is the
// partial matrices, [batch, splits, m, n] in f32.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "matmul_common.glsl"

layout(constant_id = 0) const uint THREADS = 64;
layout(local_size_x_id = 0) in;

void main()
{
    uint e = tsr_flat_group() * THREADS + gl_LocalInvocationIndex;
    uint count = p.m * p.n;
    if (e >= count)
        return;
    uvec2 part = mm_at(p.a, gl_WorkGroupID.z * p.k, count, TSR_DT_F32);
    float sum = 0.0;
    for (uint split = 0; split < p.k; split++)
        sum += tsr_floats(mm_at(part, split, count, TSR_DT_F32)).v[e];
    uint row = e / p.n;
    uint col = e % p.n;
    mm_store(mm_block_at(row, col), 0, 0, sum);
}
