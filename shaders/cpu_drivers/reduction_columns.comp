// Reduction of adjacent columns on Mesa's CPU driver. A subgroup reduces one slice of UNITS columns
// per lane. A slice is every SLICES-th row, which corresponds to HELD lanes of the tree in
// reduce.glsl. reduce_short.comp then reduces the slices. Together, both kernels give the same bits
// as reduce_columns.comp. It is compiled with -O0, which leaves its loops for the driver to unroll
// (see matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/reduction.glsl"

layout(constant_id = 0) const uint WORKGROUP = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint HELD = 2; // lanes of the tree in a slice: 1 or 2
layout(constant_id = 3) const uint UNITS = 1;
layout(constant_id = 4) const uint STEPS = 32;  // a step is TREE rows
layout(constant_id = 5) const uint CAREFUL = 0; // 1: columns end within the last step
layout(constant_id = 6) const uint X_DTYPE = TSR_DT_F32;

const uint SLICES = TREE / HELD;

void main()
{
    place at = find_block(WORKGROUP / LANES);
    uint slice = uniform_index(gl_WorkGroupID.y);
    uint first = min(at.block * (UNITS * LANES), p.rows - UNITS * LANES);
    uint64_t x = p.x + uint64_t(at.plane) * p.x_plane + first * BYTES_OF(X_DTYPE);

    float partial[HELD * UNITS];
    [[unroll]] for (uint e = 0; e < HELD * UNITS; e++)
        partial[e] = identity();
    [[unroll]] for (uint i = 0; i < HELD * STEPS; i++) {
        uint row = slice + SLICES * i;
        bool careful = CAREFUL != 0 && i / HELD + 1 == STEPS;
        uint64_t line = x + uint64_t(careful ? min(row, p.count - 1) : row) * p.step;
        [[unroll]] for (uint u = 0; u < UNITS; u++) {
            float value = load_lanes(line, u * LANES * BYTES_OF(X_DTYPE), X_DTYPE, LANES);
            uint e = i % HELD * UNITS + u;
            partial[e] = combine(partial[e], careful ? mix(identity(), value, row < p.count) : value);
        }
    }
    if (HELD == 2)
        [[unroll]] for (uint e = 0; e < UNITS; e++)
            partial[e] = combine(partial[e], partial[e + UNITS]);
    PIN(partial, UNITS)

    uint64_t y = p.y + uint64_t(slice) * p.y_row + uint64_t(at.plane) * p.y_plane + (first + gl_SubgroupInvocationID) * 4;
    if (at.number < p.blocks)
        [[unroll]] for (uint u = 0; u < UNITS; u++)
            Float(y + u * LANES * 4).v = partial[u];
}
