// Reduction along a row: a team of TEAM invocations takes a row together, four neighbouring elements per load.
// Invocation i holds the lanes (i + TEAM·q, 0 … 3), q = 0 … 8/TEAM − 1, of reduce.glsl's tree. TEAM is 1 for short rows or 8.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "reduce.glsl"

layout(constant_id = 4) const uint TEAM = 8;
layout(constant_id = 5) const uint DENSE = 1;

const uint OWN = 8u / TEAM;
const uint AHEAD = TEAM; // steps whose loads are in flight together

shared vec4 halves[WORKGROUP];

void main()
{
    uint member = gl_LocalInvocationID.x % TEAM;
    uint wanted = tsr_flat_group() * (WORKGROUP / TEAM) + gl_LocalInvocationID.x / TEAM;
    uint job = min(wanted, p.jobs - 1u); // all go through the barriers; who has no job of its own writes nothing
    uvec4 at = tsr_row_position(job, p.ndim, p.shape);
    uvec2 row = tsr_at_mul(p.x, tsr_row_offset(at, p.x_strides), tsr_dtype_bytes(X_DTYPE));

    vec4 sums[OWN];
    [[unroll]] for (uint q = 0u; q < OWN; q++)
        sums[q] = vec4(identity());

    uint j = 4u * member;
    uint whole = p.count - p.count % 32u;
    for (; j + 32u * (AHEAD - 1u) < whole; j += 32u * AHEAD) {
        vec4 loaded[8];
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            loaded[i] = tsr_load_row4(row, p.step, j + 4u * TEAM * i, X_DTYPE, DENSE != 0u);
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            sums[i % OWN] = combine(sums[i % OWN], loaded[i]);
    }
    for (; j < p.count; j += 32u) {
        [[unroll]] for (uint q = 0u; q < OWN; q++) {
            uint first = j + 4u * TEAM * q;
            if (first + 4u <= p.count)
                sums[q] = combine(sums[q],
                                  tsr_load_row4(row, p.step, first, X_DTYPE, DENSE != 0u));
            else if (first < p.count)
                sums[q] = combine(sums[q], tsr_load_row4_tail(row, p.step, first, p.count, X_DTYPE,
                                                              identity()));
        }
    }

    [[unroll]] for (uint half_own = OWN / 2u; half_own > 0u; half_own /= 2u) {
        [[unroll]] for (uint q = 0u; q < half_own; q++)
            sums[q] = combine(sums[q], sums[q + half_own]);
    }
    if (TEAM > 1u) {
        halves[gl_LocalInvocationID.x] = sums[0];
        [[unroll]] for (uint other = TEAM / 2u; other > 0u; other /= 2u) {
            barrier();
            if (member < other)
                halves[gl_LocalInvocationID.x] = combine(halves[gl_LocalInvocationID.x],
                                                         halves[gl_LocalInvocationID.x + other]);
        }
        sums[0] = halves[gl_LocalInvocationID.x];
    }
    if (member == 0u && wanted < p.jobs) {
        vec4 total = combine(sums[0], sums[0].zwxy);
        total = combine(total, total.yxwz);
        write_result(tsr_row_offset(at, p.y_strides), total.x);
    }
}
