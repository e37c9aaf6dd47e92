// Reduction along long rows, four neighbouring elements per load. A group of THREADS invocations
// reduces a row: 8 on GPUs, 1 on CPU drivers if there are many rows. If the rows are divided into
// chunks, each chunk has such a group in the same workgroup. Invocation i of a group has the lanes (i
// + THREADS·q, 0 … 3) of the tree in reduce.glsl, for q from 0 to 8/THREADS − 1.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/reduce.glsl"

layout(constant_id = 4) const uint FORM = TSR_ROW_WIDE;
layout(constant_id = 5) const uint THREADS = 8;
layout(constant_id = 6) const uint AHEAD = 4;  // loads in flight, a multiple of OWN, because load i goes to lane i % OWN
layout(constant_id = 7) const uint CHUNKS = 1; // a power of two; chunks that do not exist are empty

const uint OWN = 8u / THREADS;
const uint GROUPS = WORKGROUP / THREADS;

shared vec4 parts[WORKGROUP];
shared float totals[GROUPS];

// Returns the result of the row whose first chunk belongs to group number `first` of the workgroup.
float combine_chunks(uint first)
{
    vec4 sums[8];
    [[unroll]] for (uint i = 0u; i < 32u; i++)
        sums[i / 4u][i % 4u] = i < CHUNKS ? totals[first + i] : identity();
    return combine_quads(sums, (CHUNKS + 3u) / 4u);
}

vec4 load(uvec2 row, uint j)
{
    return tsr_load_row4(row, p.step, j, p.count, X_DTYPE, FORM, identity());
}

void main()
{
    uint self = gl_LocalInvocationID.x, member = self % THREADS, group = self / THREADS;
    uint chunk = group % CHUNKS;
    uint wanted = tsr_flat_group() * (GROUPS / CHUNKS) + group / CHUNKS;
    uint job = min(wanted, p.jobs - 1u); // invocations without a job only take part in the barrier
    uvec4 at = tsr_row_position(job, p.ndim, p.shape);
    uvec2 row = tsr_at_mul(p.x, tsr_row_offset(at, p.x_strides), tsr_dtype_bytes(X_DTYPE));
    uint begin = CHUNKS > 1u ? min(chunk * p.unit, p.count) : 0u;
    uint end = CHUNKS > 1u ? min(begin + p.unit, p.count) : p.count;

    vec4 lanes[8]; // OWN of them are used in the loop
    [[unroll]] for (uint q = 0u; q < OWN; q++)
        lanes[q] = vec4(identity());
    uint j = begin + 4u * member, last = (end - 1u) / 4u * 4u;
    // While all loads of an iteration are within the row, no load is compared with the row's end.
    if (THREADS > 1u)
        for (; j < end && j + 4u * THREADS * (AHEAD - 1u) <= last; j += 4u * THREADS * AHEAD) {
            vec4 loaded[AHEAD];
            [[unroll]] for (uint i = 0u; i < AHEAD; i++)
                loaded[i] = load(row, j + 4u * THREADS * i);
            [[unroll]] for (uint i = 0u; i < AHEAD; i++)
                lanes[i % OWN] = combine(lanes[i % OWN], loaded[i]);
        }
    // Loads past the end read the last four elements again and are ignored.
    for (; j < end; j += 4u * THREADS * AHEAD) {
        vec4 loaded[AHEAD];
        [[unroll]] for (uint i = 0u; i < AHEAD; i++) {
            uint first = j + 4u * THREADS * i;
            loaded[i] = load(row, min(first, last));
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
    float total = combine_parts(combine_lanes(lanes));
    if (CHUNKS > 1u) {
        if (member == 0u)
            totals[group] = total;
        barrier();
        if (member != 0u || chunk != 0u)
            return;
        total = combine_chunks(group);
    }
    if (member == 0u && wanted < p.jobs)
        write_result(tsr_row_offset(at, p.y_strides), total);
}
