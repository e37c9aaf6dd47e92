// Adds up the partial matrices of a product whose k was split into ranges, in the order of the
// ranges, and applies the epilogue. `a` is the address of the partial matrices, f32 [batch, splits,
// m, n], and `k` is the number of splits.
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

// The bits of element `at` of the run.
uvec2 bits_of(mm_block block, uint at, float sum, uint dtype)
{
    return uvec2(tsr_bits_of(mm_value(block, at, at * p.bias_col, sum), dtype), 0u);
}

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
    precise vec4 sums = vec4(0.0);
    for (uint split = 0; split < p.k; split++) {
        tsr_floats from = tsr_floats(mm_at(part, split, p.m * p.n, TSR_DT_F32));
        // Past the row's end, this adds the last element again; these sums are not stored.
        vec4 more = vec4(0.0);
        [[unroll]] for (uint i = 0; i < RUN; i++)
            more[i] = from.v[first + min(i, count - 1)];
        sums += more;
    }

    mm_block block = mm_block_at(row, col);
    if (FORM == TSR_MM_SUM_ONE) {
        mm_store(block, 0, 0, sums.x);
        return;
    }
    uint dtype = mm_y_dtype(), size = dtype == TSR_DT_F32 ? 4u : 2u;
    // There is no loop, because glslc's optimizer drops `precise` when it unrolls a loop.
    uvec2 bits[4];
    bits[0] = bits_of(block, 0, sums.x, dtype);
    bits[1] = bits_of(block, min(1, count - 1), sums.y, dtype);
    bits[2] = bits_of(block, min(2, count - 1), sums.z, dtype);
    bits[3] = bits_of(block, min(3, count - 1), sums.w, dtype);
    if (FORM == TSR_MM_SUM_ALIGNED)
        tsr_store_bits4(block.y, 0, size, bits);
    else
        tsr_store_run(block.y, 0, size, count, bits);
}
