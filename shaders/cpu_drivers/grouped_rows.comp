// Arranges the pairs of a grouped product in tiles of one expert each (params/grouped_cpu.h). A workgroup writes one tile.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/rows.glsl"
#include "params/grouped_cpu.h"

layout(constant_id = 0) const uint WORKGROUP = 8;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint SORTED = 0;  // 0: each pair is a tile
layout(constant_id = 3) const uint ALIGNED = 0; // rows of x and results are copied four elements at a time

layout(push_constant, std430) uniform tsr_push
{
    tsr_grouped_rows_push p;
};

uint id_of(uint pair)
{
    return tsr_words(p.ids).v[pair / p.chosen * p.ids_stride + pair % p.chosen];
}

void main()
{
    uint tile = tsr_flat_group();
    if (tile >= p.tiles)
        return;
    // The last expert, or pair, whose tiles start at this tile or before it. Tiles past the last one, in a block that is not empty, get
    // the last expert that has rows, so that no matrix is read that no pair has chosen.
    uint total = 0, expert = 0, first = 0, end = 0;
    if (SORTED != 0) {
        uint begin = tsr_words(p.offsets).v[0];
        for (uint e = 0; e < p.experts; e++) {
            uint past = tsr_words(p.offsets).v[e + 1];
            if (past > begin && total <= tile) {
                expert = e;
                first = begin + (tile - total) * p.tile_rows;
                end = past;
            }
            total += (past - begin + p.tile_rows - 1) / p.tile_rows;
            begin = past;
        }
    } else {
        for (uint pair = 0; pair < p.pairs; pair++) {
            uint id = id_of(pair);
            if (id < p.experts && total <= tile) {
                expert = id;
                first = pair + (tile - total);
                end = pair + 1;
            }
            total += uint(id < p.experts);
        }
    }
    uint lane = gl_LocalInvocationID.x;
    if (lane == 0) {
        tsr_words(p.experts_of).v[tile] = expert;
        if (tile == 0) {
            tsr_words(p.groups).v[0] = p.groups_x;
            tsr_words(p.groups).v[1] = p.groups_y;
            tsr_words(p.groups).v[2] = (total + p.block - 1) / p.block;
        }
    }
    for (uint row = 0; row < p.tile_rows && first + row < end; row++) {
        uint pair = SORTED != 0 ? tsr_words(p.order).v[first + row] : first, place = tile * p.tile_rows + row;
        uvec2 from = tsr_at_mul(p.x, pair / p.x_divide, p.x_stride * tsr_dtype_bytes(X_DTYPE));
        uvec2 to = tsr_at_mul(p.rows, place, p.row_stride * 4);
        if (lane == 0)
            tsr_words(p.places).v[pair] = place;
        if (ALIGNED != 0)
            for (uint k = 4 * lane; k < p.k; k += 4 * WORKGROUP)
                tsr_store_aligned4(tsr_at(to, k * 4), TSR_DT_F32, tsr_load_aligned4(tsr_at(from, k * tsr_dtype_bytes(X_DTYPE)), X_DTYPE));
        else
            for (uint k = lane; k < p.k; k += WORKGROUP)
                tsr_floats(to).v[k] = tsr_load_float(from, k, X_DTYPE);
    }
}
