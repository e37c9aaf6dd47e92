// Reduction along long rows, four neighbouring elements per load. A group of THREADS invocations
// reduces a row: 8 on GPUs, 1 on CPU drivers if there are many rows. Invocation i has the lanes (i
// + THREADS·q, 0 … 3) of the tree in reduce.glsl, for q from 0 to 8/THREADS − 1.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/reduce.glsl"

layout(constant_id = 4) const uint FORM = TSR_ROW_WIDE;
layout(constant_id = 5) const uint THREADS = 8;

const uint OWN = 8u / THREADS;
const uint AHEAD = THREADS == 1u ? 8u : 4u; // loads in flight

shared vec4 parts[WORKGROUP];

void main()
{
    uint self = gl_LocalInvocationID.x, member = self % THREADS;
    uint wanted = tsr_flat_group() * (WORKGROUP / THREADS) + self / THREADS;
    uint job = min(wanted, p.jobs - 1u); // invocations without a job only take part in the barrier
    uvec4 at = tsr_row_position(job, p.ndim, p.shape);
    uvec2 row = tsr_at_mul(p.x, tsr_row_offset(at, p.x_strides), tsr_dtype_bytes(X_DTYPE));

    vec4 lanes[8]; // OWN of them are used in the loop
    [[unroll]] for (uint q = 0u; q < OWN; q++)
        lanes[q] = vec4(identity());
    // Loads past the end read the last four elements again and are ignored.
    uint last = (p.count - 1u) / 4u * 4u;
    for (uint j = 4u * member; j < p.count; j += 4u * THREADS * AHEAD) {
        vec4 loaded[AHEAD];
        [[unroll]] for (uint i = 0u; i < AHEAD; i++) {
            uint first = j + 4u * THREADS * i;
            loaded[i] = tsr_load_row4(row, p.step, min(first, last), p.count, X_DTYPE, FORM,
                                      identity());
            loaded[i] = first <= last ? loaded[i] : vec4(identity());
        }
        [[unroll]] for (uint i = 0u; i < AHEAD; i++)
            lanes[i % OWN] = combine(lanes[i % OWN], loaded[i]);
    }

    if (THREADS > 1u) {
        parts[self] = lanes[0];
        barrier();
        [[unroll]] for (uint i = 0u; i < 8u; i++)
            lanes[i] = parts[self - member + i];
    }
    vec4 parts4 = combine_lanes(lanes);
    if (member == 0u && wanted < p.jobs)
        write_result(tsr_row_offset(at, p.y_strides), combine_parts(parts4));
}
