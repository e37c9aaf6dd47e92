// Reduction of adjacent columns. A group of four invocations reduces four columns; each invocation
// takes every fourth row. There are at least four rows. Invocation k has the lanes (0 … 7, k) of
// reduce.glsl's tree, for four columns at once.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/reduce.glsl"

// The number of groups in a workgroup. Neighbouring invocations belong to neighbouring groups and
// load neighbouring columns.
const uint COLUMNS = WORKGROUP / 4u;

shared vec4 quarters[WORKGROUP];

void main()
{
    uint phase = gl_LocalInvocationID.x / COLUMNS;
    uint wanted = tsr_flat_group() * COLUMNS + gl_LocalInvocationID.x % COLUMNS;

    // Each group takes four columns of the innermost dimension. If the size of this dimension is
    // not a multiple of 4, the last group is shifted back to end with the dimension, and does not
    // write the columns that the group before it computes.
    uint inner = p.ndim - 1u;
    uint fours[4];
    [[unroll]] for (uint d = 0u; d < 4u; d++)
        fours[d] = d == inner ? (p.shape[d] + 3u) / 4u : p.shape[d];
    uvec4 at = tsr_row_position(min(wanted, p.jobs - 1u), p.ndim, fours);
    uint skip = max(4u * at[inner] + 4u, p.shape[inner]) - p.shape[inner];
    at[inner] = 4u * at[inner] - skip;

    uvec2 row = tsr_at_mul(p.x, tsr_row_offset(at, p.x_strides), tsr_dtype_bytes(X_DTYPE));
    row = tsr_at_stride(row, phase, p.step);
    uvec2 stride = tsr_at_stride(uvec2(0u), 4u, p.step);

    vec4 lanes[8];
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        lanes[i] = vec4(identity());
    for (uint j = phase; j < p.count; j += 32u) {
        vec4 loaded[8];
        [[unroll]] for (uint i = 0u; i < 8u; i++) {
            uint mine = j + 4u * i;
            loaded[i] = tsr_load_dense4(row, X_DTYPE);
            loaded[i] = mine < p.count ? loaded[i] : vec4(identity());
            // Stops at the last row.
            row = tsr_next(row, mine + 4u < p.count ? stride : uvec2(0u));
        }
        // Without a loop, because the optimizer that unrolls loops drops `precise`.
        lanes[0] = combine(lanes[0], loaded[0]);
        lanes[1] = combine(lanes[1], loaded[1]);
        lanes[2] = combine(lanes[2], loaded[2]);
        lanes[3] = combine(lanes[3], loaded[3]);
        lanes[4] = combine(lanes[4], loaded[4]);
        lanes[5] = combine(lanes[5], loaded[5]);
        lanes[6] = combine(lanes[6], loaded[6]);
        lanes[7] = combine(lanes[7], loaded[7]);
    }

    quarters[gl_LocalInvocationID.x] = combine_lanes(lanes);
    barrier();
    if (phase == 0u && wanted < p.jobs) {
        uint first = gl_LocalInvocationID.x;
        vec4 even = combine(quarters[first], quarters[first + 2u * COLUMNS]);
        vec4 odd = combine(quarters[first + COLUMNS], quarters[first + 3u * COLUMNS]);
        vec4 total = combine(even, odd);
        uint offset = tsr_row_offset(at, p.y_strides), next = p.y_strides[inner];
        if (skip == 0u)
            write_result(offset, total.x);
        if (skip <= 1u)
            write_result(offset + next, total.y);
        if (skip <= 2u)
            write_result(offset + 2u * next, total.z);
        write_result(offset + 3u * next, total.w);
    }
}
