/* The kernels for a block of scores: shaders/cpu_drivers/attention_scores.comp and
 * attention_scores_grad.comp. */
#ifndef TSR_GPU_CPU_DRIVERS_ATTENTION_SCORES_H
#define TSR_GPU_CPU_DRIVERS_ATTENTION_SCORES_H

#include "gpu/cpu_drivers/attention/blocks.h"
#include "shaders/params/attention_scores.h"

/* Elements that divide the length of a row of scores. */
int64_t tsr__attention_scores_unit(const tsr_device *device);

/* A block. Buffers of a role that it lacks are NULL. */
typedef struct tsr__attention_scores {
    const tsr__attention *call;
    int64_t heads, row, rows; /* the slice's heads, and its queries row … row + rows − 1 */
    int64_t key, keys;        /* its keys */
    int64_t row_keys;
    tsr__buffer *scores, *gradient, *mask, *state, *y;
    tsr__buffer *lse_buffer;
    uint64_t lse;      /* the address of the logarithm of the slice's first head's query 0 */
    int64_t y_columns; /* of a row of y */
    bool first;        /* forward: no block came before; y is not used */
    bool backward;
    uint32_t function; /* backward: TSR_SCORES_… */
} tsr__attention_scores;

tsr_status tsr__attention_scores_run(tsr_stream *stream,
                                     const tsr__attention_scores *block) TSR_NODISCARD;

#endif
