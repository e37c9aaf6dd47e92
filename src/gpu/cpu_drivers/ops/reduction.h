/* Reductions on Mesa's CPU driver: shaders/cpu_drivers/reduction_rows.comp, reduction_columns.comp
 * and argmax_rows.comp. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_REDUCTION_H
#define TSR_GPU_CPU_DRIVERS_OPS_REDUCTION_H

#include "gpu/ops/common/rows.h"
#include "shaders/params/reduce.h"

/* A dispatch of the general kernels that these replace with the same bits. */
typedef struct tsr__reduction {
    const tsr_device *device;
    uint32_t kind; /* TSR_REDUCE_KIND_… */
    tsr_dtype x_dtype, y_dtype;
    const struct tsr_reduce_params *params;
    tsr__access x, y;
} tsr__reduction;

/* Whether rows of neighbours suit, and the dispatches for them. */
bool tsr__reduction_rows_suit(const tsr__reduction *r);
tsr_status tsr__reduction_rows_add(tsr__dispatches *list, const tsr__reduction *r) TSR_NODISCARD;

/* Columns are cut into so many parts each: element k of part i's columns is in row k ·
 * TSR__REDUCTION_PARTS + i. */
#define TSR__REDUCTION_PARTS 16u

/* Bytes for the parts of all columns at once, `rows` of them in as many chunks as `count` elements
 * take; 0 where none suit. */
uint64_t tsr__reduction_parts_bytes(const tsr_device *device, int64_t rows, int64_t count,
                                    int64_t chunk);

/* Whether columns suit that lie side by side, and the dispatches for them. They leave each part's
 * result in f32 at `parts`, row-major [TSR__REDUCTION_PARTS, params->jobs], where the first
 * dimension is still to be folded. */
bool tsr__reduction_columns_suit(const tsr__reduction *r);
tsr_status tsr__reduction_columns_add(tsr__dispatches *list, const tsr__reduction *r,
                                      uint64_t parts, tsr__access access) TSR_NODISCARD;

#endif
