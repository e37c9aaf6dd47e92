/* Push constants of the kernels that compute probabilities from blocks of scores, and their
 * gradients, on Mesa's CPU driver. A block has the f32 scores of `rows` queries of each head and of
 * up to KEYS keys. KEYS is a specialization constant, and rows of a block are KEYS elements apart.
 */
#ifndef TSR_PARAMS_ATTENTION_SCORES_H
#define TSR_PARAMS_ATTENTION_SCORES_H

#include "types.h"

struct tsr_attention_scores_push {
    TSR_UINT identity[8]; /* TSR_IDENTITY_8: 0 … 7, see lavapipe.glsl */
    TSR_ADDRESS scores;   /* products q·k, which the kernel replaces by probabilities p */
    TSR_ADDRESS gradient; /* backward: products dy·v, which the kernel replaces by ds, the gradients
                             of q·k */
    TSR_ADDRESS mask;     /* added to the scores; it has the layout of `scores` */
    /* [heads][rows]. Forward: two floats, the largest score and the sum of exponentials so far.
     * Backward: delta. */
    TSR_ADDRESS state;
    TSR_ADDRESS lse; /* f32 [heads][q_len]; the address is that of row `row` */
    TSR_ADDRESS y;   /* forward: [heads][rows][Y_COLUMNS], the result so far */
    /* i32 [sequences][2]: the numbers of queries and of keys of each sequence in this dispatch.
     * Used only if LENGTHS, a specialization constant, is 1. With STARTS, another one, it is i32
     * [sequences][q_len] instead: the first key that each query sees. */
    TSR_ADDRESS lengths;
    TSR_UINT rows;
    TSR_UINT heads; /* heads of a sequence; used with LENGTHS */
    TSR_UINT q_len;
    /* The position of the first query, relative to that of the block's first key. With LENGTHS, the
     * kernel adds the sequence's number of keys minus its number of queries. */
    TSR_INT position;
    TSR_UINT keys; /* the number of columns that are keys */
    TSR_UINT window;
    TSR_FLOAT scale, softcap;
    TSR_UINT row, key; /* the numbers, in their sequence, of the block's first query and first key;
                          `row` is used with LENGTHS, `key` also with a temperature */
};
TSR_PUSH_CHECK(tsr_attention_scores_push);

/* The columns that the kernel leaves out of each row, a specialization constant. */
#define TSR_SCORES_ALL 0u
#define TSR_SCORES_KEYS 1u   /* columns from `keys` on */
#define TSR_SCORES_CAUSAL 2u /* also columns after the query's position */
#define TSR_SCORES_WINDOW 3u /* also columns before the query's window */

/* What the backward kernel does, and where it gets delta, a specialization constant. */
#define TSR_SCORES_GRADIENT 0u /* computes ds; delta is in `state` */
#define TSR_SCORES_ALONE 1u /* computes ds; delta is Σ p·dp, since the row has only this block */
#define TSR_SCORES_DELTA_FIRST 2u /* does not compute ds, but writes Σ p·dp to `state` */
#define TSR_SCORES_DELTA_MORE 3u  /* does not compute ds, but adds Σ p·dp to `state` */

#endif
