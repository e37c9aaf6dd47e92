/* Reductions on Mesa's CPU driver with shaders/cpu_drivers/reduction_rows.comp,
 * reduction_columns.comp and argmax_rows.comp. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_REDUCTION_H
#define TSR_GPU_CPU_DRIVERS_OPS_REDUCTION_H

#include "gpu/ops/common/rows.h"
#include "shaders/params/reduce.h"

/* A dispatch of the general kernels. The kernels of this file can replace it and give the same
 * bits. */
typedef struct tsr__reduction {
    const tsr_device *device;
    uint32_t kind; /* TSR_REDUCE_KIND_… */
    tsr_dtype x_dtype, y_dtype;
    const struct tsr_reduce_params *params;
    tsr__access x, y;
} tsr__reduction;

/* True if the kernels for contiguous rows should be used. */
bool tsr__reduction_rows_suit(const tsr__reduction *r);
/* Adds the dispatches of the kernels for contiguous rows. */
tsr_status tsr__reduction_rows_add(tsr__dispatches *list, const tsr__reduction *r) TSR_NODISCARD;

/* The number of parts into which each column is divided. Element k of part i is in row k ·
 * TSR__REDUCTION_PARTS + i. */
#define TSR__REDUCTION_PARTS 16u

/* The size in bytes of the scratch memory for the parts of all columns. There are `rows` columns of
 * `count` elements, which are divided into chunks of `chunk` elements. The size is 0 if these
 * kernels cannot be used for any column. */
uint64_t tsr__reduction_parts_bytes(const tsr_device *device, int64_t rows, int64_t count,
                                    int64_t chunk);

/* True if the kernels for adjacent columns should be used. */
bool tsr__reduction_columns_suit(const tsr__reduction *r);
/* Adds the dispatches of the kernels for adjacent columns. They write the f32 result of each
 * part of a column to `parts`, which is row-major [TSR__REDUCTION_PARTS, params->jobs]. The
 * caller must then reduce the first dimension of `parts`. */
tsr_status tsr__reduction_columns_add(tsr__dispatches *list, const tsr__reduction *r,
                                      uint64_t parts, tsr__access access) TSR_NODISCARD;

#endif
