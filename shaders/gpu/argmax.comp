// Finds the index of the largest element of each row. A group of THREADS invocations works on a
// row. If a row is long, a first dispatch finds one pair (key, index) for each range of the row,
// and the same kernel then finds the best of these pairs. The result does not depend on the order
// of comparisons.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/rows.glsl"
#include "include/argmax.glsl"
#include "params/reduce.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint THREADS = 8;
layout(constant_id = 3) const uint FORM = TSR_ROW_WIDE;
layout(constant_id = 4) const uint FROM = TSR_ARGMAX_VALUES; // what x contains
layout(constant_id = 5) const uint TO = TSR_ARGMAX_INDICES;  // what is written

layout(push_constant) uniform Push {
    tsr_reduce_params p;
};

shared uvec2 bests[WORKGROUP];

void main()
{
    uint member = gl_LocalInvocationID.x % THREADS;
    uint wanted = tsr_flat_group() * (WORKGROUP / THREADS) + gl_LocalInvocationID.x / THREADS;
    uint job = min(wanted, p.jobs - 1u); // invocations without a job only take part in the barrier
    uvec4 at = tsr_row_position(job, p.ndim, p.shape);
    uint x_offset = tsr_row_offset(at, p.x_strides);

    uvec2 best = uvec2(0u, 0xffffffffu);
    if (FROM == TSR_ARGMAX_VALUES) {
        uvec2 row = tsr_at_mul(p.x, x_offset, tsr_dtype_bytes(X_DTYPE));
        for (uint j = 4u * member; j < p.count; j += 4u * THREADS) {
            vec4 loaded = tsr_load_row4(row, p.step, j, p.count, X_DTYPE, FORM, 0.0);
            [[unroll]] for (uint k = 0u; k < 4u; k++) {
                uint key = j + k < p.count ? argmax_key(loaded[k]) : 0u;
                best = key > best.x ? uvec2(key, j + k) : best;
            }
        }
    } else {
        uvec2 row = tsr_at_mul(p.x, x_offset, 8u);
        for (uint j = member; j < p.count; j += THREADS) {
            uvec2 pair = tsr_words2(tsr_at_stride(row, j, p.step)).v[0];
            best = argmax_better(best, uvec2(pair.x, j * p.unit + pair.y));
        }
    }

    if (THREADS > 1u) {
        bests[gl_LocalInvocationID.x] = best;
        barrier();
        [[unroll]] for (uint i = 1u; i < THREADS; i++)
            // Only the group's first invocation (member 0) uses the result.
            best = argmax_better(best, bests[gl_LocalInvocationID.x - member + i]);
    }
    if (member == 0u && wanted < p.jobs) {
        uint y_offset = tsr_row_offset(at, p.y_strides);
        if (TO == TSR_ARGMAX_INDICES)
            tsr_words(tsr_at_mul(p.y, y_offset, 4u)).v[0] = best.y;
        else
            tsr_words2(tsr_at_mul(p.y, y_offset, 8u)).v[0] = best;
    }
}
