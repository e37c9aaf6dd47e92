// Reduction of short rows of at most 4·QUADS ≤ 32 elements, one invocation per row. The invocation
// has all lanes of the tree in reduce.glsl, with at most one element in each. The code has no loops
// after unrolling, because in loops lavapipe loads lane by lane.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/reduce.glsl"

layout(constant_id = 4) const uint FORM = TSR_ROW_WIDE;
layout(constant_id = 5) const uint QUADS = 8; // a power of two

void main()
{
    uint job = tsr_flat_invocation();
    if (job >= p.jobs)
        return;
    uvec4 at = tsr_row_position(job, p.ndim, p.shape);
    uvec2 row = tsr_at_mul(p.x, tsr_row_offset(at, p.x_strides), tsr_dtype_bytes(X_DTYPE));

    vec4 sums[8]; // QUADS of them are used
    [[unroll]] for (uint q = 0u; q < QUADS; q++) {
        uint last = (p.count - 1u) / 4u; // quads past the end read this one again
        vec4 loaded = tsr_load_row4(row, p.step, 4u * min(q, last), p.count, X_DTYPE, FORM, identity());
        sums[q] = q <= last ? loaded : vec4(identity());
    }
    write_result(tsr_row_offset(at, p.y_strides), combine_quads(sums, QUADS));
}
