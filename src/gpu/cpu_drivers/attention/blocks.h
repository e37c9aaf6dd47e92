/* Divides an attention call into blocks of scores. A score belongs to one query and one key. These
 * functions are pure arithmetic. */
#ifndef TSR_GPU_CPU_DRIVERS_ATTENTION_BLOCKS_H
#define TSR_GPU_CPU_DRIVERS_ATTENTION_BLOCKS_H

#include "gpu/attention/call.h"

/* A slice: the heads that are computed together. In each of `batches` sequences and for each of
 * `kv_heads` neighbouring kv heads, it has the `readers` heads that read the kv head. In the order
 * [batch, heads], all heads of a slice follow each other. */
typedef struct tsr__attention_slice {
    int64_t batch, batches;
    int64_t kv_head, kv_heads;
    int64_t head, readers; /* head: the number of the first head */
    /* the number of heads from the first reader of one kv head to that of the next */
    int64_t step;
} tsr__attention_slice;

typedef struct tsr__attention_blocks {
    const tsr__attention *call;
    int64_t rows, keys; /* the number of queries and of keys in a block */
    /* elements from one row of scores to the next, at least `keys` */
    int64_t row_keys;
    /* the largest number of scores in a block, counting all heads of a slice */
    int64_t max_scores;
    int64_t sequences, group, readers; /* the largest batches, kv_heads and readers of a slice */
    bool regular; /* every kv head has the same number of readers, and these are neighbours */
} tsr__attention_blocks;

/* Chooses the sizes of blocks and slices. row_keys is a multiple of `unit`. The blocks of a slice
 * have at most `max_scores` elements, and its kv heads at most `max_columns` keys in total, but a
 * slice has at least one head. */
void tsr__attention_blocks_init(tsr__attention_blocks *blocks, const tsr__attention *call,
                                int64_t unit, int64_t max_scores, int64_t max_columns);

/* Sets the first slice. Returns false if there is none, because the call has no sequences or
 * heads. */
bool tsr__attention_first_slice(const tsr__attention_blocks *blocks, tsr__attention_slice *slice);
/* Replaces a slice by the next one. Returns false if it was the last. */
bool tsr__attention_next_slice(const tsr__attention_blocks *blocks, tsr__attention_slice *slice);

static inline int64_t tsr__attention_slice_heads(const tsr__attention_slice *slice)
{
    return slice->batches * slice->kv_heads * slice->readers;
}

/* Returns a range of keys, first … end − 1, that contains all keys which the queries row … row +
 * rows − 1 see. `end` is at least `first`. */
void tsr__attention_range(const tsr__attention *call, int64_t row, int64_t rows, int64_t *first,
                          int64_t *end);

#endif
