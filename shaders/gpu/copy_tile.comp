// dst = src, where rows of dst are columns of src. A workgroup reads a square of src along the
// dimension in which src is contiguous, stores it in shared memory, and writes it along the
// dimension in which dst is contiguous.
#version 450
#extension GL_GOOGLE_include_directive : require

#include "include/convert.glsl"
#include "include/elements.glsl"
#include "params/copy_tile.h"

layout(local_size_x = TSR_COPY_TILE_WORKGROUP) in;
layout(constant_id = 0) const uint SOURCE = TSR_DT_U32;
layout(constant_id = 1) const uint DESTINATION = TSR_DT_U32;
layout(constant_id = 2) const uint SOURCE_SIZE = 4;
layout(constant_id = 3) const uint DESTINATION_SIZE = 4;
const uint SIDE = TSR_COPY_TILE;
const uint PITCH = SIDE + 1u; // odd, so that the words of a column are in different banks
const uint HIGH_WORDS = DESTINATION_SIZE == 8u ? SIDE * PITCH : 1u;

layout(push_constant, std430) uniform tsr_push
{
    tsr_copy_tile_params p;
};

// The converted elements. Each row of the tile is a column of dst.
shared uint tile[SIDE * PITCH];
shared uint tile_high[HIGH_WORDS];

void put(uint at, uvec2 bits)
{
    tile[at] = bits.x;
    if (DESTINATION_SIZE == 8u)
        tile_high[at] = bits.y;
}

uvec2 get(uint at)
{
    return uvec2(tile[at], DESTINATION_SIZE == 8u ? tile_high[at] : 0u);
}

void store_column_groups(uvec2 base, uint row0, uint column0)
{
    const uint groups = SIDE / 4u;
    uint column = gl_LocalInvocationID.x % groups * 4u;
    if (column0 + column >= p.columns)
        return;
    uint count = min(4u, p.columns - column0 - column);
    [[unroll]] for (uint k = 0u; k < SIDE * groups / TSR_COPY_TILE_WORKGROUP; k++) {
        uint row = gl_LocalInvocationID.x / groups + k * (TSR_COPY_TILE_WORKGROUP / groups);
        if (row0 + row < p.rows) {
            uvec2 bits[4];
            [[unroll]] for (uint i = 0u; i < 4u; i++)
                bits[i] = get((column + i) * PITCH + row);
            uint at = (row0 + row) * p.destination_row + column0 + column;
            if (count == 4u && (tsr_at(base, at * DESTINATION_SIZE).x & (4u * DESTINATION_SIZE - 1u)) == 0u)
                tsr_store_bits4(base, at, DESTINATION_SIZE, bits);
            else
                tsr_store_run(base, at, DESTINATION_SIZE, count, bits);
        }
    }
}

void main()
{
    uint group = tsr_flat_group();
    if (group >= p.tiles)
        return;
    uint across = (p.columns + SIDE - 1u) / SIDE, down = (p.rows + SIDE - 1u) / SIDE;
    uint column0 = group % across * SIDE;
    group /= across;
    uint row0 = group % down * SIDE;
    group /= down;
    uvec2 plane = uvec2(group / p.planes, group % p.planes);
    uint from = plane.x * p.source_strides[0] + plane.y * p.source_strides[1];
    uint to = plane.x * p.destination_strides[0] + plane.y * p.destination_strides[1];

    const uint step = TSR_COPY_TILE_WORKGROUP / SIDE;
    uint lane = gl_LocalInvocationID.x % SIDE, first = gl_LocalInvocationID.x / SIDE;
    if (row0 + lane < p.rows)
        [[unroll]] for (uint k = 0u; k < SIDE; k += step) {
            uint column = first + k;
            if (column0 + column < p.columns) {
                uvec2 bits = tsr_load_bits(p.source, from + (column0 + column) * p.source_column + row0 + lane,
                                           SOURCE_SIZE);
                put(column * PITCH + lane, tsr_convert(bits, SOURCE, DESTINATION));
            }
        }
    barrier();

    if (DESTINATION_SIZE < 4u) {
        store_column_groups(tsr_at(p.destination, to * DESTINATION_SIZE), row0, column0);
        return;
    }
    if (column0 + lane < p.columns)
        [[unroll]] for (uint k = 0u; k < SIDE; k += step) {
            uint row = first + k;
            if (row0 + row < p.rows)
                tsr_store_bits(p.destination, to + (row0 + row) * p.destination_row + column0 + lane,
                               DESTINATION_SIZE, get(lane * PITCH + row));
        }
}
