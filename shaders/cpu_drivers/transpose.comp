// y[r][c] = x[c][r] on Mesa's CPU driver. A lane loads vectors of neighbouring rows, one for each
// column of a block, and stores vectors of neighbouring columns, row after row. Blocks that would
// exceed an edge are shifted back, and store some bits a second time. The workgroup's index in y is
// the number of the matrix. It is compiled with -O0, which leaves its loops for the driver to
// unroll (see matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "params/transpose.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_transpose_push p;
};

#include "cpu_drivers/lavapipe.glsl"

layout(constant_id = 0) const uint WORKGROUP = 128;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint SIZE = 4; // bytes of an element: 2, 4 or 8
layout(constant_id = 3) const uint Y_FORM = 8;
layout(constant_id = 4) const uint X_FORM = 8;

#include "cpu_drivers/vectors.glsl"

const uint GROUP = TSR_VECTOR_BYTES / SIZE; // elements of a vector, and rows per lane
const uint ROWS = LANES * GROUP;
const uint COLUMNS = TSR_TRANSPOSE_COLUMNS;

// Gathers element k of GROUP vectors into one vector.
uvec2 gather(uint64_t vectors[COLUMNS], uint first, uint k)
{
    if (SIZE == 8)
        return words_of(vectors[first]);
    uvec2 words = uvec2(0);
    if (SIZE == 4)
        words = uvec2(words_of(vectors[first])[k], words_of(vectors[first + 1])[k]);
    else
        [[unroll]] for (uint i = 0; i < GROUP; i++)
            words[i / 2] |= (words_of(vectors[first + i])[k / 2] >> k % 2 * 16 & 0xffff) << i % 2 * 16;
    return words;
}

void main()
{
    uint number = uniform_index(gl_WorkGroupID.x) * (WORKGROUP / LANES) + p.identity[p.identity[gl_SubgroupID]];
    uint high, low;
    umulExtended(number, p.magic, high, low);
    uint band = high + number >> p.shift; // neighbouring subgroups write neighbouring columns
    uint row = min(band * ROWS, p.rows - ROWS); // subgroups past the last block store the same bits again
    uint column = min((number - band * p.across) * COLUMNS, p.columns - COLUMNS);

    uint64_t plane = uniform_index(gl_WorkGroupID.y);
    uint64_t x = p.x + plane * p.x_plane * SIZE;

    uint64_t vectors[COLUMNS];
    [[unroll]] for (uint c = 0; c < COLUMNS; c++)
        vectors[c] = LOAD_LANE_VECTORS(x + (column + c) * p.x_column + uint64_t(row) * SIZE, 8, X_FORM);
    uvec2 out_vectors[COLUMNS];
    [[unroll]] for (uint i = 0; i < COLUMNS; i++)
        out_vectors[i] = gather(vectors, i % (COLUMNS / GROUP) * GROUP, i / (COLUMNS / GROUP));

    // This is a second use of all values, which is never executed. It keeps LLVM from moving the
    // arithmetic into each lane's store; see PIN() in matmul_lavapipe.glsl.
    if (p.identity[0] != 0) {
        uvec2 pinned = uvec2(0);
        [[unroll]] for (uint i = 0; i < COLUMNS; i++)
            pinned ^= out_vectors[i];
        Word2(p.y).v = pinned;
    }

    uint64_t y = p.y + (plane * p.y_plane + column) * SIZE + uint64_t(row + gl_SubgroupInvocationID * GROUP) * p.y_row;
    uint64_t y_row[GROUP];
    [[unroll]] for (uint k = 0; k < GROUP; k++)
        y_row[k] = y + k * uint64_t(p.y_row);
    [[unroll]] for (uint i = 0; i < COLUMNS; i++)
        STORE_LANE_VECTORS(y_row[i / (COLUMNS / GROUP)] + i % (COLUMNS / GROUP) * TSR_VECTOR_BYTES, Y_FORM,
                           out_vectors[i]);
}
