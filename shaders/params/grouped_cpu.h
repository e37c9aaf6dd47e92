/* Push constants of the kernels before and after grouped products on CPU drivers, whose pairs are
 * in tiles: `tile_rows` rows of one expert. */
#ifndef TSR_PARAMS_GROUPED_CPU_H
#define TSR_PARAMS_GROUPED_CPU_H

#include "types.h"

/* Arranges pairs in tiles: copies their rows of x to f32 rows, writes each tile's expert, each
 * pair's row, and the number of workgroups of the products, {groups_x, groups_y, blocks of tiles
 * that are not empty}. `order` and `offsets` are as in tsr_grouped_push; they are unused if each
 * pair is a tile.
 */
struct tsr_grouped_rows_push {
    TSR_ADDRESS x, ids, order, offsets;
    TSR_ADDRESS rows, experts_of, places, groups; /* results */
    TSR_UINT pairs, chosen, experts, k;
    TSR_UINT x_stride, x_divide, ids_stride, row_stride; /* in elements */
    TSR_UINT tiles;                                      /* at most; a multiple of `block` */
    TSR_UINT tile_rows, block, groups_x, groups_y;
};
TSR_PUSH_CHECK(tsr_grouped_rows_push);

/* The columns of y that an invocation of grouped_finish.comp computes. */
#define TSR_GROUPED_FINISH_VECTORS 8u

/* Computes y from the products of pairs, which are f32 rows, those of each split of k split_rows
 * after those of the last: their sum, bias, activation and weighted sum.
 * `weights`, `bias`, `up_bias` and `added` are 0 if they are missing. */
struct tsr_grouped_finish_push {
    TSR_ADDRESS sums, y, ids, places, bias, up_bias, weights, added;
    TSR_UINT rows; /* of y: tokens or pairs */
    TSR_UINT chosen, experts, n;
    TSR_UINT sums_stride, y_stride, ids_stride, weights_stride, bias_stride;
    TSR_UINT splits, split_rows;
    TSR_UINT accumulate;
    TSR_FLOAT limit;
};
TSR_PUSH_CHECK(tsr_grouped_finish_push);

#endif
