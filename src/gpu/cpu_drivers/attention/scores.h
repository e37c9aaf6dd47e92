/* Runs the kernels that compute with a block of scores: shaders/cpu_drivers/attention_scores.comp
 * and attention_scores_grad.comp. */
#ifndef TSR_GPU_CPU_DRIVERS_ATTENTION_SCORES_H
#define TSR_GPU_CPU_DRIVERS_ATTENTION_SCORES_H

#include "gpu/cpu_drivers/attention/blocks.h"
#include "shaders/params/attention_scores.h"

/* Returns the number of elements in a unit, which is what the lanes of a subgroup load at once
 * of a row of scores: two elements per lane. The length of a row of scores in memory must be a
 * multiple of this number. */
int64_t tsr__attention_scores_unit(const tsr_device *device);

/* A block of scores and its operands. Buffers that a call does not need are NULL. */
typedef struct tsr__attention_scores {
    const tsr__attention *call;
    /* the slice's sequences and the heads of each; the block's queries are row … row + rows − 1 */
    int64_t sequences, heads, row, rows;
    int64_t key, keys; /* the block's keys are key … key + keys − 1 */
    int64_t row_keys;
    tsr__buffer *scores, *gradient, *mask, *state, *y;
    /* i32 [sequences, 2]: the numbers of queries and keys of each sequence; forward only */
    tsr__buffer *lengths;
    uint64_t starts; /* the address of the call's starts of the slice's first sequence */
    tsr__buffer *lse_buffer;
    uint64_t lse;      /* the address of lse for query 0 of the slice's first head */
    int64_t y_columns; /* the number of elements in a row of y */
    bool sinks;        /* `state` has the rows' sinks, although `first` is true */
    bool first; /* true for the first block of keys in the forward call, for which y is not used */
    bool backward;
    uint32_t function; /* TSR_SCORES_…; used in the backward call */
} tsr__attention_scores;

tsr_status tsr__attention_scores_run(tsr_stream *stream,
                                     const tsr__attention_scores *block) TSR_NODISCARD;

#endif
