/* Sums on Mesa's CPU driver: shaders/sum_rows.comp and sum_columns.comp. */
#ifndef TSR_GPU_OPS_SUMS_H
#define TSR_GPU_OPS_SUMS_H

#include "gpu/ops/rows.h"
#include "shaders/params/reduce.h"

/* A dispatch of the general kernels, of kind sum, that these replace with the same bits. */
typedef struct tsr__sum {
    const tsr_device *device;
    tsr_dtype x_dtype, y_dtype;
    const struct tsr_reduce_params *params;
    tsr__access x, y;
} tsr__sum;

/* Whether rows of neighbours suit, and the dispatches for them. */
bool tsr__sum_rows_suit(const tsr__sum *sum);
tsr_status tsr__sum_rows_add(tsr__dispatches *list, const tsr__sum *sum) TSR_NODISCARD;

/* Columns are cut into so many parts each: element k of part i's columns is in row k ·
 * TSR__SUM_PARTS + i. */
#define TSR__SUM_PARTS 16u

/* Bytes for the parts of all columns at once, `rows` of them in as many chunks as `count` elements
 * take; 0 where none suit. */
uint64_t tsr__sum_parts_bytes(const tsr_device *device, int64_t rows, int64_t count, int64_t chunk);

/* Whether columns suit that lie side by side, and the dispatches for them. They leave each part's
 * sum in f32 at `parts`, row-major [TSR__SUM_PARTS, params->jobs], where the sum over the first
 * dimension is still to be made. */
bool tsr__sum_columns_suit(const tsr__sum *sum);
tsr_status tsr__sum_columns_add(tsr__dispatches *list, const tsr__sum *sum, uint64_t parts,
                                tsr__access access) TSR_NODISCARD;

#endif
