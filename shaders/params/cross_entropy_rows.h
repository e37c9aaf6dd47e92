/* Push constants of cross_entropy_rows.comp, the second of three kernels that compute cross-entropy
 * on Mesa's CPU driver. Before it, softmax_chunks.comp computes the statistics of each chunk of a
 * row; after it, softmax_apply.comp computes the gradient. params/softmax_chunks.h describes these
 * statistics. A shard is the classes that one rank has. */
#ifndef TSR_PARAMS_CROSS_ENTROPY_ROWS_H
#define TSR_PARAMS_CROSS_ENTROPY_ROWS_H

#include "types.h"

struct tsr_cross_entropy_rows_push {
    TSR_ADDRESS chunks, stats;       /* statistics of chunks [rows][across], and of rows [rows] */
    TSR_ADDRESS planes, plane_bytes; /* `stats` of params/cross_entropy_shard.h */
    TSR_ADDRESS logits, gradient;    /* their first rows; gradient: 0 if not wanted */
    TSR_ADDRESS labels, labels_stride;
    TSR_ADDRESS loss, loss_stride;     /* loss: 0 if not wanted */
    TSR_UINT logits_row, gradient_row; /* bytes from one row to the next */
    TSR_UINT rows, across;             /* across: chunks in a row */
    TSR_UINT here, whole;    /* the number of classes of this shard, and how many of them are in
                                complete vectors */
    TSR_UINT first, classes; /* the first class of this shard, and the number in all shards */
    TSR_UINT ranks;
    TSR_UINT label_bytes; /* the size of a label: 1, 4 or 8 */
    TSR_FLOAT scale;      /* a factor of the gradient */
};
TSR_PUSH_CHECK(tsr_cross_entropy_rows_push);

/* What the kernel does, a specialization constant. */
/* If one shard has all classes: computes losses and rows' statistics from those of the chunks. */
#define TSR_ROWS_ALONE 0u
/* Computes the planes of this shard from the statistics of the chunks. */
#define TSR_ROWS_SHARD 1u
/* Computes losses and rows' statistics from the planes of all shards. */
#define TSR_ROWS_WHOLE 2u

#endif
