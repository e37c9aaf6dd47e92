/* Choosing the transposing kernel, and its parameters. */
#include "gpu/ops/copy/copy.h"
#include "shaders/params/copy_tile.h"

/* Tiles with a shorter side are mostly empty. */
#define SHORTEST_SIDE 8

bool tsr__copy_tile(const tsr__piece *piece, const tsr_tensor *dst, const tsr_tensor *src,
                    struct tsr_copy_tile_params *push, tsr__dispatch *dispatch)
{
    int rows = tsr__piece_transposed(piece), columns = piece->ndim - 1;
    /* CPU drivers have no reason to prefer neighbours, and pay for the detour. */
    if (dst->buffer->device->device_class != TSR__CLASS_GPU || rows < 0 ||
        piece->shape[rows] < SHORTEST_SIDE || piece->shape[columns] < SHORTEST_SIDE)
        return false;

    *push = (struct tsr_copy_tile_params){
        .destination = tsr__piece_address(piece, 0, dst),
        .source = tsr__piece_address(piece, 1, src),
        .rows = piece->shape[rows],
        .columns = piece->shape[columns],
        .destination_row = piece->strides[0][rows],
        .source_column = piece->strides[1][columns],
        .planes = 1,
    };
    uint32_t outer = 1;
    int found = 0;
    for (int i = columns - 1; i >= 0; i--) {
        if (i == rows)
            continue;
        push->destination_strides[1 - found] = piece->strides[0][i];
        push->source_strides[1 - found] = piece->strides[1][i];
        *(found == 0 ? &push->planes : &outer) = piece->shape[i];
        found++;
    }
    push->tiles = (push->rows + TSR_COPY_TILE - 1) / TSR_COPY_TILE *
                  ((push->columns + TSR_COPY_TILE - 1) / TSR_COPY_TILE) * push->planes * outer;

    dispatch->shader = TSR__SHADER_COPY_TILE;
    dispatch->spec_count = 4;
    dispatch->spec[2] = (uint32_t)tsr_dtype_size(src->layout.dtype);
    dispatch->spec[3] = (uint32_t)tsr_dtype_size(dst->layout.dtype);
    dispatch->push = push;
    dispatch->push_bytes = sizeof *push;
    tsr__groups_for(push->tiles, 1, dispatch->groups);
    return true;
}
