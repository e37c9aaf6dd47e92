// Adds up the partial matrices of a product whose k was split into ranges, in the order of the
// ranges, and applies the epilogue. `a` is the address of the partial matrices, f32 [batch, splits,
// m, n], and `k` is the number of splits.
//
// An invocation computes one element of y, so that neighbours store neighbouring elements. With
// TSR_MM_ROW_SUMS, the partial matrices are followed by the sums of a's rows, f32 [splits, m], and
// further invocations add these up.
#version 450
#extension GL_GOOGLE_include_directive : require

layout(constant_id = 0) const uint THREADS = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint MODE = 0;
#define MM_MODE MODE
#define MM_FUSED MODE

#include "include/matmul_common.glsl"

void add_row_sums(uint row)
{
    uvec2 part = mm_at(p.a, p.k, p.m * p.n, TSR_DT_F32);
    precise float sum = 0.0;
    for (uint split = 0; split < p.k; split++)
        sum += tsr_floats(part).v[split * p.m + row];
    tsr_floats y = tsr_floats(uvec2(p.TSR_MM_ROW_SUMS_LOW, p.TSR_MM_ROW_SUMS_HIGH));
    if ((MODE & TSR_MM_ACCUMULATE) != 0)
        sum = y.v[row] + sum;
    y.v[row] = sum;
}

void main()
{
    uint item = tsr_flat_group() * THREADS + gl_LocalInvocationIndex;
    if ((MODE & TSR_MM_ROW_SUMS) != 0 && item >= p.m * p.n && item - p.m * p.n < p.m)
        add_row_sums(item - p.m * p.n);
    if (item >= p.m * p.n)
        return;
    uint row = item / p.n, col = item - row * p.n;

    uvec2 part = mm_at(p.a, gl_WorkGroupID.z * p.k, p.m * p.n, TSR_DT_F32);
    precise float sum = 0.0;
    for (uint split = 0; split < p.k; split++)
        sum += tsr_floats(mm_at(part, split, p.m * p.n, TSR_DT_F32)).v[item];

    mm_block block = mm_block_at(row, col);
    mm_store(block, 0, 0, sum);
}
