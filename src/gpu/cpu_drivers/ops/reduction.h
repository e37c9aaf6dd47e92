/* Reductions on Mesa's CPU driver with shaders/cpu_drivers/reduction_rows.comp,
 * reduction_columns.comp and argmax_rows.comp. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_REDUCTION_H
#define TSR_GPU_CPU_DRIVERS_OPS_REDUCTION_H

#include "gpu/ops/common/rows.h"
#include "shaders/params/reduce.h"

/* A dispatch of the general kernels. These kernels replace it and give the same bits. */
typedef struct tsr__reduction {
    const tsr_device *device;
    uint32_t kind; /* TSR_REDUCE_KIND_… */
    tsr_dtype x_dtype, y_dtype;
    const struct tsr_reduce_params *params;
    tsr__access x, y;
} tsr__reduction;

/* Whether the kernels for contiguous rows suit, and the function that adds their dispatches. */
bool tsr__reduction_rows_suit(const tsr__reduction *r);
tsr_status tsr__reduction_rows_add(tsr__dispatches *list, const tsr__reduction *r) TSR_NODISCARD;

/* The number of parts into which each column is divided. Element k of part i is in row k ·
 * TSR__REDUCTION_PARTS + i. */
#define TSR__REDUCTION_PARTS 16u

/* The size of the scratch memory for the parts of all columns: `rows` columns of `count` elements,
 * in chunks of `chunk` elements. It is 0 if the kernels suit no columns. */
uint64_t tsr__reduction_parts_bytes(const tsr_device *device, int64_t rows, int64_t count,
                                    int64_t chunk);

/* Whether the kernels for adjacent columns suit, and the function that adds their dispatches. They
 * write each part's result in f32 to `parts`, row-major [TSR__REDUCTION_PARTS, params->jobs]. The
 * caller must reduce its first dimension. */
bool tsr__reduction_columns_suit(const tsr__reduction *r);
tsr_status tsr__reduction_columns_add(tsr__dispatches *list, const tsr__reduction *r,
                                      uint64_t parts, tsr__access access) TSR_NODISCARD;

#endif
