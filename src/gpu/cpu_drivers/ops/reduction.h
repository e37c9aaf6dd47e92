/* Reductions on Mesa's CPU driver, by shaders/cpu_drivers/reduction_rows.comp,
 * reduction_columns.comp and argmax_rows.comp. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_REDUCTION_H
#define TSR_GPU_CPU_DRIVERS_OPS_REDUCTION_H

#include "gpu/ops/common/rows.h"
#include "shaders/params/reduce.h"

/* A dispatch of the general kernels, which these replace with the same bits. */
typedef struct tsr__reduction {
    const tsr_device *device;
    uint32_t kind; /* TSR_REDUCE_KIND_… */
    tsr_dtype x_dtype, y_dtype;
    const struct tsr_reduce_params *params;
    tsr__access x, y;
} tsr__reduction;

/* Whether the kernels for contiguous rows suit; and adds their dispatches. */
bool tsr__reduction_rows_suit(const tsr__reduction *r);
tsr_status tsr__reduction_rows_add(tsr__dispatches *list, const tsr__reduction *r) TSR_NODISCARD;

/* Each column is divided into this many parts: element k of part i is in row k ·
 * TSR__REDUCTION_PARTS + i. */
#define TSR__REDUCTION_PARTS 16u

/* The scratch memory for the parts of all columns: `rows` columns of `count` elements, in chunks of
 * `chunk` elements. 0 if no columns suit. */
uint64_t tsr__reduction_parts_bytes(const tsr_device *device, int64_t rows, int64_t count,
                                    int64_t chunk);

/* Whether the kernels for adjacent columns suit; and adds their dispatches. They write each part's
 * result in f32 to `parts`, row-major [TSR__REDUCTION_PARTS, params->jobs], the first dimension of
 * which is still to be reduced. */
bool tsr__reduction_columns_suit(const tsr__reduction *r);
tsr_status tsr__reduction_columns_add(tsr__dispatches *list, const tsr__reduction *r,
                                      uint64_t parts, tsr__access access) TSR_NODISCARD;

#endif
