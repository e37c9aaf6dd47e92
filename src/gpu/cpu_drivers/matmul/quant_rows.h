/* Tiles of a few rows of a grouped product (grouped.c), each times another matrix in a block
 * format, on lavapipe. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_QUANT_ROWS_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_QUANT_ROWS_H

#include "gpu/stream/stream.h"
#include "shaders/params/matmul_quant_rows.h"

#define TSR__QUANT_TILE_ROWS 4

/* True if there is a kernel for w, [experts,n,k]. */
bool tsr__lavapipe_quant_tiles_suit(const tsr_tensor *w);

/* Returns the dispatch for tiles of `rows` rows, 1 or TSR__QUANT_TILE_ROWS. The caller adds its
 * accesses and the number of tiles, groups[2], and sets the addresses and strides of a and y in
 * *push, and `bias`, the address of the number of each tile's matrix. */
tsr__dispatch tsr__lavapipe_quant_tiles(const tsr_tensor *w, uint32_t rows,
                                        struct tsr_matmul_quant_rows_push *push);

#endif
