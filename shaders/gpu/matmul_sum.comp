// Adds the partial products of a matmul whose k was split, in the order of their index, and applies
// the epilogue. `a` is the address of the partial matrices, f32 [batch, splits, m, n], and `k` is
// the number of splits.
//
// An invocation computes one element of y or a run of four neighbours. Runs are faster because
// finding the place in y takes several times the work of one element, and because devices without
// 16-bit storage need two atomics for a single 16-bit float but only an ordinary store for a pair.
#version 450
#extension GL_GOOGLE_include_directive : require

layout(constant_id = 0) const uint THREADS = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint MODE = 0;
#define MM_MODE MODE

#include "include/matmul_common.glsl"
#include "include/elements.glsl"

layout(constant_id = 2) const uint FORM = TSR_MM_SUM_ONE;
const uint RUN = FORM == TSR_MM_SUM_ONE ? 1 : 4;

void main()
{
    uint item = tsr_flat_group() * THREADS + gl_LocalInvocationIndex;
    uint across = (p.n + RUN - 1) / RUN;
    if (item >= p.m * across)
        return;
    uint row = item / across;
    uint col = (item - row * across) * RUN;
    uint count = min(RUN, p.n - col);

    uint first = row * p.n + col;
    uvec2 part = mm_at(p.a, gl_WorkGroupID.z * p.k, p.m * p.n, TSR_DT_F32);
    float sums[4] = float[4](0.0, 0.0, 0.0, 0.0);
    for (uint split = 0; split < p.k; split++) {
        tsr_floats from = tsr_floats(mm_at(part, split, p.m * p.n, TSR_DT_F32));
        // Past the row's end, this adds the last element again; these sums are not stored.
        [[unroll]] for (uint i = 0; i < RUN; i++)
            sums[i] += from.v[first + min(i, count - 1)];
    }

    mm_block block = mm_block_at(row, col);
    if (FORM == TSR_MM_SUM_ONE) {
        mm_store(block, 0, 0, sums[0]);
        return;
    }
    uint dtype = mm_y_dtype(), size = dtype == TSR_DT_F32 ? 4u : 2u;
    uvec2 bits[4];
    [[unroll]] for (uint i = 0; i < 4; i++) {
        uint at = min(i, count - 1);
        bits[i] = uvec2(tsr_bits_of(mm_value(block, at, at * p.bias_col, sums[i]), dtype), 0u);
    }
    if (FORM == TSR_MM_SUM_ALIGNED)
        tsr_store_bits4(block.y, 0, size, bits);
    else
        tsr_store_run(block.y, 0, size, count, bits);
}
