/* How a call is cut into blocks of scores. Pure arithmetic. */
#ifndef TSR_GPU_CPU_DRIVERS_ATTENTION_BLOCKS_H
#define TSR_GPU_CPU_DRIVERS_ATTENTION_BLOCKS_H

#include "gpu/attention/call.h"

/* Heads that are computed together: those of `batches` sequences, `kv_heads` neighbouring kv heads
 * and `readers` heads of each. Together they are neighbours in the order [batch, heads]. */
typedef struct tsr__attention_slice {
    int64_t batch, batches;
    int64_t kv_head, kv_heads;
    int64_t head, readers; /* the first head */
    int64_t step;          /* heads from one kv head's readers to the next's */
} tsr__attention_slice;

typedef struct tsr__attention_blocks {
    const tsr__attention *call;
    int64_t rows, keys;                /* of a block */
    int64_t row_keys;                  /* from row to row of the scores, at least `keys` */
    int64_t most_scores;               /* elements */
    int64_t sequences, group, readers; /* the most of a slice: batches, kv heads, readers */
    bool regular; /* every kv head has the same number of readers, and they are neighbours */
} tsr__attention_blocks;

/* `unit` divides row_keys, and a block has at most `most_scores` elements. */
void tsr__attention_blocks_init(tsr__attention_blocks *blocks, const tsr__attention *call,
                                int64_t unit, int64_t most_scores);

/* Sets the first slice, or goes on to the next; false after the last. */
bool tsr__attention_first_slice(const tsr__attention_blocks *blocks, tsr__attention_slice *slice);
bool tsr__attention_next_slice(const tsr__attention_blocks *blocks, tsr__attention_slice *slice);

static inline int64_t tsr__attention_slice_heads(const tsr__attention_slice *slice)
{
    return slice->batches * slice->kv_heads * slice->readers;
}

/* The keys first … end − 1 include all that queries row … row + rows − 1 see; end is at least
 * first. */
void tsr__attention_range(const tsr__attention *call, int64_t row, int64_t rows, int64_t *first,
                          int64_t *end);

#endif
