// Reduction of adjacent columns. A group of THREADS invocations reduces four columns; each
// invocation takes every THREADS-th row. If the columns are divided into chunks, each chunk has such
// a group in the same workgroup. Invocation number 4·i + k has the lanes (i + THREADS/4·q, k) of
// reduce.glsl's tree, for q from 0 to 32/THREADS − 1 and for four columns at once.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/reduce.glsl"

// 4, 8, 16 or 32. More invocations occupy more of a GPU if there are few columns. Every chunk
// except the last has at least THREADS rows.
layout(constant_id = 4) const uint THREADS = 4;
layout(constant_id = 5) const uint CHUNKS = 1; // 1, 2 or 4; chunks that do not exist have no rows
// TSR_ROW_ALIGNED4: each four columns start at a multiple of their size; TSR_ROW_DENSE4: of 4 bytes.
layout(constant_id = 6) const uint FORM = TSR_ROW_DENSE4;

const uint OWN = 32u / THREADS; // lanes of an invocation
// The number of groups in a workgroup for each chunk. Neighbouring invocations belong to
// neighbouring groups and load neighbouring columns.
const uint COLUMNS = WORKGROUP / (THREADS * CHUNKS);

shared vec4 parts[WORKGROUP];

// The steps of the tree for `count` lanes, a power of two up to 8. They are written without loops,
// because glslc's optimizer drops `precise` when it unrolls a loop.
vec4 combine_first(vec4 lanes[8], uint count)
{
    if (count == 8u)
        return combine_lanes(lanes);
    if (count == 4u)
        return combine(combine(lanes[0], lanes[2]), combine(lanes[1], lanes[3]));
    return count == 2u ? combine(lanes[0], lanes[1]) : lanes[0];
}

// Combines what `count` invocations have stored: parts[first], and then the element of every
// invocation that comes COLUMNS · distance after the one before it.
vec4 combine_parts_of(uint first, uint count, uint distance)
{
    vec4 lanes[8];
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        lanes[i] = i < count ? parts[first + COLUMNS * distance * i] : vec4(0.0);
    return combine_first(lanes, count);
}

vec4 load(uvec2 row)
{
    return FORM == TSR_ROW_ALIGNED4 ? tsr_load_aligned4(row, X_DTYPE) : tsr_load_dense4(row, X_DTYPE);
}

// Combines `loaded` with the lanes, without a loop, because glslc's optimizer drops `precise` when
// it unrolls a loop.
void combine_loaded(inout vec4 lanes[8], vec4 loaded[8])
{
    lanes[0] = combine(lanes[0], loaded[0]);
    lanes[1u % OWN] = combine(lanes[1u % OWN], loaded[1]);
    lanes[2u % OWN] = combine(lanes[2u % OWN], loaded[2]);
    lanes[3u % OWN] = combine(lanes[3u % OWN], loaded[3]);
    lanes[4u % OWN] = combine(lanes[4u % OWN], loaded[4]);
    lanes[5u % OWN] = combine(lanes[5u % OWN], loaded[5]);
    lanes[6u % OWN] = combine(lanes[6u % OWN], loaded[6]);
    lanes[7u % OWN] = combine(lanes[7u % OWN], loaded[7]);
}

void main()
{
    uint self = gl_LocalInvocationID.x;
    uint phase = self / COLUMNS % THREADS, chunk = self / (COLUMNS * THREADS);
    uint wanted = tsr_flat_group() * COLUMNS + self % COLUMNS;

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

    uint begin = CHUNKS > 1u ? min(chunk * p.unit, p.count) : 0u;
    uint count = CHUNKS > 1u ? min(p.count - begin, p.unit) : p.count;
    uvec2 row = tsr_at_mul(p.x, tsr_row_offset(at, p.x_strides), tsr_dtype_bytes(X_DTYPE));
    row = tsr_at_stride(row, begin + phase, p.step);
    uvec2 stride = tsr_at_stride(uvec2(0u), THREADS, p.step);

    vec4 lanes[8]; // OWN of them are used
    [[unroll]] for (uint i = 0u; i < 8u; i++)
        lanes[i] = vec4(identity());
    uint j = phase;
    for (; j + 7u * THREADS < count; j += 8u * THREADS) {
        vec4 loaded[8];
        [[unroll]] for (uint i = 0u; i < 8u; i++) {
            loaded[i] = load(row);
            row = tsr_next(row, stride);
        }
        combine_loaded(lanes, loaded);
    }
    // The last rows are fewer than eight steps. In place of rows past the end, the last row is loaded
    // again, and its elements are replaced by the identity.
    if (j < count) {
        vec4 loaded[8];
        [[unroll]] for (uint i = 0u; i < 8u; i++) {
            uint mine = j + THREADS * i;
            loaded[i] = load(row);
            loaded[i] = mine < count ? loaded[i] : vec4(identity());
            row = tsr_next(row, mine + THREADS < count ? stride : uvec2(0u));
        }
        combine_loaded(lanes, loaded);
    }

    parts[self] = combine_first(lanes, OWN);
    barrier();
    if (THREADS > 4u) {
        if (phase < 4u)
            parts[self] = combine_parts_of(self, THREADS / 4u, 4u); // no other invocation reads these
        barrier();
    }
    if (CHUNKS > 1u) {
        // Every sum starts with the identity, so that -0 becomes 0.
        vec4 total = vec4(identity());
        if (phase == 0u)
            total = combine(total, combine_parts_of(self, 4u, 1u));
        barrier();
        parts[self] = total;
        barrier();
    }
    if (phase == 0u && chunk == 0u && wanted < p.jobs) {
        vec4 total = CHUNKS > 1u ? combine_parts_of(self, CHUNKS, THREADS) : combine_parts_of(self, 4u, 1u);
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
