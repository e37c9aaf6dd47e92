// Reduction along long rows: a team of eight invocations takes a row together, four neighbouring elements per load.
// Invocation i holds the lanes (i, 0 … 3) of reduce.glsl's tree.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "reduce.glsl"

layout(constant_id = 4) const uint FORM = TSR_ROW_WIDE;

const uint TEAM = 8u;
const uint AHEAD = 4u; // loads in flight together

shared vec4 halves[WORKGROUP];

vec4 load(uvec2 row, uint j)
{
    return tsr_load_row4(row, p.step, j, p.count, X_DTYPE, FORM, identity());
}

void main()
{
    uint self = gl_LocalInvocationID.x, member = self % TEAM;
    uint wanted = tsr_flat_group() * (WORKGROUP / TEAM) + self / TEAM;
    uint job = min(wanted, p.jobs - 1u); // all go through the barriers; who has no job of its own writes nothing
    uvec4 at = tsr_row_position(job, p.ndim, p.shape);
    uvec2 row = tsr_at_mul(p.x, tsr_row_offset(at, p.x_strides), tsr_dtype_bytes(X_DTYPE));

    vec4 sums = vec4(identity());
    uint j = 4u * member;
    for (; j + 4u * TEAM * (AHEAD - 1u) < p.count; j += 4u * TEAM * AHEAD) {
        vec4 loaded[AHEAD];
        [[unroll]] for (uint i = 0u; i < AHEAD; i++)
            loaded[i] = load(row, j + 4u * TEAM * i);
        [[unroll]] for (uint i = 0u; i < AHEAD; i++)
            sums = combine(sums, loaded[i]);
    }
    for (; j < p.count; j += 4u * TEAM)
        sums = combine(sums, load(row, j));

    halves[self] = sums;
    [[unroll]] for (uint other = TEAM / 2u; other > 0u; other /= 2u) {
        barrier();
        if (member < other)
            halves[self] = combine(halves[self], halves[self + other]);
    }
    if (member == 0u && wanted < p.jobs)
        write_result(tsr_row_offset(at, p.y_strides), combine_parts(halves[self]));
}
